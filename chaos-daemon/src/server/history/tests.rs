//! Tests of the history, with real databases.

use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;
use serde_json::json;

use super::*;
use crate::experiment::Recovery;
use crate::experiment::role::{self, Role};
use crate::experiment::timeline::Kind;
use crate::request::evidence::Met;

fn result(run_id: &str, experiment: &str, verdict: Verdict, started_at: &str) -> ExperimentResult {
    ExperimentResult {
        experiment_name: experiment.into(),
        verdict: Some(verdict),
        success: verdict == Verdict::Held,
        steady_state_before: true,
        steady_state_after: true,
        verified: Some(Stages { before: true, during: false, after: true }),
        duration_seconds: 1.5,
        error: (verdict != Verdict::Held).then(|| "100% of it_all went wrong".into()),
        failure_mode: (verdict != Verdict::Held).then_some(crate::experiment::FailureMode::RtoMissed),
        started_at: started_at.into(),
        run_id: run_id.into(),
        packets_affected: 7,
        gate_reaction_seconds: Some(0.02),
        recovery: Some(Recovery { mttr_seconds: Some(1.25), ..Recovery::default() }),
        stage: Some(Stage::try_from(25).unwrap()),
        next: Some("stage 50 % is due".into()),
        left: Vec::new(),
        warning: None,
    }
}

/// The experiment that most are runs of.
fn kill_cache() -> (Owner, String) {
    (Owner::User(1000), "kill-cache".to_owned())
}

fn recorded(run: ExperimentResult) -> Recorded {
    let (digest, document) = of_document(json!({"title": "x", "secrets": {"a": "b"}}).as_object().unwrap());
    let time = || "2026-02-05T10:00:00.100Z".to_owned();
    Recorded {
        host: Some("db1".into()),
        run,
        digest: Some(digest),
        staged: Some("s".into()),
        owner: Some("uid 1000".into()),
        document: Some(document),
        faults: vec![RunFault {
            weight: 7,
            injected: Some(true),
            effective: Some(false),
            evidence: Some(Evidence::Met(Met { matched: 4, affected: 0, protected: 4 })),
            removed_clean: Some(true),
            name: "slow.1".into(),
            fault_type: "latency".into(),
            target: r#"{"interface":"eth0"}"#.into(),
            seconds: 60.0,
        }],
        events: vec![Occurrence {
            at_seconds: 0.1,
            time: time(),
            kind: Kind::InjectionFailed,
            subject: "slow.1".into(),
            detail: "no such wire".into(),
        }],
        samples: vec![Reading {
            at_seconds: 0.2,
            time: time(),
            probe: "up".into(),
            role: Role::SteadyState,
            stage: role::Stage::Before,
            met: true,
            value: Some(1.25),
            took_seconds: 0.001,
            late_seconds: None,
            no_data: true,
            detail: "connected".into(),
        }],
        samples_left_out: 3,
    }
}

fn held(run_id: &str, started_at: &str) -> Recorded {
    recorded(result(run_id, "kill-cache", Verdict::Held, started_at))
}

fn minute(minute: u32) -> String {
    format!("2026-02-05T10:{minute:02}:00.000Z")
}

async fn ids(history: &History, filter: Filter) -> Vec<String> {
    history.search(filter).await.unwrap().into_iter().map(|found| found.run.run_id).collect()
}

#[tokio::test]
async fn what_is_recorded_is_found_again_by_the_next_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let history = History::open(Some(directory.path()), Retention::default());
    let first = held("ab1", &minute(1));
    assert_eq!(history.record(first.clone()).await, None);
    // The same again is the same.
    assert_eq!(history.record(first.clone()).await, None);
    assert_eq!(history.record(held("ab2", &minute(2))).await, None);
    let again = History::open(Some(directory.path()), Retention::default());
    assert_eq!(again.run("ab1".into()).await.unwrap(), first);
    assert_eq!(ids(&again, Filter::default()).await, ["ab2", "ab1"]);
    assert_eq!(again.search(Filter::default()).await.unwrap()[0].fault_types, ["latency"]);
    assert_eq!(again.totals().await.unwrap()[&kill_cache()], Total { runs: 2, successes: 2, unverified: 0 });
    for (handle, text) in [("ab", "several"), ("x", "no run"), ("%", "no run")] {
        let error = again.run(handle.into()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::RunNotFound);
        assert!(error.message.contains(text), "{error}");
    }
}

