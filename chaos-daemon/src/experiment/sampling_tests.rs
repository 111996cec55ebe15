//! Tests of when probes of the steady state are sampled.

use serde_json::json;

use super::*;
use crate::experiment::role::Role;
use crate::experiment::tolerance::{Form, Tolerance};
use crate::probe::{Bounds, Check, Probe};

fn condition(name: &str) -> Condition {
    let check = Check::tcp("", "127.0.0.1:1").unwrap();
    let form = Form::Process;
    Condition {
        name: name.to_owned(),
        probe: Probe { check, timeout: Duration::from_secs(3), bounds: Bounds::default() },
        form,
        tolerance: Tolerance::parse("", json!(0), form).unwrap(),
        sampling: Sampling::default(),
    }
}

/// The conditions `a` and `b` under these rules.
fn applied(rules: Value, mode: Mode) -> Result<Vec<Condition>, String> {
    let Value::Array(rules) = rules else { panic!("no list") };
    let read = |rule| Rule::read(Fields::of("probes[0]", rule)?);
    let rules: Result<Vec<_>, SpecError> = rules.into_iter().map(read).collect();
    let mut conditions = vec![condition("a"), condition("b")];
    let applied = rules.and_then(|rules| Rule::apply(&rules, mode, &mut conditions));
    applied.map(|()| conditions).map_err(|error| error.to_string())
}

#[test]
fn each_mode_is_sampled_when_litmus_does() {
    for (mode, before, during, after) in [
        (Mode::Sot, true, false, false),
        (Mode::Eot, false, false, true),
        (Mode::Edge, true, false, true),
        (Mode::Continuous, true, true, true),
        (Mode::OnChaos, false, true, false),
        // Of Chaos Toolkit alone.
        (Mode::During, false, true, false),
    ] {
        let due = [Stage::Before, Stage::During, Stage::After].map(|stage| mode.is_due(stage));
        assert_eq!(due, [before, during, after], "{mode:?}");
    }
}

#[test]
fn who_looks_for_recovery_looks_at_what_has_to_be_met_at_the_end() {
    let looks = |mode| Sampling { mode, ..Sampling::default() }.is_due(Role::Recovery, Stage::During);
    assert_eq!([Mode::Sot, Mode::OnChaos, Mode::During].map(looks), [false, false, false]);
    assert_eq!([Mode::Eot, Mode::Edge, Mode::Continuous].map(looks), [true, true, true]);
}

#[test]
fn a_probe_is_sampled_as_its_rule_says_and_any_other_as_the_strategy_does() {
    let rule = json!({"name": "a", "mode": "OnChaos", "probeTimeout": "250ms", "interval": 2, "retry": 3,
        "initialDelay": "1m", "stopOnFailure": true, "severity": "critical"});
    let conditions = applied(json!([rule]), Mode::Continuous).unwrap();
    let sampling = Sampling {
        mode: Mode::OnChaos,
        interval: Duration::from_secs(2),
        retries: 3,
        initial_delay: Duration::from_secs(60),
        stop_on_failure: true,
    };
    assert_eq!(conditions[0].sampling, sampling);
    assert_eq!(conditions[0].probe.timeout, Duration::from_millis(250));
    assert_eq!(conditions[1].sampling, Sampling { mode: Mode::Continuous, ..Sampling::default() });
    assert_eq!(conditions[1].probe.timeout, Duration::from_secs(3));
    // A rule that says nothing of the mode leaves it to the strategy.
    let conditions = applied(json!([{"name": "a", "retry": 1}]), Mode::Continuous).unwrap();
    assert_eq!(conditions[0].sampling.mode, Mode::Continuous);
}

#[test]
fn a_rule_that_makes_no_sense_is_refused_by_name() {
    for (rules, said) in [
        (json!([{"mode": "Edge"}]), "name a probe of the steady state"),
        (json!([{"name": "c"}]), "\"c\" is no probe of the steady state"),
        (json!([{"name": "a"}, {"name": "a"}]), "is there already"),
        (json!([{"name": "a", "mode": "sot"}]), "is not one of SOT, EOT, Edge, Continuous, OnChaos"),
        (json!([{"name": "a", "mode": "During"}]), "is not one of SOT, EOT, Edge, Continuous, OnChaos"),
        (json!([{"name": "a", "retry": 1.5}]), "give a whole number, 0 to 10"),
        (json!([{"name": "a", "retry": 11}]), "give a whole number, 0 to 10"),
        (json!([{"name": "a", "interval": "10ms"}]), "probes[0].interval"),
        (json!([{"name": "a", "probeTimeout": "31s"}]), "probes[0].probeTimeout"),
        (json!([{"name": "a", "initialDelay": "1h"}]), "probes[0].initialDelay"),
        (json!([{"name": "a", "stopOnFailure": true}]), "give it the mode Continuous or OnChaos"),
        (json!([{"name": "a", "severity": "Critical"}]), "is not one of critical and warning"),
        (json!([{"name": "a", "probePollingInterval": 1}]), "probePollingInterval"),
        (json!([{"name": "a", "mode": "EOT"}, {"name": "b", "mode": "OnChaos"}]), "before the method"),
        (json!([{"name": "a", "mode": "SOT"}, {"name": "b", "mode": "SOT"}]), "after the method"),
    ] {
        let error = applied(rules.clone(), Mode::Edge).unwrap_err();
        assert!(error.contains(said), "{rules}: {error}");
    }
}

#[test]
fn what_a_strategy_has_verified_may_be_verified_by_one_probe_and_must_be_by_one() {
    let both = |mode: &str| json!([{"name": "a", "mode": mode}, {"name": "b", "mode": mode}]);
    for (strategy, mode, said) in [
        (Mode::Sot, "EOT", "before the method"),
        (Mode::Eot, "SOT", "after the method"),
        (Mode::During, "Edge", "while the method goes on"),
        (Mode::Continuous, "Edge", "while the method goes on"),
    ] {
        let error = applied(both(mode), strategy).unwrap_err();
        assert!(error.contains(said), "{strategy:?}: {error}");
        assert!(applied(json!([{"name": "a", "mode": mode}]), strategy).is_ok(), "{strategy:?}");
    }
    // What is not asked for need not be.
    assert!(applied(both("SOT"), Mode::Sot).is_ok() && applied(both("OnChaos"), Mode::During).is_ok());
    let stops = json!([{"name": "a", "stopOnFailure": true}]);
    assert!(applied(stops.clone(), Mode::During).is_ok() && applied(stops, Mode::Eot).is_err());
}

#[test]
fn one_name_of_two_probes_is_refused() {
    let rule = Rule::read(Fields::of("", json!({"name": "a"})).unwrap()).unwrap();
    let mut conditions = [condition("a"), condition("a")];
    let error = Rule::apply(&[rule], Mode::Edge, &mut conditions).unwrap_err();
    assert!(error.to_string().contains("two probes"), "{error}");
}
