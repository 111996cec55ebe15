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

fn named(name: &str, caller: Caller) -> QualifiedName {
    QualifiedName::new(caller.owner(), given_name(name).unwrap().name)
}

fn nightly(caller: Caller) -> QualifiedName {
    named("nightly", caller)
}

async fn with(directory: Option<&Path>, caller: Caller) -> Schedules {
    let schedules = Schedules::open(directory);
    assert_eq!(schedules.set(nightly(caller), hourly(caller)).await.unwrap(), (None, None));
    schedules
}

/// All there are.
fn everybodys() -> Chosen {
    Chosen::AllOf(Owner::ROOT)
}

fn the_one(schedules: &Schedules, now: &str) -> Listed {
    schedules.list(&everybodys(), at(now)).unwrap().remove(0)
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
    schedules.set(nightly(USER), hourly).await.unwrap();
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
    assert_eq!(schedules.pause(Chosen::AllOf(USER.owner())).await.unwrap().0, [nightly(USER)]);
    assert!(the_one(&schedules, "2026-02-05T10:30:00Z").next.is_empty());
    let schedules = Schedules::open(Some(directory.path()));
    assert!(fired(&schedules, "2026-02-05T11:00:00Z").await.is_empty());
    assert_eq!(schedules.next(at("2026-02-05T10:30:00Z")), None);
    let resumed = schedules.resume(Chosen::One(nightly(USER)), at("2026-02-05T13:00:10Z")).await.unwrap();
    assert_eq!(resumed.0, [nightly(USER)]);
    assert!(fired(&schedules, "2026-02-05T13:00:11Z").await.is_empty());
    assert!(the_one(&schedules, "2026-02-05T13:00:11Z").schedule.outcomes.is_empty());
    let next = the_one(&schedules, "2026-02-05T13:00:11Z").next;
    let expected = ["2026-02-05T15:00:00+01:00", "2026-02-05T16:00:00+01:00", "2026-02-05T17:00:00+01:00"];
    assert_eq!(next, expected);
}

#[tokio::test]
async fn each_user_has_schedules_of_its_own_and_root_has_those_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let schedules = with(Some(directory.path()), ROOT).await;
    schedules.set(nightly(USER), hourly(USER)).await.unwrap();
    let now = at("2026-02-05T10:30:00Z");
    let seen = |schedules: &Schedules, caller: Caller| {
        let listed = schedules.list(&Chosen::AllOf(caller.owner()), now).unwrap();
        listed.into_iter().map(|listed| (listed.name.to_string(), listed.schedule.paused)).collect::<Vec<_>>()
    };
    let entry = |name: &str, paused| (name.to_owned(), paused);
    assert_eq!(seen(&schedules, USER), [entry("1000/nightly", false)]);
    assert_eq!(seen(&schedules, Caller::Vsock { cid: 3 }), []);
    let paused = schedules.pause(Chosen::AllOf(USER.owner())).await.unwrap().0;
    assert_eq!(paused, [nightly(USER)]);
    let schedules = Schedules::open(Some(directory.path()));
    assert_eq!(seen(&schedules, ROOT), [entry("nightly", false), entry("1000/nightly", true)]);
    // Set by root it is theirs still, and root makes none for others.
    schedules.set(nightly(USER), hourly(ROOT)).await.unwrap();
    let set_by = schedules.list(&Chosen::One(nightly(USER)), now).unwrap().remove(0).schedule.set_by;
    assert_eq!(set_by, Caller::Unix { uid: 1000, gid: 1000, pid: 0 });
    let refused = schedules.set(named("other", USER), hourly(ROOT)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::ScheduleNotFound);
    assert!(schedules.delete(nightly(USER)).await.unwrap().0.is_some());
    assert!(schedules.delete(nightly(USER)).await.unwrap().0.is_none());
    let refused = schedules.pause(Chosen::One(nightly(USER))).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::ScheduleNotFound);
    assert_eq!(seen(&schedules, ROOT), [entry("nightly", false)]);
}

fn granted(caller: Caller, grant: Option<u64>) -> Schedule {
    Schedule { grant, ..hourly(caller) }
}

