//! What a sample has to be like to get from the process that takes it to the one that wants it: JSON, which has no infinity, and
//! of which nobody reads more than so many levels.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// How deep what came back may be nested. JSON is read 127 levels deep, and what came back is a few within the whole.
pub(super) const DEEPEST: usize = 100;

/// Whether arrays and objects are nested in `value` deeper than `most`.
pub(super) fn is_deeper(value: &Value, most: usize) -> bool {
    match value {
        Value::Array(items) => most == 0 || items.iter().any(|item| is_deeper(item, most - 1)),
        Value::Object(fields) => most == 0 || fields.values().any(|field| is_deeper(field, most - 1)),
        _ => false,
    }
}

/// Writes what was measured as text: as a number, infinity would be nothing. What is no number at all is nothing.
pub(super) fn write_number<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    number.filter(|number| !number.is_nan()).map(|number| number.to_string()).serialize(serializer)
}

/// Reads what [`write_number`] has written.
pub(super) fn read_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse::<f64>().map_err(D::Error::custom)).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::probe::Sample;

    #[test]
    fn what_was_measured_arrives_as_it_was_also_if_it_is_infinite() {
        for value in [None, Some(0.1), Some(-1.5e300), Some(f64::INFINITY), Some(f64::NEG_INFINITY)] {
            let sample = Sample { value, ..Sample::failed("seen".to_owned()) };
            let arrived: Sample = serde_json::from_slice(&serde_json::to_vec(&sample).unwrap()).unwrap();
            assert_eq!(arrived, sample);
        }
        let sample = Sample { value: Some(f64::NAN), ..Sample::failed("seen".to_owned()) };
        let arrived: Sample = serde_json::from_slice(&serde_json::to_vec(&sample).unwrap()).unwrap();
        assert_eq!(arrived.value, None);
    }

    #[test]
    fn every_array_and_object_within_another_is_a_level() {
        for (value, depth) in [
            (json!(1), 0),
            (json!([]), 1),
            (json!({"a": 1, "b": [1, 2]}), 2),
            (json!([1, {"a": []}, [2]]), 3),
        ] {
            assert!(!is_deeper(&value, depth), "{value}");
            assert!(depth == 0 || is_deeper(&value, depth - 1), "{value}");
        }
    }
}
