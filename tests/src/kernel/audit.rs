//! The audit: every kind of act has its line with whoever did it, in a chain that is whole, whatever the disk and the daemon do.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use chaos_audit::{Head, Line, Outcome, Record, Segment, Verified, segments, verify};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Context, Outcome as Passed, TestResult, tests};
use crate::daemon::{policy_file, run_as};
use crate::fault::Fault;
use crate::late::HANG;
use crate::netns::output;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    every_kind_of_act_has_a_line_with_its_caller_done_or_refused,
    what_is_stopped_says_who_began_it_and_who_stopped_it,
    a_daemon_that_is_killed_in_the_midst_leaves_a_chain_that_is_whole_and_goes_on,
    a_disk_that_is_full_refuses_what_begins_and_nothing_that_ends,
];

const OPERATOR: u32 = 61_011;
const OBSERVER: u32 = 61_012;
/// Long enough that nothing ends by itself.
const LONG: Duration = Duration::from_secs(60);

fn folder(daemon: &Daemon) -> std::path::PathBuf {
    daemon.state_dir().join("audit")
}

fn read(folder: &Path) -> Result<Vec<Segment>> {
    let wrong = |error| Error::io("read", folder.display().to_string())(error);
    let all = segments(folder).map_err(wrong)?;
    all.iter().map(|each| Segment::read(each).map_err(wrong)).collect()
}

/// What is recorded by now.
pub(super) fn records(daemon: &Daemon) -> Vec<Record> {
    let all = read(&folder(daemon)).unwrap_or_default();
    let lines = all.iter().flat_map(|segment| segment.bytes.split(|byte| *byte == b'\n'));
    lines.filter_map(|line| Line::read(line).ok()).map(|line| line.record).collect()
}

fn verified(daemon: &Daemon) -> Result<Verified> {
    let head = Head::beside(&folder(daemon));
    Ok(verify(read(&folder(daemon))?, head, &[]))
}

