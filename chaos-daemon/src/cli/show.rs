//! The daemon's answers as text for people.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::duration;
use super::words::in_shell;
use crate::experiment::alert::Alarm;
use crate::experiment::recovery::Incident;
use crate::experiment::role::Stage;
use crate::experiment::{Recovery, Verdict};
use crate::mcp::control::{AbilityView, DoctorOutput};
use crate::mcp::experiment::RegisterOutput;
use crate::mcp::plan::PlanOutput;
use crate::mcp::results::{FaultView, InjectOutput, RunOutput, RunningView, StatusOutput};
use crate::mcp::targets::TargetsOutput;
use crate::request::evidence::words;
use crate::request::host_targets::HostTargets;
use crate::server::history::Latest;
use crate::server::history::precedents::{Precedents, Similar};
use crate::spec::{FAULT_TYPES, FaultType};

/// A length of time that the daemon has given as a number of seconds.
pub(super) fn seconds(seconds: f64) -> String {
    duration::show(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// One line at the end of `out`; writing to a string cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{
        let _ = writeln!($out, $($format)*);
    }};
}

/// What an injection did: what is broken, until when, and how to stop it.
pub(super) fn injected(answer: &InjectOutput) -> String {
    let mut out = String::new();
    let name = &answer.fault_name;
    if !answer.was_triggered {
        line!(out, "{name}: {}", answer.message.as_deref().unwrap_or_default());
        return out;
    }
    line!(out, "{name}: {}", answer.description.as_deref().unwrap_or_default());
    if ["host_reboot", "host_panic"].contains(&answer.fault_type.as_str()) {
        line!(out, "  prevent it, before it is too late, with: chaosctl stop {name}");
        return out;
    }
    let ends = seconds(answer.ends_in_seconds.unwrap_or_default());
    line!(out, "  ends by itself in {ends}; stop it now with: chaosctl stop {name}");
    if answer.state.as_deref() == Some("no_traffic") {
        line!(out, "  active, but nothing has met it yet; see: chaosctl status");
    }
    for words in [&answer.note, &answer.error_message].into_iter().flatten() {
        line!(out, "  {words}");
    }
    out
}

/// What an injection would do.
pub(super) fn plan(answer: &PlanOutput) -> String {
    let mut out = String::new();
    line!(out, "would do: {}", answer.description);
    line!(out, "  for {}; lifetime class {}", seconds(answer.duration_seconds), answer.lifetime);
    line!(out, "  guard: {}", answer.guard);
    if let Some(impact) = &answer.impact {
        line!(out, "  would affect: {impact}");
    }
    for step in &answer.steps {
        line!(out, "  - {step}");
    }
    if let Some(targets) = &answer.targets {
        out.push_str(&targets.to_string());
    }
    if !answer.plan_digest.is_empty() {
        line!(out, "  plan digest {}", answer.plan_digest);
    }
    for (found, word) in [(&answer.restarts, "started anew by"), (&answer.warnings, "warning")] {
        for found in found {
            line!(out, "  {word}: {found}");
        }
    }
    out
}

/// What is registered and active.
pub(super) fn status(answer: &StatusOutput) -> String {
    let mut out = String::new();
    let (active, others): (Vec<_>, Vec<_>) =
        answer.active_faults.iter().partition(|fault| fault.active == Some(true));
    let registered = answer.active_faults.iter().filter(|fault| fault.registered).count();
    line!(out, "{} active, {registered} registered", active.len());
    active.iter().for_each(|fault| active_fault(&mut out, fault));
    others.iter().for_each(|fault| inactive(&mut out, fault));
    runs(&mut out, answer);
    out
}

