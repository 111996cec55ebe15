//! Tests of the score.

use super::*;
use crate::experiment::timeline::Occurrence;
use crate::server::history::RunFault;

fn sample(probe: &str, role: Role, stage: Stage, met: bool) -> Reading {
    let (probe, time) = (probe.to_owned(), String::new());
    Reading {
        at_seconds: 0.0,
        time,
        probe,
        role,
        stage,
        met,
        value: None,
        took_seconds: 0.0,
        late_seconds: None,
        no_data: false,
        detail: String::new(),
    }
}

fn event(kind: Kind, subject: &str) -> Occurrence {
    Occurrence { at_seconds: 0.0, time: String::new(), kind, subject: subject.into(), detail: String::new() }
}

fn run(faults: &[&str], events: Vec<Occurrence>, samples: Vec<Reading>) -> Recorded {
    let fault = |name: &&str| RunFault {
        name: (*name).to_owned(),
        fault_type: "latency".into(),
        target: String::new(),
        seconds: 1.0,
        weight: if *name == "light" { 3 } else { 10 },
        injected: None,
        effective: None,
        evidence: None,
        removed_clean: None,
    };
    Recorded { faults: faults.iter().map(fault).collect(), events, samples, ..Recorded::default() }
}

const STEADY: Role = Role::SteadyState;

#[test]
fn a_run_whose_probes_all_pass_scores_100() {
    let samples = [Stage::Before, Stage::During, Stage::After].map(|stage| sample("up", STEADY, stage, true));
    let score = score(&run(&["a"], vec![event(Kind::Injected, "a")], samples.to_vec())).unwrap();
    assert_eq!(score.score, 100);
    let severity = Severity::Warning;
    assert_eq!(
        score.probes,
        [ProbeResult { probe: "up".into(), role: STEADY, passed: true, met: 3, samples: 3, severity }]
    );
}

#[test]
fn what_was_never_to_be_sampled_at_the_end_passes_if_the_run_was_held_and_without_a_verdict_there_is_no_score()
 {
    let during = vec![sample("up", STEADY, Stage::During, true)];
    let with = |verdict| {
        let mut recorded = run(&["a"], vec![event(Kind::Injected, "a")], during.clone());
        recorded.run.verdict = Some(verdict);
        score(&recorded).map(|score| score.score)
    };
    assert_eq!(with(Verdict::Held), Some(100));
    assert_eq!(with(Verdict::Aborted), Some(0));
    assert_eq!(with(Verdict::Unverified), None);
}

#[test]
fn a_fault_that_did_not_run_adds_nothing_and_weighs() {
    let samples = [Stage::Before, Stage::After].map(|stage| sample("up", STEADY, stage, true));
    let events = vec![event(Kind::Injected, "a"), event(Kind::InjectionFailed, "b")];
    let score = score(&run(&["a", "b", "c"], events, samples.to_vec())).unwrap();
    assert_eq!(score.score, 33, "cut off, not rounded");
    let ran: Vec<_> = score.factors.iter().map(|factor| (factor.ran, factor.probe_success_percent)).collect();
    assert_eq!(ran, [(true, 100.0), (false, 0.0), (false, 0.0)]);
}

#[test]
fn a_fault_counts_for_as_much_as_it_weighs() {
    let samples = [Stage::Before, Stage::After].map(|stage| sample("up", STEADY, stage, true));
    let of = |injected: &str| {
        let events = vec![event(Kind::Injected, injected)];
        score(&run(&["heavy", "light"], events, samples.to_vec())).unwrap().score
    };
    // 10 × 100 and 3 × 100, of 13.
    assert_eq!((of("heavy"), of("light")), (76, 23));
}

#[test]
fn a_probe_passes_by_what_it_says_before_at_the_end_and_in_between() {
    use Stage::{After, Before, During};
    for (passed, samples) in [
        (true, vec![(Before, true), (After, true)]),
        (true, vec![(Before, true), (During, true), (After, false), (After, true)]),
        (false, vec![(Before, true), (During, false), (After, true)]),
        (false, vec![(Before, true), (After, true), (After, false)]),
        (false, vec![(Before, false)]),
        (false, vec![(Before, true)]),
    ] {
        let readings = samples.iter().map(|(stage, met)| sample("up", STEADY, *stage, *met)).collect();
        let score = score(&run(&["a"], vec![event(Kind::Injected, "a")], readings)).unwrap();
        assert_eq!(score.probes[0].passed, passed, "{samples:?}");
        assert_eq!(score.score, if passed { 100 } else { 0 });
    }
}

#[test]
fn a_probe_that_is_not_sampled_at_the_end_passes_by_what_it_said_if_the_run_came_to_its_end() {
    let readings = |last| {
        let all = [("early", Stage::Before), ("chaos", Stage::During), ("late", last)];
        all.map(|(probe, stage)| sample(probe, STEADY, stage, true)).to_vec()
    };
    for (last, expected) in [(Stage::After, [true, true, true]), (Stage::During, [false, false, false])] {
        let score = score(&run(&["a"], vec![event(Kind::Injected, "a")], readings(last))).unwrap();
        let passed: Vec<_> = score.probes.iter().map(|probe| probe.passed).collect();
        assert_eq!(passed, expected, "{last:?}");
    }
}

