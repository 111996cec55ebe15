//! `clock_skew`: the wall clock is wrong.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::settings::{self, ClockParams};
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "sets the wall clock wrong by an offset, if the policy allows it (supervised)",
    categories: &[Category::Host],
    lifetimes: &[(LifetimeClass::Supervised, None)],
    severities: &[Severity::Partial],
    share: None,
    needs: &[],
    parameters: &[fields_of::<ClockParams>],
    group: false,
    target: &[],
    example: ("{}", r#"{"offset_seconds": -60}"#),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    settings::nowhere(&request.target, "the clock is the whole host's")?;
    Ok(Effect::ClockSkew { offset_ns: request.part::<ClockParams>()?.offset_ns()? })
}
