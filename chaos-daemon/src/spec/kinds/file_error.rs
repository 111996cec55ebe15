//! `file_error`: what a service asks of files fails with an error.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::{Of, Severity};
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::files::FileParams;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::{CallShare, CallSignal};
use crate::spec::requirement::Requirement;
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "fails what a cgroup, unit or process asks of the files at or below a path (opening, making, reading, writing, \
                 mapping them) with an error of choice",
    categories: &[Category::Errors],
    lifetimes: &[(LifetimeClass::Kernel, Some("errors")), (LifetimeClass::Irreversible, Some("a signal"))],
    severities: &[Severity::Partial, Severity::Outage],
    share: Some((Of::Calls, "params.call_probability")),
    needs: &[Requirement::CgroupV2, Requirement::FilePrograms],
    parameters: &[fields_of::<FileParams>, fields_of::<CallShare>, fields_of::<CallSignal>],
    group: true,
    target: &["on_target_gone"],
    example: (r#"{"unit": "a.service"}"#, r#"{"path": "/a"}"#),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let params: FileParams = request.part()?;
    let failure = params.failure(request.part()?, &request.part()?)?;
    Ok(Effect::Files { calls: params.calls(&request.target)?, failure })
}
