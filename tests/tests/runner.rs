//! What holds of the runner itself.

#![cfg(test)]

use std::fs;
use std::process::{Command, Stdio};

use chaos_tests::HANG;
use chaos_tests::daemon::binary;
use chaos_tests::process::{descendants, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One that injects nothing, should it ever run.
const TEST: &str = "bad_input::half_a_request_is_no_request";

fn said_by_runner(arguments: &[&str]) -> (Option<i32>, String) {
    let mut runner = Command::new(binary("test-runner").unwrap());
    let output = runner.args(arguments).arg(binary("kernel-tests").unwrap()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_filter_that_no_test_has_in_its_name_is_an_error() {
    let filters = [format!("--filter={TEST}"), "--filter=no-test-is-called-so".to_owned()];
    assert_eq!(said_by_runner(&filters.each_ref().map(String::as_str)), (Some(2), String::new()));
}

#[test]
fn a_test_that_is_left_out_is_skipped_for_the_reason_that_is_given() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("kernel-tests::{TEST} a-name: for a reason\n")).unwrap();
    let left_out = format!("--leave-out={}", file.path().display());
    let (code, said) = said_by_runner(&[&format!("--filter={TEST}"), &left_out]);
    assert!(
        code == Some(0) && said.contains(r#""outcome":"skip","reason":"a-name: for a reason""#),
        "{said}"
    );
}

#[test]
fn a_runner_that_is_told_to_end_takes_away_what_its_test_has_made() {
    // It waits for seconds, with a fault in a namespace.
    let test = "lifetime::a_fault_ends_at_its_time_without_anybody_asking";
    // Not that of a runner which runs this test: then it would be for that one to take away what is left.
    let folder = tempfile::tempdir().unwrap();
    let mut runner = Command::new(binary("test-runner").unwrap())
        .env("TMPDIR", folder.path())
        .args(["--results=/dev/null", &format!("--filter={test}")])
        .arg(binary("kernel-tests").unwrap())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = runner.id().cast_signed();
    let is_test = |arguments: &[String]| arguments.iter().any(|word| word == "--exact");
    let named = |prefix: &str| {
        let entries = fs::read_dir("/run/netns").unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)).count()
    };
    let mut prefix = String::new();
    let begun = wait_until(HANG, || {
        let tests = descendants(pid).into_iter().find(|process| is_test(&process.arguments));
        prefix = tests.map(|test| format!("ct{}-", test.pid)).unwrap_or_default();
        !prefix.is_empty() && named(&prefix) > 0
    });
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    let ended = wait_until(HANG, || runner.try_wait().unwrap().is_some());
    if !ended {
        runner.kill().unwrap();
        runner.wait().unwrap();
    }
    assert!(begun && ended, "begun: {begun}, ended: {ended}");
    assert_eq!(named(&prefix), 0, "namespaces of {prefix} are left");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "its folder is left");
}
