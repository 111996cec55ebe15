//! Numbers, lengths of time and moments as a report writes them.

use jiff::Timestamp;
use serde_json::Value;

/// The longest text of one line, in characters.
const LONGEST_LINE: usize = 140;

/// A number with as many digits as say something.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let places = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 || size == 0.0 => 2,
        // Three that say something: 0.00123.
        size => (2.0 - size.log10().floor()).clamp(0.0, 12.0) as usize,
    };
    without_zeros(&format!("{value:.places$}"))
}

fn without_zeros(text: &str) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    }
}

/// A number that somebody has written, as it is, with its unit.
pub(super) fn exact(value: f64, unit: &str) -> String {
    match unit {
        "bytes" if value.abs() >= 1_048_576.0 && value % 1_048_576.0 == 0.0 => amount(value, unit),
        _ => format!("{value} {unit}").trim_end().to_owned(),
    }
}

/// A number that was measured, so that it is seen on which side of a limit it is.
pub(super) fn beside(value: f64, limit: f64, unit: &str) -> String {
    match (value - limit).abs() <= limit.abs() / 50.0 && unit != "bytes" {
        true => format!("{} {unit}", without_zeros(&format!("{value:.4}"))).trim_end().to_owned(),
        false => amount(value, unit),
    }
}

/// A number with its unit, which may be none.
pub(super) fn amount(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        "bytes" if value.abs() >= 1_048_576.0 => format!("{} MiB", number(value / 1_048_576.0)),
        _ => format!("{} {unit}", number(value)),
    }
}

/// A length of time.
pub(super) fn seconds(value: f64) -> String {
    let whole = value.round().max(0.0) as u64;
    match value {
        short if short < 0.0005 => "0 s".to_owned(),
        short if short < 0.9995 => format!("{} ms", number((short * 1000.0).round())),
        short if whole < 120 => format!("{} s", number(short)),
        _ if whole < 7200 => two(whole / 60, "min", whole % 60, "s"),
        _ => two(whole / 3600, "h", whole % 3600 / 60, "min"),
    }
}

fn two(most: u64, of: &str, rest: u64, of_rest: &str) -> String {
    match rest {
        0 => format!("{most} {of}"),
        _ => format!("{most} {of} {rest} {of_rest}"),
    }
}

/// The day of a moment and its time, in UTC.
pub(super) fn day(time: &str) -> String {
    shown(time, "%-d %B %Y, %H:%M:%S UTC")
}

/// The time of day of a moment, in UTC.
pub(super) fn clock(time: &str) -> String {
    shown(time, "%H:%M:%S")
}

/// The moment so many seconds after another, as that is written.
pub(super) fn later(time: &str, seconds: f64) -> String {
    let after = jiff::SignedDuration::try_from_secs_f64(seconds).ok();
    let then =
        time.parse::<Timestamp>().ok().zip(after).and_then(|(time, after)| time.checked_add(after).ok());
    then.map_or_else(|| time.to_owned(), |then| format!("{then:.3}"))
}

fn shown(time: &str, how: &str) -> String {
    time.parse::<Timestamp>().map_or_else(|_| time.to_owned(), |time| time.strftime(how).to_string())
}

/// So many of a thing.
pub(super) fn count(number: u64, of_one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {of_one}{ending}")
}

/// As much of a text as one line has.
pub(super) fn line(text: &str) -> String {
    match text.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Fields as people say them: `{"interface":"eth0","delay_ms":300}` is "interface eth0, delay 300 ms".
pub(super) fn fields<'a>(fields: impl IntoIterator<Item = (&'a String, &'a Value)>) -> String {
    let said = fields.into_iter().map(|(name, value)| {
        let (name, unit) =
            [("_ms", "ms"), ("_seconds", "s"), ("_percent", "%"), ("_mb", "MiB"), ("_bytes", "bytes")]
                .into_iter()
                .find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, unit)))
                .unwrap_or((name, ""));
        let name = name.replace('_', " ");
        match value {
            Value::Number(number) if unit == "bytes" => {
                format!("{name} {}", exact(number.as_f64().unwrap_or(f64::NAN), unit))
            }
            Value::Number(number) => {
                format!("{name} {} {unit}", without_zeros(&number.to_string())).trim_end().to_owned()
            }
            // What is set needs no more than its name.
            Value::Bool(true) => name,
            other => format!("{name} {}", plain(other)),
        }
    });
    said.collect::<Vec<_>>().join(", ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" and "),
        Value::Object(inner) => fields(inner),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_has_as_many_digits_as_say_something() {
        for (value, expected) in [
            (0.0, "0"),
            (0.456, "0.456"),
            (0.001_234, "0.00123"),
            (1.005, "1"),
            (9.5, "9.5"),
            (12.34, "12.3"),
            (100.0, "100"),
            (923.77, "924"),
            (-5.0, "-5"),
        ] {
            assert_eq!(number(value), expected, "{value}");
        }
        assert_eq!(amount(923.77, "ms"), "924 ms");
        assert_eq!(amount(3.0 * 1_048_576.0, "bytes"), "3 MiB");
    }

    #[test]
    fn a_limit_is_told_as_it_was_written_and_a_value_near_it_on_its_own_side() {
        for (value, expected) in
            [(99.95, "99.95 %"), (0.001, "0.001 %"), (500.0, "500 %"), (12.34, "12.34 %")]
        {
            assert_eq!(exact(value, "%"), expected);
        }
        assert_eq!(beside(500.4, 500.0, "ms"), "500.4 ms");
        assert_eq!(beside(499.96, 500.0, "ms"), "499.96 ms");
        assert_eq!(beside(923.77, 500.0, "ms"), "924 ms");
        assert_eq!(exact(2.0 * 1_048_576.0, "bytes"), "2 MiB");
    }

    #[test]
    fn a_length_of_time_has_the_units_that_people_use() {
        for (value, expected) in [
            (0.0, "0 s"),
            (0.043, "43 ms"),
            (0.9996, "1 s"),
            (2.046, "2.05 s"),
            (59.94, "59.9 s"),
            (119.7, "2 min"),
            (120.0, "2 min"),
            (125.0, "2 min 5 s"),
            (7200.0, "2 h"),
            (7325.0, "2 h 2 min"),
        ] {
            assert_eq!(seconds(value), expected, "{value}");
        }
    }

    #[test]
    fn a_moment_has_its_zone_and_what_is_none_is_left_as_it_is() {
        let time = "2026-02-05T10:00:00.250Z";
        assert_eq!(day(time), "5 February 2026, 10:00:00 UTC");
        assert_eq!(clock(&later(time, 59.75)), "10:01:00");
        for text in ["", "yesterday"] {
            assert_eq!((day(text), later(text, 1.0)), (text.to_owned(), text.to_owned()));
        }
    }

    #[test]
    fn fields_are_said_with_their_units_and_without_brackets() {
        let value = json!({"interface": "eth0", "cidrs": ["10.0.0.1", "10.0.0.2"], "delay_ms": 300.0, "share": 0.25,
            "graceful": true, "burst": {"loss_percent": 5}});
        let said = fields(value.as_object().unwrap());
        for part in [
            "interface eth0",
            "cidrs 10.0.0.1 and 10.0.0.2",
            "delay 300 ms",
            "share 0.25",
            "graceful",
            "burst loss 5 %",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains(['{', '"', '[']), "{said}");
    }
}
