//! Tests of the stages.

use serde_json::json;

use super::Verdict::{Aborted, Deviated, Failed, Held, Interrupted, Refused, Tripped, Unverified};
use super::*;
use crate::experiment::Experiment;
use crate::experiment::staged::{at, next};
use crate::experiment::variables::Nowhere;

fn stage(percent: u8) -> Stage {
    Stage::try_from(percent).unwrap()
}

fn radius() -> BlastRadius {
    BlastRadius::read("blast_radius", json!({})).unwrap()
}

/// What is due after these runs: the percentage, or that of what has to come first.
fn due(history: &[(u8, Verdict)], wanted: Option<u8>) -> Result<u8, u8> {
    let history: Vec<_> = history.iter().map(|(percent, verdict)| (stage(*percent), *verdict)).collect();
    radius().due(&history, wanted.map(stage)).map(|admitted| admitted.stage.percent()).map_err(|refusal| {
        match refusal {
            Refusal::NotDue { due, .. } => due.percent(),
            Refusal::Unknown(_) => 0,
        }
    })
}

fn document(extension: Value, arguments: Value) -> Value {
    let mut extension = extension;
    extension["name"] = json!("chaos-daemon");
    json!({
        "title": "workers die",
        "steady-state-hypothesis": {"probes": [{"type": "probe", "name": "up", "tolerance": 0, "provider":
            {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:1"]}}]},
        "method": [{"type": "action", "name": "strike", "provider":
            {"type": "process", "path": "chaosctl", "arguments": arguments}}],
        "extensions": [extension],
    })
}

fn parse(extension: Value, arguments: Value) -> Result<Experiment, SpecError> {
    let Value::Object(document) = document(extension, arguments) else { panic!("no object") };
    Experiment::parse(&document, &Nowhere)
}

fn kill() -> Value {
    json!({"inject": "process_kill", "--unit": "a.service", "--seed": 7, "--for": "1m"})
}

#[test]
fn without_any_run_the_first_stage_is_due_and_no_other() {
    assert_eq!(due(&[], None), Ok(10));
    assert_eq!(due(&[], Some(10)), Ok(10));
    for skipped in [25, 50, 100] {
        assert_eq!(due(&[], Some(skipped)), Err(10));
    }
    let admitted = radius().due(&[], None).unwrap();
    assert_eq!(admitted.admission, Admission::First);
}

#[test]
fn each_stage_is_earned_by_the_one_before_and_by_all_before_that() {
    assert_eq!(due(&[(10, Held)], None), Ok(25));
    assert_eq!(due(&[(10, Held)], Some(50)), Err(25));
    assert_eq!(due(&[(10, Held), (25, Held), (50, Held)], None), Ok(100));
    assert_eq!(due(&[(25, Held), (50, Held)], Some(100)), Err(10), "held, but never the first");
    let admitted = radius().due(&[(stage(10), Held)], None).unwrap();
    assert_eq!(admitted.admission, Admission::Earned { by: stage(10) });
}

#[test]
fn a_stage_that_was_held_may_be_run_again_and_the_last_is_when_nothing_is_due() {
    let all = [(10, Held), (25, Held), (50, Held), (100, Held)];
    assert_eq!(due(&all, None), Ok(100));
    for percent in [10, 25, 50, 100] {
        assert_eq!(due(&all, Some(percent)), Ok(percent));
    }
}

#[test]
fn a_stage_that_was_not_held_the_last_time_has_to_be_held_again() {
    for verdict in [Deviated, Tripped] {
        assert_eq!(due(&[(10, Held), (10, verdict)], Some(25)), Err(10));
        assert_eq!(due(&[(10, Held), (25, verdict)], None), Ok(25));
        assert_eq!(due(&[(10, verdict), (10, Held)], None), Ok(25));
        assert_eq!(due(&[(10, Held), (25, Held), (10, verdict)], Some(50)), Err(10));
    }
}

#[test]
fn a_run_that_was_not_completed_neither_earns_a_stage_nor_loses_one() {
    for verdict in [Refused, Failed, Aborted, Interrupted, Unverified] {
        assert_eq!(due(&[(10, verdict)], Some(25)), Err(10));
        assert_eq!(due(&[(10, Held), (10, verdict)], Some(25)), Ok(25));
    }
}

#[test]
fn a_refusal_says_what_comes_first_and_why() {
    let said =
        |history: &[Step], wanted: u8| radius().due(history, Some(stage(wanted))).unwrap_err().to_string();
    assert_eq!(
        said(&[(stage(10), Held)], 100),
        "stage 100 % is not due: stage 25 % comes first, and has not been run to its end with this document"
    );
    assert_eq!(
        said(&[(stage(10), Tripped)], 25),
        "stage 25 % is not due: stage 10 % comes first, and its latest run tripped"
    );
    assert_eq!(said(&[], 30), "stage 30 % is none of the document's");
}

#[test]
fn a_document_names_its_stages_which_rise_to_100_at_most() {
    let stages = |value: Value| {
        BlastRadius::read("at", value)
            .map(|radius| radius.stages().iter().map(|stage| stage.percent()).collect::<Vec<_>>())
    };
    assert_eq!(stages(json!({})).unwrap(), [10, 25, 50, 100]);
    assert_eq!(stages(json!({"stages": [5, 10.0]})).unwrap(), [5, 10]);
    for (wrong, field) in [
        (json!({"stages": []}), "at.stages"),
        (json!({"stages": [50, 50]}), "at.stages"),
        (json!({"stages": [50, 25]}), "at.stages"),
        (json!({"stages": [50, 101]}), "at.stages[1]"),
        (json!({"stages": [0]}), "at.stages[0]"),
        (json!({"stages": [12.5]}), "at.stages[0]"),
        (json!({"stages": ["10"]}), "at.stages[0]"),
        (json!({"steps": [10]}), "at.steps"),
        (json!([10]), "at"),
    ] {
        assert_eq!(stages(wrong.clone()).unwrap_err().field, field, "{wrong}");
    }
}

#[test]
fn a_list_of_stages_may_be_finer_or_end_sooner_and_leaves_out_none_of_10_25_50_and_100() {
    let read = |stages: Value| BlastRadius::read("at", json!({"stages": stages}));
    for right in [
        json!([5]),
        json!([10]),
        json!([2, 10, 15, 25]),
        json!([10, 25, 49]),
        json!([1, 10, 25, 50, 75, 100]),
    ] {
        read(right.clone()).unwrap_or_else(|error| panic!("{right}: {error}"));
    }
    for (wrong, missing) in [
        (json!([100]), "10, 25 and 50"),
        (json!([50, 100]), "10 and 25"),
        (json!([10, 50, 100]), "25"),
        (json!([10, 25, 100]), "50"),
        (json!([11]), "10"),
        (json!([5, 20, 40, 80, 100]), "10, 25 and 50"),
    ] {
        let error = read(wrong.clone()).unwrap_err();
        assert_eq!(error.field, "at.stages", "{wrong}");
        assert_eq!(
            error.problem,
            format!("a stage may be added, and none skipped: add {missing}"),
            "{wrong}"
        );
    }
    let error = parse(json!({"blast_radius": {"stages": [100]}}), kill()).unwrap_err();
    assert_eq!(error.field, "extensions[0].blast_radius.stages");
}

#[test]
fn a_stage_is_the_share_of_the_processes_with_the_same_seed() {
    let experiment = parse(json!({"blast_radius": {}}), kill()).unwrap();
    let fault = |experiment: &Experiment| experiment.faults().next().unwrap().2.clone();
    let held = fault(&at(&experiment, stage(25)).unwrap());
    assert_eq!((held.target.share, held.target.seed), (Some(Share::new(0.25).unwrap()), Some(7)));
    assert_eq!(fault(&experiment).target.share, None, "the document stays as it was");
}

#[test]
fn a_stage_is_the_share_of_the_packets_or_calls_of_a_fault_that_knows_no_processes() {
    for (arguments, field) in [
        (json!({"inject": "latency", "--interface": "eth0"}), "packet_probability"),
        (json!({"inject": "connect_error", "--unit": "a.service"}), "call_probability"),
    ] {
        let experiment = parse(json!({"blast_radius": {}}), arguments).unwrap();
        let held = at(&experiment, stage(50)).unwrap();
        assert_eq!(held.faults().next().unwrap().2.params[field], json!(0.5));
    }
}

#[test]
fn what_cannot_be_done_in_stages_is_refused_by_the_name_of_its_action() {
    for (arguments, why) in [
        (json!({"inject": "link_down", "--interface": "eth0"}), "link_down affects all that it matches"),
        (
            json!({"inject": "packet_loss", "--interface": "eth0", "--loss-percent": 5}),
            "packet_loss affects all",
        ),
        (json!({"inject": "process_kill", "--unit": "a.service", "--share": "50%"}), "target.share"),
        (
            json!({"inject": "timeout", "--interface": "eth0", "--packet-probability": 0.5}),
            "packet_probability",
        ),
    ] {
        let error = parse(json!({"blast_radius": {}}), arguments.clone()).unwrap_err();
        assert_eq!(error.field, "method[0].provider.arguments", "{arguments}");
        assert!(error.problem.contains("\"strike\"") && error.problem.contains(why), "{error}");
        assert!(parse(json!({}), arguments).is_ok(), "without stages it is right");
    }
}

#[test]
fn after_each_run_the_next_stage_is_named() {
    let experiment = parse(json!({"blast_radius": {"stages": [10, 20]}}), kill()).unwrap();
    let next = |history: &[(u8, Verdict)]| {
        let history: Vec<_> = history.iter().map(|(percent, verdict)| (stage(*percent), *verdict)).collect();
        next(&experiment, &history, history.last().unwrap().1).unwrap()
    };
    assert_eq!(
        next(&[(10, Held)]),
        "stage 20 % is due: chaos_run_experiment of \"workers die\" with stage 20"
    );
    assert_eq!(
        next(&[(10, Deviated)]),
        "stage 10 % is due again: chaos_run_experiment of \"workers die\" with stage 10"
    );
    assert_eq!(
        next(&[(10, Held), (10, Held), (10, Held)]),
        next(&[(10, Held)]),
        "three times the same is no more"
    );
    let done = next(&[(10, Held), (20, Held)]);
    let wider = "held at every stage; widen: a stage above 20 %; process_kill for longer than 60s; a fault of another kind \
                 than process_kill, or two at once; another target";
    assert_eq!(done, wider);
}

#[test]
fn what_was_held_without_stages_is_held_once_and_what_is_wider_is_named() {
    let arguments =
        json!({"inject": "latency", "--interface": "eth0", "--packet-probability": 0.2, "--for": "1h"});
    let experiment = parse(json!({}), arguments).unwrap();
    let wider = "held, which shows this much and no more; widen: more than 20 % of the packets that latency matches; what is worse than \
                 degraded by latency, such as harder parameters, or a network_partition; another target";
    assert_eq!(next(&experiment, &[], Held).unwrap(), wider);
    for verdict in [Deviated, Tripped, Refused, Failed, Aborted, Interrupted, Unverified] {
        assert_eq!(next(&experiment, &[], verdict), None);
    }
}
