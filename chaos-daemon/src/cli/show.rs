//! The daemon's answers as text for people.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::duration;
use crate::experiment::{Impact, Verdict};
use crate::request::TargetsReport;
use crate::server::history::Latest;
use crate::server::history::precedents::{Precedents, Similar};
use crate::spec::FAULT_TYPES;

/// Fault types that meet calls; the others that match something meet packets.
const OF_CALLS: &[&str] = &["connect_error", "file_error", "socket_error", "mcp_error"];

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn seconds(value: &Value, field: &str) -> String {
    let seconds = value[field].as_f64().unwrap_or_default();
    duration::show(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// One line at the end of `out`; writing to a string cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{
        let _ = writeln!($out, $($format)*);
    }};
}

/// What an injection did: what is broken, until when, and how to stop it.
pub(super) fn injected(answer: &Value) -> String {
    let mut out = String::new();
    let name = text(answer, "fault_name");
    if answer["was_triggered"] != json!(true) {
        line!(out, "{name}: {}", text(answer, "message"));
        return out;
    }
    line!(out, "{name}: {}", text(answer, "description"));
    if takes_host_down(answer) {
        line!(out, "  prevent it, before it is too late, with: chaosctl stop {name}");
        return out;
    }
    line!(
        out,
        "  ends by itself in {}; stop it now with: chaosctl stop {name}",
        seconds(answer, "ends_in_seconds")
    );
    if text(answer, "state") == "no_traffic" {
        line!(out, "  active, but nothing has met it yet; see: chaosctl status");
    }
    if let Some(message) = answer["error_message"].as_str() {
        line!(out, "  {message}");
    }
    out
}

fn takes_host_down(fault: &Value) -> bool {
    ["host_reboot", "host_panic"].contains(&text(fault, "fault_type"))
}

/// What an injection would do.
pub(super) fn plan(answer: &Value) -> String {
    let mut out = String::new();
    line!(out, "would do: {}", text(answer, "description"));
    line!(out, "  for {}; lifetime class {}", seconds(answer, "duration_seconds"), text(answer, "lifetime"));
    line!(out, "  guard: {}", text(answer, "guard"));
    impact(&mut out, &answer["impact"]);
    for step in list(answer, "steps") {
        line!(out, "  - {}", step.as_str().unwrap_or_default());
    }
    if let Ok(targets) = serde_json::from_value::<TargetsReport>(answer["targets"].clone()) {
        out.push_str(&targets.to_string());
    }
    for (field, word) in [("restarts", "started anew by"), ("warnings", "warning")] {
        for found in list(answer, field).iter().filter_map(Value::as_str) {
            line!(out, "  {word}: {found}");
        }
    }
    out
}

