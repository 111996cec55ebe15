//! Tests of what a run has shown.

use std::time::Duration;

use chaos_search::NoData;

use super::*;
use crate::experiment::tolerance::Form;
use crate::probe::{Probe, arguments};

fn gate(op: Op, alert_after: u64, lookback: u64) -> Gate {
    let words = ["tcp", "127.0.0.1:1"].map(ToOwned::to_owned);
    let probe: Probe = arguments::read(&words).unwrap();
    Gate {
        name: "p95".into(),
        probe,
        form: Form::Process,
        rule: Rule::Compare { op, value: 100.0, lookback: Duration::from_secs(lookback) },
        alert_after: Duration::from_secs(alert_after),
        interval: Duration::from_secs(1),
        no_data_is_breach: true,
    }
}

/// One sample each second, the first before the method.
fn samples(values: &[f64]) -> Vec<Reading> {
    let reading = |(second, value): (usize, &f64)| Reading {
        at_seconds: second as f64,
        time: String::new(),
        probe: "p95".into(),
        role: Role::Gate,
        stage: if second == 0 { Stage::Before } else { Stage::During },
        met: true,
        value: value.is_finite().then_some(*value),
        took_seconds: 0.0,
        late_seconds: None,
        no_data: false,
        detail: String::new(),
    };
    values.iter().enumerate().map(reading).collect()
}

fn value(gate: Gate, values: &[f64]) -> f64 {
    let outcome = outcome(&[gate], Some(Verdict::Held), &samples(values), 1.0);
    outcome.seen.unwrap()[0].value
}

#[test]
fn the_worst_value_while_the_method_went_on_is_what_a_run_has_shown() {
    assert_eq!(value(gate(Op::Gt, 0, 0), &[900.0, 50.0, 80.0, 60.0]), 80.0);
    assert_eq!(value(gate(Op::Lt, 0, 0), &[1.0, 50.0, 80.0, 60.0]), 50.0);
}

#[test]
fn a_value_counts_only_as_far_as_it_lasts_as_long_as_the_gate_waits() {
    let spike = [0.0, 50.0, 900.0, 60.0, 70.0, 65.0];
    assert_eq!(value(gate(Op::Gt, 1, 0), &spike), 65.0);
    assert_eq!(value(gate(Op::Gt, 60, 0), &spike), 50.0, "less than it waits for is told by its mildest");
    assert_eq!(value(gate(Op::Gt, 0, 1), &spike), 480.0, "the mean of two");
}

#[test]
fn runs_that_show_nothing_have_no_value() {
    let told = |verdict, values: &[f64]| outcome(&[gate(Op::Gt, 0, 0)], verdict, &samples(values), 1.0).seen;
    for (verdict, why) in [
        (Some(Verdict::Refused), NoData::Unverified),
        (Some(Verdict::Unverified), NoData::Unverified),
        (Some(Verdict::Failed), NoData::Interrupted),
        (Some(Verdict::Aborted), NoData::Interrupted),
        (Some(Verdict::Interrupted), NoData::Interrupted),
        (None, NoData::Interrupted),
    ] {
        assert_eq!(told(verdict, &[0.0, 900.0]), Err(why), "{verdict:?}");
    }
    assert_eq!(told(Some(Verdict::Held), &[0.0, f64::NAN]), Err(NoData::Unverified));
    assert_eq!(told(Some(Verdict::Tripped), &[0.0, 50.0]), Err(NoData::Interrupted), "by another gate");
    assert!(told(Some(Verdict::Tripped), &[0.0, 150.0]).is_ok());
}

#[test]
fn a_gate_that_is_breached_at_its_threshold_is_missed_there() {
    let margin =
        |op| outcome(&[gate(op, 0, 0)], Some(Verdict::Held), &samples(&[0.0, 100.0]), 1.0).margin().unwrap();
    assert!(margin(Op::Gte) > 0.0 && margin(Op::Lte) > 0.0);
    assert!(margin(Op::Gt) <= 0.0 && margin(Op::Lt) <= 0.0);
}
