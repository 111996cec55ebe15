//! Runs test executables, one process per test, and turns what they do into verdicts.
//!
//! A process per test means that a crash, a hang or a leak of one test is its own. The runner judges more than the
//! exit status: exactly one test must have run, a skip must be excused by [`Reason::allowed`], and no process, network
//! namespace, control group or folder may be left. A runner that is told to end by a signal ends its test, and takes
//! away what that has left.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::cells::Choice;
use crate::process::{self, wait_until};
use crate::skip::{Environment, MARK, REASONS, Reason, kernel_release, kernel_version};
use crate::{Error, Result, aftermath, netns};

/// A verdict keeps this much of what a failed test wrote.
const KEPT_OUTPUT: usize = 4000;
/// Why a test is left out, unless the plan says it.
const ELSEWHERE: &str = "passed-on-the-host: nothing of it depends on the kernel";
/// What a test puts before a figure that belongs into the summary of a run.
pub const FIGURE: &str = "figure: ";
/// Processes of a test may take this long to go after it.
const SETTLE: Duration = Duration::from_secs(10);

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It ran and passed.
    Pass,
    /// It failed, crashed, hung, leaked, or was skipped without excuse.
    Fail,
    /// It was skipped, with an excuse.
    Skip,
}

/// One line of the results.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Kernel release.
    pub kernel: String,
    /// Suite and name.
    pub test: String,
    /// How it ended.
    pub outcome: Verdict,
    /// Why it failed or was skipped; the figures of one that passed, if it says any.
    pub reason: String,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// What to run.
#[derive(Debug)]
pub struct Plan {
    /// Test executables that understand libtest's flags.
    pub executables: Vec<PathBuf>,
    /// Only tests whose suite and name contain one of these; every test, if there is none.
    pub filters: Vec<String>,
    /// Longest that one test may take.
    pub limit: Duration,
    /// Suite and name of tests that are not run, and why: those that have passed elsewhere and would say the same here, if
    /// nothing is said.
    pub leave_out: HashMap<String, String>,
    /// Which of them.
    pub choice: Choice,
}

/// A test of an executable: its name there, and with its suite.
struct Test<'a> {
    executable: &'a Path,
    name: String,
    full: String,
}

/// The tests that the plan asks for.
fn chosen(plan: &Plan) -> Result<Vec<Test<'_>>> {
    let mut tests = Vec::new();
    for executable in &plan.executables {
        for name in list(executable)? {
            let full = format!("{}::{name}", suite(executable));
            if plan.filters.is_empty() || plan.filters.iter().any(|filter| full.contains(filter)) {
                tests.push(Test { executable, name, full });
            }
        }
    }
    for filter in &plan.filters {
        if !tests.iter().any(|test| test.full.contains(filter)) {
            return Err(Error::Different(format!("no test has {filter:?} in its name")));
        }
    }
    plan.choice.of(tests, |test| &test.full).map_err(Error::Different)
}

/// Suite and name of each test that [`run`] would run.
///
/// # Errors
/// As [`run`].
pub fn names(plan: &Plan) -> Result<Vec<String>> {
    Ok(chosen(plan)?.into_iter().map(|test| test.full).collect())
}

/// Runs all of it and hands over each verdict as it comes. Returns how many tests there were.
///
/// # Errors
/// When an executable cannot list its tests: then nothing is known of them. When a filter is in no test's name, or a cell is no
/// test.
pub fn run(plan: &Plan, mut report: impl FnMut(&Line)) -> Result<usize> {
    // Orphans of a test become our children, so that we can tell that they are left.
    prctl::set_child_subreaper(true).map_err(Error::sys("become", "subreaper"))?;
    let tests = chosen(plan)?;
    let kernel = kernel_release();
    for Test { executable, name, full } in &tests {
        let started = Instant::now();
        let run = || match plan.leave_out.get(full).map(String::as_str) {
            Some("") => Ok((Verdict::Skip, ELSEWHERE.to_owned())),
            Some(why) => Ok((Verdict::Skip, why.to_owned())),
            None => run_one(executable, name, plan.limit),
        };
        let (outcome, reason) = match run() {
            Ok(verdict) => verdict,
            Err(error) => (Verdict::Fail, error.to_string()),
        };
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        report(&Line { kernel: kernel.clone(), test: full.clone(), outcome, reason, ms });
    }
    Ok(tests.len())
}

/// The executable's name without the hash that cargo adds.
fn suite(executable: &Path) -> String {
    let name = executable.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.rsplit_once('-') {
        Some((stem, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            stem.to_owned()
        }
        _ => name,
    }
}

fn list(executable: &Path) -> Result<Vec<String>> {
    let text = netns::output(Command::new(executable).args(["--list", "--format=terse"]))?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn run_one(executable: &Path, name: &str, limit: Duration) -> Result<(Verdict, String)> {
    let shown = || executable.display().to_string();
    let mut file = tempfile::tempfile().map_err(Error::io("create", "output file"))?;
    let share = |file: &File| file.try_clone().map_err(Error::io("share", "output file"));
    let mut child = Command::new(executable)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .stdin(Stdio::null())
        .stdout(share(&file)?)
        .stderr(share(&file)?)
        .spawn()
        .map_err(Error::io("start", shown()))?;
    let pid = child.id();
    let answered_for = aftermath::answer_for(pid);
    let status = wait(&mut child, limit).map_err(Error::io("wait for", shown()))?;
    let leaks = clean_up_after(pid);
    answered_for?;
    let text = read_back(&mut file).map_err(Error::io("read", "output file"))?;
    Ok(judge(status, limit, &leaks, &text, Environment::detect(), kernel_version()))
}

/// `None` when it had to be killed.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let mut status = None;
    wait_until(limit, || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    });
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(status)
}

