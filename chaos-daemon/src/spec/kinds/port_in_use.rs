//! `port_in_use`: a port cannot be bound.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::hoard::{Hoard, PortParams};
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "takes a TCP or UDP port of this host and holds it, so that no service can bind it",
    categories: &[Category::Resources, Category::Network],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Outage],
    share: None,
    needs: &[],
    parameters: &[fields_of::<PortParams>],
    group: false,
    target: &["local_port", "protocol", "netns"],
    example: (r#"{"local_port": 80}"#, "{}"),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let what = Hoard::Port(request.part::<PortParams>()?.port(&request.target)?);
    Ok(Effect::Hoard { what, ramp: Duration::ZERO, whose: None, netns: request.target.netns.clone() })
}
