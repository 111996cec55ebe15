//! The entries of systemd's journal, as `journalctl --output=json` writes them (systemd.journal-fields(7)).

use std::io::{BufRead, BufReader, Read};

use jiff::Timestamp;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::{Limit, LogError, Tally, Window};
use crate::request::facts::LogFacts;

/// The longest entry, as it is written: journald cuts a line of a service at 48 KiB, each byte of which may take four.
const LONGEST_ENTRY: usize = 1 << 20;
/// How much is read of all of them.
const LARGEST: u64 = 64 << 20;

#[derive(Deserialize)]
struct Entry {
    /// Microseconds since 1970.
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    time: String,
    #[serde(rename = "MESSAGE", default)]
    message: Value,
}

/// Counts those that match and are within `window`, until there are no more.
///
/// # Errors
/// When there are too many, or they are not what they should be.
pub fn search(
    entries: impl Read,
    pattern: &Regex,
    window: Window,
    limit: Limit,
) -> Result<LogFacts, LogError> {
    let mut tally = Tally::new(pattern, Some(window));
    let mut entries = BufReader::new(entries.take(LARGEST));
    let mut line = Vec::new();
    let mut read = 0;
    loop {
        limit.check()?;
        line.clear();
        let longest = LONGEST_ENTRY as u64 + 1;
        let length = entries.by_ref().take(longest).read_until(b'\n', &mut line);
        let length = length.map_err(|error| broken(&error))?;
        if length == 0 {
            return Ok(tally.facts);
        }
        read += length as u64;
        if read >= LARGEST {
            let problem = format!("more than {} MiB of entries: give less by --within", LARGEST >> 20);
            return Err(LogError::Entry(problem));
        }
        if length > LONGEST_ENTRY {
            let problem = format!("an entry has more than {} KiB", LONGEST_ENTRY >> 10);
            return Err(LogError::Entry(problem));
        }
        let (message, time) = understand(&line)?;
        tally.take(&message, Some(time));
    }
}

/// Whether there are any; they are read to their end, for who writes them ends badly when nobody does.
///
/// # Errors
/// When they cannot be read.
pub fn is_any(entries: impl Read) -> Result<bool, LogError> {
    let length = std::io::copy(&mut entries.take(LARGEST), &mut std::io::sink());
    length.map(|length| length > 0).map_err(|error| broken(&error))
}

fn broken(error: &std::io::Error) -> LogError {
    LogError::Entry(format!("read from journalctl: {error}"))
}

fn understand(line: &[u8]) -> Result<(Vec<u8>, Timestamp), LogError> {
    let wrong = |error: String| LogError::Entry(format!("journalctl writes something else: {error}"));
    let entry: Entry = serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
    let time = entry.time.parse().ok().and_then(|time| Timestamp::from_microsecond(time).ok());
    let time = time.ok_or_else(|| wrong(format!("{:?} is no time", entry.time)))?;
    Ok((message(entry.message), time))
}

/// Text as text; what is none as a list of its bytes; several of either as a list of them.
fn message(value: Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.into_bytes(),
        Value::Array(parts) => {
            let bytes: Option<Vec<u8>> =
                parts.iter().map(|part| part.as_u64().and_then(|byte| u8::try_from(byte).ok())).collect();
            bytes.unwrap_or_else(|| parts.into_iter().map(message).collect::<Vec<_>>().join(&b'\n'))
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn count(entries: &str) -> Result<LogFacts, LogError> {
        let now = Timestamp::from_second(1_800_000_060).unwrap();
        let window = Window::before(now, Duration::from_secs(60));
        let limit = Limit::of(Duration::from_secs(300));
        search(entries.as_bytes(), &Regex::new("(?i)error").unwrap(), window, limit)
    }

    /// As journalctl 252 writes them.
    fn entry(second: u32, message: &str) -> String {
        format!(
            "{{\"__MONOTONIC_TIMESTAMP\":\"91000000\",\"_BOOT_ID\":\"0123456789abcdef0123456789abcdef\",\
             \"__CURSOR\":\"s=54d89182019545669f9586341c123d1d;i=2\",\"MESSAGE\":{message},\
             \"__REALTIME_TIMESTAMP\":\"18000000{second:02}500000\"}}\n"
        )
    }

    #[test]
    fn entries_that_match_within_the_window_are_counted_by_the_time_of_the_journal() {
        let text = [
            entry(1, "\"an ERROR\""),
            entry(2, "\"fine\""),
            // Not UTF-8, and twice in one entry, and none at all.
            entry(3, "[101,114,114,111,114,255]"),
            entry(4, "[\"fine\",\"error \\u001b[0m\",[101]]"),
            entry(5, "null"),
            // Just before the window ends, and after.
            entry(59, "\"error\""),
            entry(60, "\"error of tomorrow\""),
        ];
        let facts = count(&text.concat()).unwrap();
        assert_eq!((facts.count, facts.seen, facts.ahead), (4, 6, 1), "{facts:?}");
        assert_eq!(facts.last, ["error\u{fffd}", "fine\\nerror \\u{1b}[0m\\ne", "error"]);
        assert_eq!(count("").unwrap(), LogFacts::default());
    }

    #[test]
    fn what_is_no_entry_or_too_long_is_no_zero() {
        let long = entry(1, &format!("\"{}\"", "x".repeat(LONGEST_ENTRY)));
        for (text, words) in [
            ("-- No entries --\n", "something else"),
            ("{\"MESSAGE\":\"error\"}\n", "something else"),
            (&entry(1, "\"\"").replace("18", "soon"), "no time"),
            (&long, "more than 1024 KiB"),
        ] {
            let said = count(text).err().unwrap().to_string();
            assert!(said.contains(words), "{said}");
        }
        let many = entry(1, &format!("\"{}\"", "x".repeat(LONGEST_ENTRY / 2)));
        let said = count(&many.repeat(130)).err().unwrap().to_string();
        assert!(said.contains("more than 64 MiB"), "{said}");
    }

    #[test]
    fn one_entry_is_enough_to_know_that_there_are_some() {
        assert!(is_any(entry(1, "null").as_bytes()).unwrap());
        assert!(!is_any(&b""[..]).unwrap());
    }
}
