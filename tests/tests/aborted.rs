//! A program of the tests that is aborted leaves nothing: no process, network namespace, control group, folder or disk.

#![cfg(test)]

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use chaos_tests::HANG;
use chaos_tests::daemon::binary;
use chaos_tests::process::{self, Process, descendants, wait_until};
use chaos_tests::skip::{Reason, skip};
use chaos_tests::{cgroup, netns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Has a namespace, a control group and processes of many kinds, for longer than anybody waits here.
const MATRIX: (&str, &[&str]) = ("matrix", &["--only=process_pause"]);

/// Waits for seconds, with a fault in a namespace.
const TEST: &str = "lifetime::a_fault_ends_at_its_time_without_anybody_asking";

/// A program, and whoever started it if that is not this process.
struct Run {
    started: Child,
    /// Its temporary files are there, and nobody else's.
    folder: TempDir,
    /// Itself, and the tests that it runs: they are in the names of what is made.
    named: Vec<i32>,
}

impl Run {
    /// Starts a program by a command, and waits until it has a namespace and a daemon that is ready for a fault.
    fn begin(command: Command) -> Self {
        Self::begin_until(command, |run| !run.namespaces().is_empty() && run.has("holder"))
    }

    /// Starts a program by a command, and waits until so much of it can be seen.
    fn begin_until(mut command: Command, seen: impl Fn(&Self) -> bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        command.env("TMPDIR", folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut run = Self { started: command.process_group(0).spawn().unwrap(), folder, named: Vec::new() };
        let begun = wait_until(HANG, || {
            run.named = run.numbers();
            seen(&run)
        });
        assert!(begun, "{command:?} has not begun: {:?}", run.left());
        run
    }

    fn numbers(&self) -> Vec<i32> {
        let folders = fs::read_dir(self.folder.path()).unwrap().flatten();
        let texts = folders.filter_map(|folder| fs::read_to_string(folder.path().join("pids")).ok());
        texts.flat_map(|text| text.lines().map(|line| line.parse().unwrap()).collect::<Vec<_>>()).collect()
    }

    /// The first of them, or nobody before it has begun.
    fn program(&self) -> i32 {
        self.named.first().copied().unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.started.id().cast_signed()), signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_until(HANG, || {
            ended = self.started.try_wait().unwrap();
            ended.is_some()
        });
        ended.expect("it goes on")
    }

    fn namespaces(&self) -> Vec<String> {
        names("/run/netns".as_ref(), &self.marks(|number| format!("ct{number}-")))
    }

    /// Folders that only root can have made.
    fn folders(&self) -> Vec<String> {
        names("/run".as_ref(), &self.marks(|number| format!("chaos-test-{number}-")))
    }

    /// Control groups that look like a fault's.
    fn groups_of_faults(&self) -> Vec<String> {
        names(&cgroup::root().unwrap(), &self.marks(|number| format!("chaos1{number:06x}")))
    }

    /// Files of its own that are disks.
    fn disks(&self) -> Vec<String> {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let files =
            devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
        files.filter(|file| file.starts_with(self.folder.path().to_str().unwrap())).collect()
    }

    /// Whether a process below it has this as its first argument.
    fn has(&self, argument: &str) -> bool {
        descendants(self.program())
            .iter()
            .any(|process| process.arguments.get(1).is_some_and(|it| it == argument))
    }

    fn marks(&self, mark: impl Fn(&i32) -> String) -> Vec<String> {
        self.named.iter().map(mark).collect()
    }

    fn processes(&self) -> Vec<Process> {
        let folder = format!("TMPDIR={}", self.folder.path().display());
        let knows = |process: &Process| {
            let text = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            text.split(|byte| *byte == 0).any(|variable| variable.starts_with(folder.as_bytes()))
        };
        process::all().into_iter().filter(knows).collect()
    }

    /// Whatever there is of it.
    fn left(&self) -> Vec<String> {
        let marked = [
            self.marks(|number| format!("chaos-test-{number}-")),
            self.marks(|number| format!("ct{number}-")),
        ]
        .concat();
        let processes = self.processes().into_iter().map(|process| format!("{process:?}"));
        [
            processes.collect(),
            self.namespaces(),
            self.folders(),
            self.groups_of_faults(),
            self.disks(),
            names(&cgroup::root().unwrap(), &marked),
            names("/dev/shm".as_ref(), &marked),
            names(self.folder.path(), &[String::new()]),
        ]
        .concat()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if matches!(self.started.try_wait(), Ok(None)) {
            self.signal(Signal::SIGTERM);
            wait_until(HANG, || !matches!(self.started.try_wait(), Ok(None)));
        }
    }
}

fn names(folder: &Path, prefixes: &[String]) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let all = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    all.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))).collect()
}

fn command((program, arguments): (&str, &[&str])) -> Command {
    let mut command = Command::new(binary(program).unwrap());
    command.args(arguments);
    command
}

#[test]
fn a_program_that_is_told_to_end_takes_away_what_it_has_made() {
    for program in [
        MATRIX,
        ("sweep", MATRIX.1),
        ("soak", &["--minutes=5"]),
        ("kills", &["--results=/dev/null"]),
        ("demo", &["partition"]),
    ] {
        let mut run = Run::begin(command(program));
        run.signal(Signal::SIGTERM);
        assert_eq!(run.end().code(), Some(128 + Signal::SIGTERM as i32), "{program:?}");
        assert_eq!(run.left(), Vec::<String>::new(), "{program:?}");
    }
}

