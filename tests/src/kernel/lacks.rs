//! What a kernel cannot do is refused by the name of what it lacks, before anything is changed; the words go into the table of
//! all kinds.

use serde_json::{Value, json};

use super::scene::Scene;
use super::{Context, Outcome, TestResult, tests};
use crate::cgroup::Cgroup;
use crate::guard::Guard;
use crate::kinds::impossible;
use crate::{Daemon, Error, Mcp, Result};

tests![
    without_netem_whatever_needs_it_is_refused_by_name_and_nothing_is_changed,
    without_its_controller_a_limit_and_a_share_of_one_are_refused_by_name,
    a_unit_that_nobody_has_is_refused_by_name,
];

/// Everything that netem does, by the name that it has in the table.
fn of_netem() -> [(&'static str, &'static str, Value); 7] {
    [
        ("latency", "latency", json!({"delay_ms": 100})),
        ("latency of names", "latency", json!({"delay_ms": 100, "names": ["db.example.org"]})),
        ("packet_loss", "packet_loss", json!({"loss_percent": 10})),
        ("packet_duplicate", "packet_duplicate", json!({"duplicate_percent": 10})),
        ("packet_corrupt", "packet_corrupt", json!({"corrupt_percent": 10})),
        ("packet_reorder", "packet_reorder", json!({"reorder_percent": 10})),
        ("bandwidth", "bandwidth", json!({"rate_kbit": 1000})),
    ]
}

/// What the daemon says that this kernel lacks for a fault type.
fn missing(mcp: &Mcp, kind: &str) -> Result<Vec<String>> {
    let report = mcp.call_tool("chaos_doctor", json!({}))?.ok()?;
    let faults = report["faults"].as_array().cloned().unwrap_or_default();
    let mine = faults.iter().find(|fault| fault["fault_type"] == kind);
    let mine = mine.ok_or_else(|| Error::Different(format!("no {kind} in {report}")))?;
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
        let [code, message, hint] = scene.inject_refused(json!({"fault_type": kind, "params": params}))?;
        assert_eq!(code, "UNSUPPORTED_KERNEL", "{name}: {message}");
        assert!(message.contains("sch_netem") && !hint.is_empty(), "{name}: {message}; {hint}");
        impossible(name, &message);
        scene.assert_untouched()?;
    }
    Ok(Outcome::Pass)
}

/// Every limit, and what takes a share of one; with words of the refusal.
fn of_controllers() -> [(&'static str, Value, &'static str, &'static str); 6] {
    const UNSUPPORTED: &str = "UNSUPPORTED_KERNEL";
    const INVALID: &str = "INVALID_PARAMETER";
    let share = json!({"resource": "memory", "memory_percent": 50, "reserve_mb": 64});
    let limit = |resource: &str, field: &str, value: u64| json!({"resource": resource, field: value});
    let mut disk = limit("io_limit", "bytes_per_second", 1 << 20);
    disk["device"] = json!("7:0");
    [
        ("cpu_limit", limit("cpu_limit", "cpu_percent", 5), UNSUPPORTED, "has no cpu.max"),
        ("memory_limit", limit("memory_limit", "memory_mb", 64), UNSUPPORTED, "has no memory.high"),
        ("pids_limit", limit("pids_limit", "pids", 5), UNSUPPORTED, "has no pids.max"),
        ("io_limit", disk, UNSUPPORTED, "has no io.max"),
        ("memory of a limit", share, INVALID, "has no limit of memory"),
        ("oom", json!({"resource": "memory", "oom": true}), INVALID, "has no limit (memory.max)"),
    ]
}

/// In a group below one that hands nothing on, as all are where version 1 has the controllers.
fn without_its_controller_a_limit_and_a_share_of_one_are_refused_by_name(_: &Context) -> TestResult {
    let above = Cgroup::new()?;
    let group = above.below()?;
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let target = json!({"cgroup": format!("{}/{}", above.name(), group.name())});
    for (name, params, code, words) in of_controllers() {
        let fault = json!({"fault_name": "r", "action": "register", "fault_type": "resource_exhaustion",
            "probability": 1.0, "target": target, "params": params});
        mcp.call_tool("chaos_inject_fault", fault)?.ok()?;
        let answer = mcp.call_tool("chaos_inject_fault", json!({"fault_name": "r", "action": "inject"}))?;
        let error = &answer.json["error"];
        let message = error["message"].as_str().unwrap_or_default();
        assert!(answer.is_error && error["code"] == code, "{name}: {}", answer.json);
        assert!(message.contains(words), "{name}: {}", answer.json);
        // The name is one of many.
        impossible(name, &message.replace(&*above.name(), "GROUP"));
    }
    let status = mcp.call_tool("chaos_status", json!({}))?.ok()?;
    let active = status["active_faults"].as_array().cloned().unwrap_or_default();
    assert!(active.iter().all(|fault| fault["active"] == false), "{status}");
    Ok(Outcome::Pass)
}

/// Faults of units are tried on systemd, in a VM: on a host they are its own.
fn a_unit_that_nobody_has_is_refused_by_name(_: &Context) -> TestResult {
    const UNIT: &str = "chaos-no-such.service";
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let target = json!({"unit": UNIT});
    let mut said = String::new();
    for (kind, params) in [
        ("pause", json!({})),
        ("process_kill", json!({})),
        ("process_pause", json!({})),
        ("resource_exhaustion", json!({"resource": "pids_limit", "pids": 5})),
    ] {
        let fault = json!({"fault_name": "r", "fault_type": kind, "target": target, "params": params});
        let answer = mcp.call_tool("chaos_plan", fault)?;
        let error = &answer.json["error"];
        said = error["message"].as_str().unwrap_or_default().to_owned();
        assert!(answer.is_error && error["code"] == "TARGET_NOT_FOUND", "{kind}: {}", answer.json);
        assert!(said.contains(UNIT), "{kind}: {}", answer.json);
    }
    impossible("a unit", &format!("needs-a-machine-of-its-own: {said}"));
    Ok(Outcome::Pass)
}
