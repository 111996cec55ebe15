//! Tests of when a gate is breached.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::probe::prometheus::{Query, Terms};
use crate::probe::{Bounds, Check, NoData};

fn gate(rule: Rule, alert_after: u64) -> Gate {
    Gate {
        name: "g".into(),
        probe: Probe {
            check: Check::tcp("", "127.0.0.1:1").unwrap(),
            timeout: Duration::from_secs(1),
            bounds: Bounds::default(),
        },
        form: Form::Process,
        rule,
        alert_after: Duration::from_secs(alert_after),
        interval: Duration::from_secs(1),
        no_data_is_breach: true,
    }
}

fn over(value: f64, lookback: u64) -> Rule {
    Rule::Compare { op: Op::Gt, value, lookback: Duration::from_secs(lookback) }
}

fn measured(value: Option<f64>) -> Sample {
    Sample { value, ..Sample::failed("detail".into()) }
}

/// The second in which the gate is breached, of samples taken each second.
fn breached(gate: &Gate, samples: &[Option<f64>]) -> Option<usize> {
    let mut watch = Watch::new(gate);
    let mut samples = samples.iter().enumerate();
    samples.find_map(|(second, value)| {
        watch.observe(Duration::from_secs(second as u64), &measured(*value)).map(|_| second)
    })
}

#[test]
fn a_gate_is_breached_when_samples_have_been_bad_for_as_long_as_it_says() {
    let bad = Some(2.0);
    let good = Some(1.0);
    for (alert_after, lookback, samples, second) in [
        (0, 0, vec![good, bad], Some(1)),
        (2, 0, vec![good, bad, bad, bad], Some(3)),
        // A good one in between begins it anew.
        (2, 0, vec![bad, bad, good, bad, bad, bad], Some(5)),
        (2, 0, vec![bad, bad, good, bad, bad], None),
        (1, 0, vec![None, None], Some(1)),
        (1, 0, vec![bad, None, good], Some(1)),
        // Over three seconds, 1 1 2 is 1.33 and 1 2 2 is 1.67.
        (0, 2, vec![good, good, bad, bad, bad], Some(3)),
        (0, 0, vec![Some(f64::NAN)], Some(0)),
    ] {
        let gate = gate(over(if lookback == 0 { 1.5 } else { 1.6 }, lookback), alert_after);
        assert_eq!(breached(&gate, &samples), second, "{gate:?} {samples:?}");
    }
}

#[test]
fn no_data_is_good_only_if_the_document_says_so() {
    let lenient = Gate { no_data_is_breach: false, ..gate(over(1.0, 0), 0) };
    assert_eq!(breached(&lenient, &[None, None, Some(2.0)]), Some(2));
    assert_eq!(breached(&gate(over(1.0, 0), 0), &[None]), Some(0));
}

#[test]
fn a_sample_without_data_is_known_for_it_and_a_gate_that_had_no_other_has_watched_nothing() {
    for no_data_is_breach in [true, false] {
        let gate = Gate { no_data_is_breach, ..gate(over(1.0, 0), 60) };
        let mut watch = Watch::new(&gate);
        assert_eq!((watch.is_blind(), watch.finding()), (false, None), "nothing is known yet");
        for (value, blind, found) in
            [(None, true, true), (None, true, true), (Some(0.5), false, false), (None, true, false)]
        {
            watch.observe(Duration::ZERO, &measured(value));
            assert_eq!((watch.is_blind(), watch.finding().is_some()), (blind, found), "{value:?}");
        }
    }
    // What is data to nobody is none here, whatever it counts as.
    let gate = gate(over(1.0, 0), 60);
    let mut watch = Watch::new(&gate);
    watch.observe(Duration::ZERO, &Sample { no_data: Some(NoData::Ok), ..measured(None) });
    assert!(watch.is_blind() && !watch.is_bad());
}

