//! Durations as people write them: `300ms`, `3m`, `1h 30m`, `0.5s`.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses a duration with a unit.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    // ISO 8601 ("PT3M") is understood as well.
    match text.trim().parse::<SignedDuration>().map(Duration::try_from) {
        Ok(Ok(duration)) => Ok(duration),
        Ok(Err(_)) => Err(format!("{text:?} is negative")),
        Err(_) => Err(format!("{text:?} is not a duration: give a number with a unit, e.g. 300ms, 2s, 3m")),
    }
}

/// The same for people: `1m 30s`, `300ms`.
pub(super) fn show(duration: Duration) -> String {
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
    fn a_duration_needs_a_unit_and_is_not_negative() {
        for (text, millis) in
            [("300ms", 300), ("3m", 180_000), ("1h 30m", 5_400_000), ("0.5s", 500), ("PT2S", 2000)]
        {
            assert_eq!(parse(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for bad in ["", "3", "-3s", "soon", "3 fortnights", "1e300s"] {
            assert!(parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn what_is_shown_is_round() {
        assert_eq!(show(Duration::from_millis(300)), "300ms");
        assert_eq!(show(Duration::from_micros(59_800_400)), "1m");
    }
}