/// Waits for a line of this act and outcome that a user has caused.
fn line_of(daemon: &Daemon, act: &str, outcome: Outcome, uid: Option<u32>) -> Record {
    let mut found = None;
    let is_it = |record: &Record| {
        record.act == act && record.outcome == outcome && record.who.as_ref().and_then(|who| who.uid) == uid
    };
    wait_until(HANG, || {
        found = records(daemon).into_iter().find(is_it);
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("no line: {act} {outcome:?} of {uid:?} in {:#?}", records(daemon)))
}

fn experiment(port: u16) -> Value {
    let arguments = json!(["probe", "tcp", format!("127.0.0.1:{port}")]);
    let probe = json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let cpu =
        json!({"inject": "resource-exhaustion", "--resource": "cpu", "--cpu-percent": 1, "--for": "300ms"});
    let load = json!({"type": "process", "path": "chaosctl", "arguments": cpu});
    json!({
        "title": "shop",
        "description": "Nothing happens to it.",
        "steady-state-hypothesis": {"title": "it answers", "probes": [
            {"type": "probe", "name": "answers", "tolerance": 0, "provider": probe}]},
        "method": [{"type": "action", "name": "load", "provider": load}],
        "rollbacks": [],
    })
}

/// What each call is, of an operator: the tool, its arguments, and the line.
fn acts(port: u16) -> Vec<(&'static str, Value, &'static str, Outcome)> {
    use Outcome::{Done, Intent, Refused};
    let fault = |more: Value| {
        let mut all = json!({"fault_name": "slow", "action": "register", "fault_type": "network_partition", "probability": 1.0,
            "duration_seconds": 60, "target": {"interface": INTERFACE, "cidr": "10.77.0.2", "protocol": "udp", "port": 7}});
        all.as_object_mut()
            .into_iter()
            .for_each(|all| all.extend(more.as_object().cloned().unwrap_or_default()));
        all
    };
    let act = |action: &str, name: &str| json!({"action": action, "fault_name": name});
    let cron = json!({"action": "set", "name": "nightly", "experiment": "shop", "cron": "0 3 * * *"});
    let plan = |name: &str, duration: u32| {
        let mut fault = fault(json!({"fault_name": name, "duration_seconds": duration}));
        fault.as_object_mut().into_iter().for_each(|fault| drop(fault.remove("action")));
        fault
    };
    vec![
        ("chaos_status", json!({}), "connect", Done),
        ("chaos_status", json!({}), "look", Done),
        ("chaos_inject_fault", fault(json!({})), "register_fault", Intent),
        ("chaos_inject_fault", fault(json!({})), "register_fault", Done),
        ("chaos_inject_fault", fault(json!({"fault_type": "nonsense"})), "register_fault", Refused),
        ("chaos_plan", plan("slow", 60), "plan", Done),
        ("chaos_plan", plan("slow", 3000), "plan", Refused),
        ("chaos_inject_fault", act("inject", "slow"), "inject", Intent),
        ("chaos_inject_fault", act("inject", "slow"), "inject", Refused),
        ("chaos_inject_fault", act("inject", "unknown"), "inject", Refused),
        ("chaos_stop", json!({"fault_name": "slow"}), "stop", Intent),
        ("chaos_stop", json!({"fault_name": "slow"}), "stop", Done),
        ("chaos_stop", json!({}), "stop_all", Done),
        ("chaos_inject_fault", act("remove", "slow"), "remove_fault", Done),
        ("chaos_register_experiment", experiment(port), "register_experiment", Done),
        ("chaos_register_experiment", json!({"title": "x"}), "register_experiment", Refused),
        ("chaos_describe_experiment", json!({"experiment_name": "shop"}), "describe_experiment", Done),
        ("chaos_plan_experiment", json!({"experiment_name": "shop"}), "plan_experiment", Done),
        ("chaos_plan_experiment", json!({"experiment_name": "shop"}), "plan_all", Done),
        ("chaos_run_experiment", json!({"experiment_name": "shop"}), "run", Intent),
        ("chaos_run_experiment", json!({"experiment_name": "unknown"}), "run", Refused),
        ("chaos_get_run", json!({"run_id": "77"}), "look", Refused),
        ("chaos_stop", json!({"run_id": "77"}), "stop_run", Refused),
        ("chaos_probe", json!({"arguments": ["tcp", format!("127.0.0.1:{port}")]}), "probe", Done),
        ("chaos_probe", json!({"arguments": ["nonsense"]}), "probe", Refused),
        (
            "chaos_probe",
            json!({"arguments": ["log", "--file", "/etc/shadow", "--match", "x"]}),
            "read_log",
            Refused,
        ),
        ("chaos_schedule", cron, "set_schedule", Done),
        ("chaos_schedule", json!({"action": "pause", "name": "nightly"}), "pause_schedule", Done),
        ("chaos_schedule", json!({"action": "resume", "name": "nightly"}), "resume_schedule", Done),
        ("chaos_schedule", json!({"action": "delete", "name": "nightly"}), "delete_schedule", Done),
        ("chaos_search", json!({"action": "start", "name": "shop"}), "start_search", Refused),
        ("chaos_search", json!({"action": "minimise", "name": "shop"}), "minimise_search", Refused),
        ("chaos_search", json!({"action": "stop", "name": "shop"}), "stop_search", Refused),
        ("chaos_targets", json!({}), "list_targets", Done),
    ]
}

fn every_kind_of_act_has_a_line_with_its_caller_done_or_refused(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near, &pair.far])?;
    let policy = policy_file(&format!(
        "max_duration_seconds = 600\nroles.observer.uids = [{OBSERVER}]\nroles.operator.uids = [{OPERATOR}]\n"
    ))?;
    let daemon = Daemon::start_with(|command| {
        pair.near.place(command);
        command.arg("--policy").arg(policy.path());
    })?;
    let listener = pair.near.run(|| TcpListener::bind("127.0.0.1:0")).map_err(Error::io("bind", "a port"))?;
    let port = listener.local_addr().map_err(Error::io("ask", "a port"))?.port();
    let (operator, observer) =
        (Mcp::connect_as(OPERATOR, &daemon.socket())?, Mcp::connect_as(OBSERVER, &daemon.socket())?);
    for (tool, arguments, act, outcome) in acts(port) {
        operator.call_tool(tool, arguments)?;
        let line = line_of(&daemon, act, outcome, Some(OPERATOR));
        let who = line.who.clone().unwrap_or_default();
        assert_eq!(who.pid, Some(std::process::id().cast_signed()), "{line:?}");
        assert_eq!(
            (who.role.as_deref(), who.socket.as_deref()),
            (Some("operator"), Some("unix")),
            "{line:?}"
        );
        assert_eq!(outcome == Outcome::Refused, line.code.is_some(), "{line:?}");
    }
    let injected = line_of(&daemon, "inject", Outcome::Intent, Some(OPERATOR));
    assert!(injected.plan_digest.is_some() && injected.policy.is_some() && !injected.told_by_server);
    // A run is followed to its end by whoever waits for it, and has injected by then.
    assert!(line_of(&daemon, "run", Outcome::Done, Some(OPERATOR)).run.is_some());
    observer.call_tool("chaos_inject_fault", acts(port)[2].1.clone())?;
    let refused = line_of(&daemon, "register_fault", Outcome::Refused, Some(OBSERVER));
    assert_eq!(refused.rule.as_deref(), Some("roles.operator"), "{refused:?}");
    // What is done to the daemon from outside is nobody's.
    for (signal, act) in [(Signal::SIGHUP, "policy_read"), (Signal::SIGUSR1, "all_ended")] {
        daemon.injector().ok_or("no injector")?.signal(signal);
        line_of(&daemon, act, Outcome::Done, None);
    }
    for act in ["daemon_started", "fault_ended"] {
        line_of(&daemon, act, Outcome::Done, None);
    }
    let found = verified(&daemon)?;
    assert!(found.is_whole() && found.lines > 60, "{found:?}");
    before.assert_unchanged_within(&[&pair.near, &pair.far], HANG)?;
    Ok(Passed::Pass)
}

