//! What is the same of every fault of one service whose effect a process in a control group of its own sees: how it ends, and
//! what a kernel is told that cannot do it.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::lacks::assert_helps;
use super::{Context, Outcome, STANDSTILL, TestResult, assert_lasted};
use crate::daemon::binary;
use crate::fault::Fault;
use crate::kinds::impossible;
use crate::late::{HANG, within};
use crate::netns::output;
use crate::process::{Process, wait_until};
use crate::skip::Environment;
use crate::{Daemon, Error, Mcp, Result};

/// How long a fault may go on whose daemon stands still.
pub(super) const LEASE: Duration = Duration::from_secs(3);
/// How long a fault may go on whose daemon is dead: less than what is left of its lease, which would end it too.
pub(super) const AT_ONCE: Duration = Duration::from_millis(1500);

/// A service, whoever is beside it, and the daemon.
pub(super) trait Served {
    fn daemon(&self) -> &Daemon;

    fn mcp(&self) -> &Mcp;

    /// Whether what the service asks for next goes well.
    fn is_normal(&mut self) -> Result<bool>;

    /// Fails unless whatever the service asks for, and whoever is beside it, goes well.
    fn assert_all_is_normal(&mut self) -> Result<()>;

    fn assert_no_residue(&self) -> Result<()>;
}

/// How long it takes from now until the service is normal; the time at which the first thing was asked for that went well.
fn time_to_normal(scene: &mut impl Served, limit: Duration) -> Result<Duration> {
    let start = Instant::now();
    while start.elapsed() < limit {
        let asked = start.elapsed();
        if scene.is_normal()? {
            return Ok(asked);
        }
    }
    Err(Error::in_vain("the service normal", limit))
}

/// The fault has to end at its time, with nobody asking.
pub(super) fn ends_at_its_time(scene: &mut impl Served, fault: &Fault) -> Result<()> {
    // Long enough for a slow machine to see it before it ends.
    for lasting in [2, 4, 8, 16].map(Duration::from_secs) {
        let injected = Instant::now();
        let fault = fault.clone().lasting(lasting);
        fault.inject(scene.mcp())?;
        let started = Instant::now();
        if scene.is_normal()? {
            assert!(injected.elapsed() > lasting, "it has no effect");
            continue;
        }
        let mut last = Duration::ZERO;
        while last < lasting + STANDSTILL {
            let asked = started.elapsed();
            if scene.is_normal()? {
                assert_lasted(injected, lasting);
                break;
            }
            last = asked;
        }
        // What was asked for later must have gone well, however slow the machine is.
        within(lasting + STANDSTILL, last, "the last that was met")?;
        scene.assert_all_is_normal()?;
        return scene.assert_no_residue();
    }
    Err(Error::Different("no fault was seen before its end".into()))
}

/// Does this to every process of the daemon; the fault has to be over within `limit`, and recovery leaves nothing.
pub(super) fn survives(scene: &mut impl Served, fault: &Fault, blow: Signal, limit: Duration) -> Result<()> {
    fault.inject(scene.mcp())?;
    assert!(!scene.is_normal()?, "it has no effect");
    let processes = scene.daemon().processes();
    processes.iter().for_each(|process| process.signal(blow));
    let normal = time_to_normal(scene, limit);
    // Those that are stopped would not end when they are told to.
    processes.iter().for_each(|process| process.signal(Signal::SIGKILL));
    normal?;
    assert!(wait_until(HANG, || !processes.iter().any(Process::runs)));
    let mut recover = Command::new(binary("chaos-daemon")?);
    output(recover.arg("recover").arg("--runtime-dir").arg(scene.daemon().runtime_dir()))?;
    scene.assert_all_is_normal()?;
    scene.assert_no_residue()
}

/// Kills the process that holds the fault, which has to be over with it; the daemon goes on.
pub(super) fn ends_with_its_holder(scene: &mut impl Served, fault: &Fault) -> Result<()> {
    let waiting: Vec<_> = scene.daemon().holders().iter().map(|holder| holder.pid).collect();
    fault.inject(scene.mcp())?;
    assert!(!scene.is_normal()?, "it has no effect");
    for holder in scene.daemon().holders().iter().filter(|holder| !waiting.contains(&holder.pid)) {
        holder.signal(Signal::SIGKILL);
    }
    time_to_normal(scene, HANG)?;
    assert!(scene.daemon().injector().is_some_and(|injector| injector.runs()));
    scene.assert_no_residue()
}

/// What the daemon says this kernel lacks for a type of fault.
pub(super) fn lack(mcp: &Mcp, kind: &str) -> Result<Option<String>> {
    let report = mcp.call_tool("chaos_doctor", json!({}))?.ok()?;
    let faults = report["faults"].as_array().cloned().unwrap_or_default();
    let mine = faults.iter().find(|fault| fault["fault_type"] == kind);
    let missing = mine.map(|fault| fault["missing"].clone());
    let missing = missing.ok_or_else(|| Error::Different(format!("no {kind} in {report}")))?;
    let missing = missing.as_array().cloned().unwrap_or_default();
    Ok(missing.first().map(|what| what.as_str().unwrap_or_default().to_owned()))
}

/// A fault that takes BPF LSM is refused where the kernel cannot do it, by the name of what is missing, with what would help. The
/// VM's kernels can.
pub(super) fn is_refused_where_it_cannot_be(context: &Context, kind: &str, fault: &Fault) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let lack = lack(&mcp, kind)?;
    if context.environment == Environment::Vm {
        assert_eq!(lack, None, "the VM's kernels can");
        return Ok(Outcome::Pass);
    }
    let Some(lack) = lack else { return Ok(Outcome::Pass) };
    fault.register(&mcp)?;
    let answer = mcp.call_tool("chaos_inject_fault", json!({"fault_name": kind, "action": "inject"}))?;
    assert!(answer.is_error, "{}", answer.json);
    let refusal =
        ["code", "message", "hint"].map(|field| answer.json["error"][field].as_str().unwrap_or_default());
    assert_helps(kind, &lack, refusal);
    let [_, message, hint] = refusal;
    // Whatever it is, it is one of these, and the hint says what would help.
    let known = ["BPF_LSM", "security", "types"].iter().any(|word| lack.contains(word));
    assert!(known && ["`lsm=", "CONFIG_"].iter().any(|word| hint.contains(word)), "{lack:?}: {hint}");
    impossible(kind, message);
    Ok(Outcome::Pass)
}
