//! What the policy has others approve of is done once after they have, and by nobody's word otherwise.

use std::process::Output;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::experiments::document;
use super::{Context, Outcome, TestResult, tests};
use crate::daemon::run_as;
use crate::fault::Fault;
use crate::late::HANG;
use crate::mcp::Answer;
use crate::process::{linger, wait_until};
use crate::worker::Program;
use crate::{Daemon, Mcp, Pair, Residue, Result};

tests![
    a_fault_that_needs_an_approval_is_injected_once_after_another_user_gave_it_and_never_otherwise,
    two_persons_have_to_approve_within_the_time_where_the_policy_says_so,
    a_stage_is_skipped_once_by_who_has_another_users_approval_and_the_run_says_whose,
    an_approval_of_a_run_holds_for_what_its_faults_would_hit_and_two_runs_do_not_share_it,
];

const APPROVER: u32 = 61_001;
const SECOND: u32 = 61_002;
const OPERATOR: u32 = 61_003;

/// Pauses need one approval, and so do skipped stages; partitions need two.
const POLICY: &str = "roles.approver.uids = [61001, 61002]\nroles.operator.uids = [61003]\n\
    [approval.one]\nfault_types = [\"process_pause\"]\nskipped_stage = true\n\
    [approval.two]\nfault_types = [\"network_partition\"]\n";

fn chaosctl(daemon: &Daemon, user: u32, words: &[&str]) -> Result<Output> {
    let socket = format!("--socket={}", daemon.socket().display());
    // The socket is of group 0 here.
    run_as((user, 0), "chaosctl", &[&[&*socket], words].concat())
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// What a call was refused with: code and message; and the plan that the hint says to approve of.
fn refusal(answer: &Answer) -> (String, String, String) {
    let error = match answer.json.get("error") {
        Some(error) if error.is_object() => error.clone(),
        _ => {
            json!({"code": answer.json["error_code"], "message": answer.json["error"], "hint": answer.json["hint"]})
        }
    };
    assert!(answer.is_error, "not refused: {}", answer.json);
    let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
    let hint = text("hint");
    let plan = hint.split("chaosctl approve ").nth(1).and_then(|rest| rest.split('`').next());
    (text("code"), text("message"), plan.unwrap_or_default().to_owned())
}

fn inject(mcp: &Mcp, name: &str) -> Result<Answer> {
    mcp.call_tool("chaos_inject_fault", json!({"fault_name": name, "action": "inject"}))
}

fn approve(daemon: &Daemon, user: u32, plan: &str) -> Result<Output> {
    chaosctl(daemon, user, &["approve", plan])
}

fn a_fault_that_needs_an_approval_is_injected_once_after_another_user_gave_it_and_never_otherwise(
    _: &Context,
) -> TestResult {
    let program = Program::new()?;
    let first = program.start(1, "first")?;
    let daemon = Daemon::start_under(POLICY)?;
    let mcp = daemon.mcp()?;
    for name in ["one", "other"] {
        Fault::new("process_pause").named(name).aimed(json!({"exe": program.path()})).register(&mcp)?;
    }
    let (code, message, plan) = refusal(&inject(&mcp, "one")?);
    assert!(code == "APPROVAL_NEEDED" && message.contains("nobody has approved"), "{message}");
    assert_eq!(plan.len(), 64);
    // The plan says so, too, and by the same digest.
    let planned = mcp.call_tool("chaos_plan", json!({"fault_name": "one"}))?.ok()?;
    assert!(planned["plan_digest"] == plan && planned["warnings"].to_string().contains(&plan), "{planned}");
    for (user, plan, words) in [
        (0, &plan, "it is the plan of uid 0, who asks"),
        (OPERATOR, &plan, "may not approve of anything"),
        (APPROVER, &"0".repeat(64), "nobody waits for an approval"),
        (APPROVER, &plan[..32].to_owned(), "nobody waits for an approval"),
    ] {
        let refused = approve(&daemon, user, plan)?;
        assert!(!refused.status.success() && said(&refused).contains(words), "{user}: {}", said(&refused));
    }
    assert_eq!(refusal(&inject(&mcp, "one")?).0, "APPROVAL_NEEDED");
    let given = approve(&daemon, APPROVER, &plan)?;
    assert!(
        given.status.success() && said(&given).contains("uid 0 may carry it out once"),
        "{}",
        said(&given)
    );
    // It outlives the server.
    daemon.server().ok_or("no server")?.signal(Signal::SIGKILL);
    assert!(wait_until(HANG, || daemon.mcp().is_ok_and(|mcp| mcp.tools().is_ok())), "{}", daemon.log());
    let mcp = daemon.mcp()?;
    // What would be hit is another by now.
    let second = program.start(1, "second")?;
    let (code, message, _) = refusal(&inject(&mcp, "one")?);
    let is_told = message.contains("approved of another plan of it") && message.contains(&plan);
    assert!(code == "APPROVAL_NEEDED" && is_told, "{message}");
    drop(second);
    // Of two at once, whatever their names, one has it.
    let both = [daemon.mcp()?, daemon.mcp()?];
    let answers = thread::scope(|scope| {
        let asked =
            both.iter().zip(["one", "other"]).map(|(mcp, name)| scope.spawn(move || inject(mcp, name)));
        let asked: Vec<_> = asked.collect();
        let joined =
            asked.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Result<Vec<Answer>>>()
    })?;
    let (refused, injected): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.is_error);
    assert_eq!((refused.len(), injected.len()), (1, 1), "{answers:?}");
    let (code, message, _) = refusal(refused[0]);
    // Whoever comes later may find that the process is paused already, before anybody asks for its approval.
    let is_used = code == "APPROVAL_NEEDED" && message.contains("used already");
    assert!(is_used || message.contains("is traced already"), "{message}");
    assert!(wait_until(HANG, || first.stands_still()));
    let status = mcp.call_tool("chaos_status", json!({}))?.ok()?.to_string();
    assert!(status.contains("approved by uid 61001"), "{status}");
    mcp.call_tool("chaos_stop", json!({}))?.ok()?;
    assert_eq!(refusal(&inject(&mcp, "one")?).0, "APPROVAL_NEEDED");
    let folder = daemon.state_dir().join("audit").display().to_string();
    let audit = said(&chaosctl(&daemon, 0, &["audit", "show", &folder])?);
    for words in ["approve begins", "approve fault one done", "use_approval fault ", "approve", "refused"] {
        assert!(audit.contains(words), "{words}: {audit}");
    }
    Ok(Outcome::Pass)
}

