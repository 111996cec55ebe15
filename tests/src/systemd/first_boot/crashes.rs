//! The crash matrix of a service that is stopped, which needs a systemd: a daemon with fail points and its guard, beside those
//! that are installed.

use std::time::{Duration, Instant};

use chaos_daemon::fail_point::Point;

use crate::error::{Error, Result};
use crate::matrix::supervised::{self, Supervised};
use crate::matrix::{EVENTS, Event, UNDOING};
use crate::sweep::Found;
use crate::systemd::unit::{installed, say};
use crate::systemd::{TestResult, tests};

tests![
    a_service_runs_again_wherever_the_injector_dies_that_stops_it,
    a_service_runs_again_wherever_the_injector_dies_that_keeps_it_stopped,
    a_service_runs_again_wherever_the_injector_dies_that_starts_it,
    a_service_runs_again_wherever_the_injector_dies_that_has_started_it,
    a_service_runs_again_wherever_the_guard_dies_that_starts_it_for_a_dead_injector,
    a_service_runs_again_wherever_the_guard_dies_that_has_started_it_for_a_dead_injector,
];

/// The points of undoing until the service is started, and those after it: an emulated machine takes minutes for either.
const STARTING: &[Point] = UNDOING.split_at(3).0;
const FORGETTING: &[Point] = UNDOING.split_at(3).1;
/// Before the runner's limit, with a word on how far it came.
const LIMIT: Duration = Duration::from_secs(580);

fn matrix() -> Result<Supervised> {
    // The daemon's own program, as the package brings it, guards and recovers.
    installed()?;
    let all = supervised::all(1, 0);
    let found = all.into_iter().find(|matrix| matrix.kind.name == "service_stop");
    found.ok_or_else(|| Error::Different("the matrix does not try service_stop".into()))
}

fn judge(what: &str, found: &Found) -> TestResult {
    say(&format!("service_stop, {what}: {} strikes; residue {}", found.points, found.judged));
    assert!(found.failures.is_empty() && found.points > 0, "{}", found.failures.join("\n"));
    Ok(())
}

/// The injector dies at each of the events that kill it and are `wanted`.
fn injector(what: &str, wanted: fn(&Event) -> bool) -> TestResult {
    let deadly = EVENTS.iter().filter(|event| event.kills_injector() && wanted(event));
    judge(what, &matrix()?.run(&deadly.copied().collect::<Vec<_>>(), Instant::now() + LIMIT)?)
}

fn a_service_runs_again_wherever_the_injector_dies_that_stops_it() -> TestResult {
    injector("until it is stopped", |event| !event.is_of_active())
}

fn a_service_runs_again_wherever_the_injector_dies_that_keeps_it_stopped() -> TestResult {
    injector("until it is to be started", |event| event.is_of_active() && !UNDOING.contains(&event.point))
}

fn a_service_runs_again_wherever_the_injector_dies_that_starts_it() -> TestResult {
    injector("until it is started", |event| event.is_of_active() && STARTING.contains(&event.point))
}

fn a_service_runs_again_wherever_the_injector_dies_that_has_started_it() -> TestResult {
    injector("when it is started", |event| FORGETTING.contains(&event.point))
}

fn a_service_runs_again_wherever_the_guard_dies_that_starts_it_for_a_dead_injector() -> TestResult {
    judge("by a guard, until it is started", &matrix()?.guards(STARTING, Instant::now() + LIMIT)?)
}

fn a_service_runs_again_wherever_the_guard_dies_that_has_started_it_for_a_dead_injector() -> TestResult {
    judge("by a guard, when it is started", &matrix()?.guards(FORGETTING, Instant::now() + LIMIT)?)
}
