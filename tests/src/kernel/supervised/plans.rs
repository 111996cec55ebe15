//! What a plan says of a fault that outlives every process: its class, and who would guard it. It only looks.

use std::process::Command;

use serde_json::{Value, json};

use super::super::{Context, Outcome, TestResult, tests};
use super::stage::is_up;
use crate::daemon::binary;
use crate::guard::Guard;
use crate::late::HANG;
use crate::netns::output;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::victim::Victim;
use crate::{Daemon, Mcp, Pair, Result};

tests![a_plan_says_of_which_class_a_fault_is_and_who_would_guard_it];

/// Class and guard of a plan.
fn planned(mcp: &Mcp, fault: &Value) -> Result<[String; 2]> {
    let answer = mcp.call_tool("chaos_plan", fault.clone())?.ok()?;
    Ok(["lifetime", "guard"].map(|field| answer[field].as_str().unwrap_or_default().to_owned()))
}

/// Code and words with which a plan is refused, as the injection would be.
fn refused(mcp: &Mcp, fault: &Value) -> Result<[String; 2]> {
    let answer = mcp.call_tool("chaos_plan", fault.clone())?;
    Ok(["code", "message"].map(|field| answer.json["error"][field].as_str().unwrap_or_default().to_owned()))
}

fn a_plan_says_of_which_class_a_fault_is_and_who_would_guard_it(_: &Context) -> TestResult {
    let (pair, cgroup, daemon) = (Pair::new()?, Victim::new(&[])?, Daemon::start()?);
    let mcp = daemon.mcp()?;
    let link = json!({"interface": INTERFACE, "netns": pair.near.name()});
    let of = |kind: &str, target: &Value| json!({"fault_name": "p", "fault_type": kind, "target": target});
    let supervised = [of("link_down", &link), of("pause", &json!({"cgroup": cgroup.name()}))];
    for fault in &supervised {
        let [code, words] = refused(&mcp, fault)?;
        assert!(code == "GUARD_MISSING" && words.contains("no guard is running"), "{fault}: {code} {words}");
    }
    let guard = Guard::start(&daemon)?;
    let who = format!("chaos-daemon guard (process {}), then recovery at the next start", guard.pid());
    for fault in &supervised {
        assert_eq!(planned(&mcp, fault)?, ["supervised", &who], "{fault}");
    }
    // As it was registered, and by the command line.
    let mut register = supervised[0].clone();
    (register["action"], register["probability"]) = (json!("register"), json!(1.0));
    mcp.call_tool("chaos_inject_fault", register)?.ok()?;
    assert_eq!(planned(&mcp, &json!({"fault_name": "p"}))?, ["supervised", &who]);
    let said = dry_run(&daemon, pair.near.name())?;
    assert!(said.contains("lifetime class supervised") && said.contains(&format!("guard: {who}")), "{said}");
    // One that goes with its process needs none.
    let held = planned(&mcp, &of("network_partition", &link))?;
    assert_eq!(held, ["kernel", "the kernel: it goes with the process that holds it"]);
    drop(guard);
    let lost = || refused(&mcp, &supervised[0]).is_ok_and(|[code, _]| code == "GUARD_MISSING");
    assert!(wait_until(HANG, lost), "the guard has ended, and is promised still");

    let status = mcp.call_tool("chaos_status", json!({}))?.ok()?;
    let active = status["active_faults"].as_array().cloned().unwrap_or_default();
    assert!(active.iter().all(|fault| fault["active"] == false), "{status}");
    assert!(is_up(&pair.near) && cgroup.read("cgroup.freeze")? == "0", "looking has changed something");
    Ok(Outcome::Pass)
}

/// What `chaosctl inject --dry-run` says of the link.
fn dry_run(daemon: &Daemon, namespace: &str) -> Result<String> {
    let mut command = Command::new(binary("chaosctl")?);
    command.arg("--socket").arg(daemon.socket());
    command.args(["inject", "link_down", "--interface", INTERFACE, "--netns", namespace, "--dry-run"]);
    output(&mut command)
}
