//! `mcp_error`: calls to an MCP server behind `chaosctl mcp-proxy` fail, are late, or are answered wrongly.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::{Of, Severity};
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::mcp::{McpParams, Spoiling};
use crate::spec::parameter::fields_of;
use crate::spec::process::ProcessSelector;
use crate::spec::requirement::Requirement;
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "delays, fails, drops, truncates or corrupts a share of the calls to an MCP server that speaks over stdio, behind \
                 `chaosctl mcp-proxy`",
    categories: &[Category::Errors],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Degraded, Severity::Partial, Severity::Outage],
    share: Some((Of::Calls, "params.call_probability")),
    needs: &[Requirement::Descriptors],
    parameters: &[fields_of::<McpParams>],
    group: true,
    target: &["share", "seed"],
    example: (r#"{"unit": "a.service"}"#, r#"{"fail": 0.5}"#),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let processes = ProcessSelector::parse(&request.target)?;
    let spoiling = Spoiling::parse(&request.params)?;
    if spoiling.affected() <= 0.0 {
        let problem =
            "nothing would happen: give delay_ms, or a share above 0 of fail, drop, truncate or corrupt";
        return Err(SpecError::new("params.fail", problem));
    }
    Ok(Effect::Spoil { processes, spoiling })
}
