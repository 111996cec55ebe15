//! The malice test: what a client that means harm can do where its rules and its hook are gone, and what these do where the daemon has no
//! policy. Rules and hook are the client's own, so that taking them away is being a client that nobody holds back.

use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use super::experiments::{chaosctl, is_cut};
use super::{Context, Outcome, TestResult, tests};
use crate::daemon::binary;
use crate::fault::Fault;
use crate::late::HANG;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    a_client_that_means_harm_does_nothing_on_production_whatever_it_calls,
    a_client_that_means_harm_skips_no_stage_and_outlives_no_gate,
    where_the_daemons_policy_is_empty_the_hook_and_the_rules_of_a_client_refuse,
];

const AGENT: u32 = 61_003;
const TITLE: &str = "payment survives a partition";

/// A daemon under this policy, which alone says what the host is.
fn under(pair: &Pair, policy: &str) -> Result<Daemon> {
    let folder = tempfile::tempdir().map_err(Error::io("create", "a folder"))?;
    let path = folder.path().join("policy.toml");
    std::fs::write(&path, policy).map_err(Error::io("write", path.display().to_string()))?;
    Daemon::start_unsaid(|command| {
        pair.near.place(command);
        command.arg("--policy").arg(&path);
    })
}

/// An experiment whose gate is breached once nobody listens at a port.
fn document(port: u16, blast_radius: Option<Value>) -> Value {
    let chaosctl = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let probe = chaosctl(json!(["probe", "sockets", "udp", "--port", port, "--min", 1]));
    let mut extension = json!({"name": "chaos-daemon", "rollback_on": [
        {"name": "listened to", "provider": probe, "tolerance": 0, "interval": 0.1}]});
    if let Some(stages) = blast_radius {
        extension["blast_radius"] = stages;
    }
    json!({
        "title": TITLE, "description": "A port is cut off.", "rollbacks": [],
        "steady-state-hypothesis": {"title": "it is listened to", "probes": [
            {"type": "probe", "name": "listened to", "tolerance": 0, "provider": probe}]},
        "method": [{"type": "action", "name": "cut", "may_be_idle": true, "provider": chaosctl(json!({
            "inject": "network-partition", "--interface": INTERFACE, "--protocol": "udp", "--remote-port": 9,
            "--name": "cut", "--for": "10m"}))}],
        "extensions": [extension],
    })
}

/// The stable name of why a call was refused.
fn code(mcp: &Mcp, tool: &str, arguments: Value) -> Result<String> {
    let answer = mcp.call_tool(tool, arguments)?;
    let found =
        [&answer.json["error"]["code"], &answer.json["error_code"]].into_iter().find_map(Value::as_str);
    match answer.is_error {
        true => Ok(found.unwrap_or_default().to_owned()),
        false => Err(Error::Different(format!("{tool} is not refused: {}", answer.json))),
    }
}

