//! Bounded values: each is made by one fallible constructor, and is valid from then on.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// The longest a fault may be asked to last.
pub const LONGEST_FAULT: Duration = Duration::from_secs(3600);
/// How long a fault lasts when nobody says.
pub const DEFAULT_FAULT: Duration = Duration::from_secs(60);
/// The shortest a fault may be asked to last.
pub const SHORTEST_FAULT: Duration = Duration::from_millis(10);
/// The most prefixes one fault may name.
pub const MOST_PREFIXES: usize = 200_000;

/// Why a value that somebody asked for is not one.
///
/// `field` is the path of the value in the request (`target.cidr`), so that a caller finds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// Path of the offending value in the request.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
    /// Which kind of mistake it is.
    pub code: Mistake,
}

/// Kinds of mistakes, for programs that read them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mistake {
    /// The value makes no sense there.
    #[default]
    Invalid,
    /// The text is no document at all.
    Syntax,
    /// Something is not there that has to be.
    Missing,
    /// A field that nobody knows.
    UnknownField,
    /// A value of another type.
    WrongType,
    /// It makes sense, and is not supported here.
    NotSupported,
    /// A check that cannot fail, or cannot be met.
    SaysNothing,
    /// A name that the document does not declare.
    Undeclared,
    /// A value that is to come from outside, and is not there.
    Unset,
    /// What a conversion could not turn into anything.
    Gap,
}

impl SpecError {
    /// An error about the value at `field`.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into(), code: Mistake::Invalid }
    }

    /// The same, of this kind.
    #[must_use]
    pub fn code(self, code: Mistake) -> Self {
        Self { code, ..self }
    }
}

/// The name under which a fault is registered: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting with a dot or dash.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FaultName(String);

impl FaultName {
    /// Parses a name.
    ///
    /// # Errors
    /// When the name is empty, longer than 64 bytes, or holds another character.
    pub fn new(name: impl Into<String>) -> Result<Self, SpecError> {
        let name = name.into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > 64 || name.starts_with(['.', '-']) || !name.chars().all(allowed) {
            return Err(SpecError::new(
                "fault_name",
                "must be 1 to 64 of A-Z a-z 0-9 . _ - and start with a letter, a digit or _",
            ));
        }
        Ok(Self(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for FaultName {
    type Error = SpecError;

    fn try_from(name: String) -> Result<Self, SpecError> {
        Self::new(name)
    }
}

impl From<FaultName> for String {
    fn from(name: FaultName) -> Self {
        name.0
    }
}

impl fmt::Display for FaultName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A probability: a fraction from 0 to 1, never NaN.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Probability(f64);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0.0);
    /// Always.
    pub const CERTAIN: Self = Self(1.0);
    /// The source specification's default for an injection.
    pub const DEFAULT: Self = Self(0.1);

    /// Parses a fraction found at `field`.
    ///
    /// # Errors
    /// When `value` is not a number from 0 to 1.
    pub fn new(field: &str, value: f64) -> Result<Self, SpecError> {
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(SpecError::new(field, format!("{value} is not a probability: give a number from 0.0 to 1.0")))
        }
    }

    /// The fraction.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The fraction as a threshold for a uniformly random `u32`: an event happens when `random < threshold`,
    /// except that `u32::MAX` means always.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the product is within 0..=u32::MAX by construction"
    )]
    pub fn threshold(self) -> u32 {
        (self.0 * f64::from(u32::MAX)).round() as u32
    }
}

impl TryFrom<f64> for Probability {
    type Error = SpecError;

    fn try_from(value: f64) -> Result<Self, SpecError> {
        Self::new("probability", value)
    }
}

impl From<Probability> for f64 {
    fn from(value: Probability) -> Self {
        value.0
    }
}

/// Parses a number of seconds found at `field`, within `least..=most`.
///
/// # Errors
/// When the number is not finite or not within the bounds.
pub fn seconds(field: &str, value: f64, least: Duration, most: Duration) -> Result<Duration, SpecError> {
    let (low, high) = (least.as_secs_f64(), most.as_secs_f64());
    if (low..=high).contains(&value) {
        Ok(Duration::from_secs_f64(value))
    } else {
        Err(SpecError::new(field, format!("{value} s is out of bounds: give {low} to {high} seconds")))
    }
}

/// Parses a number of milliseconds found at `field`, within `least..=most`.
///
/// # Errors
/// When the number is not finite or not within the bounds.
pub fn millis(field: &str, value: f64, least: Duration, most: Duration) -> Result<Duration, SpecError> {
    let (low, high) = (least.as_secs_f64() * 1e3, most.as_secs_f64() * 1e3);
    if (low..=high).contains(&value) {
        Ok(Duration::from_secs_f64(value / 1e3))
    } else {
        Err(SpecError::new(field, format!("{value} ms is out of bounds: give {low} to {high} milliseconds")))
    }
}

/// A number of milliseconds, which is bounded.
pub(super) fn time(milliseconds: f64) -> Duration {
    Duration::from_secs_f64(milliseconds / 1e3)
}

/// A duration for people: `1m 30s`, `300ms`.
pub fn show(duration: Duration) -> String {
    let rounded = if duration >= Duration::from_secs(10) {
        Duration::from_secs_f64(duration.as_secs_f64().round())
    } else {
        Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    };
    match SignedDuration::try_from(rounded) {
        Ok(duration) => format!("{duration:#}"),
        Err(_) => format!("{} s", rounded.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probability_is_a_fraction_and_never_nan() {
        for bad in [-0.1, 1.5, f64::NAN, f64::INFINITY] {
            assert!(Probability::new("probability", bad).is_err(), "{bad} was accepted");
        }
        assert_eq!(Probability::CERTAIN.threshold(), u32::MAX);
        assert_eq!(Probability::new("p", 0.0).unwrap().threshold(), 0);
    }

    #[test]
    fn a_duration_out_of_bounds_names_the_field_and_the_bounds() {
        let error = seconds("duration_seconds", -1.0, SHORTEST_FAULT, LONGEST_FAULT).unwrap_err();
        assert_eq!(error.to_string(), "duration_seconds: -1 s is out of bounds: give 0.01 to 3600 seconds");
        assert!(seconds("d", f64::NAN, SHORTEST_FAULT, LONGEST_FAULT).is_err());
        assert!(seconds("d", 1e300, SHORTEST_FAULT, LONGEST_FAULT).is_err());
    }

    #[test]
    fn a_fault_name_cannot_be_mistaken_for_a_path_or_an_option() {
        for bad in ["", "..", "-x", "a/b", "a b", &"x".repeat(65)] {
            assert!(FaultName::new(bad).is_err(), "{bad:?} was accepted");
        }
        assert!(FaultName::new("slow-database").is_ok());
    }

    #[test]
    fn what_is_shown_is_round() {
        assert_eq!(show(Duration::from_millis(300)), "300ms");
        assert_eq!(show(Duration::from_micros(59_800_400)), "1m");
    }
}