#[tokio::test]
async fn a_document_is_known_by_all_but_its_secrets_which_are_not_kept() {
    let document = |secret: &str, title: &str| {
        of_document(json!({"title": title, "secrets": {"a": secret}}).as_object().unwrap())
    };
    assert_eq!(document("hunter2", "x"), document("hunter3", "x"));
    assert_ne!(document("hunter2", "x").0, document("hunter2", "y").0);
    assert!(!format!("{:?}", document("hunter2", "x")).contains("hunter2"));
}

#[tokio::test]
async fn runs_are_found_by_what_is_known_of_them() {
    let history = History::open(None, Retention::default());
    history.record(held("a", &minute(1))).await;
    let mut tripped = recorded(result("b", "100% busy", Verdict::Tripped, &minute(2)));
    tripped.faults[0].fault_type = "timeout".into();
    tripped.faults[0].target = r#"{"unit":"pay_ment.service"}"#.into();
    tripped.events.clear();
    history.record(tripped).await;
    history.record(recorded(result("c", "kill-cache", Verdict::Deviated, &minute(3)))).await;
    let some = |text: &str| Some(text.to_owned());
    let of = |uid, name: &str| Some(vec![(Owner::User(uid), name.to_owned())]);
    let time = |at: u32| Some(minute(at).parse().unwrap());
    let every = Filter::default;
    for (filter, found) in [
        (every(), "cba"),
        (Filter { experiment: of(1000, "kill-cache"), ..every() }, "ca"),
        (Filter { experiment: of(0, "kill-cache"), ..every() }, ""),
        (Filter { experiment: of(1000, "kill"), ..every() }, ""),
        (Filter { experiment: Some(vec![kill_cache(), (Owner::ROOT, "x".into())]), ..every() }, "ca"),
        (Filter { owner: Some(Owner::User(1000)), ..every() }, "cba"),
        (Filter { owner: Some(Owner::ROOT), ..every() }, ""),
        (Filter { verdict: Some(Verdict::Tripped), ..every() }, "b"),
        (Filter { fault: some("latency"), ..every() }, "ca"),
        (Filter { fault: some("slow.1"), ..every() }, "cba"),
        (Filter { target: some("eth0"), ..every() }, "ca"),
        // Signs that mean something in a pattern are themselves.
        (Filter { target: some("pay_ment"), ..every() }, "b"),
        (Filter { target: some("payXment"), ..every() }, ""),
        (Filter { text: some("100%"), ..every() }, "cb"),
        (Filter { text: some("0%_of"), ..every() }, ""),
        (Filter { text: some("no such WIRE"), ..every() }, "ca"),
        (Filter { text: some("'; DROP TABLE run; --"), ..every() }, ""),
        (Filter { since: time(2), ..every() }, "cb"),
        (Filter { until: time(2), ..every() }, "a"),
        (Filter { since: time(2), until: time(3), ..every() }, "b"),
        (Filter { limit: Some(2), ..every() }, "cb"),
        (Filter { fault: some("latency"), verdict: Some(Verdict::Held), ..every() }, "a"),
    ] {
        assert_eq!(ids(&history, filter.clone()).await.concat(), found, "{filter:?}");
    }
}

#[tokio::test]
async fn the_oldest_runs_are_forgotten_and_the_totals_go_on_counting() {
    let directory = tempfile::tempdir().unwrap();
    let history = History::open(Some(directory.path()), Retention { runs: 3, ..Retention::default() });
    for at in [5, 1, 4, 2, 3] {
        history.record(held(&at.to_string(), &minute(at))).await;
    }
    assert_eq!(ids(&history, Filter::default()).await, ["5", "4", "3"]);
    assert_eq!(history.totals().await.unwrap()[&kill_cache()].runs, 5);
    drop(history);
    // With their events, samples and documents.
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    for (table, rows) in [("fault", 3), ("event", 3), ("sample", 3), ("document", 1)] {
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(connection.query_row(&count, [], |row| row.get::<_, i64>(0)).unwrap(), rows, "{table}");
    }
    drop(connection);
    let history =
        History::open(Some(directory.path()), Retention { runs: 3, days: Some(1), ..Retention::default() });
    history.record(held("new", &format!("{:.3}", jiff::Timestamp::now()))).await;
    assert_eq!(ids(&history, Filter::default()).await, ["new"]);
}