/// A fault that is on the host.
fn active_fault(out: &mut String, fault: &FaultView) {
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    let remaining = seconds(fault.remaining_seconds.unwrap_or_default());
    line!(out, "  {}  {}  ends in {remaining}", fault.name, word(&fault.state));
    if fault.description.is_none() {
        line!(out, "      {}, of {}", fault.fault_type, word(&fault.owner));
        return;
    }
    line!(out, "      {}", word(&fault.description));
    line!(out, "      {}; guard: {}", word(&fault.lifetime), word(&fault.guard));
    let addresses: Vec<_> = fault.host_addresses.iter().map(ToString::to_string).collect();
    if !addresses.is_empty() {
        line!(out, "      its host stands for {}", addresses.join(", "));
    }
    let evidence = fault.evidence.unwrap_or_default();
    for words in words::lines(&evidence, FaultType::parse(&fault.fault_type).ok()) {
        line!(out, "      {words}");
    }
    if let Some(note) = &fault.note {
        line!(out, "      {note}");
    }
}

/// A fault that is registered, or has ended.
fn inactive(out: &mut String, fault: &FaultView) {
    let note = fault.note.as_ref().map(|note| format!("  ({note})")).unwrap_or_default();
    let state = if fault.registered { "registered" } else { "ended" };
    let FaultView { name, fault_type, .. } = fault;
    line!(out, "  {name}  {state}  {fault_type}, probability {}{note}", json!(fault.probability));
    let evidence = fault.evidence.unwrap_or_default();
    for words in words::lines(&evidence, FaultType::parse(fault_type).ok()) {
        line!(out, "      {words}");
    }
}

/// The share of runs with success.
pub(super) fn successful(rate: f64) -> String {
    format!("{:.0} % of those that show something successful", rate * 100.0)
}

fn runs(out: &mut String, answer: &StatusOutput) {
    for RunningView { experiment_name, run_id, fault_name, .. } in &answer.running {
        line!(out, "  running: {experiment_name} (run {run_id}, fault {fault_name})");
    }
    let successful = match answer.total_runs {
        0 => String::new(),
        _ => format!(", {}", successful(answer.success_rate)),
    };
    let (registered, total) = (answer.registered_experiments, answer.total_runs);
    line!(out, "{registered} experiments registered, {total} runs{successful}");
    for result in &answer.results {
        line!(out, "  {}", result_line(result));
    }
}

/// The verdict on a run; of one of before there were verdicts, whether it was a success.
fn verdict(result: &RunOutput) -> &'static str {
    match (result.verdict, result.success) {
        (Some(verdict), _) => verdict.name(),
        (None, true) => "success",
        (None, false) => "no success",
    }
}

/// What would become of a run.
fn admission(answer: &RunOutput) -> &'static str {
    if answer.success { "would be run, looked at" } else { "would be refused, looked at" }
}

fn result_line(result: &RunOutput) -> String {
    let RunOutput { started_at, run_id, experiment_name, .. } = result;
    let (verdict, took) = (verdict(result), seconds(result.duration_seconds));
    let error = result.error.as_deref().unwrap_or_default();
    let line = format!("{started_at}  {run_id}  {verdict}  {experiment_name}  {took}  {error}");
    line.trim_end().to_owned()
}

/// Runs that have ended, a line each, and those that go on.
pub(super) fn history<'a>(results: impl Iterator<Item = &'a RunOutput>, running: &[RunningView]) -> String {
    let mut out = String::new();
    for result in results {
        line!(out, "{}", result_line(result));
    }
    for RunningView { started_at, run_id, experiment_name, .. } in running {
        line!(out, "{started_at}  {run_id}  running  {experiment_name}");
    }
    if out.is_empty() {
        line!(out, "no such run");
    }
    out
}

/// What is known of one run in all.
pub(super) fn details(result: &RunOutput) -> String {
    let mut out = run(result);
    line!(out, "  run {}, begun {}", result.run_id, result.started_at);
    if let Some(affected) = result.packets_affected {
        line!(out, "  packets, or calls, that its faults acted on: {affected}");
    }
    if let Some(reaction) = result.gate_reaction_seconds {
        line!(out, "  from the breach to all faults removed: {}", seconds(reaction));
    }
    out
}

