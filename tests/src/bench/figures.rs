//! Medians, tables, goals, and the report that collects them.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// The value below which this share of the values is.
pub(super) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The middle value.
pub(super) fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// In microseconds.
pub(super) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A goal and whether it was reached.
#[derive(Debug)]
struct Goal {
    what: String,
    value: f64,
    /// Lowest and highest value that is good enough.
    bounds: (f64, f64),
    unit: &'static str,
}

impl Goal {
    fn met(&self) -> bool {
        (self.bounds.0..=self.bounds.1).contains(&self.value)
    }

    fn line(&self) -> String {
        let Self { what, value, bounds: (low, high), unit } = self;
        let bounds = if *low > 0.0 {
            format!("{low:.2} to {high:.2}{unit}")
        } else {
            format!("at most {high:.2}{unit}")
        };
        let verdict = match self.met() {
            true => "met".to_owned(),
            false if value > high => format!("MISSED by {:.2}{unit}", value - high),
            false => format!("MISSED by {:.2}{unit}", low - value),
        };
        format!("  {verdict:<18} {what}: {value:.2}{unit} ({bounds})")
    }
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct Report {
    figures: Map<String, Value>,
    goals: Vec<Goal>,
    skipped: Vec<String>,
    /// Goals of what was skipped.
    not_measured: usize,
}

/// What became of the goals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Those that were reached.
    pub met: usize,
    /// Those that were not.
    pub missed: usize,
    /// Those of what cannot be measured here.
    pub not_measured: usize,
}

impl Counts {
    /// Whether there were goals, and every one that was measured was reached.
    pub fn all_met(self) -> bool {
        self.met > 0 && self.missed == 0
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} goals met, {} missed, {} not measured", self.met, self.missed, self.not_measured)
    }
}

impl Report {
    /// Keeps a figure for the JSON, below `part`.
    pub(super) fn keep(&mut self, part: &str, name: &str, figure: Value) {
        let group = self.figures.entry(part).or_insert_with(|| json!({}));
        if let Value::Object(group) = group {
            group.insert(name.to_owned(), figure);
        }
    }

    /// Judges a value by an upper bound.
    pub(super) fn at_most(&mut self, what: impl Into<String>, value: f64, high: f64, unit: &'static str) {
        self.within(what, value, (0.0_f64.min(value), high), unit);
    }

    /// Judges a value by two bounds.
    pub(super) fn within(
        &mut self,
        what: impl Into<String>,
        value: f64,
        bounds: (f64, f64),
        unit: &'static str,
    ) {
        self.goals.push(Goal { what: what.into(), value, bounds, unit });
    }

    /// Says that something was not measured, which has so many goals, and why: with the goals, and in the JSON.
    pub(super) fn skip(&mut self, what: impl Into<String>, goals: usize) {
        let what = what.into();
        self.not_measured += goals;
        println!("  skipped: {what}");
        self.skipped.push(what);
    }

    /// Prints a verdict per goal, and what was not measured.
    pub(super) fn print_goals(&self) {
        println!("== goals");
        self.goals.iter().for_each(|goal| println!("{}", goal.line()));
        self.skipped.iter().for_each(|what| println!("  skipped: {what}"));
    }

    /// How many goals were reached, and how many not.
    pub fn counts(&self) -> Counts {
        let met = self.goals.iter().filter(|goal| goal.met()).count();
        Counts { met, missed: self.goals.len() - met, not_measured: self.not_measured }
    }

    /// All of it.
    pub fn json(&self, facts: Value) -> Value {
        let goal = |goal: &Goal| {
            json!({
                "goal": goal.what, "value": goal.value, "low": goal.bounds.0, "high": goal.bounds.1,
                "unit": goal.unit.trim(), "met": goal.met(),
            })
        };
        let goals: Vec<_> = self.goals.iter().map(goal).collect();
        let Counts { met, missed, not_measured } = self.counts();
        json!({
            "facts": facts, "figures": self.figures, "goals": goals, "skipped": self.skipped,
            "counts": {"met": met, "missed": missed, "not_measured": not_measured},
        })
    }
}

/// Prints a row of a table: a name and numbers, right-aligned.
pub(super) fn row(name: &str, cells: &[String]) {
    let cells: String = cells.iter().map(|cell| format!("{cell:>13}")).collect();
    println!("  {name:<34}{cells}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_missed_on_either_side_and_by_no_number() {
        let mut report = Report::default();
        report.at_most("a", 1.0, 2.0, "");
        report.at_most("negative is fine", -5.0, 2.0, "");
        report.within("b", 1.0, (0.9, 1.1), "");
        assert!(report.counts().all_met());
        report.within("c", 0.8, (0.9, 1.1), "");
        assert!(!report.counts().all_met() && report.goals[3].line().contains("MISSED by 0.10"));
        let mut report = Report::default();
        assert!(!report.counts().all_met(), "nothing was judged");
        report.at_most("nothing was measured", f64::NAN, 2.0, "");
        assert!(!report.counts().all_met());
    }

    #[test]
    fn what_was_not_measured_is_counted_apart_and_misses_nothing() {
        let mut report = Report::default();
        report.skip("a", 3);
        assert!(!report.counts().all_met(), "nothing was judged");
        report.at_most("b", 1.0, 2.0, "");
        report.skip("c", 1);
        assert!(report.counts().all_met());
        assert_eq!(report.counts().to_string(), "1 goals met, 0 missed, 4 not measured");
        report.at_most("d", 3.0, 2.0, "");
        let counts = json!({"met": 1, "missed": 1, "not_measured": 4});
        assert!(!report.counts().all_met() && report.json(json!({}))["counts"] == counts);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!((median(&values), percentile(&values, 0.99)), (51.0, 100.0));
        assert!(median(&[]).is_nan());
    }
}
