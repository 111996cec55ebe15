//! `socket_error`: what a service asks of sockets fails with an error.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::{Of, Severity};
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::{CallShare, CallSignal};
use crate::spec::requirement::Requirement;
use crate::spec::sockets::SocketParams;
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "fails what a cgroup, unit or process asks of sockets of IPv4 and IPv6 (binding, listening, accepting, sending, \
                 receiving) with an error of choice",
    categories: &[Category::Network, Category::Errors],
    lifetimes: &[(LifetimeClass::Kernel, Some("errors")), (LifetimeClass::Irreversible, Some("a signal"))],
    severities: &[Severity::Partial, Severity::Outage],
    share: Some((Of::Calls, "params.call_probability")),
    needs: &[Requirement::CgroupV2, Requirement::SocketPrograms],
    parameters: &[fields_of::<SocketParams>, fields_of::<CallShare>, fields_of::<CallSignal>],
    group: true,
    target: &["port", "local_port", "remote_port", "protocol", "on_target_gone"],
    example: (r#"{"unit": "a.service"}"#, "{}"),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let params: SocketParams = request.part()?;
    let failure = params.failure(request.part()?, &request.part()?)?;
    Ok(Effect::Sockets { calls: params.calls(&request.target)?, failure })
}
