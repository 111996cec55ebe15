//! What gates saw at worst, and what would have been a breach.

use std::time::Duration;

use serde::Serialize;

use super::words::{amount, beside, exact, number};
use crate::experiment::Experiment;
use crate::experiment::gate::{Gate, Op, Rule};
use crate::experiment::role::{Role, Stage};
use crate::server::history::Recorded;
use crate::spec::units::show;

/// When a gate is breached, of one that compares numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limit {
    /// The comparison that is true of a bad sample.
    pub(super) op: Op,
    /// What is compared with.
    pub(super) value: f64,
    /// The unit of both, if there is one.
    pub(super) unit: &'static str,
    lookback: Duration,
    lasting: Duration,
}

impl Limit {
    /// The limit of a gate; `None` of one that compares no number.
    pub(super) fn of(gate: &Gate) -> Option<Self> {
        let Rule::Compare { op, value, lookback } = gate.rule else { return None };
        Some(Self { op, value, unit: gate.probe.unit(), lookback, lasting: gate.alert_after })
    }

    /// The limit of the gate of this name.
    pub(super) fn named(experiment: Option<&Experiment>, name: &str) -> Option<Self> {
        let gate = experiment?.guardrails.gates.iter().find(|gate| gate.name == name)?;
        Self::of(gate)
    }

    /// The comparison alone, such as "> 500 ms".
    pub(super) fn bound(&self) -> String {
        format!("{} {}", self.op, exact(self.value, self.unit))
    }

    /// What is a breach, such as "> 500 ms for 10s".
    pub(super) fn breach(&self) -> String {
        let mut said = self.bound();
        if !self.lookback.is_zero() {
            said.push_str(&format!(" on average over {}", show(self.lookback)));
        }
        if !self.lasting.is_zero() {
            said.push_str(&format!(" for {}", show(self.lasting)));
        }
        said
    }

    /// Of values the one that is worst by it.
    pub(super) fn worst(op: Op, values: impl Iterator<Item = f64>) -> Option<f64> {
        match op {
            Op::Gt | Op::Gte => values.reduce(f64::max),
            Op::Lt | Op::Lte => values.reduce(f64::min),
        }
    }
}

/// The worst that a gate has seen from the method on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worst {
    /// What was measured at worst, where it is known which way is worse.
    pub value: Option<f64>,
    /// Its unit; empty where it has none, or that is not known.
    pub unit: &'static str,
    /// How many samples were bad.
    pub bad: usize,
    /// How many had no data.
    pub without_data: usize,
    /// How many there are.
    pub samples: usize,
}

impl Worst {
    /// What a gate has seen in a run from its method on; none if it was not sampled there.
    pub(super) fn of(recorded: &Recorded, gate: &str, limit: Option<&Limit>) -> Option<Self> {
        let of_it = || {
            let samples = recorded.samples.iter();
            samples.filter(|sample| {
                sample.role == Role::Gate && sample.stage != Stage::Before && sample.probe == gate
            })
        };
        let samples = of_it().count();
        Some(Self {
            value: limit.and_then(|limit| Limit::worst(limit.op, of_it().filter_map(|sample| sample.value))),
            unit: limit.map_or("", |limit| limit.unit),
            bad: of_it().filter(|sample| !sample.met).count(),
            without_data: of_it().filter(|sample| sample.no_data).count(),
            samples,
        })
        .filter(|_| samples > 0)
    }

    /// In a few words.
    pub(super) fn short(&self) -> String {
        let Self { value, unit, bad, samples, .. } = self;
        let bad = format!("{bad} of {samples} bad");
        match value {
            Some(value) => format!("{} ({bad})", amount(*value, unit)),
            None => bad,
        }
    }
}

/// The gates of a run in the order of the document, and then those that only its samples name.
pub(super) fn gates<'a>(recorded: &'a Recorded, experiment: Option<&'a Experiment>) -> Vec<&'a str> {
    let of_document = experiment.iter().flat_map(|experiment| &experiment.guardrails.gates);
    let mut names: Vec<&str> = of_document.map(|gate| gate.name.as_str()).collect();
    for sample in recorded.samples.iter().filter(|sample| sample.role == Role::Gate) {
        if !names.contains(&sample.probe.as_str()) {
            names.push(&sample.probe);
        }
    }
    names
}

/// What a gate came to in a run, in words.
pub(super) fn told(recorded: &Recorded, experiment: Option<&Experiment>, gate: &str) -> String {
    let limit = Limit::named(experiment, gate);
    let Some(worst) = Worst::of(recorded, gate, limit.as_ref()) else {
        let breach = limit.map(|limit| format!("; a breach is {}", limit.breach())).unwrap_or_default();
        return format!("not sampled while the method went on{breach}");
    };
    let Worst { value, unit, bad, without_data, samples } = worst;
    let mut said = match (value, &limit) {
        (Some(value), Some(limit)) => {
            format!("worst {}; a breach is {}", beside(value, limit.value, unit), limit.breach())
        }
        (None, Some(limit)) => format!("no value was measured; a breach is {}", limit.breach()),
        (_, None) => String::new(),
    };
    if !said.is_empty() {
        said.push_str("; ");
    }
    said.push_str(&format!("{bad} of {} bad", super::words::count(samples as u64, "sample")));
    if without_data > 0 {
        said.push_str(&format!(", {} without data", number(without_data as f64)));
    }
    said
}
