//! `process_kill`: processes get a signal.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::{Of, Severity};
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::process::{KillParams, ProcessSelector};
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "sends processes a signal, once or again and again, and watches whether somebody starts them anew \
                 (irreversible)",
    categories: &[Category::Process],
    lifetimes: &[(LifetimeClass::Irreversible, None)],
    severities: &[Severity::Outage],
    share: Some((Of::Processes, "target.share")),
    needs: &[],
    parameters: &[fields_of::<KillParams>],
    group: true,
    target: &["share", "seed"],
    example: (r#"{"exe": "/usr/bin/a"}"#, "{}"),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let processes = ProcessSelector::parse(&request.target)?;
    Ok(Effect::ProcessKill { processes, volleys: request.part::<KillParams>()?.volleys()? })
}
