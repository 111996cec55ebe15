//! Durations, as documents write them.

use std::time::Duration;

use serde_json::Value;

use crate::request::fields::Fields;
use crate::spec::SpecError;

/// The shortest time from one sample to the next.
pub(super) const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// The longest.
pub(super) const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// Takes a duration from `fields`, if it is there.
pub(super) fn duration(fields: &mut Fields, key: &'static str) -> Result<Option<Duration>, SpecError> {
    let at = fields.at(key);
    fields.take(key).map(|value| length(&at, &value)).transpose()
}

/// A duration as OpenSLO writes it, such as `30s`, or a number of seconds.
pub(super) fn length(at: &str, value: &Value) -> Result<Duration, SpecError> {
    let text = || {
        let text = value.as_str()?;
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let factor = match &text[digits..] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        text[..digits].parse::<f64>().ok().map(|number| number * factor)
    };
    let seconds = value.as_f64().or_else(text);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration
        .ok_or_else(|| SpecError::new(at, format!("{value} is no duration: give e.g. \"30s\", or seconds")))
}

/// The duration, if it is within these bounds.
pub(super) fn within(
    path: &str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<Duration, SpecError> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(SpecError::new(path, format!("{value:?} is out of bounds: give {least:?} to {most:?}"))),
    }
}

/// A duration, for the schema.
pub(super) fn duration_schema(what: &str) -> Value {
    serde_json::json!({"description": format!("{what}; \"30s\", \"5m\", or seconds.")})
}
