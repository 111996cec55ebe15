//! Two runs side by side, such as before and after a fix: verdicts, recovery, the worst of each gate, and what the faults have met. Pure.

use std::fmt::Write as _;

use chaos_search::picture::escaped;
use serde::Serialize;

use super::document::{called, understood};
use super::facts::verdict;
use super::markdown::{plain, table};
use super::page;
use super::story::sentence;
use super::words::{day, seconds};
use super::worst::{self, Limit, Worst};
use crate::experiment::Verdict;
use crate::server::history::Recorded;

/// What is said of two runs that do not have the same document.
const OTHER: &str = "The two were not of one document: what differs may be the experiment.";
/// The longest text of a column in a terminal, in characters.
const LONGEST_CELL: usize = 44;

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
    /// How long recovery may take, as the document says, in seconds.
    pub rto_seconds: Option<f64>,
}

/// A gate in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfGate {
    /// Its name.
    pub gate: String,
    /// What is a breach, such as "> 500 ms"; none of one that compares no number, or whose document is not understood here.
    pub breach: Option<String>,
    /// The first run.
    pub before: Option<Worst>,
    /// The second.
    pub after: Option<Worst>,
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

    /// For a terminal.
    pub fn page(&self) -> String {
        // What is longer than a column stands below.
        let is_long = |row: &[String; 3]| row.iter().any(|cell| cell.chars().count() > LONGEST_CELL);
        let (long, rows): (Vec<_>, Vec<_>) = self.rows().into_iter().partition(is_long);
        let width = |of: fn(&[String; 3]) -> &String, least: usize| {
            rows.iter().map(|row| of(row).chars().count()).max().unwrap_or_default().max(least)
        };
        let (names, left) = (width(|row| &row[0], 12), width(|row| &row[1], 16));
        let mut out = format!("{}\n", self.summary());
        // Writing to a string cannot fail.
        let [before, after] = self.heads();
        let _ = writeln!(out, "  {:<names$}  {before:<left$}  {after}", "");
        for [what, one, other] in &rows {
            let _ = writeln!(out, "  {what:<names$}  {one:<left$}  {other}");
        }
        for [what, one, other] in &long {
            let _ = writeln!(out, "  {what}\n    before: {one}\n    after:  {other}");
        }
        out
    }

    /// The same as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n{}\n\n", plain(&self.title()), plain(&self.summary()));
        let [before, after] = self.heads();
        table(&mut out, &["", &before, &after], &self.cells());
        out
    }

    /// The same as a page of HTML that asks for nothing outside of it.
    pub fn html(&self) -> String {
        let tone = match self.change {
            Change::Fixed | Change::StillHeld => "held",
            Change::Broken | Change::StillBroken => "deviated",
            Change::NotKnown => "unverified",
        };
        let other = if self.same_document { String::new() } else { format!("<p>{OTHER}</p>") };
        let mut body = format!(
            "<h1>{}</h1>\n<div class=\"verdict tone {tone}\"><b>{}</b>{other}</div>\n",
            escaped(&self.title()),
            escaped(&sentence(self.change.words()))
        );
        let [before, after] = self.heads();
        page::table(&mut body, &[String::new(), before, after], &self.cells());
        page::page(&format!("{}: two runs", self.after.experiment_name), &body)
    }

    fn title(&self) -> String {
        let (before, after) = (&self.before.experiment_name, &self.after.experiment_name);
        if before == after { before.clone() } else { format!("{before}, then {after}") }
    }

    /// What it comes to, in a sentence or two.
    fn summary(&self) -> String {
        let change = sentence(self.change.words());
        if self.same_document { change } else { format!("{change} {OTHER}") }
    }

    fn heads(&self) -> [String; 2] {
        [&self.before, &self.after].map(|side| day(&side.started_at))
    }

    fn cells(&self) -> Vec<Vec<String>> {
        self.rows().into_iter().map(Vec::from).collect()
    }

    /// What there is to see of both, row by row.
    fn rows(&self) -> Vec<[String; 3]> {
        let (before, after) = (&self.before, &self.after);
        let mut rows = vec![["Verdict".to_owned(), before.verdict.clone(), after.verdict.clone()]];
        let mut row = |what: String, one: Option<String>, other: Option<String>| {
            if one.is_some() || other.is_some() {
                rows.push([what, one.unwrap_or("–".to_owned()), other.unwrap_or("–".to_owned())]);
            }
        };
        row("Why".to_owned(), before.error.clone(), after.error.clone());
        row(
            "How long".to_owned(),
            Some(seconds(before.duration_seconds)),
            Some(seconds(after.duration_seconds)),
        );
        let time = |time: Option<f64>| time.map(seconds);
        row("Seen to fail after".to_owned(), time(before.mttd_seconds), time(after.mttd_seconds));
        let objective = [before, after].map(|side| side.rto_seconds.map(seconds));
        let objective = match objective {
            [Some(one), Some(other)] if one != other => format!(", objective {one}, then {other}"),
            [one, other] => other.or(one).map(|one| format!(", objective {one}")).unwrap_or_default(),
        };
        // The mean of one is that one.
        if self.recovery.len() != 1 {
            row(format!("Recovered after{objective}"), time(before.mttr_seconds), time(after.mttr_seconds));
        }
        for OfAction { action, before_seconds, after_seconds } in &self.recovery {
            row(format!("Recovered from {action:?}{objective}"), time(*before_seconds), time(*after_seconds));
        }
        row(
            "Gate to removal".to_owned(),
            time(before.gate_reaction_seconds),
            time(after.gate_reaction_seconds),
        );
        for OfGate { gate, breach, before, after } in &self.gates {
            let breach = breach.as_ref().map(|breach| format!(", breach {breach}")).unwrap_or_default();
            let worst = |seen: &Option<Worst>| seen.as_ref().map(Worst::short);
            row(format!("Worst of {gate:?}{breach}"), worst(before), worst(after));
        }
        for OfFault { fault, before, after } in &self.evidence {
            let met = |met: &Option<Vec<String>>| match met.as_deref() {
                None => "not injected".to_owned(),
                Some([]) => "nothing is recorded".to_owned(),
                Some(lines) => lines.join("; "),
            };
            row(format!("Met by {fault:?}"), Some(met(before)), Some(met(after)));
        }
        row("Run".to_owned(), Some(before.run_id.clone()), Some(after.run_id.clone()));
        rows
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
            rto_seconds: recovery.and_then(|it| it.rto_seconds),
        }
    }
}

