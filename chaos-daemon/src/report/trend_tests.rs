//! Tests of the trend.

use serde_json::{Value, json};

use super::*;
use crate::experiment::role::{Role, Stage};
use crate::experiment::timeline::Reading;
use crate::experiment::{Recovery, Verdict};
use crate::server::history::ExperimentResult;

fn document(name: &str, limit: u32) -> Value {
    let provider = json!({"type": "http", "url": "http://127.0.0.1:1/"});
    json!({
        "title": "slow", "description": "x",
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "up", "tolerance": 200, "provider": provider}]},
        "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "latency", "--interface": "eth0", "--delay": "1ms", "--for": "2s"}}}],
        "rollbacks": [],
        "extensions": [{"name": "chaos-daemon", "rollback_on": [{"name": name, "provider": provider, "op": "gt", "value": limit}]}],
    })
}

fn run(day: u8, verdict: Verdict, worst: Option<f64>, recovered: Option<f64>) -> Recorded {
    let reading = |value: f64| Reading {
        at_seconds: 1.0,
        time: String::new(),
        probe: "p95".into(),
        role: Role::Gate,
        stage: Stage::During,
        met: value <= 500.0,
        value: Some(value),
        took_seconds: 0.1,
        late_seconds: None,
        no_data: false,
        detail: String::new(),
    };
    let recovery = Recovery {
        mttr_seconds: recovered,
        rto_seconds: Some(10.0),
        within_rto: recovered.map(|after| after <= 10.0),
        ..Recovery::default()
    };
    Recorded {
        run: ExperimentResult {
            run_id: format!("{day:02}10290ca47633ef"),
            experiment_name: "slow".into(),
            started_at: format!("2026-02-{day:02}T10:00:00.000Z"),
            verdict: Some(verdict),
            recovery: recovered.map(|_| recovery),
            ..ExperimentResult::default()
        },
        document: document("p95", 500).as_object().cloned(),
        samples: worst.map(reading).into_iter().collect(),
        ..Recorded::default()
    }
}

#[test]
fn each_run_has_its_verdict_the_worst_of_each_gate_and_how_soon_all_was_well_again() {
    let runs = [
        run(1, Verdict::Tripped, Some(800.0), None),
        run(2, Verdict::Interrupted, None, None),
        run(3, Verdict::Deviated, Some(400.0), Some(12.0)),
        run(4, Verdict::Held, Some(310.0), Some(2.5)),
    ];
    let trend = Trend::of("slow", &runs);
    assert_eq!(trend.summary(), "4 runs: 1 held of 3 that showed something.");
    let text = trend.markdown();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows[0][2], "worst of p95, breach > 500 ms");
    assert_eq!(rows[2][..3], ["1 February 2026, 10:00:00 UTC", "tripped", "800 ms (1 of 1 bad)"]);
    assert_eq!(rows[3][2..5], ["–", "–", "–"], "{text}");
    assert_eq!((rows[4][4], rows[5][4]), ("12 s of 10 s: missed", "2.5 s of 10 s"), "{text}");
    // As wide as each other.
    let widths: std::collections::BTreeSet<_> =
        text.lines().filter(|line| line.starts_with('|')).map(|line| line.chars().count()).collect();
    assert_eq!(widths.len(), 1, "{text}");
    let html = trend.html();
    assert_eq!(html.matches("<circle").count(), 3 + 2, "{html}");
    assert_eq!(html.matches("<line class=\"limit\"").count(), 2, "{html}");
    for tone in ["tone tripped", "tone interrupted", "tone deviated", "tone held"] {
        assert!(html.contains(tone), "{tone}: {html}");
    }
}

#[test]
fn nothing_of_others_is_mark_up_in_it_and_no_run_is_said() {
    let nasty = "<script>alert(1)</script>|`x`";
    let mut runs = [run(1, Verdict::Tripped, Some(800.0), None)];
    runs[0].document = document(nasty, 500).as_object().cloned();
    runs[0].samples[0].probe = nasty.into();
    let trend = Trend::of(nasty, &runs);
    assert!(!trend.markdown().contains('<') && !trend.html().contains("<script"), "{trend:?}");
    let none = Trend::of("slow", &[]);
    assert!(none.markdown().contains("It has not been run.") && !none.html().contains("<table"));
}
