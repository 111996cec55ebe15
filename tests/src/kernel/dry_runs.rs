//! A plan of every type of fault, and a dry run of an experiment, change nothing.

use std::net::TcpListener;
use std::path::Path;

use chaos_daemon::spec::{FAULT_TYPES, FaultType};
use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::guard::Guard;
use crate::kinds;
use crate::kinds::aims::{Aims, Request};
use crate::kinds::needs::Needs;
use crate::late::HANG;
use crate::mcp::Answer;
use crate::pair::INTERFACE;
use crate::process::{Process, wait_until};
use crate::skip::Environment;
use crate::systemd::unit::systemctl;
use crate::tools::Session;
use crate::victim::Victim;
use crate::worker::{Program, Worker};
use crate::{Daemon, Error, Mcp, Pair, Reason, Residue, Result};

tests![plans_of_every_type_of_fault_and_a_dry_run_of_an_experiment_change_nothing];

/// Whether a fault could be injected here, as this test sees it by itself; if not, with which code it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Planned,
    Refused(&'static str),
    /// One of the two: it cannot be seen.
    PlannedOr(&'static str),
}

impl Expected {
    fn admits(self, code: Option<&str>) -> bool {
        match self {
            Self::Planned => code.is_none(),
            Self::Refused(with) => code == Some(with),
            Self::PlannedOr(with) => code.is_none_or(|code| code == with),
        }
    }
}

const UNSUPPORTED: &str = "UNSUPPORTED_KERNEL";
const DENIED: &str = "POLICY_DENIED";
/// A service that most hosts have, and none needs.
const UNIT: &str = "cron.service";
/// What a policy has to allow; on a machine of its own, lest a plan does more than it should.
const CLOCK: &str = "clock_skew = true\n";

/// What is to come of a plan of this type. For want of something none is refused where no test may be skipped for that.
fn expected(context: &Context, has_netem: bool, fault_type: FaultType) -> Result<Expected> {
    let excused = |reason: Reason| reason.allowed(context.environment, context.kernel);
    Ok(match kinds::of(fault_type).needs {
        Needs::Netem(_) if !has_netem && excused(Reason::NoNetem) => Expected::Refused(UNSUPPORTED),
        // Where the list of the security modules is not mounted, `bpf` may be among them all the same.
        Needs::Lsm if !context.has_bpf_lsm() && excused(Reason::NoBpfLsm) => Expected::PlannedOr(UNSUPPORTED),
        Needs::OwnManager => of_services()?,
        Needs::OwnClock if context.environment == Environment::Host => Expected::Refused(DENIED),
        Needs::OwnHost => Expected::Refused(DENIED),
        Needs::Nothing | Needs::Netem(_) | Needs::Lsm | Needs::OwnClock => Expected::Planned,
    })
}

/// Of the service, if there is a systemd to ask for it.
fn of_services() -> Result<Expected> {
    // As sd_booted(3) looks, and where its bus is.
    if !["/run/systemd/system", "/run/dbus/system_bus_socket"].iter().all(|path| Path::new(path).exists()) {
        return Ok(Expected::Refused(UNSUPPORTED));
    }
    let text = systemctl(&["show", "--property", "LoadState,ActiveState", UNIT])?;
    let says = |what: &str| text.lines().any(|line| line == what);
    Ok(match (says("LoadState=not-found"), says("ActiveState=active")) {
        (true, _) => Expected::Refused("TARGET_NOT_FOUND"),
        (false, true) => Expected::Planned,
        (false, false) => Expected::Refused("INVALID_PARAMETER"),
    })
}

/// Asks for a plan; again while the guard, which had no time for a moment, is not there.
fn plan(mcp: &Mcp, fault: &Value) -> Result<Answer> {
    let mut answer = mcp.call_tool("chaos_plan", fault.clone());
    wait_until(HANG, || {
        let again = answer.as_ref().is_ok_and(|answer| answer.json["error"]["code"] == "GUARD_MISSING");
        if again {
            answer = mcp.call_tool("chaos_plan", fault.clone());
        }
        !again
    });
    answer
}

/// What faults are aimed at.
struct Stage {
    pair: Pair,
    victim: Victim,
    _program: Program,
    worker: Worker,
    session: Session,
    server: TcpListener,
}

impl Stage {
    fn new() -> Result<Self> {
        let program = Program::new()?;
        Ok(Self {
            pair: Pair::new()?,
            victim: Victim::new(&[])?,
            worker: program.start(0, "planned")?,
            _program: program,
            session: Session::start()?,
            server: TcpListener::bind("127.0.0.1:0").map_err(Error::io("listen on", "127.0.0.1"))?,
        })
    }

    fn aims(&self) -> Result<Aims> {
        let folder = std::env::current_dir().map_err(Error::io("find", "a folder"))?;
        Ok(Aims {
            netns: Some(self.pair.near.name().to_owned()),
            peer: "10.77.0.2",
            server: self.server.local_addr().map_err(Error::io("ask for", "an address"))?,
            netns_of_server: None,
            port: 4999,
            unit: UNIT,
            group: self.victim.name(),
            process: self.worker.pid(),
            proxy: self.session.pid(),
            file: folder.clone(),
            folder,
        })
    }

    /// Target and parameters of a fault that could be injected.
    fn aim(&self, fault_type: FaultType) -> Result<Request> {
        let (_, params) = fault_type.example();
        Ok((kinds::of(fault_type).planned)(&self.aims()?, params))
    }
}

/// An experiment that cuts the device of this namespace off.
fn experiment(namespace: &str, reached: &str) -> Value {
    let chaosctl = |words: Value| json!({"type": "process", "path": "chaosctl", "arguments": words});
    let cut = json!(["inject", "network_partition", "--interface", INTERFACE, "--netns", namespace]);
    json!({
        "title": "planned",
        "description": "It is never run.",
        "steady-state-hypothesis": {"title": "up", "probes": [
            {"type": "probe", "name": "port", "tolerance": 0, "provider": chaosctl(json!(["probe", "tcp", reached]))}]},
        "method": [{"type": "action", "name": "cut", "provider": chaosctl(cut)}],
        "rollbacks": [],
    })
}

fn plans_of_every_type_of_fault_and_a_dry_run_of_an_experiment_change_nothing(
    context: &Context,
) -> TestResult {
    let has_netem = context.has_netem();
    let (stage, folder) = (Stage::new()?, tempfile::tempdir().map_err(Error::io("create", "a folder"))?);
    let policy = folder.path().join("policy.toml");
    let rules = if context.environment == Environment::Vm { CLOCK } else { "" };
    std::fs::write(&policy, rules).map_err(Error::io("write", "a policy"))?;
    let daemon = Daemon::start_with(|command| {
        command.arg("--policy").arg(&policy);
    })?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let spaces = [&stage.pair.near, &stage.pair.far];
    let (before, lived) = (Residue::take_with(&spaces, &[stage.victim.path()])?, daemon.processes().len());
    let mut planned = Vec::new();
    for fault_type in FAULT_TYPES {
        let (target, params) = stage.aim(*fault_type)?;
        let kind = fault_type.name();
        let fault = json!({"fault_name": kind, "fault_type": kind, "probability": 1.0, "target": target,
            "params": params, "duration_seconds": 30});
        let answer = plan(&mcp, &fault)?;
        let code = answer.is_error.then(|| answer.json["error"]["code"].as_str().unwrap_or_default());
        let expected = expected(context, has_netem, *fault_type)?;
        assert!(expected.admits(code), "{kind}, {expected:?}: {}", answer.json);
        match code {
            None => planned.push(kind),
            Some(_) => println!("{kind}: {}", answer.json["error"]["message"]),
        }
        let journal = daemon.runtime_dir().join("journal");
        let notes = std::fs::read_dir(&journal).map_err(Error::io("list", "the journal"))?.count();
        assert_eq!(notes, 0, "{kind}: a plan is in the journal");
        before
            .assert_unchanged_within(&spaces, HANG)
            .map_err(|error| format!("after the plan of {kind}: {error}"))?;
    }
    let reached = stage.server.local_addr().map_err(Error::io("ask for", "an address"))?.to_string();
    let document = experiment(stage.pair.near.name(), &reached);
    let answer = mcp.call_tool("chaos_plan_experiment", json!({"document": document}))?.ok()?;
    assert_eq!(answer["success"], true, "{answer}");
    before.assert_unchanged_within(&spaces, HANG)?;
    println!("planned: {}", planned.join(", "));
    assert!(stage.worker.runs(), "the worker does not run");
    assert!(daemon.processes().iter().all(Process::runs) && daemon.processes().len() == lived);
    let status = mcp.call_tool("chaos_status", json!({}))?.ok()?;
    assert_eq!(status["active_faults"], json!([]), "a plan has registered something");
    Ok(Outcome::Pass)
}
