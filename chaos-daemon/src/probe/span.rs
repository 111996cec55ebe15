//! Between which numbers what a probe measures is: what lies beyond is never seen.

use std::time::Duration;

/// From the least to the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// Whether it can be the most itself.
    pub reached: bool,
}

impl Span {
    /// Any number.
    pub const ANY: Self = Self { least: f64::NEG_INFINITY, most: f64::INFINITY, reached: true };
    /// How many, or how much.
    pub const AMOUNT: Self = Self { least: 0.0, ..Self::ANY };
    /// A share of all, in percent.
    pub const PERCENT: Self = Self { least: 0.0, most: 100.0, reached: true };

    /// Milliseconds until an answer that may take this long: what takes as long as that is none.
    pub fn until(limit: Duration) -> Self {
        Self { least: 0.0, most: limit.as_secs_f64() * 1e3, reached: false }
    }

    /// Whether something in it is at least this.
    pub fn reaches(self, value: f64) -> bool {
        self.most > value || (self.reached && self.most >= value)
    }
}
