//! What a kernel cannot do is refused by the name of what it lacks, before anything is changed; the words go into the table of
//! all kinds.

use std::collections::BTreeSet;

use chaos_daemon::spec::{FAULT_TYPES, FaultType};
use nix::libc;
use serde_json::{Value, json};

use super::scene::Scene;
use super::{Context, Outcome, TestResult, tests};
use crate::cgroup::{Cgroup, root};
use crate::guard::Guard;
use crate::kinds::limited::Limited;
use crate::kinds::needs::Needs;
use crate::kinds::{self, LIMITED, impossible, untried};
use crate::mcp::Answer;
use crate::mounts::without;
use crate::seccomp::forbid;
use crate::victim::are_there;
use crate::{Daemon, Error, Mcp, Result};

tests![
    without_netem_whatever_needs_it_is_refused_by_name_and_nothing_is_changed,
    without_its_controller_a_limit_and_a_share_of_one_are_refused_by_name,
    without_a_system_call_whatever_needs_it_is_refused_by_name_and_with_what_would_give_it,
    without_cgroups_whatever_names_one_is_refused_by_name,
    a_unit_that_nobody_has_is_refused_by_name,
];

/// A refusal has to name the fault and what is missing, and to say what would supply it: a command, or an option of the kernel.
pub(super) fn assert_helps(kind: &str, missing: &str, [code, message, hint]: [&str; 3]) {
    assert_eq!(code, UNSUPPORTED, "{kind}: {message}");
    assert!(message.starts_with(kind), "{kind} is not named: {message}");
    assert!(message.contains(missing), "{kind}: {missing} is not named: {message}");
    let command = hint.split('`').nth(1).is_some_and(|command| !command.is_empty());
    assert!(command || hint.contains("CONFIG_"), "{kind}: no way out is named: {message}; {hint}");
}

/// What an answer that has to be an error says: code, message and hint.
fn error(answer: &Answer) -> [&str; 3] {
    assert!(answer.is_error, "it was accepted: {}", answer.json);
    ["code", "message", "hint"].map(|field| answer.json["error"][field].as_str().unwrap_or_default())
}

/// A plan and an injection of it have to be refused alike, with what helps.
fn assert_refused(mcp: &Mcp, kind: &str, target: &Value, params: &Value, missing: &str) -> Result<()> {
    let fault = json!({"fault_name": "r", "fault_type": kind, "target": target, "params": params});
    let planned = mcp.call_tool("chaos_plan", fault.clone())?;
    let mut register = fault;
    register["action"] = "register".into();
    register["probability"] = 1.0.into();
    mcp.call_tool("chaos_inject_fault", register)?.ok()?;
    let injected = mcp.call_tool("chaos_inject_fault", json!({"fault_name": "r", "action": "inject"}))?;
    for refusal in [error(&planned), error(&injected)] {
        assert_helps(kind, missing, refusal);
    }
    // What it was that the kernel refused first is chance.
    assert_eq!(error(&planned)[2], error(&injected)[2], "{kind}: a plan is refused otherwise");
    Ok(())
}

/// Everything that netem does, by the name that it has in the table, and its fault type.
fn of_netem() -> impl Iterator<Item = (&'static str, &'static str, Value)> {
    let of_type = |kind: &FaultType| {
        let (kind, needs) = (kind.name(), kinds::of(*kind).needs);
        let lacking = if let Needs::Netem(lacking) = needs { lacking } else { &[] };
        lacking.iter().map(move |(name, params)| (*name, kind, params()))
    };
    FAULT_TYPES.iter().flat_map(of_type)
}

/// What the daemon says of every fault type.
fn abilities(mcp: &Mcp) -> Result<Vec<Value>> {
    let report = mcp.call_tool("chaos_doctor", json!({}))?.ok()?;
    Ok(report["faults"].as_array().cloned().unwrap_or_default())
}

/// What it says that this kernel cannot do, by the names of fault types and resources.
pub(super) fn lacking(mcp: &Mcp) -> Result<BTreeSet<String>> {
    let faults = abilities(mcp)?;
    let resources = faults.iter().filter_map(|fault| fault["resources"].as_array()).flatten();
    let names = faults
        .iter()
        .map(|fault| (&fault["fault_type"], &fault["possible"]))
        .chain(resources.map(|resource| (&resource["resource"], &resource["possible"])))
        .filter(|(_, possible)| **possible == false);
    Ok(names.filter_map(|(name, _)| name.as_str().map(str::to_owned)).collect())
}

