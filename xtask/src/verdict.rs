//! The lines that `test-runner` (package chaos-tests) writes, on the host and in the VM: one verdict per test,
//! then the count.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;

/// What stands before why something was tried twice (`tests/src/late.rs`).
pub(crate) const SECOND_TRY: &str = "second try: ";
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Pass,
    Fail,
    Skip,
}

/// One test that ended.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Verdict {
    /// Kernel release it ran on.
    pub(crate) kernel: String,
    /// Suite and name.
    pub(crate) test: String,
    pub(crate) outcome: Outcome,
    /// Why it failed or was skipped; the figures of one that passed, if it says any.
    #[serde(default)]
    pub(crate) reason: String,
    /// How long it took, in milliseconds.
    pub(crate) ms: u64,
    /// How much processor time its processes used meanwhile, in milliseconds.
    pub(crate) cpu_ms: Option<u64>,
    /// How often it was tried, if more than once: it was late, and why is in a line of the reason.
    #[serde(default)]
    pub(crate) tries: u32,
    /// What it measured, by name.
    #[serde(default)]
    pub(crate) figures: Map<String, Value>,
}

impl Verdict {
    /// Why the first of two tries does not count.
    pub(crate) fn second_try(&self) -> Option<&str> {
        let why = self.reason.lines().find_map(|line| line.strip_prefix(SECOND_TRY));
        (self.tries > 1).then_some(why.unwrap_or_default())
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let word = match self.outcome {
            Outcome::Pass => "pass",
            Outcome::Fail => "FAIL",
            Outcome::Skip => "skip",
        };
        let busy = self.cpu_ms.map(|ms| format!(", of a processor {ms} ms")).unwrap_or_default();
        let head = format!("{word} {} {} ({} ms{busy})", self.kernel, self.test, self.ms);
        if self.reason.is_empty() {
            head
        } else {
            format!("{head}\n     {}", self.reason.replace('\n', "\n     "))
        }
    }
}

/// Any line of the results.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    Verdict(Verdict),
    /// The runner came to its end, having run so many tests, of so many cells if each has not one, and left so many cells.
    Done {
        #[serde(rename = "done")]
        _done: bool,
        count: usize,
        cells: Option<usize>,
        #[serde(default)]
        left: usize,
    },
    /// PID 1 of the VM saw its child end with this status.
    Exit {
        exit: i32,
    },
    Measured(Measured),
}

/// All that `bench` has measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    facts: Value,
    figures: Value,
    goals: Value,
    skipped: Value,
    counts: Value,
}

/// What a results file says so far.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) done: Option<usize>,
    /// Cells that were run, if the program counts them.
    pub(crate) counted: Option<usize>,
    /// Cells that were not begun, since the time was over.
    pub(crate) left: usize,
    pub(crate) exit: Option<i32>,
    pub(crate) measured: Option<Measured>,
    /// Lines that are none of ours.
    pub(crate) garbled: Vec<String>,
}

impl Results {
    /// Adds one line. Returns its verdict, if it is one.
    pub(crate) fn read(&mut self, line: &str) -> Option<&Verdict> {
        match serde_json::from_str(line.trim()) {
            Ok(Line::Verdict(verdict)) => {
                self.verdicts.push(verdict);
                return self.verdicts.last();
            }
            // One line for each boot in which tests ran.
            Ok(Line::Done { count, cells, left, .. }) => {
                self.left += left;
                self.done = Some(self.done.unwrap_or(0) + count);
                self.counted = cells.map_or(self.counted, |more| Some(self.counted.unwrap_or(0) + more));
            }
            Ok(Line::Exit { exit }) => self.exit = Some(exit),
            Ok(Line::Measured(measured)) => self.measured = Some(measured),
            Err(_) if line.trim().is_empty() => {}
            Err(_) => self.garbled.push(line.trim().to_owned()),
        }
        None
    }

    /// How many cells were run: of tests, each that was not skipped is one.
    pub(crate) fn cells(&self) -> usize {
        let run = self.verdicts.iter().filter(|verdict| verdict.outcome != Outcome::Skip);
        self.counted.unwrap_or_else(|| run.count())
    }

    /// Why these results cannot be believed, if so: a run that did not come to its end has failed.
    pub(crate) fn doubt(&self) -> Option<String> {
        if let Some(line) = self.garbled.first() {
            return Some(format!("garbled result line {line:?}"));
        }
        let failed = self.verdicts.iter().any(|verdict| verdict.outcome == Outcome::Fail);
        if let Some(status) = self.exit.filter(|status| *status != 0 && !failed) {
            return Some(format!("it ended with status {status}, and no test had failed"));
        }
        match self.done {
            None => Some(format!("the run ended after {} verdicts without saying so", self.verdicts.len())),
            Some(0) if self.left == 0 => Some("no test was run".to_owned()),
            Some(count) if count != self.verdicts.len() => {
                Some(format!("{count} tests were announced, {} verdicts came", self.verdicts.len()))
            }
            Some(_) => None,
        }
    }
}

