//! Tests of what is kept of searches.

use serde_json::json;

use super::*;

const ROOT: Caller = Caller::Unix { uid: 0, gid: 0, pid: 7 };

fn document(name: &str) -> Map<String, Value> {
    let probe = json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:1"]});
    let document = json!({
        "title": name,
        "steady-state-hypothesis": {"probes": [{"type": "probe", "name": "up", "tolerance": 0, "provider": probe}]},
        "method": [{"type": "action", "name": "slow", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "latency", "--interface": "eth0", "--delay": "1ms", "--for": "20s"}}}],
        "extensions": [{"name": "chaos-daemon",
            "rollback_on": [{"name": "p95", "provider": probe, "op": "gt", "value": 500}],
            "search": {"parameters": [{"action": "slow", "parameter": "delay", "from": 10, "to": 1000, "unit": "ms"}],
                "objective": ["p95"], "budget": {"runs": 3, "time": "1h"}}}],
    });
    document.as_object().unwrap().clone()
}

async fn begin(searches: &Searches, name: &str) -> Result<String, ApiError> {
    searches.begin(Kept::begun(searches, document(name), Beginning::Anew(Some(7)), ROOT)?).await
}

fn the_one(searches: &Searches, name: &str) -> Kept {
    searches.list(Some(name)).unwrap().remove(0)
}

#[tokio::test]
async fn a_search_is_there_again_as_it_was_and_one_that_took_the_host_down_does_not_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let searches = Searches::open(Some(directory.path()), false);
    assert_eq!(begin(&searches, "any: name/../of it").await.unwrap(), "any: name/../of it");
    let before = the_one(&searches, "any: name/../of it");
    assert_eq!((before.search.spec().seed, before.set_by), (7, Caller::Unix { uid: 0, gid: 0, pid: 0 }));
    let again = Searches::open(Some(directory.path()), false);
    let after = the_one(&again, "any: name/../of it");
    assert_eq!((&after.search, after.goes_on()), (&before.search, true));
    assert_eq!(again.take_undriven(), ["any: name/../of it"]);
    assert!(again.take_undriven().is_empty(), "one drives it");
    let after_it = Searches::open(Some(directory.path()), true);
    let ended = the_one(&after_it, "any: name/../of it");
    assert!(!ended.goes_on() && ended.problem.is_some());
    assert!(after_it.take_undriven().is_empty());
}

#[tokio::test]
async fn a_file_that_is_broken_is_moved_aside_and_one_that_cannot_be_written_begins_no_search() {
    let directory = tempfile::tempdir().unwrap();
    let path = file::path_of(directory.path(), 3);
    std::fs::write(&path, "{").unwrap();
    assert!(Searches::open(Some(directory.path()), false).list(None).unwrap().is_empty());
    assert!(path.with_extension("broken").exists() && !path.exists());
    let nowhere = Searches::open(Some(&directory.path().join("none")), false);
    assert_eq!(begin(&nowhere, "x").await.unwrap_err().code, ErrorCode::Unavailable);
    assert!(nowhere.list(None).unwrap().is_empty());
}

#[tokio::test]
async fn only_so_many_go_on_and_are_kept_and_the_oldest_that_has_ended_makes_place() {
    let directory = tempfile::tempdir().unwrap();
    let searches = Searches::open(Some(directory.path()), false);
    for number in 0..MOST_GOING_ON {
        begin(&searches, &number.to_string()).await.unwrap();
    }
    assert_eq!(begin(&searches, "one more").await.unwrap_err().code, ErrorCode::LimitReached);
    assert_eq!(searches.stop(None).await.unwrap().len(), MOST_GOING_ON);
    for number in 0..=MOST_KEPT {
        begin(&searches, &number.to_string()).await.unwrap();
        searches.stop(Some(&number.to_string())).await.unwrap();
    }
    let names: Vec<_> = searches.list(None).unwrap().into_iter().map(|kept| kept.name).collect();
    assert_eq!(names.len(), MOST_KEPT);
    assert!(!names.contains(&"0".to_owned()) && names.contains(&MOST_KEPT.to_string()), "{names:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), MOST_KEPT);
    assert_eq!(Searches::open(Some(directory.path()), false).list(None).unwrap().len(), MOST_KEPT);
}

#[tokio::test]
async fn a_step_whose_end_nobody_saw_costs_the_time_since_but_no_more_than_it_could_have_taken() {
    let searches = Searches::open(None, false);
    begin(&searches, "x").await.unwrap();
    let mut kept = the_one(&searches, "x");
    kept.search.next_trial().unwrap();
    let began_at = Timestamp::now();
    kept.runs.push(RunOf { began_at, run_id: None, verdict: None, problem: None });
    let after = |seconds: i64| lost(&kept, began_at + jiff::SignedDuration::from_secs(seconds));
    assert_eq!(after(5), Outcome { seen: Err(NoData::Interrupted), seconds: 5.0 });
    assert!((after(3600).seconds - 20.0).abs() < 1e-9);
    assert!(after(-5).seconds.abs() < 1e-9, "a clock that was set back");
}