/// What is registered and active.
pub(super) fn status(answer: &Value) -> String {
    let mut out = String::new();
    let faults = list(answer, "active_faults");
    let is_active = |fault: &&Value| fault["active"] == json!(true);
    let active = faults.iter().filter(is_active).count();
    line!(
        out,
        "{active} active, {} registered",
        faults.iter().filter(|fault| fault["registered"] == json!(true)).count()
    );
    for fault in faults.iter().filter(is_active) {
        let evidence = &fault["evidence"];
        line!(
            out,
            "  {}  {}  ends in {}",
            text(fault, "name"),
            text(fault, "state"),
            seconds(fault, "remaining_seconds")
        );
        line!(out, "      {}", text(fault, "description"));
        line!(out, "      {}; guard: {}", text(fault, "lifetime"), text(fault, "guard"));
        let addresses: Vec<_> = list(fault, "host_addresses").iter().filter_map(Value::as_str).collect();
        if !addresses.is_empty() {
            line!(out, "      its host stands for {}", addresses.join(", "));
        }
        if evidence["link_downs"] != json!(0) {
            let now = if evidence["settings_held"] == json!(0) { "up" } else { "down" };
            line!(out, "      link set down {} times; {now} now", evidence["link_downs"]);
        } else if takes_host_down(fault) {
            let told = evidence["host_downs"] != json!(0);
            line!(out, "      {}", if told { "the host goes down" } else { "it can still be prevented" });
        } else if text(fault, "lifetime") == "supervised" {
            let times = evidence["times_held_back"].as_u64();
            let times =
                times.map(|times| format!("; held its cgroup back {times} times")).unwrap_or_default();
            line!(out, "      settings as the fault has set them: {}{times}", evidence["settings_held"]);
        } else if evidence["cpu_seconds"].as_f64().unwrap_or_default() > 0.0 {
            line!(out, "      CPU time burned: {}", seconds(evidence, "cpu_seconds"));
        } else if evidence["bytes_moved"].as_u64().unwrap_or_default() > 0 {
            line!(out, "      bytes read and written: {}", evidence["bytes_moved"]);
        } else if !evidence["connections"].is_null() {
            connections(&mut out, evidence);
        } else if let Some(held) = held(evidence) {
            line!(out, "      holds {held}");
            if evidence["oom_kills"] != json!(0) {
                line!(out, "      OOM killer: {} kills{}", evidence["oom_kills"], times(evidence));
            }
        } else if evidence["signals_sent"] != json!(0) {
            line!(out, "      {}", signalled(evidence));
        } else if text(fault, "fault_type") == "service_restart" {
            line!(out, "      restarted{}", times(evidence));
        } else if evidence["pauses"] != json!(0) {
            let (now, times) = (&evidence["processes_paused"], &evidence["pauses"]);
            line!(out, "      processes standing still: {now}; made to {times} times");
        } else {
            line!(
                out,
                "      {}: {} matched, {} affected, {} protected",
                if OF_CALLS.contains(&text(fault, "fault_type")) { "calls" } else { "packets" },
                evidence["packets_matched"],
                evidence["packets_affected"],
                evidence["packets_protected"]
            );
        }
        if let Some(note) = fault["note"].as_str() {
            line!(out, "      {note}");
        }
    }
    faults.iter().filter(|fault| !is_active(fault)).for_each(|fault| inactive(&mut out, fault));
    runs(&mut out, answer);
    out
}

/// A fault that is registered, or has ended.
fn inactive(out: &mut String, fault: &Value) {
    let note = fault["note"].as_str().map(|note| format!("  ({note})")).unwrap_or_default();
    line!(
        out,
        "  {}  {}  {}, probability {}{note}",
        text(fault, "name"),
        if fault["registered"] == json!(true) { "registered" } else { "ended" },
        text(fault, "fault_type"),
        fault["probability"]
    );
}

/// What a fault that takes something holds, and why it is not more.
fn held(evidence: &Value) -> Option<String> {
    let number = |field: &str| evidence[field].as_u64().unwrap_or_default();
    let (bytes, huge, things) = (number("bytes_held"), number("bytes_on_huge_pages"), number("things_held"));
    let mut words = match (bytes, things) {
        (0, 0) if evidence["shortfall"].is_null() => return None,
        (bytes, 0) => format!("{} MiB", bytes >> 20),
        (0, things) => things.to_string(),
        (bytes, things) => format!("{things}, {} MiB", bytes >> 20),
    };
    if huge > 0 {
        words.push_str(&format!(", of which {} MiB on huge pages", huge >> 20));
    }
    words.push_str(match text(evidence, "shortfall") {
        "growing" => "; still growing",
        "reserve" => "; no more, because what is left is the reserve",
        "exhausted" => "; no more, because there is no more",
        "lapsed" => "; given back, because the daemon stood still",
        "struck" => "; given back, because the OOM killer has struck",
        _ => "",
    });
    Some(words)
}

