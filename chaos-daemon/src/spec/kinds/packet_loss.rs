//! `packet_loss`: packets are lost, by chance or in bursts.

use super::{DETOUR, Kind, TRAFFIC};
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::impairment::LossParams;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::Correlated;

pub(super) const KIND: Kind = Kind {
    summary: "loses matching packets with netem, unseen by their sender: at random, or in bursts by a model with states",
    categories: &[Category::Network],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Degraded, Severity::Outage],
    share: None,
    needs: DETOUR,
    parameters: &[fields_of::<LossParams>, fields_of::<Correlated>],
    group: true,
    target: TRAFFIC,
    example: (r#"{"interface": "eth0"}"#, r#"{"loss_percent": 10}"#),
    effect: |request, _| request.impair_all(request.part::<LossParams>()?.impairment(request.part()?)?),
};
