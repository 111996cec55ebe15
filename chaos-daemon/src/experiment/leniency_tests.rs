//! Tests of what runs as it is: documents without a part, with references, and with fields that have no effect.

use serde_json::json;

use super::machine::{Effect, Event, Machine};
use super::tests::{document, parse};
use super::*;
use crate::experiment::variables::Nowhere;
use crate::experiment::{FailureMode, Verdict};
use crate::probe::Sample;
use crate::spec::Mistake;

/// How a run of this document ends if all that is sampled is met and nothing acts.
fn outcome(experiment: &Experiment) -> machine::Outcome {
    let (mut machine, mut effects) = Machine::start(experiment.steps(), experiment.asked());
    loop {
        let Some(effect) = effects.pop() else { panic!("the run stands still") };
        let event = match effect {
            Effect::Finish(outcome) => return outcome,
            Effect::Sample if machine.is_before() && !experiment.asked().before => Event::Unsampled,
            Effect::Sample if !experiment.asked().after && !machine.is_before() => Event::Unsampled,
            Effect::Sample => Event::Sampled(Ok(())),
            Effect::Inject(index) => Event::Injected(index, Ok(())),
            Effect::Remove(index) => Event::Removed(index, Ok(())),
            Effect::Probe(index) => Event::Probed(index),
            Effect::Wait(index, pause) => Event::Waited(index, pause),
            Effect::Last(_) => Event::Lasted,
            Effect::Observe | Effect::Cancel => continue,
        };
        effects.extend(machine.step(event));
    }
}

#[test]
fn a_run_without_a_hypothesis_or_without_an_action_is_unverified() {
    let whole = document();
    assert_eq!(outcome(&parse(whole.clone()).unwrap()).verdict, Verdict::Held);
    let mut no_hypothesis = whole.clone();
    no_hypothesis.as_object_mut().unwrap().remove("steady-state-hypothesis");
    let mut no_probes = whole.clone();
    no_probes["steady-state-hypothesis"]["probes"] = json!([]);
    let mut no_action = whole.clone();
    no_action["method"] = json!([{"ref": "health"}]);
    let mut empty = whole;
    empty["method"] = json!([]);
    for (document, told) in [
        (no_hypothesis, "the steady state is to be verified neither"),
        (no_probes, "the steady state is to be verified neither"),
        (no_action, "nothing was injected"),
        (empty, "nothing was injected"),
    ] {
        let ended = outcome(&parse(document).unwrap());
        assert_eq!((ended.verdict, ended.failure), (Verdict::Unverified, Some(FailureMode::NotVerified)));
        assert!(ended.error.as_deref().is_some_and(|error| error.contains(told)), "{ended:?}");
    }
}

#[test]
fn a_document_without_a_hypothesis_has_no_objective_that_only_one_could_show() {
    let mut document = document();
    document.as_object_mut().unwrap().remove("steady-state-hypothesis");
    for extension in [
        json!({"name": "chaos-daemon", "blast_radius": {}}),
        json!({"name": "chaos-daemon", "abort_when": [{"not_recovered_within": "1m"}]}),
        json!({"name": "chaos-daemon", "probes": [{"name": "health"}]}),
    ] {
        document["extensions"] = json!([extension]);
        assert!(parse(document.clone()).unwrap_err().field.starts_with("extensions"), "{extension}");
    }
}

#[test]
fn a_reference_is_the_activity_that_it_names() {
    let mut document = document();
    let injection = document["method"][0].clone();
    document["method"] = json!([{"ref": "health"}, injection, {"ref": "health", "type": "probe"}]);
    let experiment = parse(document.clone()).unwrap();
    let looks: Vec<_> = experiment.method.iter().filter(|one| one.name == "health").collect();
    assert_eq!(looks.len(), 2);
    let Deed::Probe { probe, right: Some(right) } = &looks[0].deed else { panic!("{looks:?}") };
    assert_eq!((probe, &right.1), (&experiment.conditions[0].probe, &experiment.conditions[0].tolerance));
    // Of two activities with one name Chaos Toolkit takes the probe of the steady state.
    document["method"][1]["name"] = json!("health");
    assert!(matches!(parse(document.clone()).unwrap().method[0].deed, Deed::Probe { .. }));
    for (wrong, field) in [
        (json!({"ref": "nobody"}), "method[0].ref"),
        (json!({"ref": 1}), "method[0].ref"),
        (json!({"ref": "health", "pauses": {"after": 1}}), "method[0].pauses"),
    ] {
        document["method"][0] = wrong;
        assert_eq!(parse(document.clone()).unwrap_err().field, field);
    }
}

