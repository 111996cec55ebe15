//! `link_profile`: a whole link, each way for itself.

use super::{DETOUR, Kind, TRAFFIC};
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::link::LinkParams;
use crate::spec::parameter::fields_of;

pub(super) const KIND: Kind = Kind {
    summary: "gives matching packets a link such as 3g or satellite-geo: delay, variation, loss and rate, each way for itself",
    categories: &[Category::Network],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Degraded, Severity::Outage],
    share: None,
    needs: DETOUR,
    parameters: &[fields_of::<LinkParams>],
    group: true,
    target: TRAFFIC,
    example: (r#"{"interface": "eth0"}"#, r#"{"preset": "3g"}"#),
    effect: |request, _| request.impair_by_link(request.part::<LinkParams>()?.link()?),
};
