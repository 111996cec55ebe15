//! Faults that go to processes: who is hit and who never is, signals and what comes of them, processes that stand still,
//! proxies that spoil calls.

mod kills;
mod pauses;
mod protected;
mod proxies;
mod targets;

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Context, KernelTest, Outcome, STANDSTILL, TestResult, assert_lasted, tests};
use crate::fault::{Fault, LONG};
use crate::late::{HANG, within};
use crate::process::wait_until;
use crate::worker::Program;
use crate::{Daemon, Error, Mcp, Residue, Result};

/// How long one heartbeat keeps a fault.
const LEASE: Duration = Duration::from_secs(3);

/// Every test of this module.
pub(super) fn all() -> Vec<KernelTest> {
    [targets::TESTS, kills::TESTS, pauses::TESTS, protected::TESTS, proxies::TESTS].concat()
}

/// A fault of those who run this program.
fn on(kind: &'static str, program: &Program) -> Fault {
    Fault::new(kind).aimed(json!({"exe": program.path()}))
}

/// Code, message and hint of a fault that has to be refused.
fn refused(mcp: &Mcp, kind: &str, target: &Value, params: &Value) -> Result<(String, String)> {
    let fault = json!({"fault_name": "r", "fault_type": kind, "target": target, "params": params});
    let answer = mcp.call_tool("chaos_plan", fault)?;
    let error = &answer.json["error"];
    let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
    match answer.is_error {
        true => Ok((text("code"), format!("{} {}", text("message"), text("hint")))),
        false => Err(Error::Different(format!("{kind} of {target} would be done: {}", answer.json))),
    }
}

/// What a fault has met, again and again until `holds` of it.
fn met(fault: &Fault, mcp: &Mcp, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut status = Value::Null;
    let seen = wait_until(HANG, || {
        status = fault.status(mcp).unwrap_or_default();
        holds(&status)
    });
    match seen {
        true => Ok(status),
        false => Err(Error::Different(format!("status after {HANG:?}: {status}"))),
    }
}
