//! Tests of the comparison.

use serde_json::{Value, json};

use super::*;
use crate::experiment::Recovery;
use crate::experiment::recovery::Incident;
use crate::experiment::role::{Role, Stage};
use crate::experiment::timeline::Reading;
use crate::request::Evidence;
use crate::request::evidence::Met;
use crate::server::history::{ExperimentResult, RunFault};
use crate::spec::FaultType;

fn document(limit: u32) -> Value {
    let provider = json!({"type": "http", "url": "http://127.0.0.1:1/"});
    json!({
        "title": "slow", "description": "x",
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "up", "tolerance": 200, "provider": provider}]},
        "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "latency", "--interface": "eth0", "--delay": "1ms", "--for": "2s"}}}],
        "rollbacks": [],
        "extensions": [{"name": "chaos-daemon", "rollback_on": [
            {"name": "slow", "provider": provider, "op": "gt", "value": limit},
            {"name": "up", "provider": provider, "tolerance": 200}]}],
    })
}

fn sample(probe: &str, stage: Stage, met: bool, value: f64) -> Reading {
    Reading {
        at_seconds: 1.0,
        time: String::new(),
        probe: probe.into(),
        role: Role::Gate,
        stage,
        met,
        value: Some(value),
        took_seconds: 0.1,
        late_seconds: None,
        no_data: false,
        detail: String::new(),
    }
}

fn run(id: &str, verdict: Verdict, recovered: Option<f64>, worst: f64) -> Recorded {
    let incident = Incident {
        action: "cut".into(),
        fault_type: FaultType::Latency,
        unreachable_after_seconds: Some(0.5),
        gone_after_seconds: None,
        new_process_after_seconds: None,
        recovered_after_seconds: recovered,
        finding: None,
    };
    let recovery = Recovery { incidents: vec![incident], mttr_seconds: recovered, ..Recovery::default() };
    Recorded {
        run: ExperimentResult {
            run_id: id.into(),
            experiment_name: "slow".into(),
            verdict: Some(verdict),
            error: (verdict == Verdict::Tripped).then(|| "gate \"slow\" was breached".to_owned()),
            recovery: Some(recovery),
            ..ExperimentResult::default()
        },
        digest: Some("d".into()),
        document: document(500).as_object().cloned(),
        faults: vec![RunFault {
            name: "f".into(),
            fault_type: "latency".into(),
            target: "{}".into(),
            seconds: 2.0,
            weight: 10,
            injected: Some(true),
            effective: Some(true),
            removed_clean: Some(true),
            evidence: Some(Evidence::Met(Met { matched: 9, affected: 7, protected: 0 })),
        }],
        samples: vec![
            // What is measured before the method is no worst of it.
            sample("slow", Stage::Before, true, 9000.0),
            sample("slow", Stage::During, true, 20.0),
            sample("slow", Stage::During, worst <= 500.0, worst),
            sample("up", Stage::During, true, 1.0),
        ],
        ..Recorded::default()
    }
}

