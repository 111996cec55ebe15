//! What the probes and gates of a document measure in, and what is right of it, in few words.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::cli::duration;
use crate::experiment::Experiment;
use crate::experiment::gate::{Gate, Rule};
use crate::experiment::tolerance::{Form, Tolerance};
use crate::experiment::variables::Nowhere;
use crate::probe::{Bounds, Probe};

/// What is known of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct Limit {
    /// What it is measured in; empty for a mere number.
    pub(in crate::cli) unit: &'static str,
    /// At what it trips, or what is right; empty where that is only that it answers.
    pub(in crate::cli) words: String,
}

/// Of all of a document, by whether it is a gate, and its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct Limits(BTreeMap<(bool, String), Limit>);

impl Limits {
    /// Of a document; of one that is not understood here, as without its secrets, nothing.
    pub(in crate::cli) fn of(document: &Map<String, Value>) -> Self {
        let Ok(experiment) = Experiment::parse(document, &Nowhere) else { return Self::default() };
        let mut known = Self::default();
        for (name, probe) in experiment.probes() {
            known.0.insert((false, name.to_owned()), limit(probe, bounds(probe)));
        }
        for condition in &experiment.conditions {
            let words = right(&condition.probe, condition.form, &condition.tolerance);
            known.0.insert((false, condition.name.clone()), limit(&condition.probe, words));
        }
        for gate in &experiment.guardrails.gates {
            known.0.insert((true, gate.name.clone()), limit(&gate.probe, trips(gate)));
        }
        known
    }

    /// What is known of the gate, or probe, of this name.
    pub(in crate::cli) fn get(&self, is_gate: bool, name: &str) -> Option<&Limit> {
        self.0.get(&(is_gate, name.to_owned()))
    }
}

fn limit(probe: &Probe, words: String) -> Limit {
    Limit { unit: probe.unit(), words }
}

/// When a gate trips.
fn trips(gate: &Gate) -> String {
    let lasting = match gate.alert_after {
        Duration::ZERO => String::new(),
        lasting => format!(" for {}", duration::show(lasting)),
    };
    match &gate.rule {
        Rule::Compare { op, value, lookback } => {
            let mean = match *lookback {
                Duration::ZERO => String::new(),
                lookback => format!(", mean of {}", duration::show(lookback)),
            };
            format!("trips at {op} {}{lasting}{mean}", with_unit(*value, &gate.probe))
        }
        Rule::Tolerance(tolerance) => match right(&gate.probe, gate.form, tolerance) {
            right if right.is_empty() => format!("trips unless ok{lasting}"),
            right => format!("trips unless {right}{lasting}"),
        },
    }
}

/// What is right; empty where that is only that it answers.
fn right(probe: &Probe, form: Form, tolerance: &Tolerance) -> String {
    let bounds = bounds(probe);
    let of = |target: &Option<String>| target.as_ref().map(|target| format!("{target} ")).unwrap_or_default();
    match tolerance {
        _ if !bounds.is_empty() => bounds,
        Tolerance::Equal(_) if form == Form::Process => String::new(),
        Tolerance::Equal(value) => format!("status {value}"),
        Tolerance::List(values) => {
            let values: Vec<_> = values.iter().map(Value::to_string).collect();
            format!("status {}", values.join(" or "))
        }
        Tolerance::Range { target, bounds: (low, high) } => format!("{}{low} to {high}", of(target)),
        Tolerance::Regex { target, pattern } => format!("{}has {}", of(target), pattern.as_str()),
        Tolerance::JsonPath { target, .. } => format!("{}found by its path", of(target)),
        Tolerance::Asked(_) => "what its tolerance in Python takes".to_owned(),
    }
}

/// Between what the measured value has to be.
fn bounds(probe: &Probe) -> String {
    let shown = |value| with_unit(value, probe);
    match probe.bounds {
        Bounds { min: None, max: None } => String::new(),
        Bounds { min: None, max: Some(max) } => format!("at most {}", shown(max)),
        Bounds { min: Some(min), max: None } => format!("at least {}", shown(min)),
        Bounds { min: Some(min), max: Some(max) } => format!("{min} to {}", shown(max)),
    }
}

fn with_unit(value: f64, probe: &Probe) -> String {
    format!("{value} {}", probe.unit()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_gate_says_at_what_it_trips_and_each_probe_what_is_right_with_its_unit() {
        let chaosctl = |words: &[&str]| json!({"type": "process", "path": "chaosctl", "arguments": words});
        let http = json!({"type": "http", "url": "http://127.0.0.1:1/"});
        let document = json!({
            "title": "slow",
            "steady-state-hypothesis": {"title": "up", "probes": [
                {"type": "probe", "name": "port", "tolerance": 0, "provider": chaosctl(&["probe", "tcp", "127.0.0.1:1"])},
                {"type": "probe", "name": "soon", "tolerance": 0,
                    "provider": chaosctl(&["probe", "tcp", "127.0.0.1:1", "--max", "250"])},
                {"type": "probe", "name": "page", "tolerance": [200, 204], "provider": http},
            ]},
            "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
                "arguments": {"inject": "timeout", "--interface": "eth0", "--for": "1s"}}}],
            "extensions": [{"name": "chaos-daemon", "rollback_on": [
                {"name": "late", "op": "gt", "value": 500, "alertAfter": "5s", "lookbackWindow": "10s",
                    "provider": chaosctl(&["probe", "http", "http://127.0.0.1:1/"])},
                {"name": "full", "op": "gte", "value": 90,
                    "provider": chaosctl(&["probe", "host", "memory_used_percent"])},
                {"name": "port", "tolerance": 0, "provider": chaosctl(&["probe", "tcp", "127.0.0.1:1"])},
            ]}],
        });
        let Value::Object(document) = document else { unreachable!() };
        let parsed = Experiment::parse(&document, &Nowhere).map(drop);
        assert_eq!(parsed, Ok(()));
        let limits = Limits::of(&document);
        let told = |is_gate, name| {
            let limit = limits.get(is_gate, name).unwrap();
            (limit.unit, limit.words.as_str())
        };
        assert_eq!(told(false, "port"), ("ms", ""));
        assert_eq!(told(false, "soon"), ("ms", "at most 250 ms"));
        assert_eq!(told(false, "page"), ("ms", "status 200 or 204"));
        assert_eq!(told(true, "late"), ("ms", "trips at > 500 ms for 5s, mean of 10s"));
        assert_eq!(told(true, "full"), ("%", "trips at >= 90 %"));
        assert_eq!(told(true, "port"), ("ms", "trips unless ok"));
        assert_eq!(limits.get(true, "soon"), None);
        assert_eq!(Limits::of(&Map::new()), Limits::default());
    }
}
