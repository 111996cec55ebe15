//! Tests of what a plan tells of runs before.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::experiment::variables::Nowhere;
use crate::server::history::{ExperimentResult, Recorded, Retention, RunFault};

fn target(target: serde_json::Value) -> TargetRequest {
    serde_json::from_value(target).unwrap()
}

fn of(faults: &[(&str, serde_json::Value)]) -> BTreeSet<Feature> {
    let faults: Vec<_> = faults.iter().map(|(kind, fields)| (*kind, target(fields.clone()))).collect();
    features(faults.iter().map(|(kind, target)| (*kind, target)))
}

#[test]
fn the_same_fault_of_the_same_target_is_more_alike_than_either_alone_and_says_why() {
    let eth0 = || json!({"interface": "eth0"});
    let slow = of(&[("latency", eth0())]);
    let alike = |other: &BTreeSet<Feature>| (similarity(&slow, other), why(&slow, other));
    // Neither the port nor the share makes it another target.
    let same = of(&[("latency", json!({"interface": "eth0", "port": 5432}))]);
    assert_eq!(alike(&same), (1.0, vec!["latency of interface eth0".to_owned()]));
    let same_fault = of(&[("latency", json!({"interface": "eth1"}))]);
    assert_eq!(alike(&same_fault), (0.2, vec!["latency".to_owned()]));
    let same_target = of(&[("timeout", eth0())]);
    assert_eq!(alike(&same_target), (0.2, vec!["interface eth0".to_owned()]));
    let more = of(&[("latency", eth0()), ("process_kill", json!({"unit": "a.service"}))]);
    assert_eq!(alike(&more), (0.5, vec!["latency of interface eth0".to_owned()]));
    assert_eq!(alike(&of(&[("pause", json!({"unit": "a.service"}))])), (0.0, Vec::new()));
    assert_eq!(alike(&BTreeSet::new()), (0.0, Vec::new()));
}

proptest! {
    #[test]
    fn likeness_is_the_same_both_ways_and_whole_only_of_what_is_the_same(
        one in prop::collection::btree_set((0..4u8, 0..4u8), 1..5), other in prop::collection::btree_set((0..4u8, 0..4u8), 1..5),
    ) {
        let features = |faults: &BTreeSet<(u8, u8)>| {
            let faults: Vec<_> = faults
                .iter()
                .map(|(kind, unit)| (format!("k{kind}"), target(json!({"unit": format!("u{unit}.service")}))))
                .collect();
            features(faults.iter().map(|(kind, target)| (kind.as_str(), target)))
        };
        let (left, right) = (features(&one), features(&other));
        let alike = similarity(&left, &right);
        prop_assert!((0.0..=1.0).contains(&alike));
        prop_assert_eq!(alike.to_bits(), similarity(&right, &left).to_bits());
        prop_assert_eq!(alike >= 1.0, one == other);
        prop_assert_eq!(alike > 0.0, !why(&left, &right).is_empty());
    }
}

fn recorded(id: &str, experiment: &str, verdict: Verdict, minute: u32, faults: &[(&str, &str)]) -> Recorded {
    let fault = |(kind, target): &(&str, &str)| {
        let fault = json!({"name": "f", "fault_type": kind, "target": target, "seconds": 1.0});
        serde_json::from_value::<RunFault>(fault).unwrap()
    };
    Recorded {
        run: ExperimentResult {
            run_id: id.into(),
            experiment_name: experiment.into(),
            verdict: Some(verdict),
            success: verdict == Verdict::Held,
            started_at: format!("2026-02-05T10:{minute:02}:00.000Z"),
            ..ExperimentResult::default()
        },
        digest: Some(format!("digest of {experiment}")),
        faults: faults.iter().map(fault).collect(),
        ..Recorded::default()
    }
}

fn experiment(name: &str) -> Experiment {
    let document = json!({"title": name, "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe",
        "name": "port", "tolerance": 0, "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:1"]}}]},
        "method": [{"type": "action", "name": "slow", "provider": {"type": "process", "path": "chaosctl",
        "arguments": {"inject": "latency", "--interface": "eth0", "--for": "1s"}}}]});
    Experiment::parse(document.as_object().unwrap(), &Nowhere).unwrap()
}

