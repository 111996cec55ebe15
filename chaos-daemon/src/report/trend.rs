//! An experiment over its runs: verdicts, the worst of each gate against its limit, and how soon all was well again. Pure.

use std::fmt::Write as _;

use chaos_search::picture::escaped;
use serde::Serialize;

use super::document::understood;
use super::facts::verdict;
use super::html::class;
use super::markdown::{plain, table};
use super::page;
use super::words::{amount, count, day, seconds};
use super::worst::{self, Limit, Worst};
use crate::server::history::Recorded;
use crate::server::history::score::score;

/// Height of a row of the picture, in pixels.
const ROW: f64 = 92.0;
/// Height of the row of verdicts.
const VERDICTS: f64 = 22.0;
/// What is left free above and below what is drawn.
const MARGIN: f64 = 12.0;

/// An experiment over its runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trend {
    /// Experiment.
    pub experiment_name: String,
    /// Its gates.
    pub gates: Vec<OfGate>,
    /// Its runs, the oldest first.
    pub runs: Vec<OfRun>,
}

/// A gate of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfGate {
    /// Its name.
    pub gate: String,
    /// What was a breach in the latest run that had one, such as "> 500 ms".
    pub breach: Option<String>,
    /// What is compared with there.
    pub limit: Option<f64>,
}

/// A run of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfRun {
    /// Handle.
    pub run_id: String,
    /// When it began, ISO 8601 in UTC.
    pub started_at: String,
    /// The last word on it.
    pub verdict: String,
    /// Resiliency score, from 0 to 100.
    pub score: Option<u8>,
    /// The worst of each gate, in the order of the gates; none where the run has not sampled it.
    pub worst: Vec<Option<Worst>>,
    /// Mean time until it was seen to fail, in seconds.
    pub mttd_seconds: Option<f64>,
    /// Mean time until it was seen to be well again, in seconds.
    pub mttr_seconds: Option<f64>,
    /// How long that may take, in seconds.
    pub rto_seconds: Option<f64>,
    /// Whether each outage was over within that.
    pub within_rto: Option<bool>,
}

impl Trend {
    /// Of the runs of an experiment, the oldest first.
    pub fn of(experiment: &str, runs: &[Recorded]) -> Self {
        let mut gates: Vec<OfGate> = Vec::new();
        let understood: Vec<_> = runs.iter().map(understood).collect();
        for (run, document) in runs.iter().zip(&understood) {
            for gate in worst::gates(run, document.as_ref()) {
                let limit = Limit::named(document.as_ref(), gate);
                let at = gates.iter().position(|known| known.gate == gate).unwrap_or_else(|| {
                    gates.push(OfGate { gate: gate.to_owned(), breach: None, limit: None });
                    gates.len() - 1
                });
                if let Some(limit) = limit {
                    (gates[at].breach, gates[at].limit) = (Some(limit.breach()), Some(limit.value));
                }
            }
        }
        let runs = runs.iter().zip(&understood).map(|(run, document)| {
            let recovery = run.run.recovery.as_ref();
            let of = |gate: &OfGate| {
                Worst::of(run, &gate.gate, Limit::named(document.as_ref(), &gate.gate).as_ref())
            };
            OfRun {
                run_id: run.run.run_id.clone(),
                started_at: run.run.started_at.clone(),
                verdict: verdict(run).to_owned(),
                score: score(run).map(|score| score.score),
                worst: gates.iter().map(of).collect(),
                mttd_seconds: recovery.and_then(|it| it.mttd_seconds),
                mttr_seconds: recovery.and_then(|it| it.mttr_seconds),
                rto_seconds: recovery.and_then(|it| it.rto_seconds),
                within_rto: recovery.and_then(|it| it.within_rto),
            }
        });
        Self { experiment_name: experiment.to_owned(), runs: runs.collect(), gates }
    }

    /// How it went on the whole.
    fn summary(&self) -> String {
        let held = self.runs.iter().filter(|run| run.verdict == "held").count();
        let shown =
            self.runs.iter().filter(|run| ["held", "deviated", "tripped"].contains(&run.verdict.as_str()));
        let shown = shown.count();
        match self.runs.len() {
            0 => "It has not been run.".to_owned(),
            all => {
                format!("{}: {held} held of {shown} that showed something.", count(all as u64, "run"))
            }
        }
    }

    fn recovers(&self) -> bool {
        self.runs.iter().any(|run| run.mttr_seconds.is_some() || run.mttd_seconds.is_some())
    }

    fn head(&self) -> Vec<String> {
        let mut head = vec!["began".to_owned(), "verdict".to_owned()];
        for OfGate { gate, breach, .. } in &self.gates {
            let breach = breach.as_ref().map(|breach| format!(", breach {breach}")).unwrap_or_default();
            head.push(format!("worst of {gate}{breach}"));
        }
        if self.recovers() {
            head.extend(["seen to fail", "recovered"].map(str::to_owned));
        }
        head.extend(["score", "run"].map(str::to_owned));
        head
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let nothing = || "–".to_owned();
        let row = |run: &OfRun| {
            let mut row = vec![day(&run.started_at), run.verdict.clone()];
            row.extend(run.worst.iter().map(|worst| worst.as_ref().map_or_else(nothing, Worst::short)));
            if self.recovers() {
                row.push(run.mttd_seconds.map_or_else(nothing, seconds));
                let of = |after: f64| match (run.rto_seconds, run.within_rto) {
                    (Some(rto), Some(true)) => format!("{} of {}", seconds(after), seconds(rto)),
                    (Some(rto), Some(false)) => format!("{} of {}: missed", seconds(after), seconds(rto)),
                    _ => seconds(after),
                };
                row.push(run.mttr_seconds.map_or_else(nothing, of));
            }
            row.push(run.score.map_or_else(nothing, |score| score.to_string()));
            row.push(run.run_id.chars().take(8).collect());
            row
        };
        self.runs.iter().map(row).collect()
    }

