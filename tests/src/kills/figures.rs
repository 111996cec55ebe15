//! What many rounds of the same gave: least, median, 99th percentile, most.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// Durations, sorted.
#[derive(Debug, Clone)]
pub struct Figures(Vec<Duration>);

impl Figures {
    /// Of these.
    pub fn new(mut durations: Vec<Duration>) -> Self {
        durations.sort();
        Self(durations)
    }

    /// Whether there was nothing to measure.
    pub(super) fn is_zero(&self) -> bool {
        self.0.last().is_none_or(Duration::is_zero)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The nearest rank: the least value that this share of all values does not exceed. Milliseconds.
    pub fn percentile_ms(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).map_or(f64::NAN, |value| value.as_secs_f64() * 1e3)
    }

    /// For files.
    pub fn json(&self) -> Value {
        let [min, p50, p99, max] = self.row();
        json!({"n": self.count(), "min_ms": min, "p50_ms": p50, "p99_ms": p99, "max_ms": max})
    }

    fn row(&self) -> [f64; 4] {
        [0.0, 0.5, 0.99, 1.0].map(|share| self.percentile_ms(share))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, p50, p99, max] = self.row();
        write!(f, "n {}, min {min:.2}, p50 {p50:.2}, p99 {p99:.2}, max {max:.2} ms", self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_of_the_nearest_rank() {
        let figures = Figures::new((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!(figures.row(), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(Figures::new(vec![Duration::from_millis(7)]).row(), [7.0; 4]);
        assert!(Figures::new(Vec::new()).percentile_ms(0.5).is_nan());
    }
}