fn a_client_that_means_harm_does_nothing_on_production_whatever_it_calls(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let daemon = under(&pair, "environment = \"production\"\n")?;
    for mcp in [Mcp::connect_as(AGENT, &daemon.socket())?, daemon.mcp()?] {
        let fault = json!({"fault_name": "cut", "action": "register", "fault_type": "network_partition",
            "probability": 1, "duration_seconds": 60, "target": {"interface": INTERFACE}});
        let mut planned = fault.clone();
        planned.as_object_mut().ok_or("no object")?.remove("action");
        for (tool, arguments) in [
            ("chaos_inject_fault", fault),
            ("chaos_plan", planned),
            ("chaos_register_experiment", document(9, None)),
            ("chaos_plan_experiment", json!({"document": document(9, None)})),
            ("chaos_probe", json!({"arguments": ["tcp", "127.0.0.1:1"]})),
        ] {
            assert_eq!(code(&mcp, tool, arguments)?, "POLICY_DENIED", "{tool}");
        }
        // There is nothing that could be begun by its name.
        for (tool, arguments) in [
            ("chaos_inject_fault", json!({"fault_name": "cut", "action": "inject"})),
            ("chaos_run_experiment", json!({"experiment_name": TITLE})),
            (
                "chaos_schedule",
                json!({"action": "set", "name": "s", "experiment_name": TITLE, "cron": "* * * * *"}),
            ),
            ("chaos_search", json!({"action": "start", "experiment_name": TITLE})),
        ] {
            assert!(mcp.call_tool(tool, arguments)?.is_error, "{tool}");
        }
    }
    assert!(!is_cut(&daemon.mcp()?));
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn a_client_that_means_harm_skips_no_stage_and_outlives_no_gate(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let rules =
        "environment = \"test\"\nexperiments.require_stages = true\nexperiments.require_gate = true\n";
    let daemon = under(&pair, rules)?;
    let socket = pair.near.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let socket = socket.map_err(Error::io("bind", "a port"))?;
    let port = socket.local_addr()?.port();
    let agent = Mcp::connect_as(AGENT, &daemon.socket())?;
    let run = |stage: u8| json!({"experiment_name": TITLE, "stage": stage});
    // Without any stages, by itself or in a document.
    Fault::new("network_partition").named("all").here(json!({"cidr": "10.77.0.2"})).register(&agent)?;
    let inject = json!({"fault_name": "all", "action": "inject"});
    assert_eq!(code(&agent, "chaos_inject_fault", inject)?, "POLICY_DENIED");
    agent.call_tool("chaos_register_experiment", document(port, None))?.ok()?;
    let unstaged = json!({"experiment_name": TITLE});
    assert_eq!(code(&agent, "chaos_run_experiment", unstaged)?, "POLICY_DENIED");
    // With fewer of them, or out of their order.
    let fewer = document(port, Some(json!({"stages": [100]})));
    assert_eq!(code(&agent, "chaos_register_experiment", fewer)?, "INVALID_PARAMETER");
    agent.call_tool("chaos_register_experiment", document(port, Some(json!({}))))?.ok()?;
    for stage in [25, 50, 100] {
        assert_eq!(code(&agent, "chaos_run_experiment", run(stage))?, "STAGE_NOT_DUE");
    }
    assert!(!is_cut(&daemon.mcp()?));
    // Whoever begins a run and leaves, or never listens, has no more of it than its gate lets.
    let path = daemon.socket();
    let begun =
        thread::spawn(move || Mcp::connect_as(AGENT, &path)?.call_tool("chaos_run_experiment", run(10)));
    let status = Mcp::connect_as(AGENT, &daemon.socket())?;
    assert!(wait_until(HANG, || is_cut(&status)), "{}", daemon.log());
    drop(agent);
    drop(socket);
    assert!(wait_until(HANG, || !is_cut(&status)), "it outlives its gate; {}", daemon.log());
    let ran = begun.join().map_err(|_panic| "the client panicked")??;
    assert_eq!(ran.json["verdict"], "tripped", "{}", ran.json);
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

/// What the hook says of a call: its exit code, 2 of one that it refuses.
fn hook(daemon: &Daemon, tool: &str, input: Value) -> Result<Option<i32>> {
    let failed = || Error::io("run", "the hook");
    let mut command = Command::new(binary("chaosctl")?);
    command.env("CHAOS_SOCKET", daemon.socket()).args(["hook", "pretooluse"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed())?;
    let said = json!({"session_id": "s", "transcript_path": "/dev/null", "cwd": "/", "permission_mode": "default",
        "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input, "tool_use_id": "t"});
    let mut stdin = child.stdin.take().ok_or_else(|| Error::Different("no stdin".into()))?;
    stdin.write_all(said.to_string().as_bytes()).map_err(failed())?;
    drop(stdin);
    Ok(child.wait().map_err(failed())?.code())
}

fn where_the_daemons_policy_is_empty_the_hook_and_the_rules_of_a_client_refuse(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = under(&pair, "")?;
    let mcp = daemon.mcp()?;
    Fault::new("network_partition").named("cut").here(json!({"cidr": "10.77.0.2"})).register(&mcp)?;
    let inject = json!({"fault_name": "cut", "action": "inject"});
    assert_eq!(hook(&daemon, "mcp__chaos__chaos_inject_fault", inject)?, Some(2));
    let words = "chaosctl inject network_partition --interface eth0 --cidr 10.77.0.2 --for 10s";
    assert_eq!(hook(&daemon, "Bash", json!({"command": words}))?, Some(2));
    assert_eq!(hook(&daemon, "Bash", json!({"command": "chaosctl approve 00"}))?, Some(2));
    assert_eq!(hook(&daemon, "mcp__chaos__chaos_status", json!({}))?, Some(0));
    let exported = chaosctl(&daemon, &["policy", "export", "--claude-md"])?.output()?;
    let rules = String::from_utf8_lossy(&exported.stdout).into_owned();
    assert!(rules.contains("inject and run nothing"), "{rules}");
    Ok(Outcome::Pass)
}