    /// As Markdown, which is a table in a terminal, too.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n{}\n", plain(&self.experiment_name), plain(&self.summary()));
        if !self.runs.is_empty() {
            let head: Vec<_> = self.head().iter().map(|cell| plain(cell)).collect();
            out.push('\n');
            table(&mut out, &head.iter().map(String::as_str).collect::<Vec<_>>(), &self.rows());
        }
        out
    }

    /// As a page of HTML with a picture, which asks for nothing outside of it.
    pub fn html(&self) -> String {
        let mut body = format!(
            "<h1>{}</h1>\n<p class=\"lead\">{}</p>\n",
            escaped(&self.experiment_name),
            escaped(&self.summary())
        );
        if !self.runs.is_empty() {
            body.push_str(&self.picture());
            page::table(&mut body, &self.head(), &self.rows());
        }
        page::page(&format!("{}: trend", self.experiment_name), &body)
    }

    /// Verdicts, the worst of each gate, and recovery, from the oldest run to the latest.
    fn picture(&self) -> String {
        let mut out = String::from("<div class=\"chart\">\n");
        begin(&mut out, "verdict", "the oldest run first", VERDICTS);
        for (at, run) in self.runs.iter().enumerate() {
            let (x, class) = (self.x(at), class(&run.verdict));
            let title = escaped(&format!("{}: {}", day(&run.started_at), run.verdict));
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<svg x=\"{x:.2}%\" overflow=\"visible\"><rect class=\"tone {class}\" x=\"-6\" y=\"5\" width=\"12\" height=\"12\" \
                 rx=\"2\"><title>{title}</title></rect></svg>"
            );
        }
        out.push_str("</svg></div>\n");
        for (at, gate) in self.gates.iter().enumerate() {
            let worst = |run: &OfRun| run.worst.get(at).cloned().flatten();
            let values: Vec<_> = self.runs.iter().map(|run| worst(run)?.value).collect();
            let unit = self.runs.iter().find_map(worst).map_or("", |worst| worst.unit);
            let more =
                gate.breach.as_ref().map(|breach| format!("worst; breach {breach}")).unwrap_or_default();
            self.row(&mut out, (&gate.gate, &more), &values, gate.limit, &|value| amount(value, unit));
        }
        if self.recovers() {
            let values: Vec<_> = self.runs.iter().map(|run| run.mttr_seconds).collect();
            let objective = self.runs.iter().rev().find_map(|run| run.rto_seconds);
            let more = objective.map(|rto| format!("objective {}", seconds(rto))).unwrap_or_default();
            self.row(&mut out, ("recovered", &more), &values, objective, &seconds);
        }
        out.push_str("</div>\n");
        out
    }

    /// Where a run is, in percent of the width.
    fn x(&self, at: usize) -> f64 {
        (at as f64 + 0.5) / self.runs.len() as f64 * 100.0
    }

    /// A value of each run that has one, with a limit; nothing where no run has.
    fn row(
        &self,
        out: &mut String,
        (name, more): (&str, &str),
        values: &[Option<f64>],
        limit: Option<f64>,
        told: &dyn Fn(f64) -> String,
    ) {
        let known = || values.iter().copied().flatten().chain(limit);
        if values.iter().all(Option::is_none) {
            return;
        }
        let (low, high) = (known().fold(0.0, f64::min), known().fold(f64::MIN_POSITIVE, f64::max));
        let y = |value: f64| MARGIN + (high - value) / (high - low) * (ROW - 2.0 * MARGIN);
        begin(out, name, more, ROW);
        for (at, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let (x, title) = (self.x(at), escaped(&told(*value)));
            let tone = self.runs.get(at).map(|run| class(&run.verdict)).unwrap_or_default();
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <circle class=\"tone {tone}\" cx=\"{x:.2}%\" cy=\"{:.1}\" r=\"4\"><title>{title}</title></circle>",
                y(low),
                y(*value),
                y(*value)
            );
        }
        if let Some(limit) = limit {
            let at = y(limit);
            let label = if at < 16.0 { at + 12.0 } else { at - 4.0 };
            let _ = writeln!(
                out,
                "<line class=\"limit\" x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"limit\" x=\"4\" \
                 y=\"{label:.1}\">{}</text>",
                escaped(&told(limit))
            );
        }
        out.push_str("</svg></div>\n");
    }
}

/// Begins a row of the picture.
fn begin(out: &mut String, name: &str, more: &str, height: f64) {
    let (name, more) = (escaped(name), escaped(more));
    let _ = writeln!(
        out,
        "<div class=\"lane\"><div class=\"name\">{name}<small>{more}</small></div><svg height=\"{height}\" role=\"img\" \
         aria-label=\"{name}\"><rect class=\"row\" width=\"100%\" height=\"{height}\"/>"
    );
}

#[cfg(test)]
#[path = "trend_tests.rs"]
mod tests;
