//! What holds of the runner itself.

#![cfg(test)]

use std::fs;
use std::process::{Command, Stdio};

use chaos_tests::HANG;
use chaos_tests::daemon::binary;
use chaos_tests::process::{descendants, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

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

/// Runs jobs as PID 1 of a VM does, and returns what each line of the results says but when it was.
fn said_of_jobs(jobs: &Value) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let (list, results) = (folder.path().join("jobs"), folder.path().join("results"));
    fs::write(&list, jobs.to_string()).unwrap();
    fs::write(&results, "").unwrap();
    let status = Command::new(binary("vm-init").unwrap()).args([&list, &results]).status().unwrap();
    assert!(status.success());
    let text = fs::read_to_string(&results).unwrap();
    let line = |line: &str| {
        let mut said = serde_json::from_str(line).unwrap_or_else(|_| Value::from(line));
        if let Value::Object(said) = &mut said {
            let [up, idle] = serde_json::from_value(said.remove("at").unwrap()).unwrap();
            assert!(0.0 < up && 0.0 <= idle, "{line}");
        }
        said
    };
    text.lines().filter(|text| !text.is_empty()).map(line).collect()
}

fn job(name: &str, script: &str) -> Value {
    json!({"name": name, "argv": ["/bin/sh", "-c", script], "limit": 30})
}

#[test]
fn jobs_are_run_one_after_the_other_and_each_says_how_it_ended() {
    let mut second = job("second", "echo noise >&2; echo 3 passed, 0 failed, 0 skipped; exit 3");
    second["says_results"] = true.into();
    assert_eq!(
        said_of_jobs(&json!([job("first", "kill -9 $$"), second])),
        [
            json!({"begin": "first"}),
            json!({"end": "first", "status": 137, "problems": []}),
            json!({"begin": "second"}),
            json!("3 passed, 0 failed, 0 skipped"),
            json!({"end": "second", "status": 3, "problems": []}),
        ]
    );
}

#[test]
fn a_job_that_hangs_is_ended_at_its_limit_and_one_that_cannot_be_started_is_said_and_the_next_is_run() {
    let mut hangs = job("hangs", "printf cut-off; trap '' TERM; while :; do sleep 0.1; done");
    hangs["limit"] = 1.into();
    hangs["says_results"] = true.into();
    let lacking = json!({"name": "lacking", "argv": ["/chaos/no-such-program"], "limit": 1});
    let said = said_of_jobs(&json!([hangs, lacking, job("next", "true")]));
    assert_eq!(said[1], json!("cut-off"), "it does not spoil the line after it");
    assert_eq!(said[2], json!({"end": "hangs", "status": null, "problems": ["not done after 1 s: ended"]}));
    assert!(said[4]["problems"][0].as_str().unwrap().contains("/chaos/no-such-program"), "{said:?}");
    assert_eq!(said[6], json!({"end": "next", "status": 0, "problems": []}));
}

#[test]
fn each_job_gets_an_equal_part_of_the_time_that_those_before_it_have_left() {
    let jobs = ["first", "second"].map(|name| {
        // The last argument is what `sh -c` calls $0.
        let mut job = job(name, r#"test "${0%=*}" = --until && echo "${0#*=}""#);
        job["says_results"] = true.into();
        job["until"] = 4_000_000_000_u64.into();
        job
    });
    let said = said_of_jobs(&json!(jobs));
    let [first, second] = [1, 4].map(|line| said[line].as_u64().unwrap());
    assert!((1_999_000_000..3_000_000_000).contains(&first), "{said:?}");
    assert_eq!(second, 4_000_000_000, "the last one has all of it");
}

#[test]
fn a_runner_whose_time_is_over_begins_no_test_and_says_how_many_are_left() {
    let (code, said) = said_by_runner(&[&format!("--filter={TEST}"), "--until=0"]);
    assert_eq!((code, said.trim()), (Some(0), r#"{"count":0,"done":true,"left":1}"#));
}

#[test]
fn what_a_job_leaves_is_named_and_ended_and_the_next_job_has_left_nothing() {
    let said = said_of_jobs(&json!([job("leaves", "sleep 1234 & exit 0"), job("next", "true")]));
    let problems = said[1]["problems"].as_array().unwrap();
    assert!(
        problems.len() == 1 && problems[0].as_str().unwrap().contains(r#"["sleep", "1234"]"#),
        "{said:?}"
    );
    assert_eq!(said[3], json!({"end": "next", "status": 0, "problems": []}));
}
