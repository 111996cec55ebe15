//! The report on a run: from what was recorded to text. Pure: no clock, no file, no network.

mod chart;
pub mod compare;
mod document;
pub mod html;
pub mod journal;
pub mod markdown;

use crate::experiment::Verdict;
use crate::experiment::alert::Alarm;
use crate::experiment::blind::blind;
use crate::experiment::role::{Role, Stage};
use crate::experiment::timeline::{Kind, Occurrence, Reading};
use crate::server::history::{Recorded, RunFault};

/// What a report tells of a run; times are seconds since it began.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Facts<'a> {
    /// When the first fault was active.
    injected: Option<f64>,
    /// When the last fault was removed.
    removed: Option<f64>,
    /// The first sample after the first injection that was not met, of whatever was not for the record only.
    first_unmet: Option<&'a Reading>,
    /// The first breach of a gate.
    breach: Option<&'a Occurrence>,
    /// When the steady state was met after the last fault was removed.
    met_again: Option<f64>,
}

impl<'a> Facts<'a> {
    fn of(recorded: &'a Recorded) -> Self {
        let at = |kind: Kind| recorded.events.iter().filter(move |event| event.kind == kind);
        let injected = at(Kind::Injected).next().map(|event| event.at_seconds);
        let removed = at(Kind::Removed).next_back().map(|event| event.at_seconds);
        let began = injected.unwrap_or_default();
        let first_unmet = recorded
            .samples
            .iter()
            .find(|sample| !sample.met && sample.role != Role::Method && sample.at_seconds >= began);
        let met_again = removed
            .and_then(|removed| at(Kind::Met).map(|event| event.at_seconds).find(|met| *met >= removed));
        Self { injected, removed, first_unmet, breach: at(Kind::Breach).next(), met_again }
    }
}

/// When a fault of a run was active: its name, from and to, in seconds since the run began.
fn active(recorded: &Recorded) -> impl Iterator<Item = (&str, f64, f64)> {
    let ends = [Kind::Removed, Kind::RemovalFailed, Kind::EndedEarly];
    recorded.faults.iter().filter_map(move |fault| {
        let of = |event: &&Occurrence| event.subject == fault.name;
        let from = recorded.events.iter().filter(of).find(|event| event.kind == Kind::Injected)?.at_seconds;
        let to = recorded.events.iter().filter(of).find(|event| ends.contains(&event.kind));
        let to = to.map_or(recorded.run.duration_seconds, |event| event.at_seconds);
        Some((fault.name.as_str(), from, to.max(from)))
    })
}

/// How the run ended, in a word.
fn verdict(recorded: &Recorded) -> &'static str {
    match (recorded.run.verdict, recorded.run.success) {
        (Some(verdict), _) => verdict.name(),
        (None, true) => "success",
        (None, false) => "no success",
    }
}

/// How the system was once the faults were removed.
fn afterwards(recorded: &Recorded, facts: &Facts<'_>) -> String {
    match (facts.removed, facts.met_again) {
        (Some(removed), Some(met)) => {
            format!("The steady state was met {:.1} s after the last fault was removed.", met - removed)
        }
        (Some(_), None) if recorded.run.verified.is_some_and(|verified| !verified.after) => {
            "The steady state was not verified after the last fault was removed.".to_owned()
        }
        (Some(_), None) => "The steady state was not met after the last fault was removed.".to_owned(),
        (None, _) => "No removal of a fault is recorded.".to_owned(),
    }
}

/// Whose run it is, and who has begun it, as far as that is recorded.
fn whose(recorded: &Recorded) -> impl Iterator<Item = String> {
    let host = recorded.host.as_ref().map(|host| format!(" on the host {host}")).unwrap_or_default();
    let owner = recorded.owner.as_ref().map(|owner| format!("It is a run of {owner}{host}."));
    let started = recorded.events.iter().find(|event| event.kind == Kind::Started);
    owner.into_iter().chain(started.map(|started| format!("It was started {}.", started.detail)))
}

