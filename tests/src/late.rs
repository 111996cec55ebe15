//! Limits on time, of two kinds. What is waited for has a limit that only a hang reaches. What is itself promised by the clock, such
//! as an end within 3 s, can be late, and a test that fails by that alone is tried once more. What needs programs started can have as
//! much more time as this machine is slow at that.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Longer than anything takes that does not hang, on a busy machine and on an emulated one.
pub const HANG: Duration = Duration::from_secs(60);
/// What the runner looks for in the message of a test that has failed: it failed by its time alone.
pub const MARK: &str = "CHAOS-LATE ";

/// What stands before what was tried twice, and why, in the line of a verdict and in the report of a program. `cargo xtask test`
/// counts them.
pub const SECOND_TRY: &str = "second try: ";

/// Which of the things that a program does one after the other may be tried once more.
#[derive(Debug, Default)]
pub struct SecondTry {
    /// What is being tried for the second time.
    at: Option<String>,
}

impl SecondTry {
    /// Whether this is to be tried once more, since it was late, has nothing else wrong, and was tried for the first time. Says so.
    pub fn is_due(&mut self, what: String, error: &Error) -> bool {
        if !error.is_late() || self.at.as_ref() == Some(&what) {
            return false;
        }
        let why = error.to_string().replace(MARK, "");
        println!("{SECOND_TRY}{what}: {}", why.lines().next().unwrap_or_default());
        self.at = Some(what);
        true
    }
}

/// How many programs could be started in the time that this machine may need beyond a promise. An idle machine starts them within
/// 100 ms, an emulated one within 1 to 3 s.
const STARTS: u32 = 50;
/// How many starts are measured; the median counts.
const MEASURED: usize = 9;

/// Whether a promise about time was kept.
///
/// # Errors
/// [`Error::Late`] when it was not: the runner tries such a test once more.
pub fn within(promise: Duration, took: Duration, what: &str) -> Result<()> {
    match took < promise {
        true => Ok(()),
        false => Err(Error::Late { what: format!("{what}, which took {took:?},"), after: promise }),
    }
}

/// A promise, and what this machine may need beyond it for being slow now.
///
/// # Errors
/// When no program can be started.
pub fn on_this_machine(promise: Duration) -> Result<Duration> {
    Ok(promise + STARTS * start_of_a_program()?)
}

/// How long this machine takes now to start a program and see its end: the median of a few.
fn start_of_a_program() -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..MEASURED {
        let start = Instant::now();
        let ended = Command::new("true").stdin(Stdio::null()).status();
        ended.map_err(Error::io("start", "true"))?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[MEASURED / 2])
}

/// As [`within`], for tests that fail by panics.
///
/// # Panics
/// When the promise was not kept.
#[track_caller]
pub fn assert_within(promise: Duration, took: Duration, what: &str) {
    if let Err(late) = within(promise, took, what) {
        panic!("{late}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_that_is_late_is_tried_once_more_and_no_other() {
        let (late, wrong) = (Error::in_vain("an end", Duration::ZERO), Error::Different("it acts".into()));
        let wrapped = Error::Different(format!("openat: {late}"));
        let mut tries = SecondTry::default();
        assert!(!tries.is_due("first".into(), &wrong));
        assert!(tries.is_due("first".into(), &wrapped));
        assert!(!tries.is_due("first".into(), &late), "a third time");
        assert!(tries.is_due("second".into(), &late));
    }

    #[test]
    fn what_is_late_says_so_with_the_mark_and_what_hangs_does_not() {
        let second = Duration::from_secs(1);
        assert!(within(second, second / 2, "an end").is_ok());
        let late = within(second, second, "an end").unwrap_err().to_string();
        assert!(late.starts_with(MARK) && late.contains("an end"), "{late}");
        let [late, hung] = [second, HANG].map(|after| Error::in_vain("an end", after).to_string());
        assert!(late.starts_with(MARK) && !hung.contains(MARK), "{late}, {hung}");
    }
}
