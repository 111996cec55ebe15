//! What a run waits for, samples, and asks the injector: each ends in what happened.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::activity::{Condition, Deed};
use super::document::Experiment;
use super::driver::{Means, unexpected};
use super::machine::Event;
use super::role::{Role, Stage};
use super::verification::{record, sample, verify};
use crate::probe::Sample;
use crate::probe::prober::Prober;
use crate::request::wire::Door;
use crate::request::{ApiError, ErrorCode, Evidence, FaultState, FaultStatus, Removal, Reply, Request};
use crate::spec::QualifiedName;

/// How often faults are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// What the driver hears of.
pub(super) enum Happened {
    Event(Event),
    /// What is to be before the method is known: which faults would be refused, and what the steady state is.
    Ready(Vec<(ErrorCode, String)>, Event),
    /// Somebody stops the run, perhaps not for the first time.
    Stopped,
    /// The last look at the system after a stop has had its time.
    Enough,
    /// A fault is active, or may be: when it was asked for, and when it ends.
    Injected(usize, Instant, Instant, Result<Box<Evidence>, ApiError>),
    /// The steady state during an outage, or what is taken for one: when it was asked for.
    Tracked(Instant, bool),
    /// It is time to sample a condition: when it was.
    Due(usize, Instant),
    /// A condition was sampled while the method went on: when that was due.
    Observed(usize, Instant, Result<(), String>),
    /// A gate was sampled: when that was due, and when it was asked for.
    Gated(usize, Instant, Instant, Sample),
    /// An alert was asked for: when that was due, and when it was.
    Alerted(usize, Instant, Instant, Sample),
    /// What is active, if that could be read.
    Looked(Option<Vec<FaultStatus>>),
    /// A fault is removed, or had ended by itself: what it had met, if that is known; why it ended, if that was before its time.
    Removed(usize, Result<Vec<Removal>, ApiError>, Option<Box<Evidence>>, Option<String>),
}

pub(super) async fn due(index: usize, at: Instant) -> Happened {
    sleep_until(at).await;
    Happened::Due(index, at)
}

pub(super) async fn observe(
    condition: &Condition,
    index: usize,
    at: Instant,
    means: &Means<'_>,
    over: watch::Receiver<bool>,
) -> Happened {
    let place = (Role::SteadyState, Stage::During);
    let late = Some(at.elapsed());
    let verified = verify(condition, means.prober, place, means.recorder, late, Some(over)).await;
    Happened::Observed(index, at, verified)
}

pub(super) async fn track(experiment: &Experiment, pause: Duration, means: &Means<'_>) -> Happened {
    sleep(pause).await;
    let asked = Instant::now();
    let place = (Role::Recovery, Stage::During);
    let met = sample(experiment, means.prober, place, means.recorder, false).await.is_ok();
    Happened::Tracked(asked, met)
}

pub(super) async fn ask(experiment: &Experiment, index: usize, at: Instant, prober: &Prober) -> Happened {
    sleep_until(at).await;
    let asked = Instant::now();
    let sample = match experiment.guardrails.gates.get(index) {
        Some(gate) => prober.sample(&gate.probe).await,
        None => Sample::failed("there is no such gate".to_owned()),
    };
    Happened::Gated(index, at, asked, sample)
}

pub(super) async fn ask_for_alert(
    experiment: &Experiment,
    number: usize,
    at: Instant,
    prober: &Prober,
) -> Happened {
    sleep_until(at).await;
    let asked = Instant::now();
    Happened::Alerted(number, at, asked, prober.sample(&experiment.guardrails.alerts[number].probe).await)
}

pub(super) async fn look(door: &Door) -> Happened {
    sleep(LOOK).await;
    match door.call(Request::Status).await {
        Ok(Reply::Status(faults)) => Happened::Looked(Some(faults)),
        _ => Happened::Looked(None),
    }
}

pub(super) async fn probe(experiment: &Experiment, index: usize, means: &Means<'_>) -> Happened {
    record(experiment, index, means).await;
    Happened::Event(Event::Probed(index))
}

pub(super) async fn inject(experiment: &Experiment, index: usize, means: &Means<'_>) -> Happened {
    let activity = experiment.method.get(index).map(|activity| &activity.deed);
    let (Some(Deed::Inject { fault, .. }), Some(name)) = (activity, means.name(index)) else {
        let error = ApiError::new(ErrorCode::InvalidParameter, format!("activity {index} injects nothing"));
        return Happened::Injected(index, Instant::now(), Instant::now(), Err(error));
    };
    let asked = Instant::now();
    let request = Request::Inject { name, fault: fault.clone(), plan_digest: None };
    // Its time began before it was applied, which may take long.
    let (lasts, result) = match means.door.call(request).await {
        Ok(Reply::Injected(status)) => (status.remaining, Ok(Box::new(status.evidence))),
        Ok(other) => (Duration::ZERO, Err(unexpected(&other))),
        Err(error) => (Duration::ZERO, Err(error)),
    };
    Happened::Injected(index, asked, Instant::now() + lasts, result)
}

/// Removes once: what does not go at the first try, the injector keeps trying by itself. `end` is when the fault ends by itself,
/// if it matters that it has not ended before.
pub(super) async fn remove(index: usize, end: Option<Instant>, means: &Means<'_>) -> Happened {
    let Some(name) = means.name(index) else {
        return Happened::Removed(index, Ok(Vec::new()), None, None);
    };
    let is_due = end.is_none_or(|end| end <= Instant::now() + LOOK);
    let request = Request::Remove { name: name.given() };
    let answer = match means.door.call(request).await {
        Ok(Reply::Removed(removals)) => Ok(removals),
        Ok(other) => Err(unexpected(&other)),
        Err(error) => Err(error),
    };
    let (met, gone) = match answer.as_deref() {
        Ok([removal, ..]) => (Some(removal.evidence), None),
        Ok([]) => {
            let status = status(&name, means.door).await;
            (status.as_ref().map(|fault| fault.evidence), (!is_due).then(|| why_gone(status.as_ref())))
        }
        Err(_) => (None, None),
    };
    Happened::Removed(index, answer, met.map(Box::new), gone)
}

/// What is known of a fault that has ended by itself, as one does that lasts as long as it may.
async fn status(name: &QualifiedName, door: &Door) -> Option<FaultStatus> {
    match door.call(Request::Status).await {
        Ok(Reply::Status(faults)) => faults.into_iter().find(|fault| fault.name == *name),
        _ => None,
    }
}

/// Why a fault has ended, for people.
pub(super) fn why_gone(status: Option<&FaultStatus>) -> String {
    match status {
        Some(fault) if fault.state == FaultState::Ended => {
            fault.note.clone().unwrap_or_else(|| "nobody says why".to_owned())
        }
        _ => "it is no longer active".to_owned(),
    }
}