/// What has become of the connections of a load, and how long they took.
fn connections(out: &mut String, evidence: &Value) {
    let found = &evidence["connections"];
    let mut words = format!("connections: {} held, {} opened", evidence["things_held"], found["opened"]);
    for (field, name) in [
        ("refused", "refused"),
        ("timeouts", "timed out"),
        ("empty_answers", "answered with nothing"),
        ("error_answers", "answered with an error"),
        ("lost", "ended by the server"),
        ("unopened", "not to be opened from here"),
    ] {
        if found[field] != json!(0) {
            let _ = write!(words, ", {} {name}", found[field]);
        }
    }
    line!(out, "      {words}");
    for (field, name) in
        [("connect_ms", "connect"), ("first_byte_ms", "first byte"), ("initialize_ms", "initialize")]
    {
        if let Some(times) = found[field].as_object() {
            let ms = |name: &str| times[name].as_f64().unwrap_or_default();
            line!(out, "      {name}: p50 {:.1} ms, p90 {:.1}, p99 {:.1}", ms("p50"), ms("p90"), ms("p99"));
        }
    }
}

/// `signals: 2 sent, 2 processes ended, gone after 3ms, back after 120ms`.
fn signalled(evidence: &Value) -> String {
    let (sent, ended) = (&evidence["signals_sent"], &evidence["processes_ended"]);
    format!("signals: {sent} sent, {ended} processes ended{}", times(evidence))
}

/// `, gone after 3ms, back after 120ms`, as far as it is known.
fn times(evidence: &Value) -> String {
    let mut text = String::new();
    for (word, field) in [("gone", "gone_after_seconds"), ("back", "back_after_seconds")] {
        if evidence[field].is_number() {
            let _ = write!(text, ", {word} after {}", seconds(evidence, field));
        }
    }
    text
}

fn runs(out: &mut String, answer: &Value) {
    for run in list(answer, "running") {
        line!(
            out,
            "  running: {} (run {}, fault {})",
            text(run, "experiment_name"),
            text(run, "run_id"),
            text(run, "fault_name")
        );
    }
    let rate = answer["success_rate"].as_f64().unwrap_or_default();
    line!(
        out,
        "{} experiments registered, {} runs{}",
        answer["registered_experiments"],
        answer["total_runs"],
        if answer["total_runs"] == json!(0) {
            String::new()
        } else {
            format!(", {:.0} % successful", rate * 100.0)
        }
    );
    for result in list(answer, "results") {
        line!(out, "  {}", result_line(result));
    }
}

/// The verdict on a run; of one of before there were verdicts, whether it was a success.
fn verdict(result: &Value) -> &str {
    match (result["verdict"].as_str(), result["success"] == json!(true)) {
        (Some(verdict), _) => verdict,
        (None, true) => "success",
        (None, false) => "no success",
    }
}

/// What would become of a run.
fn admission(answer: &Value) -> &str {
    if answer["success"] == json!(true) { "would be run, looked at" } else { "would be refused, looked at" }
}

fn result_line(result: &Value) -> String {
    let error = result["error"].as_str().unwrap_or_default();
    let line = format!(
        "{}  {}  {}  {}  {}  {error}",
        text(result, "started_at"),
        text(result, "run_id"),
        verdict(result),
        text(result, "experiment_name"),
        seconds(result, "duration_seconds")
    );
    line.trim_end().to_owned()
}

/// Runs that have ended, a line each, and those that go on.
pub(super) fn history(answer: &Value) -> String {
    let mut out = String::new();
    for result in list(answer, "results") {
        line!(out, "{}", result_line(result));
    }
    for run in list(answer, "running") {
        let name = text(run, "experiment_name");
        line!(out, "{}  {}  running  {name}", text(run, "started_at"), text(run, "run_id"));
    }
    if out.is_empty() {
        line!(out, "no such run");
    }
    out
}

/// What is known of one run in all.
pub(super) fn details(result: &Value) -> String {
    let mut out = run(result);
    line!(out, "  run {}, begun {}", text(result, "run_id"), text(result, "started_at"));
    if let Some(affected) = result["packets_affected"].as_u64() {
        line!(out, "  packets, or calls, that its faults acted on: {affected}");
    }
    if result["gate_reaction_seconds"].is_number() {
        line!(out, "  from the breach to all faults removed: {}", seconds(result, "gate_reaction_seconds"));
    }
    out
}