/// How a run went.
pub(super) fn run(answer: &RunOutput) -> String {
    let mut out = String::new();
    let is_unknown = answer.verified.is_none() && answer.verdict == Some(Verdict::Interrupted);
    let met = |stage: Stage, met: bool| match (answer.verified.is_none_or(|stages| stages.has(stage)), met) {
        _ if is_unknown => "unknown",
        (true, true) => "met",
        (true, false) => "not met",
        (false, _) => "not verified",
    };
    let stage = answer.stage.map(|stage| format!(" at {stage}")).unwrap_or_default();
    let outcome = if answer.dry_run == Some(true) { admission(answer) } else { verdict(answer) };
    line!(out, "{}{stage}: {outcome} after {}", answer.experiment_name, seconds(answer.duration_seconds));
    let before = met(Stage::Before, answer.steady_state_before);
    let after = met(Stage::After, answer.steady_state_after);
    line!(out, "  steady state before: {before}, after: {after}");
    answer.plans.iter().flatten().for_each(|planned| plan_of_action(&mut out, planned));
    for limit in answer.host_limits.iter().flatten() {
        line!(out, "  ends by {limit}");
    }
    for name in answer.not_sampled.iter().flatten() {
        line!(out, "  not sampled, since asking may change something: {name}");
    }
    for (word, digest) in [("document", &answer.digest), ("plan digest", &answer.plan_digest)] {
        if let Some(digest) = digest {
            line!(out, "  {word} {digest}");
        }
    }
    if let Some(history) = &answer.history {
        precedents(&mut out, history);
    }
    if let Some(shown) = &answer.recovery {
        recovery(&mut out, shown);
    }
    for text in [&answer.error, &answer.warning].into_iter().flatten() {
        line!(out, "  {text}");
    }
    if let Some(next) = &answer.next {
        line!(out, "  next: {}", in_shell(next));
    }
    out
}