/// What the daemon says that this kernel lacks for a fault type.
fn missing(mcp: &Mcp, kind: &str) -> Result<Vec<String>> {
    let faults = abilities(mcp)?;
    let mine = faults.iter().find(|fault| fault["fault_type"] == kind);
    let mine = mine.ok_or_else(|| Error::Different(format!("no {kind} in {faults:?}")))?;
    let missing = mine["missing"].as_array().cloned().unwrap_or_default();
    Ok(missing.iter().map(|what| what.as_str().unwrap_or_default().to_owned()).collect())
}

fn without_netem_whatever_needs_it_is_refused_by_name_and_nothing_is_changed(
    context: &Context,
) -> TestResult {
    let scene = Scene::new()?;
    let there = context.has_netem();
    for (name, kind, params) in of_netem() {
        let lacks = missing(&scene.mcp, kind)?;
        if there {
            assert!(lacks.is_empty(), "{name}: netem is there, and the doctor misses {lacks:?}");
            continue;
        }
        assert!(lacks.iter().any(|what| what.contains("sch_netem")), "{name}: the doctor misses {lacks:?}");
        let refusal = scene.inject_refused(json!({"fault_type": kind, "params": params}))?;
        let [code, message, hint] = refusal.each_ref().map(String::as_str);
        assert_helps(kind, "sch_netem (", [code, message, hint]);
        assert!(hint.contains("`modprobe sch_netem`"), "{name}: {hint}");
        impossible(name, message);
        scene.assert_untouched()?;
    }
    Ok(Outcome::Pass)
}

const UNSUPPORTED: &str = "UNSUPPORTED_KERNEL";

/// What the doctor misses for a resource.
fn missing_for(mcp: &Mcp, resource: &str) -> Result<Vec<Value>> {
    let faults = abilities(mcp)?;
    let resources = faults.iter().filter_map(|fault| fault["resources"].as_array()).flatten();
    let mine = resources.into_iter().find(|found| found["resource"] == resource);
    let mine = mine.ok_or_else(|| Error::Different(format!("no {resource} in {faults:?}")))?;
    Ok(mine["missing"].as_array().cloned().unwrap_or_default())
}

/// In a group below one that hands nothing on, as all are where version 1 has the controllers.
fn without_its_controller_a_limit_and_a_share_of_one_are_refused_by_name(_: &Context) -> TestResult {
    let above = Cgroup::new()?;
    let group = above.below()?;
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let target = json!({"cgroup": format!("{}/{}", above.name(), group.name())});
    for Limited { name, params, controller, resource, mut code, words } in LIMITED.iter().copied() {
        let there = are_there(&[controller]);
        let mut words = words.to_owned();
        if let Some(resource) = resource {
            let missing = missing_for(&mcp, resource)?;
            assert_eq!(missing.is_empty(), there, "{resource}: the doctor misses {missing:?}");
            if let Some(what) = missing.first().and_then(Value::as_str) {
                assert!(
                    what.contains(&format!("the cgroup controller {controller} (")),
                    "{resource}: {what}"
                );
                (code, words) = (UNSUPPORTED, what.to_owned());
            }
        }
        let fault = json!({"fault_name": "r", "action": "register", "fault_type": "resource_exhaustion",
            "probability": 1.0, "target": target, "params": params()});
        mcp.call_tool("chaos_inject_fault", fault)?.ok()?;
        let answer = mcp.call_tool("chaos_inject_fault", json!({"fault_name": "r", "action": "inject"}))?;
        let [said, message, hint] = error(&answer);
        assert_eq!(said, code, "{name}: {}", answer.json);
        match code == UNSUPPORTED {
            true => assert_helps("resource_exhaustion", &words, [said, message, hint]),
            false => assert!(message.contains(&words) && !hint.is_empty(), "{name}: {}", answer.json),
        }
        // Where the controller is there, this group only was made without it.
        if !there {
            // The name is one of many.
            impossible(name, &message.replace(&*above.name(), "GROUP"));
        }
    }
    let status = mcp.call_tool("chaos_status", json!({}))?.ok()?;
    let active = status["active_faults"].as_array().cloned().unwrap_or_default();
    assert!(active.iter().all(|fault| fault["active"] == false), "{status}");
    Ok(Outcome::Pass)
}

/// A system call, what is missing without it, and who needs that: type, target and parameters.
type Call = (i64, &'static str, Vec<(&'static str, Value, Value)>);