/// Reads the results that a process writes into a file, until it ends. Each verdict is handed over as it comes.
pub(crate) fn follow(
    process: &mut Child,
    path: &Path,
    mut each: impl FnMut(&Verdict),
) -> Result<Results, Error> {
    let mut results = Results::default();
    follow_lines(
        process,
        path,
        || None,
        |line| {
            results.read(line).into_iter().for_each(&mut each);
        },
    )?;
    Ok(results)
}

/// The same of every line, but kills the process when it is later than `until` says. Says whether it was killed.
pub(crate) fn follow_lines(
    process: &mut Child,
    path: &Path,
    until: impl Fn() -> Option<Instant>,
    mut each: impl FnMut(&str),
) -> Result<bool, Error> {
    let mut seen = 0;
    let mut killed = false;
    loop {
        let ended = process.try_wait().map_err(Error::file("wait for who writes", path))?.is_some();
        let bytes = fs::read(path).map_err(Error::file("read", path))?;
        let text = String::from_utf8_lossy(&bytes[seen..]).into_owned();
        // A line still being written has no end yet; at the end of the process what is there is all there is.
        let complete = if ended { text.len() } else { text.rfind('\n').map_or(0, |at| at + 1) };
        text[..complete].lines().for_each(&mut each);
        seen += complete;
        if ended {
            return Ok(killed);
        }
        if until().is_some_and(|until| Instant::now() >= until) {
            killed = true;
            let _ = process.kill();
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: &str = r#"{"kernel":"6.1","test":"a","outcome":"pass","reason":"","ms":3}"#;

    fn results(lines: &[&str]) -> Results {
        let mut results = Results::default();
        lines.iter().for_each(|line| {
            results.read(line);
        });
        results
    }

    #[test]
    fn a_run_with_all_its_verdicts_is_believed() {
        let results = results(&[PASS, r#"{"done":true,"count":1}"#, r#"{"exit":0}"#]);
        assert_eq!(results.doubt(), None);
        assert_eq!(results.exit, Some(0));
    }

    #[test]
    fn a_run_that_stops_early_or_loses_a_verdict_is_not_believed() {
        assert!(results(&[PASS]).doubt().is_some());
        assert!(results(&[PASS, r#"{"done":true,"count":2}"#]).doubt().is_some());
        assert!(results(&[r#"{"done":true,"count":0}"#]).doubt().is_some());
        assert!(results(&[PASS, "{\"kern", r#"{"done":true,"count":1}"#]).doubt().is_some());
    }

    #[test]
    fn a_run_that_fails_without_a_test_that_has_failed_is_not_believed() {
        let (done, exit) = (r#"{"done":true,"count":1}"#, r#"{"exit":1}"#);
        assert!(results(&[PASS, done, exit]).doubt().is_some());
        assert_eq!(results(&[&PASS.replace("pass", "fail"), done, exit]).doubt(), None);
    }

    #[test]
    fn cells_are_counted_by_the_program_or_are_the_tests_that_were_run() {
        let done = r#"{"done":true,"count":2}"#;
        assert_eq!(results(&[PASS, &PASS.replace("pass", "skip"), done]).cells(), 1);
        let of_cells = |cells| format!(r#"{{"done":true,"count":1,"cells":{cells}}}"#);
        assert_eq!(results(&[PASS, &of_cells(3), PASS, &of_cells(2)]).cells(), 5);
    }

    #[test]
    fn a_run_that_had_no_time_is_believed_and_says_what_it_left() {
        let results =
            results(&[PASS, r#"{"done":true,"count":1,"left":2}"#, r#"{"done":true,"count":0,"left":3}"#]);
        assert_eq!((results.doubt(), results.left), (None, 5));
        assert_eq!(self::results(&[r#"{"done":true,"count":0,"left":3}"#]).doubt(), None);
    }

    #[test]
    fn what_was_measured_is_kept_whole() {
        let line = r#"{"facts":{"kernel":"6"},"figures":{"a":{"b":1.5}},"goals":[{"met":true}],"skipped":[],"counts":{"met":1}}"#;
        let results = results(&[line, r#"{"exit":0}"#]);
        assert!(results.garbled.is_empty() && results.exit == Some(0));
        assert_eq!(serde_json::to_string(&results.measured).unwrap(), line);
    }
}
