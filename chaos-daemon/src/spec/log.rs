//! Which entries of a log are meant: of a unit's journal, or of a file. None of it says whether they may be read.

use std::fmt;
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::expression::expression;
use super::units::SpecError;

/// Priorities of the journal, the most urgent first (syslog(3)).
pub const PRIORITIES: &[&str] = &["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// How far back a journal is read when nobody says.
const DEFAULT_WITHIN: Duration = Duration::from_secs(60);
/// The furthest.
const LONGEST_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// How much of a file is read when nobody says.
const DEFAULT_LAST: u64 = 1 << 20;
/// The most.
const LARGEST_LAST: u64 = 16 << 20;
/// The longest expression, in bytes.
const LONGEST_PATTERN: usize = 512;
/// The longest path (path_resolution(7)).
const LONGEST_PATH: usize = 4095;
/// The longest name of a unit (systemd.unit(5)).
const LONGEST_UNIT: usize = 255;

/// Which entries, as a caller says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    /// Those of this unit's journal.
    pub unit: Option<String>,
    /// The lines of this file.
    pub file: Option<String>,
    /// Regular expression that is found in them.
    pub pattern: String,
    /// How old they may be.
    pub within: Option<Duration>,
    /// How many bytes of a file are read, its last ones.
    pub last: Option<u64>,
    /// How urgent an entry of the journal is at least.
    pub priority: Option<String>,
}

/// Which entries.
#[derive(Debug, Clone)]
pub struct LogSearch {
    /// Of which log.
    pub log: Log,
    /// What is found in them.
    pub pattern: Regex,
}

/// A log, and what of it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Log {
    /// The journal of a systemd unit.
    Unit {
        /// Its name, with its kind.
        name: String,
        /// How far back.
        within: Duration,
        /// How urgent at least.
        priority: Option<&'static str>,
    },
    /// A file.
    File {
        /// Its path: absolute, and without detours.
        path: String,
        /// How many bytes.
        last: u64,
        /// How far back, by what its lines begin with.
        within: Option<Duration>,
    },
}

impl LogSearch {
    /// Understands which entries are meant.
    ///
    /// # Errors
    /// Names the option of `chaosctl probe log` that is missing, wrong, or of other logs.
    pub fn parse(request: &LogRequest) -> Result<Self, SpecError> {
        let log = match (&request.unit, &request.file) {
            (Some(name), None) => of_unit(name, request)?,
            (None, Some(path)) => of_file(path, request)?,
            (Some(_), Some(_)) => return Err(SpecError::new("--file", "give --unit or --file, not both")),
            (None, None) => {
                return Err(SpecError::new("--unit", "missing: give --unit NAME, or --file PATH"));
            }
        };
        Ok(Self { log, pattern: pattern(&request.pattern)? })
    }
}

fn of_unit(name: &str, request: &LogRequest) -> Result<Log, SpecError> {
    check_unit("--unit", name)?;
    if request.last.is_some() {
        return Err(SpecError::new("--last", "belongs to --file: of a journal, give --within"));
    }
    let known = |given: &String| {
        PRIORITIES.iter().copied().find(|known| known == given).ok_or_else(|| {
            SpecError::new("--priority", format!("{given:?} is not one of {}", PRIORITIES.join(", ")))
        })
    };
    let priority = request.priority.as_ref().map(known).transpose()?;
    let within = within(request)?.unwrap_or(DEFAULT_WITHIN);
    Ok(Log::Unit { name: name.to_owned(), within, priority })
}

fn of_file(path: &str, request: &LogRequest) -> Result<Log, SpecError> {
    check_path("--file", path)?;
    if request.priority.is_some() {
        return Err(SpecError::new("--priority", "belongs to --unit: lines of a file have none"));
    }
    let last = request.last.unwrap_or(DEFAULT_LAST);
    if !(1..=LARGEST_LAST).contains(&last) {
        return Err(SpecError::new("--last", format!("give up to {} MiB", LARGEST_LAST >> 20)));
    }
    Ok(Log::File { path: path.to_owned(), last, within: within(request)? })
}

fn within(request: &LogRequest) -> Result<Option<Duration>, SpecError> {
    match request.within {
        Some(within) if within.is_zero() || within > LONGEST_WITHIN => {
            Err(SpecError::new("--within", format!("give up to {} h", LONGEST_WITHIN.as_secs() / 3600)))
        }
        within => Ok(within),
    }
}

fn pattern(given: &str) -> Result<Regex, SpecError> {
    const OPTION: &str = "--match";
    if given.is_empty() || given.len() > LONGEST_PATTERN {
        let problem = format!("give a regular expression of 1 to {LONGEST_PATTERN} bytes");
        return Err(SpecError::new(OPTION, problem));
    }
    expression(OPTION, given)
}