fn what_is_stopped_says_who_began_it_and_who_stopped_it(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start_with(|command| pair.near.place(command))?;
    let (one, root) = (Mcp::connect_as(OPERATOR, &daemon.socket())?, daemon.mcp()?);
    let fault =
        Fault::new("network_partition").here(json!({"cidr": "10.77.0.2", "protocol": "udp", "port": 7}));
    let fault = fault.named("slow").lasting(LONG);
    fault.inject(&one)?;
    let status = fault.status(&one)?;
    assert!(status["began_by"].as_str().is_some_and(|by| by.starts_with("uid 61011, pid ")), "{status}");
    root.call_tool("chaos_stop", json!({"fault_name": "61011/slow"}))?.ok()?;
    let ended = line_of(&daemon, "fault_ended", Outcome::Done, None);
    assert!(ended.reason.is_some_and(|reason| reason.starts_with("removed by uid 0")));
    // Who has done it sees it as well, and nothing of what root has done.
    let shown = chaosctl(OPERATOR, &daemon, &["audit", "show", "--json"])?;
    let shown: Vec<Value> =
        serde_json::from_str(&shown).map_err(|error| Error::Different(error.to_string()))?;
    assert!(shown.iter().any(|line| line["act"] == "fault_ended"), "{shown:#?}");
    assert!(shown.iter().all(|line| line["who"].is_null() || line["who"]["uid"] == OPERATOR), "{shown:#?}");
    // Of whoever calls from a process of their own it is known what that is, and which groups it has.
    chaosctl(OPERATOR, &daemon, &["stop", "--all"])?;
    let who = line_of(&daemon, "stop_all", Outcome::Done, Some(OPERATOR)).who.unwrap_or_default();
    // One that has ended before its line is written has no program any more.
    assert!(who.exe.is_none_or(|exe| exe.contains("chaosctl")) && who.gid == Some(0), "{:?}", who.groups);
    let of_root =
        chaosctl(0, &daemon, &["audit", "show", "--caller", "0", &folder(&daemon).display().to_string()])?;
    assert!(of_root.contains("stop 61011/slow done") && !of_root.contains("uid 61011"), "{of_root}");
    let whole = chaosctl(0, &daemon, &["audit", "verify", &folder(&daemon).display().to_string()])?;
    assert!(whole.contains(": whole: "), "{whole}");
    Ok(Passed::Pass)
}

fn chaosctl(user: u32, daemon: &Daemon, words: &[&str]) -> Result<String> {
    let socket = daemon.socket().display().to_string();
    let output = run_as((user, 0), "chaosctl", &[&["--socket", &socket], words].concat())?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(said(&output.stdout)),
        false => {
            Err(Error::Different(format!("{words:?}: {}{}", said(&output.stdout), said(&output.stderr))))
        }
    }
}

