//! What a run has shown of the objective of a search.

use std::time::Duration;

use chaos_search::{Direction, NoData, Observation, Outcome};

use crate::experiment::gate::{Gate, Op, Rule};
use crate::experiment::role::{Role, Stage};
use crate::experiment::timeline::Reading;
use crate::experiment::verdict::Verdict;

/// What a run has shown that ended with `verdict`, by the samples of its gates; it took `seconds`.
pub fn outcome(objective: &[Gate], verdict: Option<Verdict>, samples: &[Reading], seconds: f64) -> Outcome {
    let seen = || {
        let seen: Option<Vec<_>> = objective.iter().map(|gate| worst(gate, samples)).collect();
        seen.filter(|seen| !seen.is_empty()).ok_or(NoData::Unverified)
    };
    let told = |seen| Outcome { seen, seconds };
    match verdict {
        Some(Verdict::Held | Verdict::Deviated) => told(seen()),
        // Another gate has ended it: what this objective would have come to is known only if it was missed already.
        Some(Verdict::Tripped) => {
            let outcome = told(seen());
            match outcome.margin() {
                Ok(margin) if margin <= 0.0 => told(Err(NoData::Interrupted)),
                _ => outcome,
            }
        }
        Some(Verdict::Refused | Verdict::Unverified) => told(Err(NoData::Unverified)),
        _ => told(Err(NoData::Interrupted)),
    }
}

/// The worst that a gate has seen while the method went on, for as long as it has to see it before it is breached.
fn worst(gate: &Gate, samples: &[Reading]) -> Option<Observation> {
    let Rule::Compare { op, value: threshold, lookback } = gate.rule else { return None };
    let direction = match op {
        Op::Gt | Op::Gte => Direction::AtMost,
        Op::Lt | Op::Lte => Direction::AtLeast,
    };
    let of_it = |sample: &&Reading| {
        sample.role == Role::Gate && sample.stage != Stage::Before && sample.probe == gate.name
    };
    let measured: Vec<(f64, f64)> =
        samples.iter().filter(of_it).filter_map(|sample| Some((sample.at_seconds, sample.value?))).collect();
    let means = averaged(&measured, lookback);
    // A sample is judged a little after it was asked for.
    let lasting = gate.alert_after.saturating_sub(gate.interval / 2).as_secs_f64();
    let sustained = (0..means.len()).filter_map(|first| lasted(&means[first..], lasting, direction));
    let value = match direction {
        Direction::AtMost => sustained.reduce(f64::max),
        Direction::AtLeast => sustained.reduce(f64::min),
    };
    // Less than all that lasts is nothing that could have been a breach: then the mildest of it is told.
    let value = value.or_else(|| mildest(&means, direction))?;
    let threshold = threshold - barely(op, threshold);
    Some(Observation { gate: gate.name.clone(), value, threshold, direction, whole: None })
}

/// A comparison that is true of the threshold itself is missed there: so the objective is a little beyond it.
fn barely(op: Op, threshold: f64) -> f64 {
    let little = if threshold == 0.0 { 1e-6 } else { threshold.abs() * 1e-6 };
    match op {
        Op::Gt | Op::Lt => 0.0,
        Op::Gte => little,
        Op::Lte => -little,
    }
}

/// The mean over `lookback` up to each sample.
fn averaged(measured: &[(f64, f64)], lookback: Duration) -> Vec<(f64, f64)> {
    let lookback = lookback.as_secs_f64();
    let mean = |(last, (now, _)): (usize, &(f64, f64))| {
        let window = measured[..=last].iter().rev().take_while(|(then, _)| now - then <= lookback);
        let (count, sum) = window.fold((0u32, 0.0), |(count, sum), (_, value)| (count + 1, sum + value));
        (*now, sum / f64::from(count.max(1)))
    };
    measured.iter().enumerate().map(mean).collect()
}

/// The mildest value from the first of these on until it has lasted so long, if there are samples for so long.
fn lasted(means: &[(f64, f64)], lasting: f64, direction: Direction) -> Option<f64> {
    let from = means.first()?.0;
    let last = means.iter().position(|(now, _)| now - from >= lasting)?;
    mildest(&means[..=last], direction)
}

fn mildest(means: &[(f64, f64)], direction: Direction) -> Option<f64> {
    let values = means.iter().map(|(_, value)| *value);
    match direction {
        Direction::AtMost => values.reduce(f64::min),
        Direction::AtLeast => values.reduce(f64::max),
    }
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