fn two_persons_have_to_approve_within_the_time_where_the_policy_says_so(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start_under(POLICY)?;
    let before = Residue::take(&[&pair.near])?;
    let mcp = daemon.mcp()?;
    Fault::new("network_partition")
        .named("cut")
        .on(&pair.near, json!({"cidr": "10.77.0.2"}))
        .register(&mcp)?;
    let (code, _, plan) = refusal(&inject(&mcp, "cut")?);
    assert_eq!(code, "APPROVAL_NEEDED");
    assert!(approve(&daemon, APPROVER, &plan)?.status.success());
    assert!(refusal(&inject(&mcp, "cut")?).1.contains("1 of 2 others have approved"));
    let again = approve(&daemon, APPROVER, &plan)?;
    assert!(said(&again).contains("uid 61001 has done so already"), "{}", said(&again));
    let short = chaosctl(&daemon, SECOND, &["approve", &plan, "--for", "1s"])?;
    assert!(short.status.success(), "{}", said(&short));
    linger(Duration::from_millis(1200));
    assert!(refusal(&inject(&mcp, "cut")?).1.contains("its approval has ended"));
    // What has ended has to be approved of anew, by both.
    for user in [APPROVER, SECOND] {
        assert!(refusal(&inject(&mcp, "cut")?).1.contains(if user == APPROVER {
            "nobody"
        } else {
            "1 of 2"
        }));
        assert!(approve(&daemon, user, &plan)?.status.success());
    }
    let list = said(&chaosctl(&daemon, SECOND, &["approvals"])?);
    assert!(list.contains("2 of 2 have approved") && list.contains("approval.two.fault_types"), "{list}");
    let own = list.lines().find(|line| line.contains(" by uid 61002, from")).ok_or("not listed")?;
    let id = own.split_whitespace().next().unwrap_or_default();
    let foreign = chaosctl(&daemon, OPERATOR, &["approvals", "withdraw", id])?;
    assert!(!foreign.status.success(), "{}", said(&foreign));
    assert!(said(&chaosctl(&daemon, OPERATOR, &["approvals"])?).contains("nothing waits"));
    assert!(chaosctl(&daemon, SECOND, &["approvals", "withdraw", id])?.status.success());
    assert!(refusal(&inject(&mcp, "cut")?).1.contains("1 of 2 others have approved"));
    assert!(approve(&daemon, SECOND, &plan)?.status.success());
    inject(&mcp, "cut")?.ok()?;
    mcp.call_tool("chaos_stop", json!({}))?.ok()?;
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

/// A document in stages that pauses the workers of a program.
fn staged(program: &Program) -> Result<Value> {
    let mut document = document(&Pair::new()?);
    document["title"] = json!("workers pause");
    document["method"][0] = json!({"type": "action", "name": "pause", "provider": {"type": "process", "path": "chaosctl",
        "arguments": {"inject": "process-pause", "--exe": program.path(), "--name": "pause", "--for": "500ms"}}});
    document["extensions"] = json!([{"name": "chaos-daemon", "blast_radius": {}}]);
    Ok(document)
}

fn a_stage_is_skipped_once_by_who_has_another_users_approval_and_the_run_says_whose(
    _: &Context,
) -> TestResult {
    let program = Program::new()?;
    let _worker = program.start(1, "first")?;
    // Pauses need none here: the stage does.
    let daemon = Daemon::start_under(&POLICY.replace("\"process_pause\"", "\"host_reboot\""))?;
    let mcp = daemon.mcp()?;
    mcp.call_tool("chaos_register_experiment", staged(&program)?)?.ok()?;
    let run = json!({"experiment_name": "workers pause", "stage": 50});
    let (code, message, plan) = refusal(&mcp.call_tool("chaos_run_experiment", run.clone())?);
    let is_told = message.contains("stage 10 % comes first") && message.contains("it skips a stage");
    assert!(code == "APPROVAL_NEEDED" && is_told, "{message}");
    let given = approve(&daemon, APPROVER, &plan)?;
    assert!(said(&given).contains("stage 50 %"), "{}", said(&given));
    // Of this stage, and no other.
    let further = json!({"experiment_name": "workers pause", "stage": 100});
    assert_eq!(refusal(&mcp.call_tool("chaos_run_experiment", further)?).0, "APPROVAL_NEEDED");
    let ran = mcp.call_tool("chaos_run_experiment", run.clone())?.ok()?;
    assert_eq!((&ran["verdict"], &ran["stage"]), (&json!("held"), &json!(50)), "{ran}");
    let details = said(&chaosctl(&daemon, 0, &["show", ran["run_id"].as_str().unwrap_or_default()])?);
    assert!(details.contains("approved by uid 61001"), "{details}");
    // The stages before are not held by that, and the approval is used up.
    let (code, message, _) = refusal(&mcp.call_tool("chaos_run_experiment", run)?);
    assert!(code == "APPROVAL_NEEDED" && message.contains("used already"), "{message}");
    Ok(Outcome::Pass)
}

fn an_approval_of_a_run_holds_for_what_its_faults_would_hit_and_two_runs_do_not_share_it(
    _: &Context,
) -> TestResult {
    let program = Program::new()?;
    let _worker = program.start(1, "first")?;
    let daemon = Daemon::start_under(POLICY)?;
    let mcp = daemon.mcp()?;
    let mut document = staged(&program)?;
    document["extensions"] = json!([]);
    mcp.call_tool("chaos_register_experiment", document.clone())?.ok()?;
    let run = |mcp: &Mcp| mcp.call_tool("chaos_run_experiment", json!({"experiment_name": "workers pause"}));
    let (code, _, plan) = refusal(&run(&mcp)?);
    assert_eq!(code, "APPROVAL_NEEDED");
    // The dry run says the same, and what to do.
    let dry = mcp.call_tool("chaos_plan_experiment", json!({"experiment_name": "workers pause"}))?.json;
    assert!(dry["plan_digest"] == plan && dry["error"].to_string().contains(&plan), "{dry}");
    assert!(approve(&daemon, APPROVER, &plan)?.status.success());
    let second = program.start(1, "second")?;
    let (code, message, _) = refusal(&run(&mcp)?);
    assert!(code == "APPROVAL_NEEDED" && message.contains("approved of another plan of it"), "{message}");
    drop(second);
    let both = [daemon.mcp()?, daemon.mcp()?];
    let answers = thread::scope(|scope| {
        let asked: Vec<_> = both.iter().map(|mcp| scope.spawn(|| run(mcp))).collect();
        let joined =
            asked.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Result<Vec<Answer>>>()
    })?;
    let held: Vec<_> = answers.iter().filter(|answer| answer.json["verdict"] == "held").collect();
    assert_eq!(held.len(), 1, "{answers:?}");
    let (code, message, _) = refusal(&run(&mcp)?);
    assert!(code == "APPROVAL_NEEDED", "{message}");
    // Another document is another plan, whoever has approved of the one before.
    document["description"] = json!("Another one.");
    mcp.call_tool("chaos_register_experiment", document)?.ok()?;
    assert_ne!(refusal(&run(&mcp)?).2, plan);
    Ok(Outcome::Pass)
}
