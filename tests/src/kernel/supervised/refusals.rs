//! What supervised faults are refused, by name, before anything is changed.

use std::os::unix::fs::chown;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::guardian::listen_as;
use super::super::lacks::assert_helps;
use super::super::{Context, Outcome, TestResult, tests};
use crate::daemon::NOBODY;
use crate::guard::Guard;
use crate::kinds::{impossible, untried};
use crate::pair::INTERFACE;
use crate::victim::Victim;
use crate::{Daemon, Error, Mcp, Pair, Reason, Result};

tests![
    without_a_guard_a_supervised_fault_is_refused_with_what_to_do,
    the_group_of_the_daemon_and_every_group_above_one_are_refused,
    a_group_of_somebody_else_is_refused_who_could_keep_it_as_it_is,
    loopback_the_default_route_and_a_protected_connection_are_not_taken_down,
    a_link_that_could_not_be_restored_is_refused_by_what_would_be_lost,
    two_faults_do_not_change_the_same_setting,
    a_limit_that_somebody_else_has_set_is_not_set_again,
    the_clock_is_refused_unless_the_policy_allows_it,
    services_that_nobody_can_stop_are_refused_by_name,
];

/// Registers a fault that has to be refused at its injection; code of the refusal, and its message with its hint.
fn refused(mcp: &Mcp, kind: &str, target: Value, params: Value) -> Result<(String, String)> {
    let tool = "chaos_inject_fault";
    let register = json!({"fault_name": "r", "action": "register", "fault_type": kind, "probability": 1.0,
        "target": target, "params": params});
    mcp.call_tool(tool, register)?.ok()?;
    let answer = mcp.call_tool(tool, json!({"fault_name": "r", "action": "inject"}))?;
    let error = &answer.json["error"];
    let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
    match answer.is_error {
        true => Ok((text("code"), format!("{} {}", text("message"), text("hint")))),
        false => Err(Error::Different(format!("{kind} was injected: {}", answer.json))),
    }
}

fn without_a_guard_a_supervised_fault_is_refused_with_what_to_do(_: &Context) -> TestResult {
    let mut cgroup = Victim::new(&[])?;
    let daemon = Daemon::start()?;
    let (code, words) = refused(&daemon.mcp()?, "pause", json!({"cgroup": cgroup.name()}), json!({}))?;
    assert_eq!(code, "GUARD_MISSING", "{words}");
    assert!(
        words.contains("no guard is running") && words.contains("systemctl start chaos-daemon-guard"),
        "{words}"
    );
    assert_eq!(cgroup.read("cgroup.freeze")?, "0");
    assert!(cgroup.ask("true", Duration::from_secs(5))?.is_some());
    Ok(Outcome::Pass)
}

fn a_group_of_somebody_else_is_refused_who_could_keep_it_as_it_is(_: &Context) -> TestResult {
    let cgroup = Victim::new(&[])?;
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    chown(cgroup.path(), Some(NOBODY), None).map_err(Error::io("give away", "a cgroup"))?;
    let (code, words) = refused(&daemon.mcp()?, "pause", json!({"cgroup": cgroup.name()}), json!({}))?;
    assert!(code == "TARGET_PROTECTED" && words.contains("is not root's"), "{code} {words}");
    assert_eq!(cgroup.read("cgroup.freeze")?, "0");
    Ok(Outcome::Pass)
}

fn the_group_of_the_daemon_and_every_group_above_one_are_refused(_: &Context) -> TestResult {
    let cgroup = Victim::new(&[])?;
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    cgroup.write("cgroup.procs", &daemon.injector_pid().to_string())?;
    let (code, words) = refused(&mcp, "pause", json!({"cgroup": cgroup.name()}), json!({}))?;
    assert_eq!(code, "TARGET_PROTECTED", "{words}");
    assert!(words.contains(&daemon.injector_pid().to_string()), "{words}");
    for (target, expected) in [
        (json!({"cgroup": "/"}), "INVALID_PARAMETER"),
        (json!({"cgroup": "../.."}), "INVALID_PARAMETER"),
        (json!({"cgroup": "no/such"}), "TARGET_NOT_FOUND"),
        (json!({"unit": "no-such.service"}), "TARGET_NOT_FOUND"),
    ] {
        let (code, words) = refused(&mcp, "pause", target, json!({}))?;
        assert_eq!(code, expected, "{words}");
    }
    Ok(Outcome::Pass)
}

