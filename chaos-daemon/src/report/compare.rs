//! Two runs side by side, such as before and after a fix: verdicts, recovery, the worst of each gate, and what the faults have met. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use super::verdict;
use crate::experiment::gate::{Gate, Op, Rule};
use crate::experiment::role::{Role, Stage};
use crate::experiment::variables::Nowhere;
use crate::experiment::{Experiment, Verdict};
use crate::server::history::Recorded;

/// What two runs say together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What has changed from the first to the second: fixed, broken, still_held, still_broken, or not_known.
    pub change: Change,
    /// Whether both were of one document, but for its secrets.
    pub same_document: bool,
    /// The first.
    pub before: Side,
    /// The second.
    pub after: Side,
    /// The gates of either.
    pub gates: Vec<OfGate>,
    /// The actions of either that made an outage.
    pub recovery: Vec<OfAction>,
    /// The faults of either.
    pub evidence: Vec<OfFault>,
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It broke, and holds.
    Fixed,
    /// It held, and breaks.
    Broken,
    /// It holds as before.
    StillHeld,
    /// It breaks as before.
    StillBroken,
    /// One of them has shown nothing.
    NotKnown,
}

impl Change {
    fn of(before: Option<Verdict>, after: Option<Verdict>) -> Self {
        let held = |verdict| match verdict {
            Some(Verdict::Held) => Some(true),
            Some(Verdict::Deviated | Verdict::Tripped) => Some(false),
            _ => None,
        };
        match (held(before), held(after)) {
            (Some(false), Some(true)) => Self::Fixed,
            (Some(true), Some(false)) => Self::Broken,
            (Some(true), Some(true)) => Self::StillHeld,
            (Some(false), Some(false)) => Self::StillBroken,
            _ => Self::NotKnown,
        }
    }

    /// What it comes to, in words.
    fn words(self) -> &'static str {
        match self {
            Self::Fixed => "it broke, and holds now",
            Self::Broken => "it held, and breaks now",
            Self::StillHeld => "it holds as before",
            Self::StillBroken => "it breaks as before",
            Self::NotKnown => "one of the runs has shown nothing, so nothing can be said",
        }
    }
}

/// One of the two.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// Handle.
    pub run_id: String,
    /// Experiment.
    pub experiment_name: String,
    /// When it began, ISO 8601 in UTC.
    pub started_at: String,
    /// The last word on it.
    pub verdict: String,
    /// What went wrong.
    pub error: Option<String>,
    /// How long it took, in seconds.
    pub duration_seconds: f64,
    /// Until a breach had ended every fault, in seconds.
    pub gate_reaction_seconds: Option<f64>,
    /// Mean time until it was seen to fail, in seconds.
    pub mttd_seconds: Option<f64>,
    /// Mean time until it was seen to be well again, in seconds.
    pub mttr_seconds: Option<f64>,
    /// Whether it recovered within its objective.
    pub within_rto: Option<bool>,
}

/// A gate in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfGate {
    /// Its name.
    pub gate: String,
    /// What is a breach, such as "> 500"; none of one that compares no number, or whose document is not understood here.
    pub breach: Option<String>,
    /// The first run.
    pub before: Option<Worst>,
    /// The second.
    pub after: Option<Worst>,
}

/// The worst that a gate has seen while the method went on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worst {
    /// What was measured at worst, where it is known which way is worse.
    pub value: Option<f64>,
    /// How many samples were bad.
    pub bad: usize,
    /// How many there are.
    pub samples: usize,
}

/// An action in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfAction {
    /// Its name.
    pub action: String,
    /// Seconds until it was well again in the first run; none if that was not seen.
    pub before_seconds: Option<f64>,
    /// The same of the second.
    pub after_seconds: Option<f64>,
}

/// A fault in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfFault {
    /// Its name.
    pub fault: String,
    /// What it has met in the first run; none where it was not injected.
    pub before: Option<Vec<String>>,
    /// The same of the second.
    pub after: Option<Vec<String>>,
}

impl Comparison {
    /// Of two runs.
    pub fn of(before: &Recorded, after: &Recorded) -> Self {
        Self {
            change: Change::of(before.run.verdict, after.run.verdict),
            same_document: before.digest.is_some() && before.digest == after.digest,
            before: Side::of(before),
            after: Side::of(after),
            gates: gates(before, after),
            recovery: recovery(before, after),
            evidence: evidence(before, after),
        }
    }

    /// For people.
    pub fn page(&self) -> String {
        let (before, after) = (&self.before, &self.after);
        let mut out = format!("{}\n", self.change.words());
        if !self.same_document {
            out.push_str("the two were not of one document: what differs may be the experiment\n");
        }
        let mut row = |what: &str, one: String, other: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  {what:<32}  {one:>20}  {other:>20}");
        };
        row("", before.run_id.clone(), after.run_id.clone());
        row("verdict", before.verdict.clone(), after.verdict.clone());
        let seconds = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2} s"));
        for (what, one, other) in [
            ("seen to fail after", before.mttd_seconds, after.mttd_seconds),
            ("recovered after", before.mttr_seconds, after.mttr_seconds),
            ("gate to removal", before.gate_reaction_seconds, after.gate_reaction_seconds),
        ] {
            if one.is_some() || other.is_some() {
                row(what, seconds(one), seconds(other));
            }
        }
        for OfAction { action, before_seconds, after_seconds } in &self.recovery {
            row(&format!("recovered from {action:?}"), seconds(*before_seconds), seconds(*after_seconds));
        }
        for OfGate { gate, breach, before, after } in &self.gates {
            let breach = breach.as_ref().map(|breach| format!(" {breach}")).unwrap_or_default();
            row(&format!("worst of {gate:?}{breach}"), worst(before), worst(after));
        }
        for OfFault { fault, before, after } in &self.evidence {
            let met = |met: &Option<Vec<String>>| match met.as_deref() {
                None => "not injected".to_owned(),
                Some([]) => "met nobody".to_owned(),
                Some(lines) => lines.join("; "),
            };
            row(&format!("fault {fault}"), met(before), met(after));
        }
        for Side { run_id, error, .. } in [before, after] {
            if let Some(error) = error {
                let _ = writeln!(out, "{run_id}: {error}");
            }
        }
        out
    }
}