fn read_back(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Ends what a test left, and says what it was.
fn clean_up_after(pid: u32) -> Vec<String> {
    let mut leaks = end_children();
    leaks.extend(aftermath::take_away(pid.cast_signed()).iter().map(|what| format!("left {what}")));
    leaks
}

/// Ends what still runs below this process, when something is over that was to leave nothing, and says what it was.
pub fn end_children() -> Vec<String> {
    let mut leaks = Vec::new();
    let me = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
    let left = || {
        aftermath::reap();
        process::descendants(me)
    };
    if !wait_until(SETTLE, || left().is_empty()) {
        for process in left() {
            leaks.push(format!("left process {} {:?}", process.pid, process.arguments));
            process.signal(Signal::SIGKILL);
        }
        wait_until(SETTLE, || left().is_empty());
    }
    leaks
}

fn judge(
    status: Option<ExitStatus>,
    limit: Duration,
    leaks: &[String],
    text: &str,
    environment: Environment,
    kernel: (u32, u32),
) -> (Verdict, String) {
    let fail = |why: String| (Verdict::Fail, format!("{why}\n{}", tail(text)));
    let Some(status) = status else { return fail(format!("not done after {limit:?}: killed")) };
    if !status.success() {
        return fail(format!("{status}: {}", message(text)));
    }
    if !leaks.is_empty() {
        return fail(leaks.join("; "));
    }
    if let Some(said) = text.lines().find_map(|line| line.split(MARK).nth(1)) {
        let name = said.split(':').next().unwrap_or_default();
        let known: Option<Reason> = REASONS.iter().copied().find(|reason| reason.name() == name);
        return match known {
            Some(reason) if reason.allowed(environment, kernel) => (Verdict::Skip, said.to_owned()),
            _ => fail(format!("skipped without excuse: {said}")),
        };
    }
    // libtest ends well also when a filter matched nothing and when the test is ignored.
    if !text.contains("test result: ok. 1 passed") {
        return fail("ended well without having run".into());
    }
    let figures: Vec<_> = text.lines().filter_map(|line| line.split(FIGURE).nth(1)).collect();
    (Verdict::Pass, figures.join("\n"))
}

/// What the test itself said, for summaries: the line below the panic's place, or below libtest-mimic's heading.
fn message(text: &str) -> &str {
    let below = |marker: &str| {
        let mut lines = text.lines().skip_while(|line| !line.contains(marker)).skip(1);
        lines.next().filter(|line| !line.is_empty())
    };
    below(" panicked at ").or_else(|| below("---- ")).unwrap_or("no message")
}

fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(KEPT_OUTPUT);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text[from..].trim()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const OK: &str = "test result: ok. 1 passed; 0 failed; 0 ignored";

    fn verdict(status: Option<i32>, leaks: &[String], text: &str, environment: Environment) -> Verdict {
        let status = status.map(|code| ExitStatus::from_raw(code << 8));
        judge(status, Duration::from_secs(1), leaks, text, environment, (6, 12)).0
    }

    #[test]
    fn only_a_test_that_ran_and_left_nothing_passes() {
        let host = Environment::Host;
        assert_eq!(verdict(Some(0), &[], OK, host), Verdict::Pass);
        assert_eq!(
            verdict(Some(0), &[], "test result: ok. 0 passed; 0 failed; 1 ignored", host),
            Verdict::Fail
        );
        assert_eq!(verdict(Some(101), &[], OK, host), Verdict::Fail);
        assert_eq!(verdict(None, &[], OK, host), Verdict::Fail);
        assert_eq!(verdict(Some(0), &["left process 1".into()], OK, host), Verdict::Fail);
    }

    #[test]
    fn the_figures_of_a_test_that_passed_are_kept() {
        let text = format!("noise\n{FIGURE}3.0 for the unit\n{OK}");
        let status = Some(ExitStatus::from_raw(0));
        let limit = Duration::from_secs(1);
        let (verdict, figures) = judge(status, limit, &[], &text, Environment::Vm, (6, 12));
        assert_eq!((verdict, figures.as_str()), (Verdict::Pass, "3.0 for the unit"));
    }

    #[test]
    fn a_skip_needs_an_excuse() {
        let text = format!("{MARK}kernel-without-sch_netem: no module\n{OK}");
        assert_eq!(verdict(Some(0), &[], &text, Environment::Host), Verdict::Skip);
        assert_eq!(verdict(Some(0), &[], &text, Environment::Vm), Verdict::Fail);
        let unknown = format!("{MARK}because: I say so\n{OK}");
        assert_eq!(verdict(Some(0), &[], &unknown, Environment::Host), Verdict::Fail);
    }
}