fn loopback_the_default_route_and_a_protected_connection_are_not_taken_down(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start_with(|command| pair.near.place(command))?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let down = |interface: &str| refused(&mcp, "link_down", json!({"interface": interface}), json!({}));
    let (code, words) = down("lo")?;
    assert_eq!(code, "TARGET_PROTECTED", "{words}");
    // Somebody of the far side works on this host.
    let listener = pair.near.run(|| std::net::TcpListener::bind((Pair::NEAR_V4, 22)))?;
    let session = pair.far.run(|| std::net::TcpStream::connect((Pair::NEAR_V4, 22)))?;
    let accepted = listener.accept()?;
    let (code, words) = down(INTERFACE)?;
    assert!(code == "TARGET_PROTECTED" && words.contains("connected"), "{code} {words}");
    drop((session, accepted, listener));
    // Wherever sshd listens.
    let _sshd = listen_as("sshd", &pair.near, 2222)?;
    let session = pair.far.run(|| std::net::TcpStream::connect((Pair::NEAR_V4, 2222)))?;
    let (code, words) = down(INTERFACE)?;
    assert!(code == "TARGET_PROTECTED" && words.contains("connected"), "{code} {words}");
    drop(session);
    pair.near.ip(&["route", "add", "default", "via", "10.77.0.2"])?;
    let (code, words) = down(INTERFACE)?;
    assert!(code == "TARGET_PROTECTED" && words.contains("default route"), "{code} {words}");
    assert!(pair.near.ip(&["link", "show", "dev", INTERFACE])?.contains(",UP"));
    Ok(Outcome::Pass)
}

fn a_link_that_could_not_be_restored_is_refused_by_what_would_be_lost(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let target = json!({"interface": INTERFACE, "netns": pair.near.name()});
    let words = "route add 198.51.100.0/24 nexthop via 10.77.0.2 dev eth0 nexthop via 10.77.0.3 dev eth0";
    pair.near.ip(&words.split(' ').collect::<Vec<_>>())?;
    let (code, words) = refused(&mcp, "link_down", target.clone(), json!({}))?;
    assert!(code == "INVALID_PARAMETER" && words.contains("several nexthops"), "{code} {words}");
    pair.near.ip(&["route", "del", "198.51.100.0/24"])?;
    pair.near.ip(&["link", "set", "dev", INTERFACE, "down"])?;
    let (code, words) = refused(&mcp, "link_down", target, json!({}))?;
    assert!(code == "INVALID_PARAMETER" && words.contains("down already"), "{code} {words}");
    Ok(Outcome::Pass)
}

fn two_faults_do_not_change_the_same_setting(_: &Context) -> TestResult {
    let cgroup = Victim::new(&[])?;
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let target = json!({"cgroup": cgroup.name()});
    let first = crate::fault::Fault::new("pause").named("first").aimed(target.clone());
    first.inject(&mcp)?;
    // Somebody thaws it, so that only the fault that is active stands in the way.
    cgroup.write("cgroup.freeze", "0")?;
    let (code, words) = refused(&mcp, "pause", target, json!({}))?;
    assert!(code == "LIMIT_REACHED" && words.contains("first"), "{code} {words}");
    first.remove(&mcp)?;
    Ok(Outcome::Pass)
}

fn a_limit_that_somebody_else_has_set_is_not_set_again(_: &Context) -> TestResult {
    if !crate::victim::has_controllers(&["pids"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "pids is not there".into()));
    }
    let cgroup = Victim::new(&["pids"])?;
    cgroup.write("pids.max", "9")?;
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let (mcp, target) = (daemon.mcp()?, json!({"cgroup": cgroup.name()}));
    let limit = |pids: u32| json!({"resource": "pids_limit", "pids": pids});
    let (code, words) = refused(&mcp, "resource_exhaustion", target.clone(), limit(9))?;
    assert!(code == "INVALID_PARAMETER" && words.contains("pids.max"), "{code} {words}");
    assert!(words.contains(r#""9" already"#) && words.contains("lower"), "{words}");
    let lower = crate::fault::Fault::new("resource_exhaustion").aimed(target).with(limit(8));
    lower.inject(&mcp)?;
    assert_eq!(cgroup.read("pids.max")?, "8");
    lower.remove(&mcp)?;
    assert_eq!(cgroup.read("pids.max")?, "9");
    Ok(Outcome::Pass)
}

fn the_clock_is_refused_unless_the_policy_allows_it(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let before = std::time::SystemTime::now();
    let (code, words) = refused(&daemon.mcp()?, "clock_skew", json!({}), json!({"offset_seconds": 3600}))?;
    assert!(code == "POLICY_DENIED" && words.contains("`clock_skew`"), "{code} {words}");
    untried("clock_skew", "refused by policy", &words);
    assert!(before.elapsed()? < Duration::from_secs(600), "the clock went on");
    Ok(Outcome::Pass)
}

fn services_that_nobody_can_stop_are_refused_by_name(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    // With systemd or without, there is no service of this name.
    let booted = ["/run/systemd/system", "/run/dbus/system_bus_socket"]
        .map(|path| std::path::Path::new(path).exists());
    for kind in ["service_stop", "service_restart"] {
        let (code, words) = refused(&mcp, kind, json!({"unit": "chaos-no-such.service"}), json!({}))?;
        match booted == [true; 2] {
            true => {
                assert!(code == "TARGET_NOT_FOUND" && words.contains("no unit"), "{kind}: {code} {words}");
                untried(kind, "the services of this host are not a test's", &words);
            }
            false => {
                assert_helps(kind, "systemd (", [&code, &words, &words]);
                assert!(words.contains("`apt install dbus`"), "{words}");
                impossible(kind, &words);
            }
        }
    }
    let slice = crate::fault::Fault::new("service_stop").aimed(json!({"unit": "a.slice"})).register(&mcp);
    let said = slice.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(said.contains("is no service"), "{said}");
    Ok(Outcome::Pass)
}