fn worst(seen: &Option<Worst>) -> String {
    match seen {
        None => "-".to_owned(),
        Some(Worst { value: Some(value), bad, samples }) => format!("{value} ({bad}/{samples} bad)"),
        Some(Worst { value: None, bad, samples }) => format!("{bad}/{samples} bad"),
    }
}

impl Side {
    fn of(recorded: &Recorded) -> Self {
        let (run, recovery) = (&recorded.run, recorded.run.recovery.as_ref());
        Self {
            run_id: run.run_id.clone(),
            experiment_name: run.experiment_name.clone(),
            started_at: run.started_at.clone(),
            verdict: verdict(recorded).to_owned(),
            error: run.error.clone(),
            duration_seconds: run.duration_seconds,
            gate_reaction_seconds: run.gate_reaction_seconds,
            mttd_seconds: recovery.and_then(|it| it.mttd_seconds),
            mttr_seconds: recovery.and_then(|it| it.mttr_seconds),
            within_rto: recovery.and_then(|it| it.within_rto),
        }
    }
}

/// The gates of a document that compare numbers.
fn rules(recorded: &Recorded) -> Vec<(String, Op, f64)> {
    let document = recorded.document.as_ref();
    // One that needs a secret is not understood without it.
    let experiment = document.and_then(|document| Experiment::parse(document, &Nowhere).ok());
    let of_gate = |gate: &Gate| match gate.rule {
        Rule::Compare { op, value, .. } => Some((gate.name.clone(), op, value)),
        Rule::Tolerance(_) => None,
    };
    experiment.iter().flat_map(|it| &it.guardrails.gates).filter_map(of_gate).collect()
}

fn gates(before: &Recorded, after: &Recorded) -> Vec<OfGate> {
    let of_gates = [before, after].into_iter().flat_map(|run| &run.samples);
    let names: BTreeSet<_> =
        of_gates.filter(|sample| sample.role == Role::Gate).map(|sample| &sample.probe).collect();
    let (first, second) = (rules(before), rules(after));
    let find = |rules: &[(String, Op, f64)], name: &String| {
        rules.iter().find(|(gate, ..)| gate == name).map(|(_, op, value)| (*op, *value))
    };
    let gate = |name: &String| {
        let (one, other) = (find(&first, name), find(&second, name));
        let told = |(op, value): (Op, f64)| format!("{op} {value}");
        let breach = match (one.map(told), other.map(told)) {
            (Some(one), Some(other)) if one != other => Some(format!("{one}, then {other}")),
            (one, other) => other.or(one),
        };
        let either = one.or(other).map(|(op, _)| op);
        OfGate {
            gate: name.clone(),
            breach,
            before: worst_of(before, name, one.map(|(op, _)| op).or(either)),
            after: worst_of(after, name, other.map(|(op, _)| op).or(either)),
        }
    };
    names.into_iter().map(gate).collect()
}

/// What a gate has seen in a run from its method on; none if it was not sampled there.
fn worst_of(recorded: &Recorded, gate: &str, op: Option<Op>) -> Option<Worst> {
    let of_it: Vec<_> = recorded
        .samples
        .iter()
        .filter(|sample| sample.role == Role::Gate && sample.stage != Stage::Before && sample.probe == gate)
        .collect();
    let values = of_it.iter().filter_map(|sample| sample.value);
    let value = op.and_then(|op| match op {
        Op::Gt | Op::Gte => values.reduce(f64::max),
        Op::Lt | Op::Lte => values.reduce(f64::min),
    });
    let bad = of_it.iter().filter(|sample| !sample.met).count();
    (!of_it.is_empty()).then_some(Worst { value, bad, samples: of_it.len() })
}

fn recovery(before: &Recorded, after: &Recorded) -> Vec<OfAction> {
    let incidents =
        |run: &'_ Recorded| run.run.recovery.iter().flat_map(|it| it.incidents.clone()).collect::<Vec<_>>();
    let (first, second) = (incidents(before), incidents(after));
    let mut names: Vec<&String> = Vec::new();
    for incident in first.iter().chain(&second) {
        if !names.contains(&&incident.action) {
            names.push(&incident.action);
        }
    }
    let of = |all: &[crate::experiment::recovery::Incident], name: &String| {
        all.iter().find(|incident| incident.action == *name)?.recovered_after_seconds
    };
    let action = |name: &String| OfAction {
        action: name.clone(),
        before_seconds: of(&first, name),
        after_seconds: of(&second, name),
    };
    names.into_iter().map(action).collect()
}

fn evidence(before: &Recorded, after: &Recorded) -> Vec<OfFault> {
    let names: BTreeSet<_> = before.faults.iter().chain(&after.faults).map(|fault| &fault.name).collect();
    let met = |run: &Recorded, name: &String| {
        let fault = run.faults.iter().find(|fault| fault.name == *name)?;
        (fault.injected != Some(false)).then(|| fault.met())
    };
    let fault =
        |name: &String| OfFault { fault: name.clone(), before: met(before, name), after: met(after, name) };
    names.into_iter().map(fault).collect()
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
