//! Logs: entries that match are counted, and the last few of them kept. A file for each kind of log.
//!
//! Whoever writes a log writes what he likes. It is data here: never run, never followed, and bounded in every direction.

pub mod file;
pub mod journal;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use regex::Regex;

use crate::host::words;
use crate::request::facts::LogFacts;

/// How many entries that match are kept.
const KEPT: usize = 3;
/// How many characters of each.
const LONGEST_KEPT: usize = 200;
/// How many bytes of an entry are searched.
const SEARCHED: usize = 16 << 10;

/// Why a log cannot be read. Never that nothing is in it.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// There is no such file.
    #[error("there is no {0}")]
    Absent(String),
    /// A link is on the way to it.
    #[error(
        "{0} is a symbolic link, or goes through one: name the file that it leads to, and have the policy name it"
    )]
    Link(String),
    /// A folder, device, pipe or socket.
    #[error("{0} is no regular file")]
    Kind(String),
    /// The kernel refused to open it.
    #[error(
        "{0} cannot be read by the daemon, which is root without the right to read what is closed to root: see its mode and owner"
    )]
    Closed(String),
    /// The operating system failed.
    #[error("{operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// With which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// What was read of a file is a part of one line.
    #[error("the last {0} bytes have no whole line: give more by --last")]
    Partial(u64),
    /// What was read of a file does not go back far enough.
    #[error("the last {last} bytes go back to {first} only: give more by --last, or less by --within")]
    Short {
        /// How much was read.
        last: u64,
        /// The time of its first line.
        first: Timestamp,
    },
    /// No line has a time.
    #[error("no line begins with a time as RFC 3339 has it (2026-05-04T10:00:30Z): leave --within out")]
    Timeless,
    /// What says what is in the journal says something else.
    #[error("{0}")]
    Entry(String),
    /// It took too long.
    #[error("not read to its end within {0:?}: ask for less")]
    Late(Duration),
}

/// What is left of the time that reading may take.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    until: Instant,
    whole: Duration,
}

impl Limit {
    /// From now on.
    pub fn of(whole: Duration) -> Self {
        Self { until: Instant::now() + whole, whole }
    }

    /// How long it still is.
    pub fn left(self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// # Errors
    /// When it is over.
    fn check(self) -> Result<(), LogError> {
        if self.left().is_zero() { Err(self.over()) } else { Ok(()) }
    }

    /// What it is when it is over.
    pub fn over(self) -> LogError {
        LogError::Late(self.whole)
    }
}

/// A time up to now. What was logged by a clock that went ahead of this host's is no part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its begin.
    pub since: Timestamp,
    until: Timestamp,
}

impl Window {
    /// The last so long before `until`.
    pub fn before(until: Timestamp, within: Duration) -> Self {
        let since = until.saturating_sub(within).unwrap_or(Timestamp::MIN);
        Self { since, until }
    }
}

/// Counts entries.
struct Tally<'a> {
    pattern: &'a Regex,
    window: Option<Window>,
    facts: LogFacts,
}

impl<'a> Tally<'a> {
    fn new(pattern: &'a Regex, window: Option<Window>) -> Self {
        Self { pattern, window, facts: LogFacts::default() }
    }

    /// Looks at one entry; one without a time is within any window. What is no UTF-8 is read as U+FFFD.
    fn take(&mut self, entry: &[u8], time: Option<Timestamp>) {
        let text = String::from_utf8_lossy(&entry[..entry.len().min(SEARCHED)]);
        if let (Some(window), Some(time)) = (self.window, time) {
            if time > window.until {
                self.facts.ahead += u64::from(self.pattern.is_match(&text));
                return;
            }
            if time < window.since {
                return;
            }
        }
        self.facts.seen += 1;
        if self.pattern.is_match(&text) {
            self.facts.count += 1;
            if self.facts.last.len() == KEPT {
                self.facts.last.remove(0);
            }
            self.facts.last.push(shown(&text));
        }
    }
}

/// The beginning of an entry, with what a terminal would obey written out.
fn shown(text: &str) -> String {
    let kept: String = text.chars().take(LONGEST_KEPT).collect();
    words::line(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn what_is_older_than_the_window_or_has_not_come_yet_is_not_counted() {
        let pattern = Regex::new("error").unwrap();
        let mut tally = Tally::new(&pattern, Some(Window::before(at(0), Duration::from_secs(60))));
        for (entry, seconds) in
            [("error 1", -61), ("error 2", -60), ("fine", -5), ("error 3", 0), ("error 4", 1), ("fine", 9)]
        {
            tally.take(entry.as_bytes(), Some(at(seconds)));
        }
        let LogFacts { count, seen, ahead, last } = tally.facts;
        assert_eq!((count, seen, ahead), (2, 3, 1));
        assert_eq!(last, ["error 2", "error 3"]);
    }

    #[test]
    fn a_few_of_many_are_kept_and_none_of_them_whole_or_for_a_terminal_to_obey() {
        let pattern = Regex::new("^.").unwrap();
        let mut tally = Tally::new(&pattern, None);
        let long = "ä".repeat(300);
        for entry in ["1", "2", "\u{1b}[2J\r\u{202e}\0 \"C:\\x\"", "b\u{fffd}r", &long] {
            tally.take(entry.as_bytes(), None);
        }
        assert_eq!((tally.facts.count, tally.facts.last.len()), (5, KEPT));
        let expected = ["\\u{1b}[2J\\r\\u{202e}\\0 \"C:\\x\"", "b\u{fffd}r", &"ä".repeat(200)];
        assert_eq!(tally.facts.last, expected);
    }

    #[test]
    fn what_is_no_utf_8_is_searched_as_well_and_of_what_is_endless_only_the_beginning() {
        let pattern = Regex::new("err.r$").unwrap();
        let mut tally = Tally::new(&pattern, None);
        tally.take(b"\xff\xfe\x00err\xc3r", None);
        assert_eq!(tally.facts.count, 1);
        let mut endless = vec![b'x'; SEARCHED];
        endless.extend(b"error");
        tally.take(&endless, None);
        assert_eq!((tally.facts.count, tally.facts.seen), (1, 2));
    }
}
