//! Runs test executables, one process per test, and turns what they do into verdicts.
//!
//! A process per test means that a crash, a hang or a leak of one test is its own. The runner judges more than the
//! exit status: exactly one test must have run, a skip must be excused by [`Reason::allowed`], and no process, network
//! namespace, control group or folder may be left. A test that was late, and nothing else, is tried once more: what is late
//! twice has failed. A runner that is told to end by a signal ends its test, and takes away what that has left.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use serde::Serialize;

use crate::cells::Choice;
use crate::late::{self, SECOND_TRY};
use crate::process::{self, wait_until};
use crate::skip::{Environment, MARK, REASONS, Reason, kernel_release, kernel_version};
use crate::{Error, HANG, Result, aftermath, netns};

/// A verdict keeps this much of what a failed test wrote.
const KEPT_OUTPUT: usize = 4000;
/// Why a test is left out, unless the plan says it.
const ELSEWHERE: &str = "passed-on-the-host: nothing of it depends on the kernel";
/// What a test puts before a figure that belongs into the summary of a run.
pub const FIGURE: &str = "figure: ";

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
    /// Why it failed or was skipped; the figures of one that passed, if it says any. Behind [`SECOND_TRY`], why it was tried twice.
    pub reason: String,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// How much processor time its processes used meanwhile, as far as they were collected; of a process per test only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// How often it was tried, if more than once.
    #[serde(skip_serializing_if = "is_first")]
    pub tries: u32,
}

fn is_first(tries: &u32) -> bool {
    *tries == 1
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

/// How many tests there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Of which there is a verdict.
    pub run: usize,
    /// Not begun, since the time was over.
    pub left: usize,
}

/// Runs all of it and hands over each verdict as it comes.
///
/// # Errors
/// When an executable cannot list its tests: then nothing is known of them. When a filter is in no test's name, or a cell is no
/// test.
pub fn run(plan: &Plan, mut report: impl FnMut(&Line)) -> Result<Count> {
    // Orphans of a test become our children, so that we can tell that they are left.
    prctl::set_child_subreaper(true).map_err(Error::sys("become", "subreaper"))?;
    let tests = chosen(plan)?;
    let kernel = kernel_release();
    let left = plan.choice.each(&tests, |Test { executable, name, full }| {
        let (started, used) = (Instant::now(), children_used());
        let run = || match plan.leave_out.get(full).map(String::as_str) {
            Some("") => Judged::from((Verdict::Skip, ELSEWHERE.to_owned())),
            Some(why) => Judged::from((Verdict::Skip, why.to_owned())),
            None => run_one(executable, name, plan.limit)
                .unwrap_or_else(|error| Judged::failed(error.to_string())),
        };
        let (Judged { verdict: outcome, reason, .. }, tries) = again_if_late(run);
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let cpu_ms = Some(children_used().saturating_sub(used));
        report(&Line { kernel: kernel.clone(), test: full.clone(), outcome, reason, ms, cpu_ms, tries });
    });
    Ok(Count { run: tests.len() - left, left })
}

/// What one try of a test came to.
#[derive(Debug)]
struct Judged {
    verdict: Verdict,
    reason: String,
    /// What it was late with, if it failed by that and nothing else.
    late: Option<String>,
}

impl Judged {
    fn failed(reason: String) -> Self {
        (Verdict::Fail, reason).into()
    }
}

impl From<(Verdict, String)> for Judged {
    fn from((verdict, reason): (Verdict, String)) -> Self {
        Self { verdict, reason, late: None }
    }
}

/// Tries once more what was late and nothing else, and says why. With how often it was tried.
fn again_if_late(mut run: impl FnMut() -> Judged) -> (Judged, u32) {
    let first = run();
    let Some(why) = &first.late else { return (first, 1) };
    let mut second = run();
    second.reason = format!("{}\n{SECOND_TRY}{why}", second.reason).trim_start().to_owned();
    (second, 2)
}

/// Processor time of children that were collected, and of theirs, in milliseconds (getrusage(2)).
fn children_used() -> u64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return 0 };
    let ms = usage.user_time().num_milliseconds() + usage.system_time().num_milliseconds();
    u64::try_from(ms).unwrap_or_default()
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

