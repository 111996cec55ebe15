//! `bandwidth`: only so much gets through.

use super::{DETOUR, Kind, TRAFFIC};
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::impairment::BandwidthParams;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;

pub(super) const KIND: Kind = Kind {
    summary: "lets matching packets through at a rate, each direction for itself",
    categories: &[Category::Network],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Degraded],
    share: None,
    needs: DETOUR,
    parameters: &[fields_of::<BandwidthParams>],
    group: true,
    target: TRAFFIC,
    example: (r#"{"interface": "eth0"}"#, r#"{"rate_kbit": 1000}"#),
    effect: |request, _| request.impair_all(request.part::<BandwidthParams>()?.impairment()),
};
