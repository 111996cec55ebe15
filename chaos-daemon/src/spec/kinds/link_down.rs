//! `link_down`: an interface is administratively down.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::settings::{self, LinkParams};
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "sets a network interface down, all the time or in a rhythm, and restores what going down has cost it (supervised)",
    categories: &[Category::Network],
    lifetimes: &[(LifetimeClass::Supervised, None)],
    severities: &[Severity::Partial, Severity::Outage],
    share: None,
    needs: &[],
    parameters: &[fields_of::<LinkParams>],
    group: false,
    target: &["interface", "netns", "seed", "on_target_gone"],
    example: (r#"{"interface": "eth0"}"#, "{}"),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let rhythm = request.part::<LinkParams>()?.rhythm(request.target.seed)?;
    let (interface, netns) = settings::link(&request.target)?;
    Ok(Effect::LinkDown { interface, netns, rhythm })
}
