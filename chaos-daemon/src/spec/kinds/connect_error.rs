//! `connect_error`: a service's calls to others fail with an error.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::{Of, Severity};
use crate::spec::calls::{ConnectParams, Connections};
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::CallShare;
use crate::spec::requirement::Requirement;
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "fails connections that a cgroup or unit opens, and UDP that it sends, with an error of choice",
    categories: &[Category::Network, Category::Errors],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Partial, Severity::Outage],
    share: Some((Of::Calls, "params.call_probability")),
    needs: &[Requirement::CgroupV2, Requirement::CallPrograms],
    parameters: &[fields_of::<ConnectParams>, fields_of::<CallShare>],
    group: true,
    target: &[
        "cidr",
        "cidrs",
        "host",
        "resolve_seconds",
        "port",
        "remote_port",
        "protocol",
        "on_target_gone",
    ],
    example: (r#"{"unit": "a.service"}"#, "{}"),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let failure = request.part::<ConnectParams>()?.failure(request.part()?)?;
    Ok(Effect::Connect { calls: Connections::parse(&request.target)?, failure })
}
