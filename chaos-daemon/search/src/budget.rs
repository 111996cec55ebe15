//! How much a search may cost. What is asked for is within it, to the run.

use serde::{Deserialize, Serialize};

use crate::error::Invalid;

/// How much a search may cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The most runs, with those that show nothing.
    pub runs: u32,
    /// The most seconds on the clock, with the time to recover. A run is begun only if it will end in time, by its own length and
    /// `overhead_seconds`. If a run before has taken more than that beyond its length, so does the next.
    pub seconds: f64,
    /// The largest [magnitude](crate::Space::magnitude) of a candidate.
    pub magnitude: f64,
    /// The most of violation in sum. A run counts by what was predicted of it, or by what it showed if that is more.
    pub violation: f64,
    /// How many seconds a run takes beyond the length of its faults.
    #[serde(default)]
    pub overhead_seconds: f64,
    /// How many seconds the system has to itself before the next run.
    #[serde(default)]
    pub recovery_seconds: f64,
    /// At which stage of the blast radius every run is, in percent.
    pub stage_percent: u8,
}

/// What the budget has no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spent {
    /// Runs.
    Runs,
    /// Time.
    Seconds,
    /// Violation.
    Violation,
}

/// What runs have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// How many were begun.
    pub runs: u32,
    /// Their seconds, and those to recover between them.
    pub seconds: f64,
    /// Their violation in sum, as the budget counts it.
    pub violation: f64,
    /// The most seconds that one has taken beyond its own length.
    pub overrun: f64,
}

impl Budget {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let numbers = [
            ("seconds", self.seconds),
            ("magnitude", self.magnitude),
            ("violation", self.violation),
            ("overhead_seconds", self.overhead_seconds),
            ("recovery_seconds", self.recovery_seconds),
        ];
        match numbers.iter().find(|(_, number)| !(number.is_finite() && *number >= 0.0)) {
            Some((name, number)) => Err(Invalid::new(name, format!("is {number}"), "finite and not below 0")),
            None if !(1..=100).contains(&self.stage_percent) => {
                Err(Invalid::new("stage_percent", format!("is {}", self.stage_percent), "1 to 100"))
            }
            None if self.runs > 1000 => {
                Err(Invalid::new("runs", format!("is {}", self.runs), "1000 at most"))
            }
            None => Ok(()),
        }
    }

    /// What there would not be enough of for one more run of so many seconds and so much predicted violation.
    pub fn lacks(&self, cost: &Cost, seconds: f64, violation: f64) -> Option<Spent> {
        let recovery = if cost.runs == 0 { 0.0 } else { self.recovery_seconds };
        let overhead = cost.overrun.max(self.overhead_seconds);
        if cost.runs >= self.runs {
            Some(Spent::Runs)
        } else if cost.seconds + recovery + seconds + overhead > self.seconds {
            Some(Spent::Seconds)
        } else if cost.violation + violation.max(0.0) > self.violation {
            Some(Spent::Violation)
        } else {
            None
        }
    }
}