/// What has run before, and what was like it.
fn precedents(out: &mut String, history: &Precedents) {
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
fn plan_of_action(out: &mut String, planned: &PlanOutput) {
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    line!(out, "  {} ({})", word(&planned.action), word(&planned.fault_type));
    let lines = match &planned.error {
        Some(error) => format!("refused: {}\n", error.message),
        None => plan(planned),
    };
    lines.lines().for_each(|line| line!(out, "    {line}"));
}

/// What a run has shown of recovery.
fn recovery(out: &mut String, recovery: &Recovery) {
    recovery.incidents.iter().for_each(|each| incident(out, each));
    recovery.alerts.iter().for_each(|each| alarm(out, each));
    if let Some(detected) = recovery.mttd_by_alert_seconds {
        line!(out, "  MTTD by alert {}", seconds(detected));
    }
    if let Some(recovered) = recovery.mttr_seconds {
        let detected = seconds(recovery.mttd_seconds.unwrap_or_default());
        line!(out, "  MTTD {detected}, MTTR {}", seconds(recovered));
    }
    if let Some(within) = recovery.within_rto {
        let objective = seconds(recovery.rto_seconds.unwrap_or_default());
        let word = if within { "met" } else { "missed" };
        line!(out, "  recovery time objective of {objective}: {word}");
    }
}

/// What came of one action.
fn incident(out: &mut String, incident: &Incident) {
    let times = [
        (incident.gone_after_seconds, "process gone"),
        (incident.unreachable_after_seconds, "steady state seen to fail"),
        (incident.new_process_after_seconds, "new process"),
        (incident.recovered_after_seconds, "recovered"),
    ];
    let times =
        times.into_iter().filter_map(|(after, word)| Some(format!("{word} after {}", seconds(after?))));
    let missing = match &incident.finding {
        Some(finding) => Some(finding.clone()),
        None if incident.recovered_after_seconds.is_none() => Some("not seen to recover".to_owned()),
        None => None,
    };
    let words: Vec<_> = times.chain(missing).collect();
    line!(out, "  {}: {}", incident.action, words.join(", "));
}

/// What became of one alert.
fn alarm(out: &mut String, alarm: &Alarm) {
    let fired = match alarm.fired_after_seconds {
        Some(after) => format!("fired after {}", seconds(after)),
        None => "not seen to fire".to_owned(),
    };
    let gone = alarm.gone_after_seconds.map(|after| format!(", gone {} after the removal", seconds(after)));
    line!(out, "  alert {}: {fired}{}", alarm.alert, gone.unwrap_or_default());
}

/// What was registered.
pub(super) fn registered(answer: &RegisterOutput) -> String {
    let mut out = String::new();
    let name = &answer.experiment_name;
    line!(out, "registered {name:?}: {} for {}", answer.fault_type, seconds(answer.hold_seconds));
    for line in answer.steady_state.iter().chain(&answer.message) {
        line!(out, "  {line}");
    }
    line!(out, "  run it with: chaosctl experiment run {name:?}");
    out
}

/// What can be aimed at on this host, a line each.
pub(super) fn targets(answer: &TargetsOutput) -> String {
    let HostTargets { interfaces, netns, units, containers, cgroups, ports, not_seen, more } = &answer.found;
    let mut out = String::new();
    let is_any = |count: usize, heading: &str, out: &mut String| {
        if count > 0 {
            line!(out, "{heading}");
        }
    };
    is_any(interfaces.len(), "interfaces (--interface, and --netns)", &mut out);
    for it in interfaces {
        let place = it.netns.as_ref().map(|netns| format!(" in {netns}")).unwrap_or_default();
        let (state, routes) = (if it.up { "" } else { ", down" }, it.routes.join(", "));
        let way = if routes.is_empty() { routes } else { format!("; to {routes}") };
        line!(out, "  {}{place}{state}  {}{way}", it.interface, it.addresses.join(", "));
    }
    is_any(netns.len(), "other network namespaces (--netns)", &mut out);
    netns.iter().for_each(|name| line!(out, "  {name}"));
    for (groups, heading) in [
        (units, "systemd units (--unit)"),
        (containers, "containers (--container)"),
        (cgroups, "control groups (--cgroup)"),
    ] {
        is_any(groups.len(), heading, &mut out);
        for it in groups {
            let why = it.protected.as_ref().map(|why| format!("; protected: {why}")).unwrap_or_default();
            line!(out, "  {}  {} processes: {}{why}", it.name, it.processes, it.programs.join(", "));
        }
    }
    is_any(ports.len(), "who listens (--port, --local-port)", &mut out);
    for it in ports {
        let address = SocketAddr::new(it.address, it.port);
        let who = match &it.owner {
            Some(owner) if owner.unit.is_empty() => format!("{} ({})", owner.name, owner.pid),
            Some(owner) => format!("{} ({}) of {}", owner.name, owner.pid, owner.unit),
            None => format!("a process of user {}", it.uid),
        };
        line!(out, "  {} {address}  {who}", it.protocol);
    }
    not_seen.iter().for_each(|what| line!(out, "not seen: {what}"));
    if *more > 0 {
        line!(out, "{more} more: narrow it with --text");
    }
    out
}

/// What this host can do.
pub(super) fn doctor(answer: &DoctorOutput) -> String {
    let mut out = String::new();
    line!(out, "kernel {}, chaos-daemon {}", answer.kernel, answer.version);
    for AbilityView { fault_type, possible, missing, remedy, resources, .. } in &answer.faults {
        ability(&mut out, fault_type, *possible, missing, remedy.as_deref());
        for part in resources {
            let name = format!("  {}", part.resource);
            ability(&mut out, &name, part.possible, &part.missing, part.remedy.as_deref());
        }
    }
    for fact in &answer.facts {
        line!(out, "  {}: {}", fact.name, fact.value);
    }
    for left in &answer.residue {
        line!(out, "  left over: {left}");
    }
    out.push_str(match answer.residue.is_empty() {
        true => {
            "no leftovers of ours in the daemon's network namespace; everywhere: chaosctl doctor --residue\n"
        }
        false => "  look everywhere, and at how they go away, with: chaosctl doctor --residue\n",
    });
    out
}

/// A line about what is possible or missing, and one about what would supply it.
fn ability(out: &mut String, name: &str, possible: bool, missing: &[String], remedy: Option<&str>) {
    if possible {
        line!(out, "  {name:<20} possible");
        return;
    }
    line!(out, "  {name:<20} missing: {}", missing.join(", "));
    if let Some(remedy) = remedy {
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
