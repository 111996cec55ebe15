//! Names belong to their owner on the node, too: two users whose faults are called the same, and how many places one has.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::{Echo, udp_rtt, udp_rtt_median};
use crate::process::wait_until;
use crate::worker::Program;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    two_users_have_each_a_fault_of_the_same_name_and_nobody_ends_anothers_by_mistake,
    what_died_with_faults_of_one_name_is_recovered_of_each_owner,
    one_user_has_half_of_the_places_for_faults_and_the_last_one_is_roots,
    what_has_changed_since_it_was_planned_is_not_injected,
];

const PATIENCE: Duration = Duration::from_millis(300);
const A: u32 = 61_001;
const B: u32 = 61_002;
const NAME: &str = "slow-database";

/// A daemon in the near namespace, so that no user has to name another one.
fn daemon_in(pair: &Pair) -> Result<Daemon> {
    Daemon::start_with(|command| pair.near.place(command))
}

/// Cuts off one port of the far side.
fn cut(port: u16) -> Fault {
    let narrow = json!({"cidr": "10.77.0.2", "protocol": "udp", "port": port});
    Fault::new("network_partition").here(narrow).named(NAME)
}

/// Why a call is refused: code, message and hint.
fn refused(mcp: &Mcp, tool: &str, arguments: Value) -> Result<[String; 3]> {
    let answer = mcp.call_tool(tool, arguments)?;
    match answer.is_error {
        true => Ok(["code", "message", "hint"]
            .map(|field| answer.json["error"][field].as_str().unwrap_or_default().to_owned())),
        false => Err(Error::Different(format!("not refused: {}", answer.json))),
    }
}

fn is_cut(pair: &Pair, echo: &Echo) -> Result<bool> {
    Ok(udp_rtt(&pair.near, echo.address(), PATIENCE)?.is_none())
}

fn two_users_have_each_a_fault_of_the_same_name_and_nobody_ends_anothers_by_mistake(
    _: &Context,
) -> TestResult {
    let pair = Pair::new()?;
    let (one, other) = (Echo::start(&pair.far, Pair::FAR_V4, 7)?, Echo::start(&pair.far, Pair::FAR_V4, 8)?);
    let daemon = daemon_in(&pair)?;
    let before = Residue::take(&[&pair.near, &pair.far])?;
    let (a, b, root) =
        (Mcp::connect_as(A, &daemon.socket())?, Mcp::connect_as(B, &daemon.socket())?, daemon.mcp()?);
    let (of_a, of_b) = (cut(7), cut(8));
    of_a.inject(&a)?;
    of_b.inject(&b)?;
    assert!(is_cut(&pair, &one)? && is_cut(&pair, &other)?);
    let status = root.call_tool("chaos_status", json!({}))?.ok()?;
    let names: Vec<_> =
        status["active_faults"].as_array().into_iter().flatten().map(|it| &it["name"]).collect();
    assert_eq!(names, ["61001/slow-database", "61002/slow-database"], "{status}");
    of_b.remove(&b)?;
    udp_rtt_median(&pair.near, other.address(), 3, HANG)?;
    // Now B has none of this name, and A's goes on.
    let [code, message, hint] = refused(&b, "chaos_stop", json!({"fault_name": NAME}))?;
    assert!(code == "FAULT_NOT_FOUND" && message.contains("uid 61001"), "{message}");
    assert!(hint.contains("61001/slow-database"), "{hint}");
    // Removing what is not there succeeds, as the tool specification says, and ends nothing.
    let removed = b.call_tool("chaos_inject_fault", json!({"fault_name": NAME, "action": "remove"}))?.ok()?;
    let said = removed["message"].as_str().unwrap_or_default();
    assert!(said.contains("61001/slow-database"), "{removed}");
    let [code, ..] =
        refused(&b, "chaos_inject_fault", json!({"fault_name": "61001/slow-database", "action": "inject"}))?;
    assert_eq!(code, "POLICY_DENIED");
    assert!(is_cut(&pair, &one)?);
    let ended = b.call_tool("chaos_stop", json!({"fault_name": "61001/slow-database"}))?.ok()?;
    assert_eq!(ended["stopped"][0]["owner"], "uid 61001", "{ended}");
    udp_rtt_median(&pair.near, one.address(), 3, HANG)?;
    let log = daemon.log();
    for (first, second) in [
        ("registered a fault", "caller=uid 61001"),
        ("injected", "name=61001/slow-database"),
        ("removed the registration of a fault", "caller=uid 61002"),
        ("ended", "removed by uid 61002"),
    ] {
        let is_there = log.lines().any(|line| line.contains(first) && line.contains(second));
        assert!(is_there, "{first:?} with {second:?} is not in\n{log}");
    }
    before.assert_unchanged_within(&[&pair.near, &pair.far], HANG)?;
    Ok(Outcome::Pass)
}