fn of_calls() -> [Call; 4] {
    let processes = || json!({"pid": std::process::id()});
    let device = || json!({"interface": "lo"});
    let service = || json!({"cgroup": "no/such"});
    let none = || json!({});
    [
        (libc::SYS_pidfd_getfd, "pidfd_getfd (", vec![("mcp_error", processes(), json!({"fail": 0.5}))]),
        (libc::SYS_ptrace, "ptrace (", vec![("process_pause", processes(), none())]),
        (
            libc::SYS_bpf,
            "cls_bpf (",
            vec![
                ("network_partition", device(), none()),
                ("timeout", device(), none()),
                ("error", device(), none()),
                ("dns_error", device(), none()),
                ("latency", device(), json!({"delay_ms": 100})),
            ],
        ),
        (
            libc::SYS_bpf,
            "programs ",
            vec![
                ("connect_error", service(), none()),
                ("network_partition", service(), none()),
                ("timeout", service(), none()),
            ],
        ),
    ]
}

/// As the unit of an installed daemon keeps some from it.
fn without_a_system_call_whatever_needs_it_is_refused_by_name_and_with_what_would_give_it(
    _: &Context,
) -> TestResult {
    for (call, lacking, faults) in of_calls() {
        let daemon = Daemon::start_with(|command| forbid(command, call))?;
        let mcp = daemon.mcp()?;
        for (kind, target, params) in faults {
            assert_refused(&mcp, kind, &target, &params, lacking)?;
        }
    }
    Ok(Outcome::Pass)
}

fn without_cgroups_whatever_names_one_is_refused_by_name(_: &Context) -> TestResult {
    let group = || json!({"cgroup": "no/such"});
    let on_device = json!({"cgroup": "no/such", "interface": "lo", "direction": "egress"});
    let exhaustion = |params: Value| ("resource_exhaustion", group(), params);
    let faults = [
        ("pause", group(), json!({})),
        ("process_kill", group(), json!({})),
        ("process_pause", group(), json!({})),
        ("connect_error", group(), json!({})),
        ("file_error", group(), json!({"path": "/a"})),
        ("socket_error", group(), json!({})),
        ("network_partition", group(), json!({})),
        ("timeout", on_device, json!({})),
        exhaustion(json!({"resource": "cpu"})),
        exhaustion(json!({"resource": "memory", "memory_percent": 50})),
        exhaustion(json!({"resource": "memory", "oom": true})),
        exhaustion(json!({"resource": "pids", "count": 5})),
        exhaustion(json!({"resource": "cpu_limit", "cpu_percent": 5})),
        exhaustion(json!({"resource": "pids_limit", "pids": 5})),
    ];
    without(&root()?, || {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        for (kind, target, params) in &faults {
            assert_refused(&mcp, kind, target, params, "cgroup2 (")?;
        }
        // The whole host's is none of theirs.
        let whole =
            json!({"fault_name": "r", "fault_type": "resource_exhaustion", "params": {"resource": "cpu"}});
        mcp.call_tool("chaos_plan", whole)?.ok()?;
        Ok(Outcome::Pass)
    })
    .map_err(Into::into)
}

/// Faults of units are tried on systemd, in a VM: on a host they are its own.
fn a_unit_that_nobody_has_is_refused_by_name(_: &Context) -> TestResult {
    const UNIT: &str = "chaos-no-such.service";
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let target = json!({"unit": UNIT});
    let mut said = String::new();
    // A limit is refused for want of its controller first.
    let (pids, number) = if are_there(&["pids"]) { ("pids_limit", "pids") } else { ("pids", "count") };
    for (kind, params) in [
        ("pause", json!({})),
        ("process_kill", json!({})),
        ("process_pause", json!({})),
        ("resource_exhaustion", json!({"resource": pids, number: 5})),
    ] {
        let fault = json!({"fault_name": "r", "fault_type": kind, "target": target, "params": params});
        let answer = mcp.call_tool("chaos_plan", fault)?;
        let error = &answer.json["error"];
        said = error["message"].as_str().unwrap_or_default().to_owned();
        assert!(answer.is_error && error["code"] == "TARGET_NOT_FOUND", "{kind}: {}", answer.json);
        assert!(said.contains(UNIT), "{kind}: {}", answer.json);
    }
    // As sd_booted(3) looks.
    let booted = std::path::Path::new("/run/systemd/system").exists();
    untried(
        "a unit",
        if booted { "the units of this host are not a test's" } else { "no systemd here" },
        &said,
    );
    Ok(Outcome::Pass)
}