#[test]
fn no_data_that_is_ignored_neither_ends_a_breach_nor_is_one() {
    let (bad, good) = (Some(2.0), Some(1.0));
    let lenient = Gate { no_data_is_breach: false, ..gate(over(1.5, 0), 2) };
    for (samples, second) in [
        (vec![bad, None, bad], Some(2)),
        (vec![bad, None, None, None, bad], Some(4)),
        (vec![bad, None, good, bad, None], None),
        (vec![bad, None, None, None], None),
        (vec![None, None, bad, bad], None),
    ] {
        assert_eq!(breached(&lenient, &samples), second, "{samples:?}");
    }
    let mut watch = Watch::new(&lenient);
    for (second, (value, is_bad)) in
        [(bad, true), (None, true), (good, false), (None, false)].iter().enumerate()
    {
        assert_eq!(watch.observe(Duration::from_secs(second as u64), &measured(*value)), None);
        assert_eq!(watch.is_bad(), *is_bad, "{second}");
    }
}

#[test]
fn infinity_is_more_or_less_than_every_value_and_both_together_are_no_data() {
    let (most, least) = (Some(f64::INFINITY), Some(f64::NEG_INFINITY));
    let lenient = |lookback| Gate { no_data_is_breach: false, ..gate(over(1.5, lookback), 0) };
    assert_eq!(breached(&lenient(0), &[least, most]), Some(1));
    assert_eq!(breached(&gate(over(1.5, 0), 0), &[least]), None);
    assert_eq!(breached(&lenient(9), &[Some(1.0), most]), Some(1));
    assert_eq!(breached(&lenient(9), &[least, most]), None);
    assert_eq!(breached(&gate(over(1.5, 9), 0), &[least, most]), Some(1));
}

#[test]
fn every_comparison_is_true_in_a_breach() {
    for (op, value, bad) in [
        (Op::Gt, 1.0, false),
        (Op::Gte, 1.0, true),
        (Op::Lt, 1.0, false),
        (Op::Lte, 1.0, true),
        (Op::Gt, 0.9, true),
        (Op::Lt, 1.1, true),
    ] {
        let gate = gate(Rule::Compare { op, value, lookback: Duration::ZERO }, 0);
        assert_eq!(gate.judge(&measured(Some(1.0))).is_err(), bad, "1 {op} {value}");
        assert_eq!(Op::parse(op.name()), Some(op));
    }
}

#[test]
fn a_tolerance_can_be_a_gate() {
    let tolerance = Tolerance::parse("", json!([0]), Form::Process).unwrap();
    let gate = gate(Rule::Tolerance(tolerance), 1);
    let sample = |ok| Sample { ok, value: Some(7.0), ..Sample::failed("port".into()) };
    let mut watch = Watch::new(&gate);
    let mut second = 0;
    let mut observe = |ok| {
        second += 1;
        watch.observe(Duration::from_secs(second), &sample(ok))
    };
    assert_eq!(observe(true), None);
    assert_eq!(observe(false), None);
    assert_eq!(observe(false).unwrap(), "gate g was breached for 1.0s: port (1, where [0] is right)");
}

#[test]
fn with_a_tolerance_too_what_nothing_came_of_is_no_data_unless_that_is_what_is_right() {
    // The form, what came back, whether anything was measured, what is right, and what it is: good, bad, or no data.
    let answer = || Some(json!({"status": 500}));
    for (form, answer, value, right, seen) in [
        (Form::Process, None, None, 0, None),
        (Form::Process, None, Some(612.0), 0, Some(false)),
        (Form::Process, answer(), None, 0, Some(false)),
        // To get no answer may be what is right: a port that has to be closed.
        (Form::Process, None, None, 1, Some(true)),
        (Form::Http, None, None, 200, None),
        (Form::Http, answer(), Some(12.0), 200, Some(false)),
        (Form::Http, answer(), Some(12.0), 500, Some(true)),
        (Form::Command, None, None, 0, None),
    ] {
        let tolerance = Tolerance::parse("", json!(right), form).unwrap();
        let sample = Sample { answer: answer.clone(), value, ..Sample::failed("seen".into()) };
        for ignored in [false, true] {
            let gate =
                Gate { form, no_data_is_breach: !ignored, ..gate(Rule::Tolerance(tolerance.clone()), 0) };
            let judged = gate.judge(&sample);
            assert_eq!(judged.is_ok(), seen.unwrap_or(ignored), "{form:?} {answer:?} {value:?}");
            let said = judged.is_err_and(|why| why.starts_with("gate g: no data: "));
            assert_eq!(said, seen.is_none() && !ignored, "{form:?} {answer:?} {value:?}");
        }
    }
}