#[test]
fn what_broke_and_holds_is_fixed_with_the_worst_of_each_gate_the_recovery_and_what_was_met() {
    let (before, after) =
        (run("a1", Verdict::Tripped, None, 800.0), run("b2", Verdict::Held, Some(2.5), 310.0));
    let found = Comparison::of(&before, &after);
    assert_eq!((found.change, found.same_document), (Change::Fixed, true));
    let slow = &found.gates[0];
    assert_eq!((slow.gate.as_str(), slow.breach.as_deref()), ("slow", Some("> 500 ms")));
    assert_eq!(
        slow.before,
        Some(Worst { value: Some(800.0), unit: "ms", bad: 1, without_data: 0, samples: 2 })
    );
    assert_eq!(
        slow.after,
        Some(Worst { value: Some(310.0), unit: "ms", bad: 0, without_data: 0, samples: 2 })
    );
    // Of a tolerance nobody knows which number is worse.
    assert_eq!((found.gates[1].breach.as_ref(), found.gates[1].after.as_ref().unwrap().value), (None, None));
    let recovery = OfAction { action: "cut".into(), before_seconds: None, after_seconds: Some(2.5) };
    assert_eq!(found.recovery, [recovery]);
    assert!(found.evidence[0].before.as_ref().is_some_and(|met| met[0].contains('7')), "{found:?}");
    let page = found.page();
    for words in [
        "It broke, and holds now.",
        "Worst of \"slow\", breach > 500 ms",
        "800 ms (1 of 2 bad)",
        "310 ms (0 of 2 bad)",
        "2.5 s",
        "gate \"slow\" was breached",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let told = serde_json::to_value(&found).unwrap();
    assert_eq!((&told["change"], &told["gates"][0]["after"]["value"]), (&json!("fixed"), &json!(310.0)));
}

#[test]
fn every_pair_of_verdicts_comes_to_one_word_and_what_has_shown_nothing_to_not_known() {
    let change = |one, other| Change::of(Some(one), Some(other));
    assert_eq!(change(Verdict::Held, Verdict::Deviated), Change::Broken);
    assert_eq!(change(Verdict::Held, Verdict::Held), Change::StillHeld);
    assert_eq!(change(Verdict::Deviated, Verdict::Tripped), Change::StillBroken);
    for nothing in
        [Verdict::Refused, Verdict::Unverified, Verdict::Aborted, Verdict::Interrupted, Verdict::Failed]
    {
        assert_eq!(change(nothing, Verdict::Held), Change::NotKnown);
    }
    assert_eq!(Change::of(None, Some(Verdict::Held)), Change::NotKnown);
}

#[test]
fn two_documents_are_told_apart_with_the_limits_of_both() {
    let before = run("a1", Verdict::Held, None, 400.0);
    let mut after = run("b2", Verdict::Held, None, 250.0);
    after.digest = Some("other".into());
    after.document = document(300).as_object().cloned();
    after.faults.clear();
    let found = Comparison::of(&before, &after);
    assert!(!found.same_document && found.page().contains("not of one document"));
    assert_eq!(found.gates[0].breach.as_deref(), Some("> 500 ms, then > 300 ms"));
    assert_eq!(found.evidence[0].after, None);
    assert!(found.page().contains("not injected"));
}

#[test]
fn markdown_and_html_have_the_rows_of_the_terminal_and_nothing_of_others_is_mark_up() {
    let nasty = "<script>alert(1)</script>|`x`";
    let named = |mut run: Recorded| {
        run.run.experiment_name = nasty.into();
        run.run.error = Some(nasty.into());
        run.faults[0].name = nasty.into();
        run
    };
    let (before, after) =
        (run("a1", Verdict::Tripped, None, 800.0), run("b2", Verdict::Held, Some(2.5), 310.0));
    let found = Comparison::of(&named(before), &named(after));
    let (markdown, html) = (found.markdown(), found.html());
    assert!(!markdown.contains('<') && !html.contains("<script"), "{markdown} {html}");
    for row in markdown.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(row.replace("\\|", "").matches('|').count(), 4, "{row}");
    }
    for told in ["800 ms (1 of 2 bad)", "It broke, and holds now."] {
        assert!(markdown.contains(told) && html.contains(told), "{told}");
    }
    assert!(html.contains("verdict tone held"), "{html}");
}

#[test]
fn faults_of_two_runs_are_one_by_the_name_of_their_action_whatever_the_daemon_called_them() {
    let (before, mut after) = (run("a1", Verdict::Held, None, 400.0), run("b2", Verdict::Held, None, 250.0));
    after.faults[0].name = "slow--1.77e2".into();
    let found = Comparison::of(&before, &after);
    assert_eq!(found.evidence.len(), 1, "{found:?}");
    assert_eq!((found.evidence[0].fault.as_str(), found.evidence[0].after.is_some()), ("cut", true));
}
