//! What has become of the connections, and how long they took.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::request::evidence::{ConnectionEvidence, Milliseconds, Percentiles};

/// Percentiles are those of the last so many.
const WINDOW: usize = 4096;
/// How often they are worked out.
const FRESH: Duration = Duration::from_millis(250);

/// What has become of a connection that is not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server refused it, or reset it before it had answered.
    Refused,
    /// It did not open, or an answer did not come, in time.
    TimedOut,
    /// It was accepted and got nothing, or an answer with nothing in it that says it is one.
    Empty,
    /// It got an answer that says no.
    ErrorAnswer,
    /// It was held, and the server has ended it.
    Lost,
    /// This side could not open it: no port, no descriptor, no permission.
    Unopened,
}

/// What is timed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timed {
    Connect,
    FirstByte,
    Initialize,
}

/// The books.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    held: u64,
    counts: ConnectionEvidence,
    times: [VecDeque<Duration>; 3],
    worked_out: Option<Instant>,
}

/// A connection that is held, for as long as the value lives.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a Tally);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.lock().held -= 1;
    }
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more is held.
    pub(super) fn hold(&self) -> Held<'_> {
        self.lock().held += 1;
        Held(self)
    }

    /// One has opened, and had its answers.
    pub(super) fn opened(&self) {
        self.lock().counts.opened += 1;
    }

    /// This has become of one.
    pub(super) fn count(&self, outcome: Outcome) {
        let mut books = self.lock();
        let counts = &mut books.counts;
        *match outcome {
            Outcome::Refused => &mut counts.refused,
            Outcome::TimedOut => &mut counts.timeouts,
            Outcome::Empty => &mut counts.empty_answers,
            Outcome::ErrorAnswer => &mut counts.error_answers,
            Outcome::Lost => &mut counts.lost,
            Outcome::Unopened => &mut counts.unopened,
        } += 1;
    }

    /// Something took so long.
    pub(super) fn took(&self, what: Timed, time: Duration) {
        let mut books = self.lock();
        let times = &mut books.times[what as usize];
        if times.len() == WINDOW {
            times.pop_front();
        }
        times.push_back(time);
    }

    /// Of how many attempts it is known what has become of them.
    pub(super) fn concluded(&self) -> u64 {
        let counts = self.lock().counts;
        let failed = counts.refused + counts.timeouts + counts.error_answers + counts.unopened;
        counts.opened + counts.empty_answers + failed
    }

    /// How many are held, and all that has been counted.
    pub(super) fn evidence(&self) -> (u64, ConnectionEvidence) {
        let mut books = self.lock();
        if books.worked_out.is_none_or(|when| when.elapsed() > FRESH) {
            let [connect, first_byte, initialize] =
                [0, 1, 2].map(|index: usize| percentiles(&books.times[index]));
            books.counts = ConnectionEvidence { connect, first_byte, initialize, ..books.counts };
            books.worked_out = Some(Instant::now());
        }
        (books.held, books.counts)
    }
}

/// By nearest rank; `None` without a value.
fn percentiles(times: &VecDeque<Duration>) -> Option<Percentiles> {
    let mut sorted: Vec<_> = times.iter().copied().collect();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    let rank = |percent: usize| {
        Milliseconds(sorted[(sorted.len() * percent).div_ceil(100).saturating_sub(1).min(last)])
    };
    Some(Percentiles { p50: rank(50), p90: rank(90), p99: rank(99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank_of_the_last_ones() {
        let tally = Tally::default();
        for millis in (1..=100).rev() {
            tally.took(Timed::Connect, Duration::from_millis(millis));
        }
        let millis = |p50, p90, p99| {
            let [p50, p90, p99] = [p50, p90, p99].map(|time| Milliseconds(Duration::from_millis(time)));
            Some(Percentiles { p50, p90, p99 })
        };
        let (_, found) = tally.evidence();
        assert_eq!((found.connect, found.first_byte), (millis(50, 90, 99), None));
        let tally = Tally::default();
        for millis in 0..10_000 {
            tally.took(Timed::Initialize, Duration::from_millis(millis.min(5000)));
        }
        assert_eq!(tally.evidence().1.initialize, millis(5000, 5000, 5000));
    }

    #[test]
    fn what_is_held_is_counted_for_as_long_as_it_is() {
        let tally = Tally::default();
        let held = tally.hold();
        tally.opened();
        tally.count(Outcome::Empty);
        assert_eq!((tally.evidence().0, tally.concluded()), (1, 2));
        drop(held);
        tally.count(Outcome::Lost);
        assert_eq!((tally.evidence().0, tally.concluded()), (0, 2));
    }
}
