//! The daemon's answers as text for people.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::{duration, evidence};
use crate::experiment::{Impact, Verdict};
use crate::request::TargetsReport;
use crate::server::history::Latest;
use crate::server::history::precedents::{Precedents, Similar};
use crate::spec::{FAULT_TYPES, FaultType};

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
        // What is none of these is not shown.
        let evidence = serde_json::from_value(fault["evidence"].clone()).unwrap_or_default();
        let fault_type = FaultType::parse(text(fault, "fault_type")).ok();
        for words in evidence::lines(&evidence, fault_type) {
            line!(out, "      {words}");
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
