//! Counts verdicts and prints the line that ends every test command.

use std::process::ExitCode;

use crate::verdict::{Outcome, Verdict};
use crate::vm::Boot;

/// Passed, failed and skipped tests; the last two by name.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl Tally {
    /// Adds passed tests.
    pub(crate) fn pass(&mut self, count: usize) {
        self.passed += count;
    }

    /// Adds one failure.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.failed.push(what.into());
    }

    /// One skipped test, with its reason, and nothing else.
    pub(crate) fn skipped(what: impl Into<String>) -> Self {
        let mut tally = Self::default();
        tally.skip(what);
        tally
    }

    /// Adds one skipped test, with its reason.
    pub(crate) fn skip(&mut self, what: impl Into<String>) {
        self.skipped.push(what.into());
    }

    /// Adds one verdict.
    pub(crate) fn add(&mut self, verdict: &Verdict) {
        // The rest of a failure's reason, its output, has been printed with the verdict.
        let reason = verdict.reason.lines().next().unwrap_or_default();
        let line = format!("{} {}: {reason}", verdict.kernel, verdict.test);
        match verdict.outcome {
            Outcome::Pass => self.passed += 1,
            Outcome::Fail => self.failed.push(line),
            Outcome::Skip => self.skipped.push(line),
        }
    }

    /// Adds all that one VM did; a boot that failed as a whole is one failure more.
    pub(crate) fn add_boot(&mut self, boot: &Boot) {
        boot.results.verdicts.iter().for_each(|verdict| self.add(verdict));
        println!("{}: booted, tested and powered off in {:.1} s", boot.release, boot.took.as_secs_f64());
        if let Some(failure) = &boot.failure {
            println!("{}: {failure}; the console ends with\n{}", boot.release, boot.console_tail());
            self.failed.push(format!("{}: {failure}", boot.release));
        }
    }

    /// Adds another tally.
    pub(crate) fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }

    /// Prints what failed and what was skipped, by name.
    pub(crate) fn print_exceptions(&self) {
        self.skipped.iter().for_each(|line| println!("skipped: {line}"));
        self.failed.iter().for_each(|line| println!("FAILED: {line}"));
    }

    /// The summary. Its form is fixed: scripts read it.
    pub(crate) fn line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped.len())
    }

    /// Success only when something passed and nothing failed.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.failed.is_empty() && self.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_exactly_the_promised_form() {
        let mut tally = Tally::default();
        tally.pass(3);
        tally.skip("x: no netem");
        assert_eq!(tally.line(), "3 passed, 0 failed, 1 skipped");
    }
}