#[test]
fn an_outage_that_was_watched_until_it_was_over_costs_nothing() {
    let mut samples = [Stage::Before, Stage::After].map(|stage| sample("up", STEADY, stage, true)).to_vec();
    samples.push(sample("up", Role::Recovery, Stage::During, false));
    let score = score(&run(&["a"], vec![event(Kind::Injected, "a")], samples)).unwrap();
    assert_eq!((score.score, score.probes.len()), (100, 1));
}

#[test]
fn a_gate_passes_unless_it_is_breached() {
    let samples = vec![
        sample("fast", Role::Gate, Stage::Before, true),
        sample("fast", Role::Gate, Stage::During, false),
        sample("up", STEADY, Stage::Before, true),
        sample("up", STEADY, Stage::After, true),
        // For the record only.
        sample("note", Role::Method, Stage::During, false),
    ];
    let mut recorded = run(&["a"], vec![event(Kind::Injected, "a")], samples);
    assert_eq!(score(&recorded).unwrap().score, 100);
    recorded.events.push(event(Kind::Breach, "fast"));
    assert_eq!(score(&recorded).unwrap().score, 50);
}

/// The score by severity of a run whose probes passed or not, by the document that these are in.
fn by_severity_of(probes: &[(&str, bool)], rules: serde_json::Value) -> SeverityScore {
    let samples = probes.iter().map(|(probe, met)| sample(probe, STEADY, Stage::After, *met)).collect();
    let mut recorded = run(&["a"], vec![event(Kind::Injected, "a")], samples);
    let document = serde_json::json!({"extensions": [{"name": "other", "probes": 1}, {"name": "chaos-daemon", "probes": rules}]});
    recorded.document = document.as_object().cloned();
    score(&recorded).unwrap().severity_score
}

#[test]
fn by_severity_a_critical_probe_counts_for_three_others_and_one_that_was_not_sampled_for_nothing() {
    let rules = serde_json::json!([{"name": "critical", "severity": "critical"}, {"name": "plain", "retry": 1},
        {"name": "never sampled", "severity": "critical"}]);
    let of = |probes: &[(&str, bool)]| by_severity_of(probes, rules.clone());
    let found = of(&[("critical", true), ("plain", false), ("unnamed", true)]);
    assert_eq!(found, SeverityScore { score: 80, total: 5, lost: 1, passed: 2, failed: 1 });
    let found = of(&[("critical", false), ("plain", true), ("unnamed", true)]);
    assert_eq!(found, SeverityScore { score: 40, total: 5, lost: 3, passed: 2, failed: 1 });
    // Two of three are 66.66…
    assert_eq!(of(&[("a", true), ("b", true), ("c", false)]).score, 66);
    assert_eq!((of(&[("critical", true)]).score, of(&[("critical", false)]).score), (100, 0));
}

/// What `krkn/resiliency/score.py` returns of as many SLOs of the severity warning, of which so many passed.
#[test]
fn the_score_by_severity_is_cut_off_where_krkn_cuts() {
    for (passed, all, expected) in [(29, 100, 28), (57, 100, 56), (7, 25, 28), (2, 3, 66), (100, 100, 100)] {
        let names: Vec<_> = (0..all).map(|number| number.to_string()).collect();
        let probes: Vec<_> =
            names.iter().enumerate().map(|(number, name)| (name.as_str(), number < passed)).collect();
        assert_eq!(by_severity_of(&probes, serde_json::json!([])).score, expected, "{passed} of {all}");
    }
}

#[test]
fn without_a_probe_there_are_no_points_and_the_score_by_severity_is_0() {
    let score = score(&run(&["a"], vec![event(Kind::Injected, "a")], Vec::new())).unwrap();
    assert_eq!(score.severity_score, SeverityScore { score: 0, total: 0, lost: 0, passed: 0, failed: 0 });
}

#[test]
fn a_gate_counts_as_a_warning_by_severity_also_with_the_name_of_a_critical_probe() {
    let samples =
        vec![sample("up", STEADY, Stage::After, true), sample("up", Role::Gate, Stage::Before, false)];
    let mut recorded = run(&["a"], vec![event(Kind::Injected, "a")], samples);
    let document = serde_json::json!({"extensions": [{"name": "chaos-daemon", "probes": [{"name": "up", "severity": "critical"}]}]});
    recorded.document = document.as_object().cloned();
    let found = score(&recorded).unwrap().severity_score;
    assert_eq!(found, SeverityScore { score: 75, total: 4, lost: 1, passed: 1, failed: 1 });
}

#[test]
fn a_run_of_which_nothing_is_known_has_no_score() {
    assert_eq!(score(&Recorded::default()), None);
    assert_eq!(score(&run(&["a"], Vec::new(), Vec::new())), None);
}

#[test]
fn the_limits_of_a_host_count_for_nothing() {
    let limit = "policy:host_limits.memory_percent";
    let of = |gate: &str| {
        let samples =
            vec![sample("up", STEADY, Stage::After, true), sample(gate, Role::Gate, Stage::Before, true)];
        let events = vec![event(Kind::Injected, "a"), event(Kind::Breach, gate)];
        score(&run(&["a"], events, samples)).unwrap()
    };
    assert_eq!((of("memory").score, of("memory").probes.len()), (50, 2));
    assert_eq!((of(limit).score, of(limit).probes.len()), (100, 1));
}