#[tokio::test]
async fn who_sets_a_schedule_learns_which_grant_is_over_and_root_keeps_it() {
    let schedules = Schedules::open(None);
    assert_eq!(schedules.set(nightly(USER), granted(USER, Some(1))).await.unwrap().0, None);
    assert_eq!(schedules.set(nightly(USER), granted(USER, Some(2))).await.unwrap().0, Some(1));
    assert_eq!(schedules.set(nightly(USER), granted(ROOT, None)).await.unwrap().0, None);
    assert_eq!(schedules.grants(), [2]);
    let another = Schedule { digest: "another".to_owned(), ..granted(ROOT, None) };
    let refused = schedules.set(nightly(USER), another).await.unwrap_err();
    assert!(refused.message.contains("runs another document"), "{refused}");
    assert_eq!(schedules.delete(nightly(USER)).await.unwrap().0.unwrap().grant, Some(2));
}

#[tokio::test]
async fn what_became_of_a_firing_is_not_told_of_what_was_set_since() {
    let schedules = Schedules::open(None);
    let (before, outcome) = (granted(USER, Some(1)), |schedules: &Schedules| {
        the_one(schedules, "2026-02-05T10:00:00Z").schedule.outcomes.len()
    });
    schedules.set(nightly(USER), before.clone()).await.unwrap();
    let refused = || Outcome {
        time: "2026-02-05T10:00:00Z".to_owned(),
        became: Became::Refused,
        times: 1,
        run_id: None,
        reason: None,
    };
    schedules.became(nightly(USER), &before, refused()).await;
    assert_eq!(outcome(&schedules), 1);
    schedules.set(nightly(USER), granted(USER, Some(2))).await.unwrap();
    schedules.became(nightly(USER), &before, refused()).await;
    assert_eq!(outcome(&schedules), 0);
}

#[tokio::test]
async fn a_schedule_of_before_names_had_owners_is_of_who_has_set_it() {
    let directory = tempfile::tempdir().unwrap();
    drop(with(Some(directory.path()), USER).await);
    let path = directory.path().join(FILE);
    let old = fs::read_to_string(&path).unwrap().replace("1000/nightly", "nightly");
    assert!(old.starts_with("{\"nightly\":"), "{old}");
    fs::write(&path, old).unwrap();
    assert_eq!(the_one(&Schedules::open(Some(directory.path())), "2026-02-05T10:00:00Z").name, nightly(USER));
}

#[tokio::test]
async fn only_the_latest_outcomes_are_kept() {
    let schedules = with(None, USER).await;
    let schedule = the_one(&schedules, "2026-02-05T10:00:00Z").schedule;
    for index in 0..KEPT_OUTCOMES + 5 {
        let outcome = Outcome {
            time: index.to_string(),
            became: Became::Refused,
            times: 1,
            run_id: None,
            reason: Some("busy".into()),
        };
        schedules.became(nightly(USER), &schedule, outcome).await;
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
        assert!(schedules.list(&everybodys(), at("2026-02-05T10:00:00Z")).unwrap().is_empty(), "{corrupt}");
        assert_eq!(fs::read_to_string(path.with_extension("broken")).unwrap(), corrupt);
        assert_eq!(schedules.set(nightly(USER), hourly(USER)).await.unwrap(), (None, None));
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_told_and_memory_still_holds_the_change() {
    let schedules = Schedules::open(Some(Path::new("/proc/self/no-such-directory")));
    let problem = schedules.set(nightly(USER), hourly(USER)).await.unwrap().1.unwrap();
    assert!(problem.contains("not saved"), "{problem}");
    assert_eq!(fired(&schedules, "2026-02-05T11:00:00Z").await, ["2026-02-05T11:00:00Z"]);
    assert!(fired(&schedules, "2026-02-05T11:00:01Z").await.is_empty());
}

#[tokio::test]
async fn there_is_a_bound_to_their_number_and_to_their_names() {
    let schedules = Schedules::open(None);
    // How many each gets of them, who wants more than there are: half for one, and some are root's.
    for (caller, most) in [(USER, 50), (Caller::Vsock { cid: 3 }, 38), (ROOT, 12)] {
        let mut got = 0;
        while schedules.set(named(&format!("s{got}"), caller), hourly(caller)).await.is_ok() {
            got += 1;
        }
        assert_eq!(got, most, "{caller}");
        let refused = schedules.set(named("one-more", caller), hourly(caller)).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::LimitReached);
        // One that is there is replaced all the same.
        schedules.set(named("s0", caller), hourly(caller)).await.unwrap();
    }
    let error = given_name("two words").unwrap_err();
    assert_eq!(error.field, "name", "{error}");
}