#[test]
fn a_gate_needs_data_unless_its_no_data_its_tolerance_or_its_probe_takes_none_for_right() {
    let right = |status: i32| Rule::Tolerance(Tolerance::parse("", json!(status), Form::Process).unwrap());
    for (rule, ignored, needed) in [
        (over(1.0, 0), false, true),
        (over(1.0, 0), true, false),
        (right(0), false, true),
        (right(0), true, false),
        // A port that has to be closed.
        (right(1), false, false),
    ] {
        let gate = Gate { no_data_is_breach: !ignored, ..gate(rule, 30) };
        assert_eq!(gate.needs_data(), needed, "{gate:?}");
    }
    for (says, ignored, needed) in [
        ("breach", false, true),
        ("breach", true, false),
        ("ok", false, false),
        ("error", false, true),
        ("error", true, false),
    ] {
        let terms = Terms { no_data: Some(says), ..Terms::default() };
        let query = Query::parse("http://127.0.0.1:9090", "up", terms).unwrap();
        let mut gate = Gate { no_data_is_breach: !ignored, ..gate(over(1.0, 0), 0) };
        gate.probe.check = Check::Prometheus(query);
        assert_eq!(gate.needs_data(), needed, "{says}, ignored: {ignored}");
    }
}

#[test]
fn a_breach_names_the_other_gates_that_are_bad_by_then_and_none_that_got_well() {
    let named = |name: &str, alert_after| Gate { name: name.into(), ..gate(over(1.5, 0), alert_after) };
    let gates = [named("first, of two", 60), named("second", 2), named("well", 60), named("just now", 60)];
    let mut watches: Vec<_> = gates.iter().map(Watch::new).collect();
    let mut breach = None;
    for (second, values) in
        [[2.0, 1.0, 2.0, 1.0], [2.0, 2.0, 1.0, 1.0], [2.0, 2.0, 1.0, 1.0], [2.0, 2.0, 1.0, 2.0]]
            .into_iter()
            .enumerate()
    {
        for index in [0, 2, 3, 1] {
            let time = Duration::from_secs(second as u64);
            breach = watches[index].observe(time, &measured(Some(values[index])));
        }
    }
    assert!(breach.is_some_and(|breach| breach.starts_with("gate second was breached for 2.0s")));
    let now = Duration::from_secs(3);
    let expected = "bad as well: \"first, of two\" for 3.0s, \"just now\"";
    assert_eq!(bad_as_well(&watches, 1, now).as_deref(), Some(expected));
    assert_eq!(bad_as_well(&watches[1..2], 0, now), None);
}

proptest! {
    /// Against a definition that looks at all samples at once.
    #[test]
    fn a_breach_is_where_the_definition_says(
        samples in prop::collection::vec(prop_oneof![Just(None), Just(Some(0.0)), Just(Some(2.0))], 0..40),
        alert_after in 0..6usize,
    ) {
        let bad = |sample: &Option<f64>| *sample != Some(0.0);
        let expected = (0..samples.len()).find(|end| {
            *end >= alert_after && samples[end - alert_after..=*end].iter().all(bad)
        });
        prop_assert_eq!(breached(&gate(over(1.0, 0), alert_after as u64), &samples), expected);
    }
}

#[test]
fn what_a_probe_says_of_no_data_holds_for_the_gate() {
    let no_data = |no_data| Sample { no_data: Some(no_data), ok: no_data == NoData::Ok, ..measured(None) };
    for (ignored, seen, breached) in [
        (false, NoData::Ok, false),
        (false, NoData::Breach, true),
        (true, NoData::Breach, false),
        (true, NoData::Error, true),
    ] {
        let gate = Gate { no_data_is_breach: !ignored, ..gate(over(1.0, 0), 0) };
        assert_eq!(gate.judge(&no_data(seen)).is_err(), breached, "{seen:?}");
    }
}