/// The facts of a run, in sentences without any mark-up: what, when, what failed first, what was done, how long it took, and
/// what of it can be looked up.
pub fn paragraph(recorded: &Recorded) -> String {
    let (run, facts) = (&recorded.run, Facts::of(recorded));
    let mut said = vec![format!(
        "The experiment \"{}\" began at {} and ended {:.1} s later with the verdict {} (run {}).",
        run.experiment_name,
        run.started_at,
        run.duration_seconds,
        verdict(recorded),
        run.run_id
    )];
    said.extend(whose(recorded));
    if let Some(stage) = run.stage {
        said.push(format!("It was run at {stage} of its blast radius."));
    }
    said.extend(document::about(recorded));
    said.extend(recorded.faults.iter().map(|fault| told(recorded, fault)));
    said.push(match (facts.first_unmet, recorded.samples.is_empty()) {
        (_, true) => "No sample is recorded.".to_owned(),
        (None, _) => "No sample was out of bounds once a fault was active.".to_owned(),
        (Some(first), _) => {
            let after = facts
                .injected
                .map(|began| format!(", {:.1} s after the first fault was active", first.at_seconds - began));
            let (probe, after) = (&first.probe, after.unwrap_or_default());
            format!(
                "The first sample out of bounds was of \"{probe}\" at {:.1} s{after}: {}.",
                first.at_seconds, first.detail
            )
        }
    });
    if let Some(breach) = facts.breach {
        let reaction = run.gate_reaction_seconds.map(|seconds| {
            format!("; every fault was removed {seconds:.3} s after the question whose answer was the breach")
        });
        let reaction = reaction.unwrap_or_default();
        said.push(format!("At {:.1} s {}{reaction}.", breach.at_seconds, breach.detail));
    }
    said.push(afterwards(recorded, &facts));
    for incident in run.recovery.iter().flat_map(|recovery| &recovery.incidents) {
        let after = |seconds: Option<f64>| match seconds {
            Some(seconds) => format!("{seconds:.2} s after it was asked for"),
            None => "at no time that was seen".to_owned(),
        };
        said.push(match &incident.finding {
            Some(finding) => format!("Of the action \"{}\" {finding}.", incident.action),
            None => format!(
                "Of the action \"{}\" the system was seen to fail {}, and to recover {}.",
                incident.action,
                after(incident.unreachable_after_seconds),
                after(incident.recovered_after_seconds)
            ),
        });
    }
    said.extend(run.recovery.iter().flat_map(|recovery| &recovery.alerts).map(alarm));
    said.extend(blind(&recorded.samples).iter().map(|blind| format!("The {blind}.")));
    if let Some(error) = &run.error {
        said.push(format!("What the run says itself: {error}."));
    }
    let document = recorded.digest.as_deref().map(|digest| format!(", document {digest}"));
    said.push(format!(
        "Evidence: {} samples, {} events{}.",
        recorded.samples.len() as u64 + recorded.samples_left_out,
        recorded.events.len(),
        document.unwrap_or_default()
    ));
    said.extend(run.next.as_ref().map(|next| format!("Next: {next}.")));
    said.join(" ")
}

/// What became of a fault, in a sentence.
fn told(recorded: &Recorded, fault: &RunFault) -> String {
    let (kind, target) = (&fault.fault_type, &fault.target);
    let called = document::called(recorded, &fault.name);
    match active(recorded).find(|(name, ..)| *name == fault.name) {
        Some((_, from, to)) => {
            let met = fault.met().join("; ");
            let met = if met.is_empty() { met } else { format!(" ({met})") };
            format!("The fault {called} ({kind} at {target}) was active from {from:.1} s to {to:.1} s{met}.")
        }
        None => format!("The fault {called} ({kind} at {target}) {}.", not_active(recorded, fault)),
    }
}

/// What there is to say of a fault that was not seen to be active: of a run that broke off, no more than is recorded.
fn not_active(recorded: &Recorded, fault: &RunFault) -> &'static str {
    let has =
        |kind: Kind| recorded.events.iter().any(|event| event.kind == kind && event.subject == fault.name);
    let is_open = recorded.run.verdict == Some(Verdict::Interrupted);
    match (is_open, has(Kind::Injecting)) {
        (true, true) if !has(Kind::InjectionFailed) => {
            "was asked for; whether it was injected is unknown, for the record ends there"
        }
        // Its record, or that there is none, says so.
        (true, false) if recorded.events.iter().any(|event| event.kind == Kind::Phase) => {
            "was not asked for as far as the record goes"
        }
        (true, false) => "is not known to have been injected: nothing of it is recorded",
        _ => "was not injected",
    }
}

/// What became of an alert, in sentences.
fn alarm(alarm: &Alarm) -> String {
    let fired = match alarm.fired_after_seconds {
        Some(seconds) => format!("fired {seconds:.2} s after \"{}\" was asked for", alarm.action),
        None => "was not seen to fire".to_owned(),
    };
    let gone = alarm.gone_after_seconds.map(|seconds| match seconds > 0.0 {
        true => format!(", and was gone {seconds:.2} s after the last fault was removed"),
        false => ", and was gone before the last fault was removed".to_owned(),
    });
    let finding = alarm.finding.as_ref().map(|finding| format!(" Finding {finding}."));
    let (gone, finding) = (gone.unwrap_or_default(), finding.unwrap_or_default());
    format!("The alert \"{}\" {fired}{gone}.{finding}", alarm.alert)
}

/// What a sample was for, and when.
fn place(sample: &Reading) -> String {
    let role = match sample.role {
        Role::SteadyState => "steady state",
        Role::Gate => "gate",
        Role::Method => "method",
        Role::Recovery => "recovery",
        Role::Alert => "alert",
    };
    let stage = match sample.stage {
        Stage::Before => "before",
        Stage::During => "during",
        Stage::After => "after",
    };
    format!("{role}, {stage}")
}

/// The word of an event, for people.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Started => "started",
        Kind::Phase => "phase",
        Kind::Met => "steady state met",
        Kind::NotMet => "steady state not met",
        Kind::Injecting => "injecting",
        Kind::Injected => "injected",
        Kind::InjectionFailed => "injection failed",
        Kind::Removing => "removing",
        Kind::Removed => "removed",
        Kind::RemovalFailed => "removal failed",
        Kind::EndedEarly => "ended before its time",
        Kind::Breach => "gate breached",
        Kind::AlertFired => "alert fired",
        Kind::AlertGone => "alert gone",
        Kind::Finding => "finding",
        Kind::Abort => "ended before its time",
    }
}

#[cfg(test)]
mod tests;
