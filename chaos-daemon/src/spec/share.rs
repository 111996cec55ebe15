//! A share of a set, such as of the processes that a fault meets.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::units::SpecError;

/// Parts of a [`Share`] that make up the whole.
const WHOLE: u32 = 1_000_000;

/// A share of a set: above nothing, up to all of it. On the wire a fraction (0.25) or a percentage ("25%").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "ShareText", into = "f64")]
pub struct Share(u32);

#[derive(Deserialize)]
#[serde(untagged)]
enum ShareText {
    Fraction(f64),
    Text(String),
}

impl Share {
    /// All of it.
    pub const ALL: Self = Self(WHOLE);

    /// A share from a fraction.
    ///
    /// # Errors
    /// When it is not above 0, or above 1.
    pub fn new(fraction: f64) -> Result<Self, SpecError> {
        let parts = (fraction * f64::from(WHOLE)).round();
        if !(1.0..=f64::from(WHOLE)).contains(&parts) {
            return Err(wrong_share(&fraction.to_string()));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded just before")]
        Ok(Self(parts as u32))
    }

    /// A share from a text: `0.25` or `25%`.
    ///
    /// # Errors
    /// When it is neither, or out of bounds.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let (number, whole) = match text.trim().strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 100.0),
            None => (text.trim(), 1.0),
        };
        match number.parse::<f64>() {
            Ok(value) => Self::new(value / whole).map_err(|_in_other_words| wrong_share(text)),
            Err(_) => Err(wrong_share(text)),
        }
    }

    /// As a fraction.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// How many of `total` it is: the nearest number, but never none of some.
    pub fn of(self, total: usize) -> usize {
        let (total, whole) = (total as u128, u128::from(WHOLE));
        let nearest = (total * u128::from(self.0) + whole / 2) / whole;
        usize::try_from(nearest.max(1).min(total)).unwrap_or(usize::MAX)
    }
}

fn wrong_share(text: &str) -> SpecError {
    SpecError::new(
        "target.share",
        format!("{text} is not a share: give a fraction above 0 up to 1, or a percentage such as \"25%\""),
    )
}

impl TryFrom<ShareText> for Share {
    type Error = SpecError;

    fn try_from(text: ShareText) -> Result<Self, SpecError> {
        match text {
            ShareText::Fraction(fraction) => Self::new(fraction),
            ShareText::Text(text) => Self::parse(&text),
        }
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        share.fraction()
    }
}

impl JsonSchema for Share {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Share".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            {"type": "string", "pattern": "^[0-9.]+ ?%$"},
        ]})
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_share_is_never_none_of_some_never_more_than_all_and_grows(
            total in 1usize..5000, small in 1u32..=WHOLE, large in 1u32..=WHOLE,
        ) {
            let (small, large) = (small.min(large), small.max(large));
            let (few, many) = (Share(small).of(total), Share(large).of(total));
            prop_assert!(1 <= few && few <= many && many <= total);
            prop_assert_eq!(Share::ALL.of(total), total);
        }

        #[test]
        fn a_share_survives_the_wire(parts in 1u32..=WHOLE) {
            let text = serde_json::to_string(&Share(parts)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Share>(&text).unwrap(), Share(parts));
        }
    }
}
