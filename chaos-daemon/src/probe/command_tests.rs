//! Real programs: what they say, how long they may take, how much of them is kept, and what is left of them.

use super::super::{Bounds, Check, Probe, Sample};
use super::*;
use crate::waits::{HANG, see};

fn shell(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
}

fn probe(command: Command, timeout: Duration) -> Probe {
    Probe { check: Check::Command(command), timeout, bounds: Bounds::default() }
}

async fn sample(script: &str, status: &[u8], stdout: Option<&str>, measure: Option<&str>) -> Sample {
    let command = Command::parse(shell(script), status.to_vec(), stdout, measure).unwrap();
    probe(command, HANG).sample().await
}

#[tokio::test]
async fn the_status_and_the_output_decide() {
    for (script, status, stdout, ok) in [
        ("exit 0", vec![], None, true),
        ("exit 3", vec![], None, false),
        ("exit 3", vec![2, 3], None, true),
        ("exit 0", vec![2, 3], None, false),
        ("echo all is up", vec![], Some("is up$"), true),
        ("printf 'all is up'", vec![], Some("is up$"), true),
        ("echo all is up; echo not", vec![], Some("is up$"), false),
        ("echo all is up; echo", vec![], Some("is up$"), false),
        ("echo is up >&2", vec![], Some("is up"), false),
        ("kill -9 $$", vec![], None, false),
    ] {
        let sample = sample(script, &status, stdout, None).await;
        assert_eq!(sample.ok, ok, "{script}: {sample:?}");
        assert!(sample.value.is_some_and(|value| value > 0.0), "{script}: {sample:?}");
    }
}

#[tokio::test]
async fn what_it_said_is_the_answer_and_a_signal_is_a_negative_status() {
    let seen = sample("echo out; echo err >&2; exit 4", &[], None, None).await;
    assert_eq!(seen.answer.unwrap(), json!({"status": 4, "stdout": "out\n", "stderr": "err\n"}));
    assert_eq!(seen.detail, "command /bin/sh: status 4, \"out\"; 0 is right");
    let seen = sample("kill -9 $$", &[], None, None).await;
    assert_eq!(seen.answer.unwrap()["status"], -9);
    // What `chaosctl` says of it is for those who run that.
    let seen = sample("echo out; exit 4", &[], None, None).await;
    assert_eq!(
        (&seen.as_process()["status"], seen.as_process()["stdout"].as_str().unwrap().contains("status 4")),
        (&json!(1), true)
    );
}

#[tokio::test]
async fn a_number_that_it_prints_is_measured() {
    let bounds = Bounds::new(Some(2.0), None).unwrap();
    for (script, value, ok) in [
        ("echo ' 2.5 '", Some(2.5), true),
        ("echo 1", Some(1.0), false),
        ("echo 1 2", None, false),
        ("echo inf", None, false),
    ] {
        let command = Command::parse(shell(script), vec![], None, Some("stdout")).unwrap();
        let sample = Probe { bounds, ..probe(command, HANG) }.sample().await;
        assert_eq!((sample.ok, sample.value), (ok, value), "{script}: {sample:?}");
    }
}

#[tokio::test]
async fn it_gets_nothing_of_ours() {
    let script = "pwd; env; ls /proc/$$/fd; cat; echo end";
    let seen = sample(script, &[], None, None).await.answer.unwrap();
    let lines: Vec<_> = seen["stdout"].as_str().unwrap().lines().map(str::to_owned).collect();
    assert!(lines[0] == "/" && lines.last().unwrap() == "end", "{lines:?}");
    let variables: Vec<_> =
        lines.iter().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    // The last two are the shell's.
    assert!(
        variables.iter().all(|name| ["PATH", "LANG", "PWD", "_", "OLDPWD", "SHLVL"].contains(name)),
        "{variables:?}"
    );
    assert!(lines.contains(&"LANG=C.UTF-8".to_owned()), "{lines:?}");
    let descriptors: Vec<u32> = lines.iter().filter_map(|line| line.parse().ok()).collect();
    assert!(descriptors.starts_with(&[0, 1, 2]), "{descriptors:?}");
    // What the shell itself opens is far above.
    assert!(descriptors.iter().all(|fd| *fd <= 2 || *fd == 10 || *fd == 255), "{descriptors:?}");
}