fn gates(before: &Recorded, after: &Recorded) -> Vec<OfGate> {
    let (first, second) = (understood(before), understood(after));
    let mut names = worst::gates(before, first.as_ref());
    for gate in worst::gates(after, second.as_ref()) {
        if !names.contains(&gate) {
            names.push(gate);
        }
    }
    let gate = |name: &str| {
        let (one, other) = (Limit::named(first.as_ref(), name), Limit::named(second.as_ref(), name));
        let breach = match (one.as_ref().map(Limit::breach), other.as_ref().map(Limit::breach)) {
            (Some(one), Some(other)) if one != other => Some(format!("{one}, then {other}")),
            (one, other) => other.or(one),
        };
        OfGate {
            gate: name.to_owned(),
            breach,
            before: Worst::of(before, name, one.as_ref().or(other.as_ref())),
            after: Worst::of(after, name, other.as_ref().or(one.as_ref())),
        }
    };
    let seen = |gate: &OfGate| gate.before.is_some() || gate.after.is_some();
    names.into_iter().map(gate).filter(seen).collect()
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

/// By the names of the actions: those of faults may be of one run.
fn evidence(before: &Recorded, after: &Recorded) -> Vec<OfFault> {
    let mut names: Vec<&str> = Vec::new();
    for (run, fault) in
        [before, after].into_iter().flat_map(|run| run.faults.iter().map(move |fault| (run, fault)))
    {
        let name = called(run, &fault.name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let met = |run: &Recorded, name: &str| {
        let fault = run.faults.iter().find(|fault| called(run, &fault.name) == name)?;
        (fault.injected != Some(false)).then(|| fault.met())
    };
    let fault =
        |name: &str| OfFault { fault: name.to_owned(), before: met(before, name), after: met(after, name) };
    names.into_iter().map(fault).collect()
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