fn run_one(executable: &Path, name: &str, limit: Duration) -> Result<Judged> {
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
    let (mut status, number) = (None, Pid::from_raw(child.id().cast_signed()));
    wait_until(limit, || {
        aftermath::reap_others(number);
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
    let mut leaks = end_children(HANG);
    leaks.extend(aftermath::take_away(pid.cast_signed()).iter().map(|what| format!("left {what}")));
    leaks
}

/// Ends what still runs below this process so long after something is over that was to leave nothing, and says what it was.
pub fn end_children(patience: Duration) -> Vec<String> {
    let mut leaks = Vec::new();
    let me = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
    let left = || {
        aftermath::reap();
        process::descendants(me)
    };
    if !wait_until(patience, || left().is_empty()) {
        for process in left() {
            leaks.push(format!("left process {} {:?}", process.pid, process.arguments));
            process.signal(Signal::SIGKILL);
        }
        wait_until(HANG, || left().is_empty());
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
) -> Judged {
    let fail = |why: String| Judged::failed(format!("{why}\n{}", tail(text)));
    let Some(status) = status else { return fail(format!("not done after {limit:?}: killed")) };
    if !status.success() {
        let message = message(text);
        let late =
            (message.contains(late::MARK) && leaks.is_empty()).then(|| message.replace(late::MARK, ""));
        return Judged { late, ..fail(format!("{status}: {message}")) };
    }
    if !leaks.is_empty() {
        return fail(leaks.join("; "));
    }
    if let Some(said) = text.lines().find_map(|line| line.split(MARK).nth(1)) {
        let name = said.split(':').next().unwrap_or_default();
        let known: Option<Reason> = REASONS.iter().copied().find(|reason| reason.name() == name);
        return match known {
            Some(reason) if reason.allowed(environment, kernel) => (Verdict::Skip, said.to_owned()).into(),
            _ => fail(format!("skipped without excuse: {said}")),
        };
    }
    // libtest ends well also when a filter matched nothing and when the test is ignored.
    if !text.contains("test result: ok. 1 passed") {
        return fail("ended well without having run".into());
    }
    let figures: Vec<_> = text.lines().filter_map(|line| line.split(FIGURE).nth(1)).collect();
    (Verdict::Pass, figures.join("\n")).into()
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

    fn judged(status: Option<i32>, leaks: &[String], text: &str, environment: Environment) -> Judged {
        let status = status.map(|code| ExitStatus::from_raw(code << 8));
        judge(status, Duration::from_secs(1), leaks, text, environment, (6, 12))
    }

    fn verdict(status: Option<i32>, leaks: &[String], text: &str, environment: Environment) -> Verdict {
        judged(status, leaks, text, environment).verdict
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
        let judged = judged(Some(0), &[], &text, Environment::Vm);
        assert_eq!((judged.verdict, judged.reason.as_str()), (Verdict::Pass, "3.0 for the unit"));
    }

    fn late(what: &str) -> String {
        Error::Late { what: what.to_owned(), after: Duration::from_secs(1) }.to_string()
    }

    #[test]
    fn who_fails_by_being_late_alone_is_late() {
        let host = Environment::Host;
        let panicked =
            |message: &str| format!("thread 'a' panicked at a.rs:1:2:\n{message}\nnote: a backtrace");
        let returned = |message: &str| format!("---- a ----\nattached by Auto: {message}\n\nfailures:");
        for text in [panicked(&late("normal")), returned(&late("normal"))] {
            let why = judged(Some(101), &[], &text, host).late;
            assert!(why.is_some_and(|why| why.ends_with("normal not within 1s")), "{text}");
            assert!(judged(Some(101), &["left process 1".into()], &text, host).late.is_none());
            assert!(judged(None, &[], &text, host).late.is_none(), "it hung");
        }
        // What was late on the way is not why it failed.
        let other = format!("{}\n{}", late("an echo"), panicked("left: 1, right: 2"));
        assert!(judged(Some(101), &[], &other, host).late.is_none());
        assert!(judged(Some(0), &[], OK, host).late.is_none());
    }

    #[test]
    fn who_was_late_is_tried_once_more_and_nobody_else() {
        let tried = |verdicts: &[(Verdict, Option<&str>)]| {
            let mut left = verdicts.iter();
            let (judged, tries) = again_if_late(|| {
                let (verdict, late) = *left.next().unwrap();
                Judged { verdict, reason: String::new(), late: late.map(str::to_owned) }
            });
            (judged.verdict, judged.reason, tries)
        };
        let (pass, fail, late) = (Verdict::Pass, Verdict::Fail, Some("by 1 s"));
        let why = format!("{SECOND_TRY}by 1 s");
        assert_eq!(tried(&[(pass, None)]), (pass, String::new(), 1));
        assert_eq!(tried(&[(fail, None)]), (fail, String::new(), 1));
        assert_eq!(tried(&[(fail, late), (pass, None)]), (pass, why.clone(), 2));
        assert_eq!(tried(&[(fail, late), (fail, late)]), (fail, why, 2));
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
