//! The wall clock, set wrong by an offset.
//!
//! The undo is relative: the same offset the other way, so that the time that has passed, and what a time service has
//! slewed meanwhile, stays. Whether the offset is still there is told by the distance between the wall clock and the boot
//! clock, which changes by steps only: both run at the same rate, slewed or not (`kernel/time/timekeeping.c`).

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::kernel::node::{Node, StepError, Undone};

/// A step of the wall clock, and where it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSetting {
    /// Wall clock minus boot clock before, in nanoseconds.
    pub base_ns: i64,
    /// The step, in nanoseconds.
    pub offset_ns: i64,
}

/// What has become of the step.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// The clock is nearer to where it was: the step was never made, or somebody has set the clock since.
    Right,
    /// The clock is nearer to where the step has put it.
    Wrong,
}

impl ClockSetting {
    /// See [`super::Setting::apply`].
    pub(super) fn apply(&self, node: &impl Node) -> Result<(), StepError> {
        node.step_clock(self.offset_ns).map_err(|error| failed("step", error))?;
        let distance_ns = distance_on(node)?;
        match self.state(distance_ns) {
            State::Wrong => Ok(()),
            State::Right => Err(StepError::Changed {
                what: "the clock".to_owned(),
                expected: format!("an offset of {:?} s", seconds(self.offset_ns)),
                found: format!("one of {:?} s", seconds(distance_ns - self.base_ns)),
            }),
        }
    }

    /// See [`super::Setting::undo`].
    pub(super) fn undo(&self, node: &impl Node) -> Result<Undone, StepError> {
        match self.state(distance_on(node)?) {
            // Never made, or corrected by a time service: setting it back once more would make it wrong.
            State::Right => Ok(Undone::Absent),
            State::Wrong => {
                node.step_clock(-self.offset_ns).map_err(|error| failed("step", error))?;
                Ok(Undone::Removed)
            }
        }
    }

    /// See [`super::Setting::present`].
    pub(super) fn present(&self, node: &impl Node) -> Result<bool, StepError> {
        Ok(self.state(distance_on(node)?) == State::Wrong)
    }

    fn state(&self, distance_ns: i64) -> State {
        let moved = i128::from(distance_ns) - i128::from(self.base_ns);
        let from_step = (moved - i128::from(self.offset_ns)).abs();
        if from_step < moved.abs() { State::Wrong } else { State::Right }
    }
}

impl fmt::Display for ClockSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the wall clock stepped by {:+} s", seconds(self.offset_ns))
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people; at most a day and a fraction")]
fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn distance_on(node: &impl Node) -> Result<i64, StepError> {
    node.clock_distance_ns().map_err(|error| failed("read", error))
}

fn failed(operation: &'static str, source: io::Error) -> StepError {
    StepError::Setting { operation, what: "the wall clock".to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::clock::distance_ns;

    #[test]
    fn a_step_is_told_from_one_that_was_never_made_or_was_corrected() {
        let base_ns = 1_700_000_000_000_000_000;
        for offset_ns in [3_600_000_000_000, -3_600_000_000_000] {
            let setting = ClockSetting { base_ns, offset_ns };
            assert_eq!(setting.state(base_ns), State::Right);
            assert_eq!(setting.state(base_ns + offset_ns), State::Wrong);
            // Others have stepped it by a little, before or after.
            assert_eq!(setting.state(base_ns + offset_ns + 400_000_000), State::Wrong);
            assert_eq!(setting.state(base_ns + 400_000_000), State::Right);
        }
    }

    #[test]
    fn the_distance_of_the_clocks_stays_while_time_passes() {
        let before = distance_ns().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!((distance_ns().unwrap() - before).abs() < 5_000_000);
    }
}
