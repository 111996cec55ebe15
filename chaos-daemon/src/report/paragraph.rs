//! The facts of a run in one paragraph.

use super::document::called;
use super::facts::{active, not_active, verdict};
use super::story::{Story, ended};
use super::words::{count, day, line, seconds};
use crate::experiment::timeline::Kind;
use crate::server::history::{Recorded, RunFault};

/// The facts of a run, in sentences without any mark-up: what, where, when, what was done, what failed first, and how long it took to be
/// well again.
pub fn paragraph(recorded: &Recorded) -> String {
    let story = Story::of(recorded);
    let mut said = told(&story);
    // A page has it beside the verdict; a breach has been told.
    if let Some(error) = recorded.run.error.as_ref().filter(|_| story.facts.breach.is_none()) {
        said.push_str(&format!(" The run itself says: {}", ended(error)));
    }
    said
}

/// The same of a run that is understood already.
pub(super) fn told(story: &Story<'_>) -> String {
    let (recorded, run, facts) = (story.recorded, &story.recorded.run, &story.facts);
    let host = recorded.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
    let mut said = vec![format!(
        "The experiment \"{}\" began{host} on {} and ended {} later with the verdict {}.",
        run.experiment_name,
        day(&run.started_at),
        seconds(run.duration_seconds),
        verdict(recorded),
    )];
    said.extend(run.stage.map(|stage| format!("It was run at {stage} of its blast radius.")));
    said.extend(recorded.faults.iter().map(|fault| fault_told(story, fault)));
    said.push(match (facts.first_unmet, recorded.samples.is_empty()) {
        (_, true) => "No sample is recorded.".to_owned(),
        (None, _) if facts.injected.is_none() => "No fault was active as far as is recorded.".to_owned(),
        (None, _) => "No sample was out of bounds once a fault was active.".to_owned(),
        (Some(first), _) => {
            let after = facts.injected.map(|began| {
                format!(", {} after the first fault was active", seconds(first.at_seconds - began))
            });
            let (probe, at, after) = (&first.probe, seconds(first.at_seconds), after.unwrap_or_default());
            format!(
                "The first sample out of bounds was of \"{probe}\" at {at}{after}: {}",
                ended(&line(&first.detail))
            )
        }
    });
    if let Some(breach) = facts.breach {
        let reaction = run.gate_reaction_seconds.map(|reaction| {
            format!(
                "; every fault was removed {} after the question whose answer was the breach",
                seconds(reaction)
            )
        });
        let at = seconds(breach.at_seconds);
        said.push(format!("At {at} {}{}.", breach.detail, reaction.unwrap_or_default()));
    }
    for incident in run.recovery.iter().flat_map(|recovery| &recovery.incidents) {
        said.push(format!("Of \"{}\": {}.", incident.action, story.recovered(incident)));
    }
    said.push(afterwards(story));
    let samples = count(recorded.samples.len() as u64 + recorded.samples_left_out, "sample");
    said.push(format!("Evidence: {samples}, {}.", count(recorded.events.len() as u64, "event")));
    said.join(" ")
}

/// How the system was once the faults were removed.
fn afterwards(story: &Story<'_>) -> String {
    let (run, facts) = (&story.recorded.run, &story.facts);
    let has = |kind: Kind| story.recorded.events.iter().any(|event| event.kind == kind);
    match (facts.removed, facts.met_again) {
        _ if has(Kind::RemovalFailed) => "The removal of a fault has failed.".to_owned(),
        (Some(removed), Some(met)) => {
            let after = seconds(met - removed);
            format!("The steady state was met {after} after the last fault was removed.")
        }
        (Some(_), None) if run.verified.is_some_and(|verified| verified.after) => {
            "The steady state was not met after the last fault was removed.".to_owned()
        }
        (Some(_), None) => "The steady state was not verified after the last fault was removed.".to_owned(),
        (None, _) => "No removal of a fault is recorded.".to_owned(),
    }
}

/// What became of a fault, in a sentence.
fn fault_told(story: &Story<'_>, fault: &RunFault) -> String {
    let recorded = story.recorded;
    let (name, what) = (called(recorded, &fault.name), story.what(fault));
    match active(recorded).find(|(of, ..)| *of == fault.name) {
        Some((_, from, to)) => {
            let met = fault.met().join("; ");
            let met = if met.is_empty() { met } else { format!(" ({met})") };
            let when = match story.is_point(fault) {
                true => format!("struck at {}", seconds(story.asked(&fault.name).unwrap_or(from))),
                false => format!("was active from {} to {}", seconds(from), seconds(to)),
            };
            format!("\"{name}\" ({what}) {when}{met}.")
        }
        None => format!("\"{name}\" ({what}) {}.", not_active(recorded, fault)),
    }
}