#[test]
fn what_is_said_once_and_named_often_is_bounded() {
    let mut document = document();
    let headers = json!({"Content-Type": "application/json"});
    document["steady-state-hypothesis"]["probes"][0]["provider"] = json!({"type": "http", "url": "http://127.0.0.1/",
        "method": "POST", "headers": headers, "arguments": {"text": "a".repeat(60 << 10)}});
    document["method"] = vec![json!({"ref": "health"}); 64].into();
    let error = parse(document).unwrap_err();
    assert!(error.field.ends_with(".ref") && error.problem.contains("too much"), "{error}");
}

#[test]
fn a_tolerance_in_the_method_judges_its_sample() {
    let mut document = document();
    let provider = json!({"type": "http", "url": "http://127.0.0.1/"});
    document["method"] = json!([{"type": "probe", "name": "look", "tolerance": 503, "provider": provider}]);
    let experiment = parse(document.clone()).unwrap();
    let Deed::Probe { right: Some(right), .. } = &experiment.method[0].deed else { panic!("{experiment:?}") };
    let answered =
        |status: u16| Sample { answer: Some(json!({"status": status})), ..Sample::failed("x".to_owned()) };
    assert!(right.1.judge_sample(right.0, &answered(503)).is_ok());
    assert!(right.1.judge_sample(right.0, &answered(200)).is_err());
    document["method"][0]["tolerance"] = json!("up");
    assert_eq!(parse(document).unwrap_err().field, "method[0].tolerance");
}

#[test]
fn fields_without_effect_change_nothing() {
    let plain = parse(document()).unwrap();
    let mut document = document();
    document["x-anchors"] = json!({"a": [1]});
    document["steady-state-hypothesis"]["x-note"] = json!("b");
    let probe = &mut document["steady-state-hypothesis"]["probes"][0];
    probe["description"] = json!("c");
    probe["provider"]["configuration"] = json!({});
    probe["controls"] = json!([]);
    let action = &mut document["method"][0];
    action["extensions"] = json!([]);
    action["tags"] = json!(["d"]);
    action["dry"] = json!(false);
    assert_eq!(parse(document).unwrap(), plain);
}

#[test]
fn arguments_of_chaosctl_may_be_one_text() {
    let mut document = document();
    let provider = &mut document["method"][0]["provider"];
    provider["arguments"] = json!("inject latency --interface eth0 --delay 300ms --for 2m");
    let experiment = parse(document.clone()).unwrap();
    assert_eq!(experiment.faults().count(), 1);
    document["method"][0]["provider"]["arguments"] = json!("inject latency --interface $(cat x)");
    assert!(parse(document).unwrap_err().problem.contains("for a shell"));
}

#[test]
fn a_gap_that_a_conversion_has_left_is_told_instead_of_what_stands_there() {
    let mut document = document();
    let python = json!({"type": "python", "module": "m", "func": "f"});
    document["method"] =
        json!([{"type": "action", "name": "a", "x-gap": "no fault does the same", "provider": python}]);
    document["x-gap"] = json!(["controls were Python modules"]);
    let Err(problems) = Experiment::check(document.as_object().unwrap(), &Nowhere) else {
        panic!("accepted")
    };
    let told: Vec<_> = problems.iter().map(|problem| (problem.field.as_str(), problem.code)).collect();
    assert_eq!(told, [("x-gap[0]", Mistake::Gap), ("method[0].x-gap", Mistake::Gap)]);
    assert!(problems[1].problem.starts_with("no fault does the same: replace"), "{problems:?}");
}