/// How a run went.
pub(super) fn run(answer: &Value) -> String {
    let mut out = String::new();
    let met = |stage: &str| {
        let verified =
            answer["verified"].as_array().is_none_or(|stages| stages.iter().any(|known| known == stage));
        match (verified, answer[format!("steady_state_{stage}")] == json!(true)) {
            (true, true) => "met",
            (true, false) => "not met",
            (false, _) => "not verified",
        }
    };
    line!(
        out,
        "{}{}: {} after {}",
        text(answer, "experiment_name"),
        answer["stage"].as_u64().map(|stage| format!(" at stage {stage} %")).unwrap_or_default(),
        if answer["dry_run"] == json!(true) { admission(answer) } else { verdict(answer) },
        seconds(answer, "duration_seconds")
    );
    line!(out, "  steady state before: {}, after: {}", met("before"), met("after"));
    list(answer, "plans").iter().for_each(|planned| plan_of_action(&mut out, planned));
    for limit in list(answer, "host_limits").iter().filter_map(Value::as_str) {
        line!(out, "  ends by {limit}");
    }
    for name in list(answer, "not_sampled").iter().filter_map(Value::as_str) {
        line!(out, "  not sampled, since asking may change something: {name}");
    }
    if let Some(digest) = answer["digest"].as_str() {
        line!(out, "  document {digest}");
    }
    precedents(&mut out, &answer["history"]);
    recovery(&mut out, &answer["recovery"]);
    for field in ["error", "warning"] {
        if let Some(text) = answer[field].as_str() {
            line!(out, "  {text}");
        }
    }
    if let Some(next) = answer["next"].as_str() {
        line!(out, "  next: {next}");
    }
    out
}

/// What has run before, and what was like it.
fn precedents(out: &mut String, history: &Value) {
    let Ok(history) = serde_json::from_value::<Precedents>(history.clone()) else { return };
    line!(out, "  history: {}", history.summary);
    let ended = |run: &Latest| {
        let verdict = run.verdict.map_or("ended", Verdict::name);
        format!("{verdict} (run {}, begun {})", run.run_id, run.started_at)
    };
    if let Some(latest) = &history.same_name.latest {
        line!(out, "    the latest {}", ended(latest));
    }
    for Similar { experiment_name, run, similarity, why } in &history.similar {
        let percent = similarity * 100.0;
        line!(out, "    {experiment_name} {}: {percent:.0} % alike: {}", ended(run), why.join(", "));
    }
}

/// What one action of an experiment would do, or why it would be refused.
fn plan_of_action(out: &mut String, planned: &Value) {
    line!(out, "  {} ({})", text(planned, "action"), text(planned, "fault_type"));
    let lines = match planned["error"].as_object() {
        Some(_) => format!("refused: {}\n", text(&planned["error"], "message")),
        None => plan(planned),
    };
    lines.lines().for_each(|line| line!(out, "    {line}"));
}

/// Who would be affected, and how badly.
fn impact(out: &mut String, affected: &Value) {
    if let Ok(impact) = serde_json::from_value::<Impact>(affected.clone()) {
        line!(out, "  would affect: {impact}");
    }
}

