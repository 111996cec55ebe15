//! What is kept of schedules: through a restart, a broken file, times that were missed, and others' hands.

use super::*;
use crate::spec::windows::{WindowWords, WindowsWords};

const ROOT: Caller = Caller::Unix { uid: 0, gid: 0, pid: 7 };
const USER: Caller = Caller::Unix { uid: 1000, gid: 1000, pid: 8 };

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

/// Every hour, from ten o'clock on.
fn hourly(caller: Caller) -> Schedule {
    let words = Words {
        experiment: "x".into(),
        cron: "0 * * * *".into(),
        time_zone: "europe/berlin".into(),
        windows: WindowsWords::default(),
        jitter_seconds: 0,
        seed: 1,
    };
    Schedule::new(words, false, "d1".into(), caller, at("2026-02-05T10:00:00Z"))
}

async fn with(directory: Option<&Path>, caller: Caller) -> Schedules {
    let schedules = Schedules::open(directory);
    assert_eq!(schedules.set("nightly", hourly(caller)).await.unwrap(), None);
    schedules
}

fn the_one(schedules: &Schedules, now: &str) -> Listed {
    schedules.list(Some("nightly"), at(now)).unwrap().remove(0)
}

async fn fired(schedules: &Schedules, now: &str) -> Vec<String> {
    schedules.due(at(now)).await.iter().map(|start| shown(start.firing.occurrence)).collect()
}

#[tokio::test]
async fn a_time_fires_once_whatever_the_clock_does_and_whoever_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let schedules = with(Some(directory.path()), USER).await;
    assert_eq!(the_one(&schedules, "2026-02-05T10:00:00Z").schedule.words.time_zone, "Europe/Berlin");
    assert!(fired(&schedules, "2026-02-05T10:59:59.999Z").await.is_empty());
    assert_eq!(schedules.next(at("2026-02-05T10:30:00Z")), Some(at("2026-02-05T11:00:00Z")));
    assert_eq!(fired(&schedules, "2026-02-05T11:00:00.5Z").await, ["2026-02-05T11:00:00Z"]);
    assert!(fired(&schedules, "2026-02-05T11:00:01Z").await.is_empty());
    // It was on file before anything was started: a server that dies then does not start it again.
    let next = Schedules::open(Some(directory.path()));
    for now in
        ["2026-02-05T11:00:02Z", "2026-02-05T10:59:00Z", "2026-02-05T11:00:30Z", "2026-02-01T11:00:00Z"]
    {
        assert!(fired(&next, now).await.is_empty(), "{now}");
    }
    assert_eq!(fired(&next, "2026-02-05T12:00:00Z").await, ["2026-02-05T12:00:00Z"]);
}

#[tokio::test]
async fn what_was_missed_is_skipped_and_recorded_also_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    drop(with(Some(directory.path()), USER).await);
    let schedules = Schedules::open(Some(directory.path()));
    assert_eq!(fired(&schedules, "2026-02-05T14:00:10Z").await, ["2026-02-05T14:00:00Z"]);
    let outcomes = the_one(&schedules, "2026-02-05T14:00:10Z").schedule.outcomes;
    let missed = &outcomes[0];
    assert_eq!(
        (missed.time.as_str(), missed.became, missed.times),
        ("2026-02-05T11:00:00Z", Became::Missed, 3)
    );
    // Told once.
    assert!(fired(&schedules, "2026-02-05T14:10:00Z").await.is_empty());
    let again = Schedules::open(Some(directory.path()));
    assert_eq!(the_one(&again, "2026-02-05T14:10:00Z").schedule.outcomes, outcomes);
}

#[tokio::test]
async fn what_falls_on_a_holiday_is_skipped_and_recorded_as_one_outcome_also_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let schedules = Schedules::open(Some(directory.path()));
    let mut hourly = hourly(USER);
    // In Berlin 5 February ends at 23:00 UTC.
    hourly.words.windows.never = vec![WindowWords::of("2026-02-05..2026-02-05").unwrap()];
    schedules.set("nightly", hourly).await.unwrap();
    assert_eq!(the_one(&schedules, "2026-02-05T10:00:00Z").next[0], "2026-02-06T00:00:00+01:00");
    for now in ["2026-02-05T11:00:00Z", "2026-02-05T11:00:30Z", "2026-02-05T13:00:10Z"] {
        assert!(fired(&schedules, now).await.is_empty(), "{now}");
    }
    drop(schedules);
    let schedules = Schedules::open(Some(directory.path()));
    assert!(fired(&schedules, "2026-02-05T14:00:00Z").await.is_empty());
    assert_eq!(fired(&schedules, "2026-02-05T23:00:05Z").await, ["2026-02-05T23:00:00Z"]);
    let outcomes = the_one(&schedules, "2026-02-05T23:00:05Z").schedule.outcomes;
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    let Outcome { time, became, times, run_id, reason } = &outcomes[0];
    assert_eq!(
        (time.as_str(), *became, *times, run_id),
        ("2026-02-05T11:00:00Z", Became::Skipped, 12, &None)
    );
    assert!(reason.as_ref().unwrap().contains("a date of its windows `never`"), "{outcomes:?}");
}

