//! Tests of what is drawn: the chart, and the rows of what happened.

use serde_json::json;

use super::chart::chart;
use super::steps::steps;
use super::story::Story;
use super::tests::{event, sample, tripped};
use super::{html, markdown};
use crate::experiment::Recovery;
use crate::experiment::recovery::Incident;
use crate::experiment::role::{Role, Stage};
use crate::experiment::timeline::{Kind, Reading};
use crate::server::history::Recorded;
use crate::spec::FaultType;

#[test]
fn the_chart_has_a_row_for_each_fault_probe_and_gate_with_what_they_did_in_time() {
    let recorded = tripped("fast");
    let chart = chart(&Story::of(&recorded));
    assert_eq!(chart.matches("class=\"row\"").count(), 3, "{chart}");
    // From 1.0 s to 5.5 s of 12.0 s.
    assert!(chart.contains("<rect class=\"fault\" x=\"8.33%\" y=\"5.0\" width=\"37.50%\""), "{chart}");
    assert!(chart.contains("<line class=\"breach\" x1=\"41.67%\""), "{chart}");
    // Each from its question to its answer: of the two seconds between them nothing is known.
    assert!(chart.contains("<rect class=\"unmet\" x=\"22.92%\" y=\"5.0\" width=\"2.08%\""), "{chart}");
    assert_eq!(chart.matches("<rect class=\"unmet\"").count(), 2, "{chart}");
}

/// A run of a gate that compares milliseconds, and was sampled at these times with these values.
fn measured(values: &[(f64, Option<f64>)]) -> Recorded {
    let mut recorded = tripped("fast");
    let provider = json!({"type": "http", "url": "http://127.0.0.1:1/"});
    let document = json!({
        "title": "fast", "description": "x",
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "up", "tolerance": 200, "provider": provider}]},
        "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "network_partition", "--interface": "eth0", "--for": "2s"}}}],
        "rollbacks": [],
        "extensions": [{"name": "chaos-daemon", "rollback_on": [
            {"name": "p95", "provider": provider, "op": "gt", "value": 500, "lookbackWindow": "5s", "alertAfter": "10s"}]}],
    });
    recorded.document = document.as_object().cloned();
    let reading = |(at, value): &(f64, Option<f64>)| Reading {
        value: *value,
        no_data: value.is_none(),
        ..sample(
            *at,
            "p95",
            Role::Gate,
            Stage::During,
            value.is_none_or(|value| value <= 500.0),
            "status 200",
        )
    };
    recorded.samples = values.iter().map(reading).collect();
    recorded
}

#[test]
fn the_values_of_a_gate_are_drawn_where_they_were_measured_with_its_limit_and_a_gap_where_there_were_none() {
    let recorded = measured(&[
        (1.0, Some(100.0)),
        (2.0, Some(800.0)),
        (3.0, None),
        (4.0, Some(200.0)),
        (10.0, Some(90.0)),
    ]);
    let chart = chart(&Story::of(&recorded));
    assert_eq!(chart.matches("<circle class=\"met\"").count(), 3, "{chart}");
    assert_eq!(chart.matches("<circle class=\"unmet\"").count(), 1, "{chart}");
    assert_eq!(chart.matches("<rect class=\"blind\"").count(), 1, "{chart}");
    assert_eq!(chart.matches("class=\"trace\"").count(), 1, "only the first two follow each other: {chart}");
    assert!(chart.contains("breach &gt; 500 ms on average over 5s for 10s, worst 800 ms"), "{chart}");
    assert!(chart.contains("<line class=\"limit\" x1=\"0\" x2=\"100%\""), "{chart}");
}

#[test]
fn of_very_many_samples_each_column_has_the_least_and_the_most() {
    let values: Vec<_> =
        (0..3000).map(|at| (f64::from(at) / 300.0, Some(if at == 1500 { 900.0 } else { 10.0 }))).collect();
    let recorded = measured(&values);
    let chart = chart(&Story::of(&recorded));
    assert!(!chart.contains("<circle") && chart.len() < 100_000, "{}", chart.len());
    assert_eq!(chart.matches("<rect class=\"unmet\"").count(), 1, "the one that was bad is seen: {chart}");
}

#[test]
fn a_kill_is_a_point_and_what_was_seen_of_it_are_signs() {
    let mut recorded = tripped("fast");
    recorded.faults[0].fault_type = "process_kill".into();
    let incident = Incident {
        action: "slow.1".into(),
        fault_type: FaultType::ProcessKill,
        unreachable_after_seconds: Some(0.5),
        gone_after_seconds: Some(0.003),
        new_process_after_seconds: Some(1.5),
        recovered_after_seconds: Some(2.0),
        finding: None,
    };
    recorded.run.recovery = Some(Recovery { incidents: vec![incident], ..Recovery::default() });
    let story = Story::of(&recorded);
    let chart = chart(&story);
    assert!(!chart.contains("<rect class=\"fault\"") && !chart.contains("shade"), "{chart}");
    for class in ["fault", "failed", "renewed", "recovered"] {
        assert_eq!(chart.matches(&format!("<path class=\"{class}\"")).count(), 1, "{class}: {chart}");
    }
    let steps: Vec<_> = steps(&story).into_iter().map(|step| (step.what, step.at)).collect();
    for expected in
        [("Old process gone", 0.503), ("Seen to fail", 1.0), ("New process", 2.0), ("Recovered", 2.5)]
    {
        assert!(steps.contains(&(expected.0.to_owned(), expected.1)), "{expected:?}: {steps:?}");
    }
}

