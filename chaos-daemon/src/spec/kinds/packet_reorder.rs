//! `packet_reorder`: packets overtake each other.

use super::{DETOUR, Kind, TRAFFIC};
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::impairment::ReorderParams;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::Correlated;

pub(super) const KIND: Kind = Kind {
    summary: "delays matching packets, but for some that overtake them",
    categories: &[Category::Network],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Degraded],
    share: None,
    needs: DETOUR,
    parameters: &[fields_of::<ReorderParams>, fields_of::<Correlated>],
    group: true,
    target: TRAFFIC,
    example: (r#"{"interface": "eth0"}"#, r#"{"reorder_percent": 10}"#),
    effect: |request, _| request.impair_all(request.part::<ReorderParams>()?.impairment(request.part()?)?),
};