fn what_died_with_faults_of_one_name_is_recovered_of_each_owner(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let mut daemon = daemon_in(&pair)?;
    let before = Residue::take(&[&pair.near, &pair.far])?;
    for (user, port) in [(A, 7), (B, 8)] {
        cut(port).inject(&Mcp::connect_as(user, &daemon.socket())?)?;
    }
    cut(9).inject(&daemon.mcp()?)?;
    daemon.kill_everything();
    let journals = || -> Result<Vec<String>> {
        let found = chaos_daemon::journal::look_into(&daemon.runtime_dir().join("journal"));
        let found = found.map_err(Error::io("read", "the journals"))?;
        let mut names: Vec<_> =
            found.iter().filter_map(|it| Some(it.fault.as_ref()?.0.to_string())).collect();
        names.sort_unstable();
        Ok(names)
    };
    assert_eq!(journals()?, ["61001/slow-database", "61002/slow-database", NAME]);
    daemon.start_again(|command| pair.near.place(command))?;
    let journals = || -> Result<usize> {
        let found = chaos_daemon::journal::look_into(&daemon.runtime_dir().join("journal"));
        Ok(found.map_err(Error::io("read", "the journals"))?.len())
    };
    assert!(wait_until(HANG, || journals().is_ok_and(|left| left == 0)));
    // What is registered is still each user's own.
    for (user, port) in [(A, 7), (B, 8)] {
        let status = cut(port).status(&Mcp::connect_as(user, &daemon.socket())?)?;
        assert!(status["registered"] == true && status["active"] == false, "{status}");
    }
    drop(daemon);
    before.assert_unchanged_within(&[&pair.near, &pair.far], HANG)?;
    Ok(Outcome::Pass)
}

fn one_user_has_half_of_the_places_for_faults_and_the_last_one_is_roots(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = daemon_in(&pair)?;
    // How many of the eight places of the default each gets, who takes as many as there are.
    for (user, most) in [(A, 4), (B, 3), (61_003, 0)] {
        let mcp = Mcp::connect_as(user, &daemon.socket())?;
        for number in 0..most {
            cut(7).named(&format!("cut-{number}")).inject(&mcp)?;
        }
        cut(7).named("more").register(&mcp)?;
        let more = json!({"fault_name": "more", "action": "inject"});
        let [code, message, _] = refused(&mcp, "chaos_inject_fault", more)?;
        let why =
            if most == 4 { "one user may have 4" } else { "the last place of max_active = 8 is root's" };
        assert!(code == "LIMIT_REACHED" && message.contains(why), "{message}");
    }
    let root = daemon.mcp()?;
    cut(7).inject(&root)?;
    let ended = root.call_tool("chaos_stop", json!({}))?.ok()?;
    assert_eq!(ended["stopped"].as_array().map(Vec::len), Some(8), "{ended}");
    Ok(Outcome::Pass)
}

fn what_has_changed_since_it_was_planned_is_not_injected(_: &Context) -> TestResult {
    let program = Program::new()?;
    let first = program.start(1, "first")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = Fault::new("process_pause").aimed(json!({"exe": program.path()}));
    fault.register(&mcp)?;
    let plan = || -> Result<String> {
        let plan = mcp.call_tool("chaos_plan", json!({"fault_name": fault.name()}))?.ok()?;
        Ok(plan["plan_digest"].as_str().unwrap_or_default().to_owned())
    };
    let planned = plan()?;
    assert_eq!((planned.len(), &planned), (64, &plan()?));
    let inject = json!({"fault_name": fault.name(), "action": "inject", "plan_digest": planned});
    let second = program.start(1, "second")?;
    let [code, message, _] = refused(&mcp, "chaos_inject_fault", inject.clone())?;
    assert!(code == "PLAN_CHANGED" && message.starts_with("plan_digest: "), "{message}");
    assert!(fault.status(&mcp)?["active"] == false);
    drop(second);
    let injected = mcp.call_tool("chaos_inject_fault", inject)?.ok()?;
    assert_eq!(injected["was_triggered"], true, "{injected}");
    fault.remove(&mcp)?;
    drop(first);
    Ok(Outcome::Pass)
}