#[test]
fn rows_that_say_the_same_are_one_and_nothing_is_told_twice() {
    let mut recorded = tripped("fast");
    recorded.samples = (0..10)
        .map(|at| {
            let refused = format!("connection refused after {at} ms");
            sample(1.0 + f64::from(at) / 10.0, "up", Role::Recovery, Stage::During, false, &refused)
        })
        .collect();
    recorded.events.push(event(1.0, Kind::NotMet, "", "up: connection refused after 0 ms"));
    let steps = steps(&Story::of(&recorded));
    let told: Vec<_> = steps.iter().filter(|step| step.detail.contains("refused")).collect();
    assert_eq!(told.len(), 1, "{steps:?}");
    assert_eq!(told[0].detail, "up: connection refused after 0 ms (10 samples until 1.9 s)");
    let breaches = steps.iter().filter(|step| step.what == "Gate breached").count();
    assert_eq!(
        (breaches, steps.iter().filter(|step| step.what.starts_with("slow.1")).count()),
        (1, 2),
        "{steps:?}"
    );
}

#[test]
fn each_gate_is_told_with_its_worst_value_its_unit_and_what_would_be_a_breach() {
    let recorded = measured(&[(1.0, Some(100.0)), (2.0, Some(812.4)), (3.0, None)]);
    for text in [markdown::report(&recorded), html::report(&recorded).replace("&gt;", ">")] {
        let told = "p95: worst 812 ms; a breach is > 500 ms on average over 5s for 10s; 1 of 3 samples bad, 1 without data";
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn no_handle_digest_or_json_is_in_sight_before_the_fold() {
    let mut recorded = tripped("fast");
    recorded.run.run_id = "98f9d8ccb4c4d064".into();
    recorded.digest = Some("0123456789abcdef0123456789abcdef".into());
    for text in [markdown::report(&recorded), html::report(&recorded)] {
        let (seen, folded) = text.split_once("<details>").unwrap();
        let seen = seen.split_once("</style>").map_or(seen, |(_, seen)| seen);
        for hidden in ["98f9d8ccb4c4d064", "0123456789abcdef", "{", "&quot;interface"] {
            assert!(!seen.contains(hidden), "{hidden}: {seen}");
        }
        assert!(folded.contains("98f9d8ccb4c4d064") && folded.contains("0123456789abcdef"), "{folded}");
    }
}

#[test]
fn a_probe_has_one_row_whatever_it_was_sampled_for_and_samples_without_data_are_neither_good_nor_bad() {
    let mut recorded = tripped("fast");
    recorded.samples = vec![
        sample(0.5, "up", Role::SteadyState, Stage::Before, true, "connected"),
        sample(2.0, "up", Role::Recovery, Stage::During, false, "refused"),
        Reading { no_data: true, ..sample(3.0, "p95", Role::Gate, Stage::During, true, "late") },
        sample(9.0, "up", Role::SteadyState, Stage::After, true, "connected"),
    ];
    let chart = chart(&Story::of(&recorded));
    assert_eq!(chart.matches("class=\"row\"").count(), 3, "the fault, up, and the gate: {chart}");
    for (class, count) in [("met", 2), ("unmet", 1), ("blind", 1)] {
        assert_eq!(chart.matches(&format!("<rect class=\"{class}\"")).count(), count, "{class}: {chart}");
    }
    let html = html::report(&recorded);
    assert!(html.contains("The gate p95 never had data in 1 samples"), "{html}");
}

#[test]
fn a_gate_that_goes_bad_again_and_again_has_one_row() {
    let values: Vec<_> = (0..40)
        .map(|at| (f64::from(at), Some(if at % 4 == 0 { 600.0 + f64::from(at) } else { 90.0 })))
        .collect();
    let recorded = measured(&values);
    let steps = steps(&Story::of(&recorded));
    let bad: Vec<_> = steps.iter().filter(|step| step.what == "Gate is bad").collect();
    assert_eq!(bad.len(), 1, "{steps:?}");
    assert_eq!(bad[0].detail, "p95: at worst 636 ms, and > 500 ms is bad (10 samples until 36 s, 10 times)");
}

#[test]
fn what_a_probe_said_in_turns_is_not_told_as_one_thing() {
    let mut recorded = tripped("fast");
    recorded.samples = (0..24)
        .map(|at| {
            let (met, said) = match at % 4 {
                0 => (false, "connection refused"),
                2 => (false, "no answer within 2s"),
                _ => (true, "status 200"),
            };
            sample(f64::from(at), "up", Role::Recovery, Stage::During, met, said)
        })
        .collect();
    let steps = steps(&Story::of(&recorded));
    let told: Vec<_> =
        steps.iter().filter(|step| step.what == "Not as it should be").map(|step| &step.detail).collect();
    assert_eq!(
        told,
        [
            "up: connection refused (6 samples until 20 s, 6 times)",
            "up: no answer within 2s (6 samples until 22 s, 6 times)"
        ]
    );
}

#[test]
fn the_limits_of_a_document_with_secrets_are_known_though_its_secrets_are_not() {
    let mut recorded = measured(&[(1.0, Some(812.4))]);
    let provider = json!({"type": "http", "url": "http://127.0.0.1:1/", "secrets": ["shop"],
        "headers": {"Authorization": "Bearer ${token}", "X-Of": "${named}"}});
    let document = recorded.document.as_mut().unwrap();
    document.insert("configuration".into(), json!({"named": "shop"}));
    document["extensions"][0]["rollback_on"][0]["provider"] = provider;
    let text = markdown::report(&recorded);
    assert!(text.contains("a breach is > 500 ms"), "{text}");
}
