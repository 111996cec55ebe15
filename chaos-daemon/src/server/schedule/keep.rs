//! Looks after the clock, and starts the runs of the schedules: each as a caller's own, by the same way.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;

use super::plan::Firing;
use super::{Became, Outcome, Start, shown};
use crate::server::service::{Service, entrusted};

/// The clock is looked at so often even if nothing is to come: somebody may set it.
const LOOK: Duration = Duration::from_secs(30);

/// Fires what is to be fired, for ever.
pub(in crate::server) async fn keep(service: Service) -> Infallible {
    let schedules = service.schedules().clone();
    loop {
        for start in schedules.due(Timestamp::now()).await {
            let outcome = fire(&service, &start).await;
            schedules.became(start.name.clone(), &start.schedule, outcome).await;
        }
        let now = Timestamp::now();
        let wait = schedules.next(now).map_or(LOOK, |next| until(next, now));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = schedules.changed.notified() => {}
        }
    }
}

/// How long to wait for `next`: a moment longer, so that it has come then.
fn until(next: Timestamp, now: Timestamp) -> Duration {
    let left = Duration::try_from(next.duration_since(now)).unwrap_or_default();
    (left + Duration::from_millis(1)).min(LOOK)
}

/// Starts the run, in the name of who has set the schedule. What it is for them, it is here: admission, policy, gates.
async fn fire(service: &Service, start: &Start) -> Outcome {
    let Start { name, schedule, firing: Firing { occurrence, .. } } = start;
    let time = shown(*occurrence);
    let by = format!("schedule {}, of {}, for {time}", name.name, schedule.set_by);
    let begun = async {
        let service = service.in_the_name_of(entrusted(schedule.grant)?);
        service.run_pinned(&schedule.words.experiment, &schedule.digest, schedule.set_by, &by).await
    };
    match begun.await {
        Ok(run) => {
            tracing::info!(caller = %schedule.set_by, schedule = %name, experiment = run.experiment, run = run.run_id, "fired");
            Outcome { time, became: Became::Fired, times: 1, run_id: Some(run.run_id), reason: None }
        }
        Err(error) => {
            tracing::warn!(caller = %schedule.set_by, schedule = %name, %error, "a firing was refused");
            let reason = Some(error.to_string());
            Outcome { time, became: Became::Refused, times: 1, run_id: None, reason }
        }
    }
}
