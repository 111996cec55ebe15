//! `process_pause`: processes stand still.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::{Of, Severity};
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::process::{PauseParams, ProcessSelector};
use crate::spec::requirement::Requirement;
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "has processes stand still, all the time or in a rhythm; they go on when the process that holds the fault ends",
    categories: &[Category::Process],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Degraded, Severity::Outage],
    share: Some((Of::Processes, "target.share")),
    needs: &[Requirement::Tracing],
    parameters: &[fields_of::<PauseParams>],
    group: true,
    target: &["share", "seed"],
    example: (r#"{"exe": "/usr/bin/a"}"#, "{}"),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let processes = ProcessSelector::parse(&request.target)?;
    Ok(Effect::ProcessPause { processes, rhythm: request.part::<PauseParams>()?.rhythm()? })
}
