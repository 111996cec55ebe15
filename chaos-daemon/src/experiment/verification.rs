//! Takes samples and judges them: the steady state, gates and alerts beforehand, and the steady state afterwards.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::activity::{Condition, Deed};
use super::document::Experiment;
use super::driver::Means;
use super::gate::Watch;
use super::role::{Role, Stage};
use super::timeline::Recorder;
use crate::probe::prober::Prober;

/// How often recovery is looked for.
const RECOVERY_LOOK: Duration = Duration::from_millis(250);
/// How often towards the end of the time that it has: an answer that comes later does not count.
const LATEST_LOOK: Duration = Duration::from_millis(20);

/// Samples every condition that is due then, all at once; `first`: each after its delay.
pub(super) async fn sample(
    experiment: &Experiment,
    prober: &Prober,
    place: (Role, Stage),
    recorder: &Recorder,
    first: bool,
) -> Result<(), String> {
    let due = experiment.conditions.iter().filter(|condition| condition.sampling.is_due(place.0, place.1));
    let samples = join_all(due.map(|condition| async move {
        if first {
            sleep(condition.sampling.initial_delay).await;
        }
        verify(condition, prober, place, recorder, None, None).await.err()
    }));
    let unmet: Vec<_> = samples.await.into_iter().flatten().collect();
    if unmet.is_empty() { Ok(()) } else { Err(experiment.variables.hide(&unmet.join(", "))) }
}

/// Samples a condition until it is met, as often as it says and the method is not `over`; the last sample counts, and is the only one
/// that is told of.
pub(super) async fn verify(
    condition: &Condition,
    prober: &Prober,
    place: (Role, Stage),
    recorder: &Recorder,
    late: Option<Duration>,
    mut over: Option<watch::Receiver<bool>>,
) -> Result<(), String> {
    let mut retries = condition.sampling.retries;
    loop {
        let sample = prober.sample(&condition.probe).await;
        let judged = condition.judge(&sample);
        if judged.is_ok() || retries == 0 || is_over(&mut over, condition.sampling.interval).await {
            recorder.sampled(&condition.name, place, &sample, judged.is_ok(), late);
            return judged;
        }
        retries -= 1;
    }
}

/// Waits for the next try; whether the method is over before that.
async fn is_over(over: &mut Option<watch::Receiver<bool>>, pause: Duration) -> bool {
    match over {
        None => {
            sleep(pause).await;
            false
        }
        Some(over) => timeout(pause, over.wait_for(|over| *over)).await.is_ok(),
    }
}

/// What has to hold before the method: the steady state, if it is to be verified then, no gate that is breached already, and no
/// alert that fires already.
///
/// # Errors
/// What is not met, for people.
pub async fn ready(experiment: &Experiment, prober: &Prober, recorder: &Recorder) -> Result<(), String> {
    let gates = join_all(experiment.guardrails.gates.iter().map(|gate| async move {
        let sample = prober.sample(&gate.probe).await;
        let mut watch = Watch::new(gate);
        watch.observe(Duration::ZERO, &sample);
        recorder.gated(&watch, Stage::Before, &sample, None);
        gate.judge(&sample).err()
    }));
    let alerts = join_all(experiment.guardrails.alerts.iter().map(|alert| async move {
        let sample = prober.sample(&alert.probe).await;
        let judged = alert.judge(&sample);
        recorder.sampled(&alert.name, (Role::Alert, Stage::Before), &sample, judged.is_ok(), None);
        judged.err()
    }));
    let (steady, gates, alerts) = tokio::join!(
        sample(experiment, prober, (Role::SteadyState, Stage::Before), recorder, true),
        gates,
        alerts
    );
    let unmet: Vec<_> =
        steady.err().into_iter().chain([gates, alerts].concat().into_iter().flatten()).collect();
    if unmet.is_empty() { Ok(()) } else { Err(experiment.variables.hide(&unmet.join(", "))) }
}

/// The steady state after a run that somebody has stopped: as it is now, whatever time the document gives it.
pub(super) async fn look_once(experiment: &Experiment, means: &Means<'_>) -> Result<(), String> {
    sample(experiment, means.prober, (Role::SteadyState, Stage::After), means.recorder, false).await
}

/// The steady state after the method, which may take its time if the document says how much.
pub(super) async fn recovered(experiment: &Experiment, means: &Means<'_>) -> Result<(), String> {
    let look =
        |first| sample(experiment, means.prober, (Role::SteadyState, Stage::After), means.recorder, first);
    let Some(limit) = experiment.guardrails.recovery else { return look(true).await };
    let end = Instant::now() + limit;
    let mut looked = look(true).await;
    loop {
        let now = Instant::now();
        let left = end.saturating_duration_since(now);
        match looked {
            Err(unmet) if left.is_zero() => {
                return Err(format!("not recovered within {limit:?}: {unmet}"));
            }
            Err(_) => sleep((left / 2).clamp(LATEST_LOOK, RECOVERY_LOOK)).await,
            Ok(()) if left.is_zero() => {
                let late = now.saturating_duration_since(end);
                return Err(format!("not recovered within {limit:?}: seen to be met {late:.1?} after that"));
            }
            Ok(()) => return Ok(()),
        }
        looked = look(false).await;
    }
}

/// Takes the sample of an activity, for the record.
pub(super) async fn record(experiment: &Experiment, index: usize, means: &Means<'_>) {
    if let Some((activity, Deed::Probe { probe, right })) =
        experiment.method.get(index).map(|activity| (activity, &activity.deed))
    {
        let sample = means.prober.sample(probe).await;
        let judged = match right {
            Some(right) => right.1.judge_sample(right.0, &sample),
            None if sample.ok => Ok(()),
            None => Err(sample.detail.clone()),
        };
        means.recorder.sampled(&activity.name, (Role::Method, Stage::During), &sample, judged.is_ok(), None);
        let detail = experiment.variables.hide(judged.as_ref().err().unwrap_or(&sample.detail));
        tracing::info!(
            caller = %means.caller,
            experiment = experiment.name,
            probe = activity.name,
            ok = judged.is_ok(),
            detail,
            "sampled"
        );
    }
}