fn a_daemon_that_is_killed_in_the_midst_leaves_a_chain_that_is_whole_and_goes_on(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let mut daemon = Daemon::start_with(|command| pair.near.place(command))?;
    let registered = |daemon: &Daemon| {
        let is_it = |it: &&Record| it.act == "register_fault" && it.outcome == Outcome::Done;
        records(daemon).iter().filter(is_it).count()
    };
    for round in 1..=3 {
        let mcp = Mcp::connect_as(OPERATOR, &daemon.socket())?;
        let fault = json!({"fault_name": "f", "action": "register", "fault_type": "timeout", "target": {"interface": "eth9"}});
        // Until the daemon has gone.
        let calls =
            thread::spawn(move || while mcp.call_tool("chaos_inject_fault", fault.clone()).is_ok() {});
        assert!(wait_until(HANG, || registered(&daemon) >= 40 * round), "{}", registered(&daemon));
        daemon.kill_everything();
        calls.join().map_err(|_panic| Error::Different("a client panicked".into()))?;
        daemon.start_again(|command| pair.near.place(command))?;
        let started = |record: &Record| record.act == "daemon_started";
        assert!(wait_until(HANG, || records(&daemon).iter().filter(|record| started(record)).count()
            == round + 1));
    }
    let found = verified(&daemon)?;
    assert!(found.is_whole(), "{found:?}");
    Ok(Passed::Pass)
}

/// A small file system of its own on a folder, until the guard goes.
struct Small(std::path::PathBuf);

impl Small {
    fn on(folder: &Path) -> Result<Self> {
        let mut mount = Command::new("mount");
        output(mount.args(["-t", "tmpfs", "-o", "size=1m,mode=0755", "none"]).arg(folder))?;
        Ok(Self(folder.to_owned()))
    }

    /// Takes all the room that is left; returns where.
    fn fill(&self) -> Result<std::path::PathBuf> {
        let path = self.0.join("full");
        let mut file = File::create(&path).map_err(Error::io("create", "a file"))?;
        while file.write_all(&[7; 4096]).is_ok() {}
        Ok(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // What is still open there goes with who has it open.
        drop(output(Command::new("umount").arg("-l").arg(&self.0)));
    }
}

fn a_disk_that_is_full_refuses_what_begins_and_nothing_that_ends(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let mut daemon = Daemon::start_with(|command| pair.near.place(command))?;
    daemon.kill_everything();
    let small = Small::on(&daemon.state_dir())?;
    daemon.start_again(|command| pair.near.place(command))?;
    let mcp = daemon.mcp()?;
    let cut = |name, port: u16| {
        let narrow = json!({"cidr": "10.77.0.2", "protocol": "udp", "port": port});
        Fault::new("network_partition").here(narrow).named(name).lasting(LONG)
    };
    let (first, second) = (cut("first", 7), cut("second", 8));
    first.inject(&mcp)?;
    second.register(&mcp)?;
    let full = small.fill()?;
    // The last page has room for a few lines.
    for _ in 0..40 {
        mcp.call_tool("chaos_inject_fault", json!({"fault_name": "unknown", "action": "inject"}))?;
    }
    let inject = json!({"fault_name": "second", "action": "inject"});
    let refused = mcp.call_tool("chaos_inject_fault", inject.clone())?;
    let said = refused.json["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(refused.is_error && said.contains("the audit cannot be written"), "{}", refused.json);
    assert!(said.contains("No space left"), "{said}");
    let begun = Instant::now();
    let stopped = mcp.call_tool("chaos_stop", json!({"fault_name": "first"}))?.ok()?;
    assert_eq!(stopped["stopped"][0]["name"], "first", "{stopped}");
    mcp.call_tool("chaos_stop", json!({}))?.ok()?;
    assert!(begun.elapsed() < HANG);
    std::fs::remove_file(full).map_err(Error::io("remove", "a file"))?;
    mcp.call_tool("chaos_inject_fault", inject)?.ok()?;
    for act in ["stop", "stop_all"] {
        line_of(&daemon, act, Outcome::Done, Some(0));
    }
    second.remove(&mcp)?;
    let found = verified(&daemon)?;
    assert!(found.is_whole(), "{found:?}");
    Ok(Passed::Pass)
}