/// What a run has shown of recovery, if it has.
fn recovery(out: &mut String, recovery: &Value) {
    for incident in list(recovery, "incidents") {
        let mut words = Vec::new();
        for (field, word) in [
            ("gone_after_seconds", "process gone"),
            ("unreachable_after_seconds", "steady state seen to fail"),
            ("new_process_after_seconds", "new process"),
            ("recovered_after_seconds", "recovered"),
        ] {
            if incident[field].is_number() {
                words.push(format!("{word} after {}", seconds(incident, field)));
            }
        }
        match incident["finding"].as_str() {
            Some(finding) => words.push(finding.to_owned()),
            None if incident["recovered_after_seconds"].is_null() => {
                words.push("not seen to recover".to_owned());
            }
            None => {}
        }
        line!(out, "  {}: {}", text(incident, "action"), words.join(", "));
    }
    for alarm in list(recovery, "alerts") {
        let mut words = vec![match alarm["fired_after_seconds"].is_number() {
            true => format!("fired after {}", seconds(alarm, "fired_after_seconds")),
            false => "not seen to fire".to_owned(),
        }];
        if alarm["gone_after_seconds"].is_number() {
            words.push(format!("gone {} after the removal", seconds(alarm, "gone_after_seconds")));
        }
        line!(out, "  alert {}: {}", text(alarm, "alert"), words.join(", "));
    }
    if recovery["mttd_by_alert_seconds"].is_number() {
        line!(out, "  MTTD by alert {}", seconds(recovery, "mttd_by_alert_seconds"));
    }
    if recovery["mttr_seconds"].is_number() {
        let (detect, recover) = (seconds(recovery, "mttd_seconds"), seconds(recovery, "mttr_seconds"));
        line!(out, "  MTTD {detect}, MTTR {recover}");
    }
    if let Some(within) = recovery["within_rto"].as_bool() {
        let word = if within { "met" } else { "missed" };
        line!(out, "  recovery time objective of {}: {word}", seconds(recovery, "rto_seconds"));
    }
}

/// What was registered.
pub(super) fn registered(answer: &Value) -> String {
    let mut out = String::new();
    let name = text(answer, "experiment_name");
    line!(out, "registered {name:?}: {} for {}", text(answer, "fault_type"), seconds(answer, "hold_seconds"));
    for condition in list(answer, "steady_state") {
        line!(out, "  {}", condition.as_str().unwrap_or_default());
    }
    if let Some(message) = answer["message"].as_str() {
        line!(out, "  {message}");
    }
    line!(out, "  run it with: chaosctl experiment run {name:?}");
    out
}

/// What this host can do.
pub(super) fn doctor(answer: &Value) -> String {
    let mut out = String::new();
    line!(out, "kernel {}, chaos-daemon {}", text(answer, "kernel"), text(answer, "version"));
    for fault in list(answer, "faults") {
        ability(&mut out, text(fault, "fault_type"), fault);
        for resource in list(fault, "resources") {
            ability(&mut out, &format!("  {}", text(resource, "resource")), resource);
        }
    }
    for fact in list(answer, "facts") {
        line!(out, "  {}: {}", text(fact, "name"), text(fact, "value"));
    }
    match list(answer, "residue") {
        [] => line!(
            out,
            "no leftovers of ours in the daemon's network namespace; everywhere: chaosctl doctor --residue"
        ),
        residue => {
            for left in residue {
                line!(out, "  left over: {}", left.as_str().unwrap_or_default());
            }
            line!(out, "  look everywhere, and at how they go away, with: chaosctl doctor --residue");
        }
    }
    out
}

/// A line about what is possible or missing, and one about what would supply it.
fn ability(out: &mut String, name: &str, found: &Value) {
    if found["possible"] == json!(true) {
        line!(out, "  {name:<20} possible");
        return;
    }
    let missing: Vec<_> = list(found, "missing").iter().filter_map(Value::as_str).collect();
    line!(out, "  {name:<20} missing: {}", missing.join(", "));
    if let Some(remedy) = found["remedy"].as_str() {
        line!(out, "  {:<20} {remedy}", "");
    }
}

/// The types of fault; as a Markdown table for the README.
pub(super) fn faults(markdown: bool) -> String {
    let mut out = String::new();
    if markdown {
        line!(out, "| fault | what it does | `params` |");
        line!(out, "|---|---|---|");
    }
    for kind in FAULT_TYPES {
        if markdown {
            line!(out, "| `{}` | {} | {} |", kind.name(), kind.summary(), kind.parameter_line());
        } else {
            line!(out, "{:<20} {}", kind.name(), kind.summary());
            line!(out, "{:<20} params: {}", "", kind.parameter_line());
        }
    }
    out
}

/// The same for programs.
pub(super) fn faults_json() -> Value {
    let faults = FAULT_TYPES.iter();
    faults.map(|kind| json!({"fault_type": kind.name(), "summary": kind.summary(), "parameters": kind.parameter_line()})).collect()
}