#[tokio::test]
async fn of_runs_that_take_too_much_the_oldest_go_of_who_has_the_most() {
    // How many runs of so many bytes each begins, one after the other, of which so many are left: `bytes` are 40 of them.
    let (each, bytes) = (10_000, 480_000);
    for (runs, left) in [
        // Nobody has more than a quarter.
        ([100, 0, 0, 0, 0], [10, 0, 0, 0, 0]),
        ([100, 5, 5, 5, 5], [10, 5, 5, 5, 5]),
        // Five have more than there is room for together: who has the least keeps it.
        ([3, 100, 100, 100, 100], [3, 9, 9, 9, 10]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let history = History::open(Some(directory.path()), Retention { bytes, ..Retention::default() });
        for (user, runs) in runs.into_iter().enumerate() {
            for number in 0..runs {
                let mut recorded = held(&format!("{user}-{number:03}"), &minute(number % 60));
                recorded.owner = (user > 0).then(|| format!("uid {user}"));
                recorded.events[0].detail = "x".repeat(each);
                assert_eq!(history.record(recorded).await, None);
            }
        }
        let found = ids(&history, Filter::default()).await;
        let count = |user: usize| found.iter().filter(|id| id.starts_with(&format!("{user}-"))).count();
        let kept: Vec<_> = (0..5).map(count).collect();
        assert!(
            kept.iter().zip(left).all(|(kept, left)| kept.abs_diff(left) <= 1),
            "{kept:?}, and not {left:?}"
        );
        let size = fs::metadata(directory.path().join(FILE)).unwrap().len();
        assert!(size < 2 * bytes, "{size}");
    }
    // One who has few loses none for one who has many, by number.
    let history = History::open(None, Retention { runs: 10, ..Retention::default() });
    for number in 0..100 {
        let mut recorded = held(&format!("{number}"), &minute(number % 60));
        recorded.owner = Some(if number < 3 { "uid 1" } else { "uid 2" }.to_owned());
        history.record(recorded).await;
    }
    let found = ids(&history, Filter::default()).await;
    assert_eq!(found.len(), 10);
    assert!(["0", "1", "2"].iter().all(|id| found.contains(&(*id).to_owned())), "{found:?}");
}

#[tokio::test]
async fn a_database_without_tables_is_brought_to_the_newest_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    // Version 0: what SQLite makes of an empty file.
    fs::write(&path, "").unwrap();
    let history = History::open(Some(directory.path()), Retention::default());
    assert_eq!(history.record(held("a", &minute(1))).await, None);
    let version = || -> i64 {
        let connection = Connection::open(&path).unwrap();
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(version(), database::VERSION);
    assert!(!path.with_extension("db.broken").exists());
}

#[tokio::test]
async fn a_database_of_version_1_keeps_its_runs_which_have_no_score() {
    let directory = tempfile::tempdir().unwrap();
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    connection.execute_batch(database::FIRST).unwrap();
    let run = "INSERT INTO run VALUES ('old', 'kill-cache', 'held', 1, 1, 1, 2.5, NULL, '2026-02-05T10:00:00.000Z', \
               1770285600000, 7, NULL, 'd', 0); PRAGMA user_version = 1;";
    connection.execute_batch(run).unwrap();
    drop(connection);
    let history = History::open(Some(directory.path()), Retention::default());
    assert_eq!(history.record(held("new", &minute(59))).await, None);
    let found = history.search(Filter::default()).await.unwrap();
    let fate = Fate { injected: true, effective: false, removed_clean: true, evidence: None };
    let fates: Vec<_> = found.iter().map(|run| run.fates.as_slice()).collect();
    assert_eq!(fates, [&[("latency".to_owned(), fate)][..], &[]]);
    let scores: Vec<_> = found.iter().map(|run| (run.run.run_id.as_str(), run.score)).collect();
    let verified: Vec<_> = found.iter().map(|run| run.run.verified.is_some()).collect();
    assert_eq!(verified, [true, false]);
    // Its only fault could not be injected.
    assert_eq!(scores, [("new", Some(0)), ("old", None)]);
    assert_eq!(history.run("old".into()).await.unwrap().digest.as_deref(), Some("d"));
}

#[tokio::test]
async fn at_which_stages_a_document_was_run_is_told_in_order_also_of_what_is_in_memory_only() {
    let at = |percent: u8, run_id: &str, minutes: u32, staged: &str, verdict| {
        let mut run = recorded(result(run_id, "kill-cache", verdict, &minute(minutes)));
        (run.run.stage, run.staged) = (Stage::try_from(percent).ok(), Some(staged.to_owned()));
        run
    };
    let directory = tempfile::tempdir().unwrap();
    let history = History::open(Some(directory.path()), Retention::default());
    history.record(at(25, "b", 2, "x", Verdict::Tripped)).await;
    history.record(at(10, "a", 1, "x", Verdict::Held)).await;
    history.record(at(10, "c", 3, "y", Verdict::Held)).await;
    let unstaged = Recorded { staged: None, ..at(10, "d", 4, "x", Verdict::Held) };
    history.record(unstaged).await;
    let again = History::open(Some(directory.path()), Retention::default());
    // As when the disk is full.
    again
        .shared
        .lock()
        .unwrap()
        .memory
        .as_mut()
        .unwrap()
        .record(&at(10, "e", 5, "x", Verdict::Held), Retention::default())
        .unwrap();
    let stages: Vec<_> = again
        .stages("x".into(), Owner::User(1000))
        .await
        .unwrap()
        .iter()
        .map(|(stage, verdict)| (stage.percent(), *verdict))
        .collect();
    assert_eq!(stages, [(10, Verdict::Held), (25, Verdict::Tripped), (10, Verdict::Held)]);
    assert_eq!(again.stages("z".into(), Owner::User(1000)).await.unwrap(), []);
    // What another user has run of it makes nothing due.
    assert_eq!(again.stages("x".into(), Owner::User(1001)).await.unwrap(), []);
}

#[tokio::test]
async fn the_latest_run_of_each_experiment_is_told_also_of_what_is_in_memory_only() {
    let directory = tempfile::tempdir().unwrap();
    let history = History::open(Some(directory.path()), Retention::default());
    // Not in the order in which they began.
    for (run_id, experiment, verdict, at) in [
        ("b", "x", Verdict::Held, 2),
        ("a", "x", Verdict::Failed, 1),
        ("c", "y", Verdict::Deviated, 1),
        ("d", "z", Verdict::Held, 1),
    ] {
        history.record(recorded(result(run_id, experiment, verdict, &minute(at)))).await;
    }
    for (run_id, experiment, at) in [("e", "y", 3), ("f", "z", 0)] {
        let mut shared = history.shared.lock().unwrap();
        let run = recorded(result(run_id, experiment, Verdict::Tripped, &minute(at)));
        shared.memory.as_mut().unwrap().record(&run, Retention::default()).unwrap();
    }
    let latest = history.latest().await.unwrap();
    let told: Vec<_> = latest
        .iter()
        .map(|((_, name), run)| (name.as_str(), run.run_id.as_str(), run.verdict, run.success))
        .collect();
    let expected = [
        ("x", "b", Some(Verdict::Held), true),
        ("y", "e", Some(Verdict::Tripped), false),
        ("z", "d", Some(Verdict::Held), true),
    ];
    assert_eq!(told, expected);
}

#[test]
fn the_stages_of_a_document_are_known_by_all_but_its_secrets_and_their_list() {
    let staged = |secret: &str, extension: serde_json::Value, title: &str| {
        let document = json!({"title": title, "secrets": {"a": secret}, "extensions": [extension, {"name": "other", "blast_radius": 1}]});
        of_stages(document.as_object().unwrap())
    };
    let ours =
        |stages: serde_json::Value| json!({"name": "chaos-daemon", "rto": "30s", "blast_radius": stages});
    let known = staged("a", ours(json!({})), "x");
    assert_eq!(staged("b", ours(json!({"stages": [5]})), "x"), known);
    assert_ne!(staged("a", ours(json!({})), "y"), known);
    assert_ne!(staged("a", json!({"name": "chaos-daemon", "rto": "31s", "blast_radius": {}}), "x"), known);
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_left_alone_and_runs_are_kept_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE future (x); PRAGMA user_version = 99").unwrap();
    drop(connection);
    let before = fs::read(&path).unwrap();
    let history = History::open(Some(directory.path()), Retention::default());
    let warning = history.record(held("a", &minute(1))).await.unwrap();
    assert!(warning.contains("version 99"), "{warning}");
    assert_eq!(ids(&history, Filter::default()).await, ["a"]);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_file_that_is_broken_is_moved_aside_and_does_not_keep_the_daemon_from_starting() {
    let foreign = {
        let directory = tempfile::tempdir().unwrap();
        let connection = Connection::open(directory.path().join(FILE)).unwrap();
        let other = format!("CREATE TABLE run (x); PRAGMA user_version = {}", database::VERSION);
        connection.execute_batch(&other).unwrap();
        fs::read(directory.path().join(FILE)).unwrap()
    };
    for broken in [b"no database at all, but long enough to be taken for one".repeat(100), foreign] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        fs::write(&path, &broken).unwrap();
        let history = History::open(Some(directory.path()), Retention::default());
        assert!(fs::read(path.with_extension("db.broken")).unwrap() == broken, "it is kept as it was");
        assert_eq!(history.record(held("a", &minute(1))).await, None);
        assert_eq!(ids(&history, Filter::default()).await, ["a"]);
    }
}

#[tokio::test]
async fn a_file_that_breaks_while_the_daemon_runs_is_moved_aside_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    let history = History::open(Some(directory.path()), Retention::default());
    for at in 1..40 {
        history.record(held(&at.to_string(), &minute(at))).await;
    }
    let length = fs::metadata(&path).unwrap().len();
    fs::write(&path, vec![0x5a; usize::try_from(length).unwrap()]).unwrap();
    assert_eq!(history.record(held("after", &minute(50))).await, None);
    assert_eq!(ids(&history, Filter::default()).await, ["after"]);
    assert!(path.with_extension("db.broken").exists());
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_told_and_memory_has_the_run() {
    let history = History::open(Some(Path::new("/proc/self/no-such-directory")), Retention::default());
    let warning = history.record(held("a", &minute(1))).await.unwrap();
    assert!(warning.starts_with("not recorded, so it is forgotten when the daemon ends"), "{warning}");
    assert_eq!(ids(&history, Filter::default()).await, ["a"]);
    assert_eq!(history.run("a".into()).await.unwrap().events.len(), 1);
    assert_eq!(history.totals().await.unwrap()[&kill_cache()].runs, 1);
}

#[tokio::test]
async fn what_could_not_be_written_is_written_once_it_can_be() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    let history = History::open(Some(directory.path()), Retention::default());
    assert_eq!(history.record(held("a", &minute(1))).await, None);
    // As a disk that is full does, for this file: whatever a transaction needs does not fit any more.
    let full = |pages: i64| {
        let mut shared = history.shared.lock().unwrap();
        shared.file.as_mut().unwrap().limit(pages);
    };
    full(1);
    let mut large = held("b", &minute(2));
    large.events[0].detail = "x".repeat(100_000);
    let warning = history.record(large).await.unwrap();
    assert!(warning.contains("full"), "{warning}");
    assert_eq!(ids(&history, Filter::default()).await, ["b", "a"]);
    // Whoever asks for it later is told as well, and of no other.
    let told = async |run: &str| history.run(run.into()).await.unwrap().run.warning;
    assert_eq!((told("b").await, told("a").await), (Some(warning), None));
    full(1_000_000);
    assert_eq!(history.record(held("c", &minute(3))).await, None);
    assert_eq!(told("b").await, None);
    drop(history);
    let again = History::open(Some(directory.path()), Retention::default());
    assert_eq!(ids(&again, Filter::default()).await, ["c", "b", "a"]);
    assert_eq!(again.totals().await.unwrap()[&kill_cache()], Total { runs: 3, successes: 3, unverified: 0 });
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o111, 0);
}