const ROOT: Owner = Owner::ROOT;
const ETH0: &str = r#"{"interface":"eth0"}"#;
const ETH1: &str = r#"{"interface":"eth1"}"#;

#[tokio::test]
async fn a_history_without_runs_says_so() {
    let history = History::open(None, Retention::default());
    let told = history.precedents(&experiment("mine"), ROOT, "d", ROOT).await;
    let summary = "no run of this experiment is recorded; no run of another one is like it";
    assert_eq!(told, Precedents { summary: summary.into(), ..Precedents::default() });
}

#[tokio::test]
async fn runs_are_counted_by_verdict_of_the_name_and_of_the_document() {
    let directory = tempfile::tempdir().unwrap();
    let history = History::open(Some(directory.path()), Retention::default());
    for (id, verdict, minute) in
        [("a1", Verdict::Held, 1), ("a3", Verdict::Deviated, 3), ("a2", Verdict::Held, 2)]
    {
        history.record(recorded(id, "mine", verdict, minute, &[("latency", ETH0)])).await;
    }
    let changed = Recorded { digest: Some("new".into()), ..recorded("a4", "mine", Verdict::Tripped, 4, &[]) };
    history.record(changed).await;
    let told = history.precedents(&experiment("mine"), ROOT, "digest of mine", ROOT).await;
    let count = |before: &Before| -> Vec<_> {
        before.verdicts.iter().map(|count| (count.name.clone(), count.runs)).collect()
    };
    assert_eq!((told.same_name.runs, told.same_document.runs), (4, 3));
    assert_eq!(count(&told.same_name), [("held".into(), 2), ("deviated".into(), 1), ("tripped".into(), 1)]);
    assert_eq!(count(&told.same_document), [("held".into(), 2), ("deviated".into(), 1)]);
    let latest = |before: &Before| before.latest.clone().map(|run| (run.run_id, run.verdict.unwrap()));
    assert_eq!(latest(&told.same_name), Some(("a4".into(), Verdict::Tripped)));
    assert_eq!(latest(&told.same_document), Some(("a3".into(), Verdict::Deviated)));
    assert_eq!(
        told.summary,
        "this experiment ran 4 times (held 2, deviated 1, tripped 1), this document 3 times (held 2, deviated 1); no run of \
         another one is like it"
    );
    assert_eq!(told.similar, []);
}

#[tokio::test]
async fn of_other_experiments_the_three_most_alike_are_told_with_their_latest_run() {
    let history = History::open(None, Retention::default());
    for (id, name, minute, faults) in [
        ("m", "mine", 9, vec![("latency", ETH0)]),
        ("s1", "same", 1, vec![("latency", ETH0)]),
        ("s2", "same", 2, vec![("latency", ETH0)]),
        ("s3", "same", 3, vec![("latency", ETH1)]),
        ("t1", "target", 4, vec![("timeout", ETH0)]),
        ("t2", "type", 5, vec![("latency", ETH1)]),
        ("b1", "both", 1, vec![("latency", ETH0), ("timeout", ETH0)]),
        ("u1", "unlike", 8, vec![("pause", r#"{"unit":"a.service"}"#)]),
        ("n1", "none", 8, vec![]),
        ("o1", "odd", 8, vec![("pause", "no target of today")]),
    ] {
        history.record(recorded(id, name, Verdict::Held, minute, &faults)).await;
    }
    let told = history.precedents(&experiment("mine"), ROOT, "d", ROOT).await;
    let similar: Vec<_> =
        told.similar.iter().map(|run| (run.run.run_id.as_str(), run.experiment_name.as_str())).collect();
    assert_eq!(similar, [("s2", "same"), ("b1", "both"), ("t2", "type")]);
    assert_eq!(told.similar[0].why, ["latency of interface eth0"]);
    assert_eq!(told.similar[2].why, ["latency"]);
    assert!(told.summary.ends_with("runs of 3 others are like it"), "{}", told.summary);
}