/// Sees that `name`, which was given at `field`, is the name of one unit with a log, and no pattern of several.
///
/// # Errors
/// When it is not.
pub fn check_unit(field: &str, name: &str) -> Result<(), SpecError> {
    let kinds = [".service", ".scope", ".slice"];
    let allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let is_one = kinds.iter().any(|kind| name.len() > kind.len() && name.ends_with(kind))
        && name.len() <= LONGEST_UNIT
        && name.chars().all(allowed);
    match is_one {
        true => Ok(()),
        false => Err(SpecError::new(field, format!("{name:?} is not a unit: give e.g. \"payment.service\""))),
    }
}

/// Sees that `path`, which was given at `field`, is absolute and says by itself where it leads, as far as names can.
///
/// # Errors
/// When it does not.
pub fn check_path(field: &str, path: &str) -> Result<(), SpecError> {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
    match path.strip_prefix('/') {
        Some(parts) if path.len() <= LONGEST_PATH && parts.split('/').all(plain) => Ok(()),
        _ => {
            let problem = format!(
                "{path:?} is not an absolute path without \".\", \"..\" and \"//\": give e.g. \"/var/log/payment.log\""
            );
            Err(SpecError::new(field, problem))
        }
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit { name, within, .. } => write!(f, "the journal of {name} within {within:?}"),
            Self::File { path, within: Some(within), .. } => write!(f, "{path} within {within:?}"),
            Self::File { path, .. } => f.write_str(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_unit(name: &str) -> LogRequest {
        LogRequest { unit: Some(name.into()), pattern: "x".into(), ..LogRequest::default() }
    }

    fn of_file(path: &str) -> LogRequest {
        LogRequest { file: Some(path.into()), pattern: "x".into(), ..LogRequest::default() }
    }

    #[test]
    fn a_journal_is_read_a_minute_back_and_a_file_by_its_last_mebibyte_unless_somebody_says_otherwise() {
        let log = |request: &LogRequest| LogSearch::parse(request).unwrap().log;
        let name = "a@b-1.service".to_owned();
        let unit = |within, priority| Log::Unit { name: name.clone(), within, priority };
        assert_eq!(log(&of_unit(&name)), unit(Duration::from_secs(60), None));
        let within = Some(Duration::from_secs(5));
        let urgent = LogRequest { within, priority: Some("warning".into()), ..of_unit(&name) };
        assert_eq!(log(&urgent), unit(Duration::from_secs(5), Some("warning")));
        let path = "/var/log/a b.log".to_owned();
        assert_eq!(log(&of_file(&path)), Log::File { path: path.clone(), last: 1 << 20, within: None });
        let more = LogRequest { within, last: Some(16 << 20), ..of_file(&path) };
        assert_eq!(log(&more), Log::File { path, last: 16 << 20, within });
    }

    #[test]
    fn what_makes_no_sense_is_named_by_its_option() {
        let refused = |request: &LogRequest| LogSearch::parse(request).unwrap_err().field;
        for name in ["", "a", ".service", "*.service", "a/b.service", "a b.service", "a.service\n", "a.timer"]
        {
            assert_eq!(refused(&of_unit(name)), "--unit", "{name:?}");
        }
        for path in ["", "a.log", "/", "/var/", "/var/../a", "/var//a", "/./a", "/a\n", "/a\0b"] {
            assert_eq!(refused(&of_file(path)), "--file", "{path:?}");
        }
        let unit = of_unit("a.service");
        let file = of_file("/a");
        assert_eq!(refused(&LogRequest::default()), "--unit");
        assert_eq!(refused(&LogRequest { file: Some("/a".into()), ..unit.clone() }), "--file");
        assert_eq!(refused(&LogRequest { last: Some(1), ..unit.clone() }), "--last");
        assert_eq!(refused(&LogRequest { priority: Some("loud".into()), ..unit.clone() }), "--priority");
        assert_eq!(refused(&LogRequest { priority: Some("err".into()), ..file.clone() }), "--priority");
        for last in [0, (16 << 20) + 1] {
            assert_eq!(refused(&LogRequest { last: Some(last), ..file.clone() }), "--last");
        }
        for seconds in [0, 86_401] {
            let within = Some(Duration::from_secs(seconds));
            assert_eq!(refused(&LogRequest { within, ..unit.clone() }), "--within");
            assert_eq!(refused(&LogRequest { within, ..file.clone() }), "--within");
        }
    }

    #[test]
    fn an_expression_is_bounded_in_length_and_in_what_it_is_compiled_to() {
        let refused = |pattern: &str| {
            let request = LogRequest { pattern: pattern.into(), ..of_file("/a") };
            let error = LogSearch::parse(&request).unwrap_err();
            assert_eq!(error.field, "--match", "{pattern:?}");
            error.problem
        };
        refused("");
        refused(&"x".repeat(513));
        assert!(refused("(").contains("unclosed group"));
        assert!(refused(r"(?:\w{99}){99}").contains("repeats too much"));
        // What other engines need exponential time for.
        let request = LogRequest { pattern: "^(a+)+$".into(), ..of_file("/a") };
        assert!(!LogSearch::parse(&request).unwrap().pattern.is_match(&format!("{}b", "a".repeat(10_000))));
    }
}
