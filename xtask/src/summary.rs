//! Counts verdicts and prints the line that ends every test command.

use std::process::ExitCode;

use crate::verdict::{Outcome, SECOND_TRY, Verdict};
use crate::vm::Heard;

/// So many tests may be late in a run, and be tried once more. More is no accident.
const MOST_SECOND_TRIES: usize = 2;

/// The command that runs again what has failed in a cell of this name, or a test, and nothing else.
pub(crate) type Replay<'a> = &'a dyn Fn(&str) -> String;

/// What has failed, and the command that runs it again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    what: String,
    replay: Option<String>,
}

/// Passed, failed and skipped tests; the last two by name, and so are those that were tried twice.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<Failure>,
    skipped: Vec<String>,
    /// Of a set of tests, how many cells were run.
    pub(crate) cells: usize,
    /// And from what that which was left to chance followed.
    pub(crate) seed: Option<u64>,
    second_tries: Vec<String>,
    /// Cells that were not begun, since the time was over.
    pub(crate) left: usize,
}

impl Tally {
    /// Adds passed tests.
    pub(crate) fn pass(&mut self, count: usize) {
        self.passed += count;
    }

    /// The same, of a set whose cells followed from a seed.
    pub(crate) fn by_seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Adds one failure.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.failed.push(Failure { what: what.into(), replay: None });
    }

    /// Adds one failure that a command runs again.
    pub(crate) fn fail_again(&mut self, what: impl Into<String>, replay: String) {
        self.failed.push(Failure { what: what.into(), replay: Some(replay) });
    }

    /// Has each failure that has no command of its own run again by this one.
    pub(crate) fn replay_by(&mut self, command: &str) {
        self.failed.iter_mut().for_each(|failure| {
            failure.replay.get_or_insert_with(|| command.to_owned());
        });
    }

    /// The commands that run again what has failed.
    #[cfg(test)]
    pub(crate) fn replays(&self) -> Vec<&str> {
        self.failed.iter().filter_map(|failure| failure.replay.as_deref()).collect()
    }

    /// Whether something passed, and nothing failed.
    pub(crate) fn has_passed(&self) -> bool {
        self.failures() == 0 && self.passed > 0
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

    /// Adds a second try of something that was late, with the reason; it is counted beside what came of it.
    pub(crate) fn second_try(&mut self, what: impl Into<String>) {
        self.second_tries.push(what.into());
    }

    /// Adds one verdict.
    pub(crate) fn add(&mut self, verdict: &Verdict, replay: Replay<'_>) {
        // The rest of a failure's reason, its output, has been printed with the verdict.
        let reason = verdict.reason.lines().next().unwrap_or_default();
        let line = format!("{} {}: {reason}", verdict.kernel, verdict.test);
        if let Some(why) = verdict.second_try() {
            self.second_try(format!("{} {}: {why}", verdict.kernel, verdict.test));
        }
        match verdict.outcome {
            Outcome::Pass => self.passed += 1,
            Outcome::Fail => self.fail_again(line, replay(&verdict.test)),
            Outcome::Skip => self.skipped.push(line),
        }
    }

    /// Adds all that was heard from one VM; what failed as a whole is one failure more.
    pub(crate) fn add_heard(&mut self, heard: &Heard, replay: Replay<'_>) {
        heard.results.verdicts.iter().for_each(|verdict| self.add(verdict, replay));
        self.cells += heard.results.cells();
        self.left += heard.results.left;
        if let Some(failure) = &heard.failure {
            self.fail(format!("{} {}: {failure}", heard.release, heard.job));
        }
    }

    /// Adds another tally.
    pub(crate) fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self.cells += other.cells;
        self.left += other.left;
        self.second_tries.extend(other.second_tries);
    }

    /// Prints what was tried twice, what failed and what was skipped, by name.
    pub(crate) fn print_exceptions(&self) {
        self.skipped.iter().for_each(|line| println!("skipped: {line}"));
        self.second_tries.iter().for_each(|line| println!("{SECOND_TRY}{line}"));
        for Failure { what, replay } in &self.failed {
            println!("FAILED: {what}");
            replay.iter().for_each(|command| print_replay(command));
        }
        if self.is_often_late() {
            let count = self.second_tries.len();
            println!("FAILED: {count} second tries for being late, and {MOST_SECOND_TRIES} may be in a run");
        }
    }

    fn is_often_late(&self) -> bool {
        self.second_tries.len() > MOST_SECOND_TRIES
    }

    fn failures(&self) -> usize {
        self.failed.len() + usize::from(self.is_often_late())
    }

    /// The summary. Its form is fixed: scripts read it.
    pub(crate) fn line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failures(), self.skipped.len())
    }

    /// Success only when something passed and nothing failed.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.has_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Says by which command a failure is run again.
pub(crate) fn print_replay(command: &str) {
    println!("  replay: {command}");
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

    #[test]
    fn a_failure_is_run_again_by_its_own_command_or_by_that_of_its_step() {
        let mut tally = Tally::default();
        tally.fail("the program died");
        tally.fail_again("a test", "run the test".into());
        tally.replay_by("run the step");
        assert_eq!(tally.replays(), ["run the step", "run the test"]);
        assert!(!tally.has_passed());
    }

    #[test]
    fn two_second_tries_may_be_in_a_run_and_a_third_is_a_failure() {
        let late = r#"{"kernel":"6.1","test":"a","outcome":"pass","reason":"3 ms\nsecond try: by 1 s","ms":3,"tries":2}"#;
        let [once, late]: [Verdict; 2] =
            [late.replace("2}", "1}"), late.to_owned()].map(|line| serde_json::from_str(&line).unwrap());
        let mut tally = Tally::default();
        for verdict in [&once, &late, &late] {
            tally.add(verdict, &str::to_owned);
        }
        assert_eq!(
            (tally.line().as_str(), tally.second_tries[0].as_str()),
            ("3 passed, 0 failed, 0 skipped", "6.1 a: by 1 s")
        );
        let mut other = Tally::default();
        other.add(&late, &str::to_owned);
        tally.merge(other);
        assert_eq!(tally.line(), "4 passed, 1 failed, 0 skipped");
    }
}
