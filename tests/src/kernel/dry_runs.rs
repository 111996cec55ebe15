//! A plan of every type of fault, and a dry run of an experiment, change nothing.

use std::net::TcpListener;
use std::time::Duration;

use chaos_daemon::spec::{FAULT_TYPES, FaultType};
use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::guard::Guard;
use crate::pair::INTERFACE;
use crate::process::Process;
use crate::skip::Environment;
use crate::tools::Session;
use crate::victim::Victim;
use crate::worker::{Program, Worker};
use crate::{Daemon, Error, Pair, Residue, Result};

tests![plans_of_every_type_of_fault_and_a_dry_run_of_an_experiment_change_nothing];

/// Why a plan may be refused here: by what this machine is, or by a policy that is told nothing else.
const REFUSALS: [&str; 4] = ["UNSUPPORTED_KERNEL", "UNAVAILABLE", "POLICY_DENIED", "TARGET_NOT_FOUND"];
/// What a policy has to allow; on a machine of its own, lest a plan does more than it should.
const CLOCK: &str = "clock_skew = true\n";
/// What comes and goes by itself may take so long.
const SETTLE: Duration = Duration::from_secs(10);
/// Of this many there is a plan on any machine.
const LEAST_PLANNED: usize = 12;

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

    /// Target and parameters of a fault that could be injected.
    fn aim(&self, fault_type: FaultType) -> Result<(Value, Value)> {
        let device = json!({"interface": INTERFACE, "netns": self.pair.near.name()});
        let (group, process) = (json!({"cgroup": self.victim.name()}), json!({"pid": self.worker.pid()}));
        let unit = json!({"unit": "cron.service"});
        Ok(match fault_type {
            FaultType::Latency
            | FaultType::Error
            | FaultType::Timeout
            | FaultType::NetworkPartition
            | FaultType::DnsError => (device, json!({})),
            FaultType::PacketLoss => (device, json!({"loss_percent": 10})),
            FaultType::PacketDuplicate => (device, json!({"duplicate_percent": 10})),
            FaultType::PacketCorrupt => (device, json!({"corrupt_percent": 10})),
            FaultType::PacketReorder => (device, json!({"reorder_percent": 10})),
            FaultType::Bandwidth => (device, json!({"rate_kbit": 1000})),
            FaultType::LinkDown => (device, json!({})),
            FaultType::ResourceExhaustion => (json!({}), json!({"resource": "memory", "memory_mb": 8})),
            FaultType::Pause | FaultType::ConnectError | FaultType::SocketError => (group, json!({})),
            FaultType::FileError => {
                let folder = std::env::current_dir().map_err(Error::io("find", "a folder"))?;
                (group, json!({"path": folder}))
            }
            FaultType::ClockSkew => (json!({}), json!({"offset_seconds": 3600})),
            FaultType::ProcessKill | FaultType::ProcessPause => (process, json!({})),
            FaultType::PortInUse => (json!({"local_port": 4999, "netns": self.pair.near.name()}), json!({})),
            FaultType::ConnectionLoad => {
                let address = self.server.local_addr().map_err(Error::io("ask for", "an address"))?;
                (json!({}), json!({"url": format!("tcp://{address}"), "sessions": 5}))
            }
            FaultType::ServiceStop | FaultType::ServiceRestart => (unit, json!({})),
            FaultType::McpError => (json!({"pid": self.session.pid()}), json!({"fail": 1})),
            FaultType::HostReboot | FaultType::HostPanic => (json!({}), json!({})),
        })
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
        let answer = mcp.call_tool("chaos_plan", fault)?;
        match answer.is_error {
            false => planned.push(kind),
            true => {
                let code = answer.json["error"]["code"].as_str().unwrap_or_default();
                assert!(REFUSALS.contains(&code), "{kind}: {}", answer.json);
                println!("{kind}: {}", answer.json["error"]["message"]);
            }
        }
        let journal = daemon.runtime_dir().join("journal");
        let notes = std::fs::read_dir(&journal).map_err(Error::io("list", "the journal"))?.count();
        assert_eq!(notes, 0, "{kind}: a plan is in the journal");
        before
            .assert_unchanged_within(&spaces, SETTLE)
            .map_err(|error| format!("after the plan of {kind}: {error}"))?;
    }
    let reached = stage.server.local_addr().map_err(Error::io("ask for", "an address"))?.to_string();
    let document = experiment(stage.pair.near.name(), &reached);
    let answer = mcp.call_tool("chaos_plan_experiment", json!({"document": document}))?.ok()?;
    assert_eq!(answer["success"], true, "{answer}");
    before.assert_unchanged_within(&spaces, SETTLE)?;
    println!("planned: {}", planned.join(", "));
    assert!(planned.len() >= LEAST_PLANNED, "only {planned:?}");
    assert!(stage.worker.runs(), "the worker does not run");
    assert!(daemon.processes().iter().all(Process::runs) && daemon.processes().len() == lived);
    let status = mcp.call_tool("chaos_status", json!({}))?.ok()?;
    assert_eq!(status["active_faults"], json!([]), "a plan has registered something");
    Ok(Outcome::Pass)
}
