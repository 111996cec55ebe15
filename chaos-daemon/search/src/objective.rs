//! What a run has shown: how far each gate was from its objective, and which of two failures barely happens.

use serde::{Deserialize, Serialize};

use crate::exact;

/// On which side of its threshold a gate is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The value may be the threshold or less, such as of an error rate.
    AtMost,
    /// The value may be the threshold or more, such as of an availability.
    AtLeast,
}

/// The worst that a gate has seen in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The name of the gate.
    pub gate: String,
    /// What was seen.
    pub value: f64,
    /// What it must be.
    pub threshold: f64,
    /// On which side of it.
    pub direction: Direction,
    /// What counts as a whole where the threshold is 0; 1 unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<f64>,
}

impl Observation {
    /// By what share of the objective it was missed: above 0 is a violation, -0.2 leaves a fifth.
    ///
    /// A share of 0 would be without bounds, so that a threshold of 0 counts in units of `whole`: three errors where none is allowed
    /// are 3. Nothing comes of what is no number.
    pub fn margin(&self) -> Option<f64> {
        let whole = self.whole.map(f64::abs).filter(|whole| *whole > 0.0 && whole.is_finite()).unwrap_or(1.0);
        let unit = if self.threshold == 0.0 { whole } else { self.threshold.abs() };
        let over = match self.direction {
            Direction::AtMost => self.value - self.threshold,
            Direction::AtLeast => self.threshold - self.value,
        };
        let margin = over / unit;
        (!margin.is_nan() && self.threshold.is_finite()).then(|| exact(margin))
    }
}

/// Why a run has shown nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoData {
    /// It ended, but a fault was not seen to act, or no gate has seen anything.
    Unverified,
    /// It was not allowed; asked again it would not be either.
    Refused,
    /// It did not come to its end.
    Interrupted,
}

/// What became of a run. One that a gate has ended has shown by how much that gate was missed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// What its gates have seen; or why there is nothing.
    pub seen: Result<Vec<Observation>, NoData>,
    /// How many seconds it took, with all that belongs to it.
    pub seconds: f64,
}

impl Outcome {
    /// The margin of the run: that of the gate that was worst. A run in which a gate has shown no number has shown nothing.
    pub fn margin(&self) -> Result<f64, NoData> {
        let seen = self.seen.as_ref().map_err(|why| *why)?;
        let margins: Option<Vec<f64>> = seen.iter().map(Observation::margin).collect();
        margins.and_then(|all| all.into_iter().reduce(f64::max)).ok_or(NoData::Unverified)
    }

    /// With numbers that text keeps as they are.
    pub(crate) fn exact(mut self) -> Outcome {
        for observation in self.seen.iter_mut().flatten() {
            observation.value = exact(observation.value);
            observation.threshold = exact(observation.threshold);
            observation.whole = observation.whole.map(exact);
            // JSON has no such number; a margin is above or below all others all the same.
            if observation.value.is_nan() || observation.threshold.is_nan() {
                self.seen = Err(NoData::Unverified);
                break;
            }
        }
        self.seconds = if self.seconds.is_finite() { exact(self.seconds.max(0.0)) } else { 0.0 };
        self
    }
}

/// How good a failure is as an answer; the smallest is the best.
///
/// That is the one that is violated least. Margins within about a tenth of each other are a tie, since noise would decide; then the
/// smaller magnitude is better, then the shorter one.
pub fn rank(margin: f64, magnitude: f64, seconds: f64) -> (u64, u64, u64) {
    let in_tenths = (margin.max(0.0).ln_1p() * 10.0) as u64;
    (in_tenths, (magnitude * 1e6) as u64, (seconds * 1e3) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(value: f64, threshold: f64, direction: Direction) -> Observation {
        Observation { gate: "g".into(), value, threshold, direction, whole: None }
    }

    fn outcome(seen: Vec<Observation>) -> Outcome {
        Outcome { seen: Ok(seen), seconds: 1.0 }
    }

    #[test]
    fn a_margin_is_a_share_of_the_objective_and_positive_when_it_is_missed() {
        assert_eq!(seen(1.5, 1.0, Direction::AtMost).margin(), Some(0.5));
        assert_eq!(seen(0.98, 0.99, Direction::AtLeast).margin().map(|m| (m * 1e4).round()), Some(101.0));
        assert_eq!(seen(1.0, 1.0, Direction::AtMost).margin(), Some(0.0));
        assert_eq!(seen(-15.0, -10.0, Direction::AtMost).margin(), Some(-0.5));
    }

    #[test]
    fn a_threshold_of_nought_counts_in_units() {
        assert_eq!(seen(3.0, 0.0, Direction::AtMost).margin(), Some(3.0));
        let of_ten = Observation { whole: Some(10.0), ..seen(3.0, 0.0, Direction::AtMost) };
        assert_eq!(of_ten.margin(), Some(0.3));
        let nonsense = Observation { whole: Some(0.0), ..seen(3.0, 0.0, Direction::AtMost) };
        assert_eq!(nonsense.margin(), Some(3.0));
    }

    #[test]
    fn the_worst_gate_is_the_margin_of_a_run_and_one_without_a_number_leaves_none() {
        let both = vec![seen(0.5, 1.0, Direction::AtMost), seen(2.0, 1.0, Direction::AtMost)];
        assert_eq!(outcome(both).margin(), Ok(1.0));
        let blind = vec![seen(f64::NAN, 1.0, Direction::AtMost), seen(2.0, 1.0, Direction::AtMost)];
        assert_eq!(outcome(blind).margin(), Err(NoData::Unverified));
        assert_eq!(outcome(vec![]).margin(), Err(NoData::Unverified));
        let endless = seen(f64::INFINITY, 1.0, Direction::AtMost);
        assert!(outcome(vec![endless]).margin().is_ok_and(|margin| margin > 1e9));
    }

    #[test]
    fn the_best_failure_is_barely_one_then_small_then_short() {
        assert!(rank(0.05, 2.0, 90.0) < rank(0.5, 0.1, 1.0));
        assert!(rank(0.05, 0.5, 90.0) < rank(0.06, 0.6, 1.0));
        assert!(rank(0.05, 0.5, 30.0) < rank(0.06, 0.5, 60.0));
    }
}
