//! An experiment at a stage of its blast radius, and what is wider than that.

use super::activity::Deed;
use super::document::Experiment;
use super::stage::{Stage, Step};
use super::verdict::Verdict;
use crate::spec::blast::{Severity, percent};
use crate::spec::units::LONGEST_FAULT;
use crate::spec::{FaultRequest, SpecError};

/// The experiment as it is run at a stage: each fault is held to that share of what it matches.
///
/// # Errors
/// When one affects all or nothing; [`Experiment::parse`] refuses such a document.
pub fn at(experiment: &Experiment, stage: Stage) -> Result<Experiment, SpecError> {
    let mut experiment = experiment.clone();
    for activity in &mut experiment.method {
        if let Deed::Inject { fault, .. } = &mut activity.deed {
            **fault = fault.held_to(stage.share()?)?;
        }
    }
    Ok(experiment)
}

/// What to do next, now that a run has ended with `verdict` and `history` has all that were run at a stage, this one included.
/// A run that was held shows that this much was borne this time, and no more; so there is always something that is wider.
pub fn next(experiment: &Experiment, history: &[Step], verdict: Verdict) -> Option<String> {
    let wider = || format!("widen: {}", widen(experiment).join("; "));
    let Some(radius) = &experiment.guardrails.blast_radius else {
        return (verdict == Verdict::Held)
            .then(|| format!("held, which shows this much and no more; {}", wider()));
    };
    if radius.is_done(history) {
        return Some(format!("held at every stage; {}", wider()));
    }
    let due = radius.due(history, None).ok()?.stage;
    let again = history.iter().any(|(stage, _)| *stage == due);
    let again = if again { " again" } else { "" };
    Some(format!(
        "{due} is due{again}: chaos_run_experiment of {:?} with stage {}",
        experiment.name,
        due.percent()
    ))
}

/// How an experiment could ask for more, in the order of what is seen soonest.
fn widen(experiment: &Experiment) -> Vec<String> {
    let staged = experiment.guardrails.blast_radius.as_ref();
    let mut ways = Vec::new();
    if let Some(last) = staged.and_then(|radius| radius.stages().last()).filter(|last| last.percent() < 100) {
        ways.push(format!("a stage above {} %", last.percent()));
    }
    let mut severities = Vec::new();
    for fault in experiment.faults().map(|(_, _, fault)| fault) {
        let Ok(parsed) = fault.parse() else { continue };
        let (name, blast) = (fault.fault_type.name(), parsed.effect.blast());
        if staged.is_none() && blast.share < 1.0 {
            ways.push(format!(
                "more than {} % of the {} that {name} matches",
                percent(blast.share),
                blast.of.name()
            ));
        }
        if parsed.duration < LONGEST_FAULT {
            ways.push(format!("{name} for longer than {:?}", parsed.duration));
        }
        severities.push((name, blast.severity));
    }
    if let Some((name, severity)) = severities.iter().max_by_key(|(_, severity)| *severity) {
        ways.push(match severity {
            Severity::Outage => format!("a fault of another kind than {name}, or two at once"),
            milder => {
                format!("what is worse than {} by {name}, such as {}", milder.name(), harder(experiment))
            }
        });
    }
    ways.push("another target".to_owned());
    ways.dedup();
    ways
}

/// What would be worse than the faults of an experiment, none of which is an outage.
fn harder(experiment: &Experiment) -> &'static str {
    let of_packets = |fault: &FaultRequest| fault.target.interface.is_some();
    match experiment.faults().any(|(_, _, fault)| of_packets(fault)) {
        true => "harder parameters, or a network_partition",
        false => "harder parameters, or a process_kill",
    }
}
