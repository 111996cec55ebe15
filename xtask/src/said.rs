//! What test programs say, read and counted: libtest's text, the report of a script or of a program of ours, and the same on the
//! console of a VM.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::run;
use crate::summary::{Replay, Tally, print_replay};
use crate::verdict::SECOND_TRY;

/// What libtest's text said.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Passed, by the line that ends each executable's run.
    pub(crate) announced: usize,
}

/// What stands before the name of a crate of which the examples in comments are run.
pub(crate) const DOC_TESTS: &str = "Doc-tests ";

/// Reads what cargo says of the programs that it runs, and what libtest says in them.
#[derive(Debug, Default)]
pub(crate) struct Libtest {
    /// Source and executable of the program that runs, as cargo calls them.
    program: String,
    pub(crate) ran: Ran,
}

impl Libtest {
    /// Reads a line, of which those count that are `test NAME ... ok | FAILED | ignored[, reason]`. Says whether it is worth being
    /// seen: what passes is not. `replay` is the command for a program and the name of a test.
    pub(crate) fn read(
        &mut self,
        line: &str,
        tally: &mut Tally,
        replay: &dyn Fn(&str, &str) -> String,
    ) -> bool {
        let said = line.trim_start();
        if let Some(program) = said.strip_prefix("Running ").or(said.starts_with(DOC_TESTS).then_some(said)) {
            program.clone_into(&mut self.program);
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            let passed = result.split_once(". ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
            self.ran.announced += passed.unwrap_or(0);
            return true;
        }
        let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        else {
            return true;
        };
        match outcome {
            "ok" => {
                self.ran.passed += 1;
                tally.pass(1);
                return false;
            }
            "FAILED" => {
                self.ran.failed += 1;
                let command = replay(&self.program, name.trim_end_matches(" - should panic"));
                print_replay(&command);
                tally.fail_again(name, command);
            }
            _ if outcome.starts_with("ignored") => tally.skip(format!("{name}: {outcome}")),
            _ => {}
        }
        true
    }
}

/// What stands before a failure, of which the cell's name is what stands before the next colon.
const FAILED: &str = "FAILED: ";

/// Runs such a program, shows what it says, and counts it. `replay` is the command for the name of a cell.
pub(crate) fn believe(
    name: &str,
    command: &mut Command,
    replay: Replay<'_>,
    tally: &mut Tally,
) -> Result<(), Error> {
    let mut process =
        command.stdout(Stdio::piped()).spawn().map_err(|source| run::start_error(command, source))?;
    let mut text = String::new();
    for line in process.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.map_err(Error::file("read what is said by", Path::new(name)))?;
        println!("{line}");
        if let Some(what) = line.strip_prefix(FAILED) {
            print_replay(&replay(cell(what)));
        }
        text.push_str(&line);
        text.push('\n');
    }
    let status = process.wait().map_err(Error::file("wait for", Path::new(name)))?;
    read_script(name, &text, status.success(), replay, tally);
    Ok(())
}

/// The name of the cell that has failed.
fn cell(what: &str) -> &str {
    what.split(": ").next().unwrap_or_default()
}

fn read_script(path: &str, text: &str, succeeded: bool, replay: Replay<'_>, tally: &mut Tally) {
    let named = |prefix| text.lines().filter_map(move |line| line.strip_prefix(prefix));
    named(FAILED).for_each(|what| tally.fail_again(format!("{path} {what}"), replay(cell(what))));
    let sum = |prefix| named(prefix).filter_map(|count| count.parse::<usize>().ok()).sum::<usize>();
    tally.cells += sum("cells: ");
    tally.left += sum("left: ");
    named("skipped: ").for_each(|what| tally.skip(format!("{path} {what}")));
    named(SECOND_TRY).for_each(|what| tally.second_try(format!("{path} {what}")));
    let (failed, skipped) = (named(FAILED).count(), named("skipped: ").count());
    match text.lines().last().and_then(counts) {
        Some([passed, f, s]) if [f, s] == [failed, skipped] && succeeded == (failed == 0) => {
            tally.pass(passed)
        }
        _ => tally.fail(format!("{path}: its last line does not agree with the rest")),
    }
}