#[tokio::test]
async fn earlier_results_are_taken_over_once() {
    let directory = tempfile::tempdir().unwrap();
    let results = vec![result("a", "kill-cache", Verdict::Held, &minute(1))];
    let totals =
        BTreeMap::from([("kill-cache".to_owned(), Total { runs: 900, successes: 450, unverified: 0 })]);
    // They are of before runs had owners.
    let roots: BTreeMap<_, _> =
        totals.iter().map(|(name, total)| ((Owner::ROOT, name.clone()), *total)).collect();
    for _ in 0..2 {
        let history = History::open(Some(directory.path()), Retention::default());
        assert!(history.import(results.clone(), totals.clone()));
        assert_eq!(ids(&history, Filter::default()).await, ["a"]);
        assert_eq!(history.totals().await.unwrap(), roots);
        let run = history.run("a".into()).await.unwrap();
        assert_eq!((run.owner(), run.run), (Owner::ROOT, results[0].clone()));
    }
    // Where they cannot be kept, they are seen, and their owner keeps them.
    let nowhere = History::open(Some(Path::new("/proc/self/no-such-directory")), Retention::default());
    assert!(!nowhere.import(results, totals));
    assert_eq!(nowhere.totals().await.unwrap(), roots);
}

#[tokio::test]
async fn of_a_database_of_before_names_had_owners_what_is_nobodys_is_roots() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory.path().join(FILE)).unwrap();
    for migration in &migrations::MIGRATIONS[..11] {
        old.execute_batch(migration).unwrap();
    }
    // x ran five times, of which one run of a user's and one of nobody's are kept, and y twice, both of that user's.
    for (id, experiment, owner) in
        [("a", "x", "'uid 1000'"), ("b", "x", "NULL"), ("c", "y", "'uid 1000'"), ("d", "y", "'uid 1000'")]
    {
        old.execute_batch(&format!(
            "INSERT INTO run (id, experiment, success, steady_before, steady_after, seconds, started_at, started_ms, affected, \
             samples_left_out, verdict, owner) VALUES ('{id}', '{experiment}', 1, 1, 1, 1, '2026-02-05T10:00:00Z', 1, 0, 0, 'held', {owner})"
        ))
        .unwrap();
    }
    old.execute_batch("INSERT INTO total VALUES ('x', 5, 4, 0), ('y', 2, 2, 0); PRAGMA user_version = 11")
        .unwrap();
    drop(old);
    let history = History::open(Some(directory.path()), Retention::default());
    let total = |runs, successes| Total { runs, successes, unverified: 0 };
    let of = |uid, name: &str| (Owner::User(uid), name.to_owned());
    let expected = [(of(0, "x"), total(4, 3)), (of(1000, "x"), total(1, 1)), (of(1000, "y"), total(2, 2))];
    assert_eq!(history.totals().await.unwrap(), BTreeMap::from(expected));
    assert_eq!(ids(&history, Filter { owner: Some(Owner::ROOT), ..Filter::default() }).await, ["b"]);
    assert_eq!(history.record(held("e", &minute(1))).await, None);
}

#[tokio::test]
async fn an_interrupted_run_is_recorded_unless_it_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let history = History::open(Some(directory.path()), Retention::default());
    history.record(held("a", &minute(1))).await;
    let left = ["a", "b"].map(|id| recorded(result(id, "kill-cache", Verdict::Interrupted, &minute(2))));
    history.record_interrupted(left);
    assert_eq!(ids(&history, Filter::default()).await, ["b", "a"]);
    assert_eq!(history.run("a".into()).await.unwrap().run.verdict, Some(Verdict::Held));
}
