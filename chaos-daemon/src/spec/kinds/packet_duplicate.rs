//! `packet_duplicate`: packets arrive twice.

use super::{DETOUR, Kind, TRAFFIC};
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::impairment::DuplicateParams;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::Correlated;

pub(super) const KIND: Kind = Kind {
    summary: "sends matching packets twice",
    categories: &[Category::Network],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Degraded],
    share: None,
    needs: DETOUR,
    parameters: &[fields_of::<DuplicateParams>, fields_of::<Correlated>],
    group: true,
    target: TRAFFIC,
    example: (r#"{"interface": "eth0"}"#, r#"{"duplicate_percent": 10}"#),
    effect: |request, _| request.impair_all(request.part::<DuplicateParams>()?.impairment(request.part()?)?),
};
