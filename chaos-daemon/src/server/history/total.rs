//! How often experiments ran, also of runs that are no longer kept.

use std::ops::Add;

use serde::{Deserialize, Serialize};

use super::ExperimentResult;
use crate::experiment::Verdict;

/// How often an experiment ran, and how often with success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Finished runs.
    pub runs: u64,
    /// Runs with success.
    pub successes: u64,
    /// Runs that show nothing.
    #[serde(default)]
    pub unverified: u64,
}

impl Total {
    /// Of one run.
    pub(super) fn of(run: &ExperimentResult) -> Self {
        let unverified = run.verdict == Some(Verdict::Unverified);
        Self { runs: 1, successes: u64::from(run.success), unverified: u64::from(unverified) }
    }

    /// The share of those with success in those that show something, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "2^52 runs take longer than this host will last")]
    pub fn success_rate(self) -> f64 {
        match self.runs.saturating_sub(self.unverified) {
            0 => 0.0,
            shown => self.successes as f64 / shown as f64,
        }
    }
}

impl Add for Total {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            successes: self.successes + other.successes,
            unverified: self.unverified + other.unverified,
        }
    }
}