#[test]
fn a_program_whose_whole_group_is_interrupted_takes_away_what_it_has_made() {
    // The others run tests, each a process of its own, and one has a file system mounted as well.
    let test = format!("--filter={TEST}");
    let kernel_tests = binary("kernel-tests").unwrap();
    let runner = ["--results=/dev/null", &test, kernel_tests.to_str().unwrap()];
    for program in
        [MATRIX, ("sabotage", &["--results=/dev/null"]), ("test-runner", &runner), ("kernel-tests", &[TEST])]
    {
        let mut run = Run::begin(command(program));
        kill(Pid::from_raw(-run.started.id().cast_signed()), Signal::SIGINT).unwrap();
        assert_eq!(run.end().code(), Some(128 + Signal::SIGINT as i32), "{program:?}");
        assert_eq!(run.left(), Vec::<String>::new(), "{program:?}");
    }
}

/// What a run has left, by name.
type Left = fn(&Run) -> Vec<String>;

#[test]
fn a_test_that_is_told_to_end_takes_away_what_is_not_among_its_temporary_files() {
    let tests: [(&str, Left); 4] = [
        (
            "probes::a_kubeconfig_is_used_only_where_the_policy_names_it_and_nobody_but_root_can_have_put_it_there",
            Run::folders,
        ),
        ("programs::a_program_is_run_as_a_user_without_rights_who_is_not_the_servers", Run::folders),
        (
            "credentials::a_credential_of_a_file_is_shown_at_the_origins_of_the_policy_and_nowhere_else",
            Run::folders,
        ),
        (
            "oracle::files::a_control_group_is_inert_while_it_is_empty_and_an_effect_with_somebody_in_it",
            Run::groups_of_faults,
        ),
    ];
    for (test, made) in tests {
        let kernel_test = command(("kernel-tests", &[test, "--exact"]));
        let mut run = Run::begin_until(kernel_test, |run| !made(run).is_empty());
        run.signal(Signal::SIGTERM);
        assert_eq!(run.end().code(), Some(128 + Signal::SIGTERM as i32), "{test}");
        assert_eq!(run.left(), Vec::<String>::new(), "{test}");
    }
}

#[test]
fn a_test_that_is_told_to_end_leaves_no_file_system_frozen() {
    const TEST: &str = "hung::a_daemon_that_is_told_to_stop_ends_although_a_holder_hangs";
    if !Path::new("/dev/loop-control").exists() {
        return skip(Reason::NoLoop, "/dev/loop-control is not there");
    }
    let is_frozen = |run: &Run| {
        let hangs = |process: &Process| process.state == 'D' || process.state == 'Z' && process.threads > 1;
        let all = descendants(run.program());
        all.iter().any(hangs) && all.iter().any(|process| process.arguments.join(" ").contains("fsfreeze"))
    };
    let mut run = Run::begin_until(command(("kernel-tests", &[TEST, "--exact"])), is_frozen);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code(), Some(128 + Signal::SIGTERM as i32));
    // A disk goes when nothing is mounted on it any more, and the kernel takes its time.
    wait_until(HANG, || run.left().is_empty());
    assert_eq!(run.left(), Vec::<String>::new());
}

#[test]
fn a_program_that_crashes_leaves_nothing() {
    let mut run = Run::begin(command(MATRIX));
    kill(Pid::from_raw(run.program()), Signal::SIGABRT).unwrap();
    assert_eq!(run.end().code(), Some(128 + Signal::SIGABRT as i32));
    assert_eq!(run.left(), Vec::<String>::new());
}

#[test]
fn a_program_ends_when_whoever_has_started_it_is_gone() {
    let mut shell = Command::new("sh");
    // Not the last command, which the shell would become.
    shell.args(["-c", "CHAOS_STARTED_BY=$$ \"$@\"; exit", "sh"]);
    let matrix = command(MATRIX);
    shell.arg(matrix.get_program()).args(matrix.get_args());
    let mut run = Run::begin(shell);
    run.signal(Signal::SIGKILL);
    assert_eq!(run.end().signal(), Some(Signal::SIGKILL as i32));
    wait_until(HANG, || run.left().is_empty());
    assert_eq!(run.left(), Vec::<String>::new());
}

#[test]
fn what_a_program_that_was_killed_has_left_goes_when_the_next_starts() {
    let mut run = Run::begin(command(MATRIX));
    run.signal(Signal::SIGKILL);
    assert_eq!(run.end().signal(), Some(Signal::SIGKILL as i32));
    // With its parent, at once.
    let gone = wait_until(HANG, || Process::read(run.program()).is_none_or(|program| !program.runs()));
    assert!(gone && !run.namespaces().is_empty() && !run.processes().is_empty(), "{:?}", run.left());
    let mut next = command(("matrix", &["--only=no such kind"]));
    netns::output(next.env("TMPDIR", run.folder.path())).unwrap_err();
    assert_eq!(run.left(), Vec::<String>::new());
}