#[tokio::test]
async fn much_output_is_cut_and_the_program_is_not_kept_waiting() {
    let script = "i=0; while [ $i -lt 400 ]; do printf '%01000d' $i; i=$((i+1)); done; echo err >&2";
    let seen = sample(script, &[], None, None).await;
    assert!(seen.ok, "{}", seen.detail);
    let answer = seen.answer.unwrap();
    assert_eq!(answer["stdout"].as_str().unwrap().len(), super::super::program::KEPT);
    assert_eq!(answer["stderr"], "err\n");
}

#[tokio::test]
async fn one_that_never_stops_talking_ends_with_its_time() {
    let command = Command::parse(vec!["/usr/bin/yes".into()], vec![], None, None).unwrap();
    let limited = probe(command, Duration::from_millis(500));
    let sample = tokio::time::timeout(HANG, limited.sample()).await.unwrap();
    assert!(!sample.ok && sample.answer.is_none() && sample.value.is_none(), "{:?}", sample.detail);
    assert!(sample.detail.contains("no end within 500ms: killed"), "{}", sample.detail);
}

/// Whether a process that a script has named in this file is there.
fn runs(file: &std::path::Path) -> Option<bool> {
    let pid = std::fs::read_to_string(file).ok()?.trim().parse::<u32>().ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that nobody has collected yet has ended.
    Some(!stat.is_empty() && !stat.contains(") Z "))
}

async fn wait_until_gone(file: &std::path::Path) {
    see(async || runs(file) == Some(false)).await;
}

#[tokio::test]
async fn with_its_time_its_children_end_also_one_that_ignores_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!(
        "sh -c 'trap \"\" TERM HUP; echo $$ > {0}.new; mv {0}.new {0}; sleep 600; sleep 600' & wait",
        file.display()
    );
    let command = Command::parse(shell(&script), vec![], None, None).unwrap();
    // As much time as the child needs to be there.
    for seconds in [1, 4, 16] {
        let sample = probe(command.clone(), Duration::from_secs(seconds)).sample().await;
        assert!(!sample.ok && sample.detail.contains("killed"), "{sample:?}");
        if file.exists() {
            break;
        }
    }
    wait_until_gone(&file).await;
}

#[tokio::test]
async fn what_it_leaves_behind_ends_with_it_and_nobody_waits_for_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!("sleep 600 & echo $! > {}; echo done", file.display());
    let seen = sample(&script, &[], Some("done"), None).await;
    assert!(seen.ok, "{seen:?}");
    wait_until_gone(&file).await;
}

#[tokio::test]
async fn a_sample_that_nobody_waits_for_any_more_ends_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {}; sleep 600", file.display());
    let command = Command::parse(shell(&script), vec![], None, None).unwrap();
    let taken = tokio::spawn(async move { probe(command, 10 * HANG).sample().await });
    see(async || runs(&file) == Some(true)).await;
    taken.abort();
    wait_until_gone(&file).await;
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_what_was_seen() {
    let command = Command::parse(vec!["/no/such/program".into()], vec![], None, None).unwrap();
    let sample = probe(command, HANG).sample().await;
    assert!(
        !sample.ok && sample.answer.is_none() && sample.detail.contains("cannot be started"),
        "{sample:?}"
    );
}

#[test]
fn what_makes_no_sense_is_named() {
    let parse = |words: &[&str], stdout, measure| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Command::parse(words, vec![], stdout, measure).map_err(|error| error.field)
    };
    assert_eq!(parse(&[], None, None), Err("PROGRAM".to_owned()));
    assert_eq!(parse(&["check"], None, None), Err("PROGRAM".to_owned()));
    assert_eq!(parse(&["./check"], None, None), Err("PROGRAM".to_owned()));
    assert_eq!(parse(&["/a/../b"], None, None), Err("PROGRAM".to_owned()));
    assert_eq!(parse(&["/a", "b\0"], None, None), Err("PROGRAM".to_owned()));
    assert_eq!(parse(&["/a"], Some("("), None), Err("--stdout".to_owned()));
    assert_eq!(parse(&["/a"], None, Some("memory")), Err("--measure".to_owned()));
    assert!(parse(&["/a", "", "--b"], Some("x"), Some("stdout")).is_ok());
}

#[test]
fn of_a_plain_program_every_end_is_right_and_something_else_judges() {
    let program = Program::parse("path", vec!["/a".into()]).unwrap();
    let end = |status| End { status, stdout: String::new(), stderr: String::new() };
    for status in [0, 7, -9] {
        let seen = Command::any(program.clone()).judge(&end(status));
        assert!(seen.verdict.is_ok() && seen.answer.unwrap()["status"] == status);
    }
}
