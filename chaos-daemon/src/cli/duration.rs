//! Durations as people write them: `300ms`, `3m`, `1h 30m`, `0.5s`.

use std::time::Duration;

use jiff::SignedDuration;

pub(super) use crate::spec::options::duration as parse;

/// A duration for people: `1m 30s`, `300ms`.
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
    fn what_is_shown_is_round() {
        assert_eq!(show(Duration::from_millis(300)), "300ms");
        assert_eq!(show(Duration::from_micros(59_800_400)), "1m");
    }
}