#[tokio::test]
async fn what_stands_still_neither_fires_nor_misses_and_goes_on_with_what_is_to_come() {
    let directory = tempfile::tempdir().unwrap();
    let schedules = with(Some(directory.path()), USER).await;
    assert_eq!(schedules.pause(None).await.unwrap().0, ["nightly"]);
    assert!(the_one(&schedules, "2026-02-05T10:30:00Z").next.is_empty());
    let schedules = Schedules::open(Some(directory.path()));
    assert!(fired(&schedules, "2026-02-05T11:00:00Z").await.is_empty());
    assert_eq!(schedules.next(at("2026-02-05T10:30:00Z")), None);
    let name = Some("nightly".to_owned());
    assert_eq!(schedules.resume(name, USER, at("2026-02-05T13:00:10Z")).await.unwrap().0, ["nightly"]);
    assert!(fired(&schedules, "2026-02-05T13:00:11Z").await.is_empty());
    assert!(the_one(&schedules, "2026-02-05T13:00:11Z").schedule.outcomes.is_empty());
    let next = the_one(&schedules, "2026-02-05T13:00:11Z").next;
    let expected = ["2026-02-05T15:00:00+01:00", "2026-02-05T16:00:00+01:00", "2026-02-05T17:00:00+01:00"];
    assert_eq!(next, expected);
}

#[tokio::test]
async fn anybody_may_stop_a_schedule_and_only_who_has_set_it_or_root_has_it_go_on() {
    let schedules = with(None, ROOT).await;
    // The process that was on the line is not who it is.
    assert_eq!(
        the_one(&schedules, "2026-02-05T10:00:00Z").schedule.set_by,
        Caller::Unix { uid: 0, gid: 0, pid: 0 }
    );
    schedules.pause(Some("nightly".into())).await.unwrap();
    let now = at("2026-02-05T10:30:00Z");
    for stranger in [USER, Caller::Vsock { cid: 3 }] {
        let error = schedules.resume(None, stranger, now).await.unwrap_err();
        assert!(error.code == ErrorCode::PolicyDenied && error.message.contains("uid 0"), "{error}");
    }
    assert!(the_one(&schedules, "2026-02-05T10:30:00Z").schedule.paused);
    let mine = with(None, USER).await;
    for owner in [ROOT, Caller::Unix { uid: 1000, gid: 5, pid: 99 }] {
        mine.pause(None).await.unwrap();
        assert_eq!(mine.resume(None, owner, now).await.unwrap().0, ["nightly"]);
    }
    assert!(schedules.delete("nightly".into()).await.unwrap().0);
    assert!(!schedules.delete("nightly".into()).await.unwrap().0);
    assert_eq!(schedules.pause(Some("nightly".into())).await.unwrap_err().code, ErrorCode::ScheduleNotFound);
}

#[tokio::test]
async fn only_the_latest_outcomes_are_kept() {
    let schedules = with(None, USER).await;
    for index in 0..KEPT_OUTCOMES + 5 {
        let outcome = Outcome {
            time: index.to_string(),
            became: Became::Refused,
            times: 1,
            run_id: None,
            reason: Some("busy".into()),
        };
        schedules.became("nightly".into(), outcome).await;
    }
    let outcomes = the_one(&schedules, "2026-02-05T10:00:00Z").schedule.outcomes;
    assert_eq!((outcomes.len(), outcomes[0].time.as_str()), (KEPT_OUTCOMES, "5"));
}

#[tokio::test]
async fn a_corrupt_file_is_moved_aside_and_does_not_keep_the_daemon_from_starting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    drop(with(Some(directory.path()), USER).await);
    let right = fs::read_to_string(&path).unwrap();
    let wrong = right.replace("Europe/Berlin", "Mars/Olympus");
    for corrupt in ["", "{\"nightly\":", "[1]", "{\"nightly\":{}}", wrong.as_str()] {
        fs::write(&path, corrupt).unwrap();
        let schedules = Schedules::open(Some(directory.path()));
        assert!(schedules.list(None, at("2026-02-05T10:00:00Z")).unwrap().is_empty(), "{corrupt}");
        assert_eq!(fs::read_to_string(path.with_extension("broken")).unwrap(), corrupt);
        assert_eq!(schedules.set("nightly", hourly(USER)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_told_and_memory_still_holds_the_change() {
    let schedules = Schedules::open(Some(Path::new("/proc/self/no-such-directory")));
    let problem = schedules.set("nightly", hourly(USER)).await.unwrap().unwrap();
    assert!(problem.contains("not saved"), "{problem}");
    assert_eq!(fired(&schedules, "2026-02-05T11:00:00Z").await, ["2026-02-05T11:00:00Z"]);
    assert!(fired(&schedules, "2026-02-05T11:00:01Z").await.is_empty());
}

#[tokio::test]
async fn there_is_a_bound_to_their_number_and_to_their_names() {
    let schedules = Schedules::open(None);
    for index in 0..MOST_SCHEDULES {
        schedules.set(&format!("s{index}"), hourly(USER)).await.unwrap();
    }
    assert_eq!(schedules.set("one-more", hourly(USER)).await.unwrap_err().code, ErrorCode::LimitReached);
    schedules.set("s0", hourly(ROOT)).await.unwrap();
    let error = schedules.set("two words", hourly(USER)).await.unwrap_err();
    assert!(error.message.starts_with("name: "), "{error}");
}
