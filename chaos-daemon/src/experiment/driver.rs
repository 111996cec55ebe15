//! Carries out what the state machine of a run asks for: samples, asks the injector, waits.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::document::Experiment;
use super::machine::{Effect, Event, Machine, Outcome};
use crate::probe::prober::Prober;
use crate::request::wire::Door;
use crate::request::{ApiError, Caller, ErrorCode, Evidence, FaultState, Removal, Reply, Request};
use crate::spec::FaultName;

/// How often a held fault is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What can be told of a run while it goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the steady state was met before the fault.
    pub steady_before: bool,
    /// What the fault has met.
    pub evidence: Option<Evidence>,
}

/// Samples every condition, all at once.
///
/// # Errors
/// What is not met, for people.
pub async fn sample(experiment: &Experiment, prober: &Prober) -> Result<(), String> {
    let samples = futures_util::future::join_all(
        experiment
            .conditions
            .iter()
            .map(|condition| async move { condition.judge(&prober.sample(&condition.probe).await).err() }),
    );
    let unmet: Vec<_> = samples.await.into_iter().flatten().collect();
    if unmet.is_empty() { Ok(()) } else { Err(experiment.variables.hide(&unmet.join(", "))) }
}

/// Runs an experiment to its end. The future must be driven to completion: whoever may go away spawns it.
pub async fn drive(
    experiment: &Experiment,
    fault_name: &FaultName,
    caller: Caller,
    door: &Door,
    prober: &Prober,
    mut stop: watch::Receiver<bool>,
    progress: &watch::Sender<Progress>,
) -> Outcome {
    let (mut machine, mut effect) = Machine::start();
    loop {
        let event = match effect {
            Effect::Sample => Event::Sampled(sample(experiment, prober).await),
            Effect::Inject => Event::Injected(inject(experiment, fault_name, caller, door).await),
            Effect::Hold => hold(experiment.hold, fault_name, door, &mut stop, progress).await,
            Effect::Remove => Event::Removed(remove(fault_name, door, progress).await),
            Effect::Finish(outcome) => return outcome,
        };
        tracing::info!(experiment = experiment.name, fault = %fault_name, ?event, "experiment goes on");
        effect = machine.step(event);
        progress.send_modify(|progress| progress.steady_before = machine.steady_before());
    }
}

async fn inject(
    experiment: &Experiment,
    name: &FaultName,
    caller: Caller,
    door: &Door,
) -> Result<(), ApiError> {
    let fault = Box::new(experiment.fault.clone());
    match door.call(Request::Inject { name: name.clone(), fault, caller }).await? {
        Reply::Injected(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// An answer that does not belong to the question: what was done is unknown.
pub(crate) fn unexpected(reply: &Reply) -> ApiError {
    ApiError::new(
        ErrorCode::Unavailable,
        format!("the injector's answer does not fit the question: {reply:?}"),
    )
}

async fn hold(
    time: Duration,
    name: &FaultName,
    door: &Door,
    stop: &mut watch::Receiver<bool>,
    progress: &watch::Sender<Progress>,
) -> Event {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        tokio::select! {
            stopped = stop.wait_for(|stop| *stop) => {
                // An error means that nobody is left who could stop it; that is no reason to go on.
                let _ = stopped;
                return Event::Stopped;
            }
            () = sleep(left.min(LOOK)) => {}
        }
        if left <= LOOK {
            return Event::Held;
        }
        // No answer is not "gone": what cannot be read is unknown, and the fault has its own deadline.
        let Ok(Reply::Status(faults)) = door.call(Request::Status).await else { continue };
        match faults.into_iter().find(|fault| fault.name == *name) {
            Some(fault) if fault.state == FaultState::Ended => {
                return Event::Gone(fault.note.unwrap_or_else(|| "nobody says why".to_owned()));
            }
            Some(fault) => progress.send_modify(|progress| progress.evidence = Some(fault.evidence)),
            None => return Event::Gone("it is no longer active".to_owned()),
        }
    }
}

/// Removes once: what does not go at the first try, the injector keeps trying by itself.
async fn remove(name: &FaultName, door: &Door, progress: &watch::Sender<Progress>) -> Result<(), String> {
    let answer = door.call(Request::Remove { name: name.clone() }).await;
    let removals = match answer.map_err(|error| error.to_string())? {
        Reply::Removed(removals) => removals,
        other => return Err(unexpected(&other).to_string()),
    };
    if let Some(removal) = removals.first() {
        progress.send_modify(|progress| progress.evidence = Some(removal.evidence));
    }
    residue(&removals).map_or(Ok(()), |residue| Err(format!("left behind: {residue}")))
}

/// What removals left behind, for people.
pub(crate) fn residue(removals: &[Removal]) -> Option<String> {
    let residue: Vec<_> = removals.iter().flat_map(|removal| removal.residue.iter().cloned()).collect();
    (!residue.is_empty()).then(|| residue.join(", "))
}
