//! `host_panic`: the host's kernel panics.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::host::PanicParams;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::Countdown;
use crate::spec::requirement::Requirement;
use crate::spec::settings;
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "has this host's kernel panic, if the policy allows it, and says afterwards how long it was gone (irreversible)",
    categories: &[Category::Host],
    lifetimes: &[(LifetimeClass::Irreversible, None)],
    severities: &[Severity::Outage],
    share: None,
    needs: &[Requirement::SysRq],
    parameters: &[fields_of::<PanicParams>, fields_of::<Countdown>],
    group: false,
    target: &[],
    example: ("{}", "{}"),
    effect,
};

fn effect(request: &FaultRequest, lasts: Duration) -> Result<Effect, SpecError> {
    settings::nowhere(&request.target, "it is the whole host that panics")?;
    request.down(request.part::<PanicParams>()?.way(), lasts)
}