/// Reads `N passed, N failed, N skipped`.
fn counts(line: &str) -> Option<[usize; 3]> {
    let mut numbers = [0; 3];
    let mut parts = line.split(", ");
    for (number, word) in numbers.iter_mut().zip(["passed", "failed", "skipped"]) {
        *number = parts.next()?.strip_suffix(word)?.trim_end().parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// The report of a program that ended with this status, and what failed beside what it says. Lines behind its last one are
/// somebody else's.
pub(crate) fn read_text(
    name: &str,
    text: &str,
    status: Option<i32>,
    failure: Option<String>,
    replay: Replay<'_>,
    tally: &mut Tally,
) {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let end = lines.iter().rposition(|line| counts(line).is_some()).map_or(0, |at| at + 1);
    read_script(name, &lines[..end].join("\n"), status == Some(0), replay, tally);
    if let Some(failure) = failure {
        tally.fail(format!("{name}: {failure}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtest_output_is_counted_by_name_and_what_failed_is_run_again_by_its_program() {
        let (mut tally, mut libtest) = (Tally::default(), Libtest::default());
        let text = "     Running unittests src/lib.rs (t/a-1)\ntest a ... ok\ntest b ... ignored, no time\n\
            test c - should panic ... ok\ntest d - should panic ... FAILED\n\n\
            test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured\n";
        let replay = |program: &str, test: &str| format!("{program}: {test}");
        let shown = text.lines().filter(|line| libtest.read(line, &mut tally, &replay)).count();
        assert_eq!(shown, text.lines().count() - 2, "what passes is not shown");
        let ran = libtest.ran;
        assert_eq!((ran.passed, ran.failed, ran.announced), (2, 1, 2));
        assert_eq!(tally.line(), "2 passed, 1 failed, 1 skipped");
        assert_eq!(tally.replays(), ["unittests src/lib.rs (t/a-1): d"]);
    }

    #[test]
    fn a_script_is_only_believed_when_its_lines_agree() {
        let line = |text: &str, succeeded| {
            let mut tally = Tally::default();
            read_script("x", text, succeeded, &str::to_owned, &mut tally);
            tally.line()
        };
        assert_eq!(
            line("skipped: b: why\n3 passed, 0 failed, 1 skipped\n", true),
            "3 passed, 0 failed, 1 skipped"
        );
        assert_eq!(
            line("FAILED: a\n3 passed, 1 failed, 0 skipped\n", false),
            "3 passed, 1 failed, 0 skipped"
        );
        assert_eq!(line("3 passed, 0 failed, 0 skipped\n", false), "0 passed, 1 failed, 0 skipped");
        assert_eq!(line("done\n", true), "0 passed, 1 failed, 0 skipped");
        let late = "second try: a: by 1 s\n".repeat(3);
        assert_eq!(
            line(&format!("{late}3 passed, 0 failed, 0 skipped\n"), true),
            "3 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn cells_are_counted_and_a_failure_is_run_again_by_the_name_of_its_cell() {
        let mut tally = Tally::default();
        let text = "FAILED: pause by Auto, recovery: call 3: late\ncells: 12\nleft: 5\n1 passed, 1 failed, 0 skipped\n";
        let replay = |cell: &str| format!("replay {cell}");
        read_script("x", text, false, &replay, &mut tally);
        assert_eq!(
            (tally.cells, tally.left, tally.line().as_str()),
            (12, 5, "1 passed, 1 failed, 0 skipped")
        );
        assert_eq!(tally.replays(), ["replay pause by Auto, recovery"]);
    }

    #[test]
    fn a_programs_report_ends_with_its_last_line_and_only_what_failed_beside_it_is_one_more() {
        let line = |text: &str, status: Option<i32>, failure: Option<&str>| {
            let mut tally = Tally::default();
            read_text("x", text, status, failure.map(str::to_owned), &str::to_owned, &mut tally);
            tally.line()
        };
        let text =
            "[    1.5] noise\nseed 1\r\n3 passed, 0 failed, 0 skipped\r\n[   9.1] reboot: Power down\n";
        assert_eq!(line(text, Some(0), None), "3 passed, 0 failed, 0 skipped");
        assert_eq!(line(text, Some(1), None), "0 passed, 1 failed, 0 skipped");
        assert_eq!(line(text, None, Some("time limit")), "0 passed, 2 failed, 0 skipped");
        assert_eq!(line("[    1.5] noise\n", Some(0), None), "0 passed, 1 failed, 0 skipped");
        let failed = "FAILED: a: late\n2 passed, 1 failed, 0 skipped\n";
        assert_eq!(line(failed, Some(1), None), "2 passed, 1 failed, 0 skipped");
    }
}
