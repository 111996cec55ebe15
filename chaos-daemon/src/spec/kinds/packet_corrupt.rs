//! `packet_corrupt`: packets arrive with a wrong bit.

use super::{DETOUR, Kind, TRAFFIC};
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::impairment::CorruptParams;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::Correlated;

pub(super) const KIND: Kind = Kind {
    summary: "turns over one bit of matching packets, anywhere in them",
    categories: &[Category::Network],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Degraded, Severity::Outage],
    share: None,
    needs: DETOUR,
    parameters: &[fields_of::<CorruptParams>, fields_of::<Correlated>],
    group: true,
    target: TRAFFIC,
    example: (r#"{"interface": "eth0"}"#, r#"{"corrupt_percent": 10}"#),
    effect: |request, _| request.impair_all(request.part::<CorruptParams>()?.impairment(request.part()?)?),
};
