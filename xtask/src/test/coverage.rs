//! What the ledger means at a landing: which cells of each set have run, since which commit, and which never.

use serde::Serialize;

use super::chosen::Share;
use super::landing::Landing;
use super::ledger::{Entry, Ledger, Set};

/// Of every set.
#[derive(Debug, Serialize)]
pub(super) struct Coverage {
    landing: u64,
    commit: String,
    sets: Vec<OfSet>,
}

/// Of one.
#[derive(Debug, Serialize)]
struct OfSet {
    set: &'static str,
    shares: u32,
    /// The oldest of what has run: all that is in it has run since.
    since: Option<Met>,
    met: Vec<Met>,
    /// Numbers of shares.
    never: Vec<u32>,
}

#[derive(Debug, Clone, Serialize)]
struct Met {
    share: u32,
    cells: usize,
    commit: String,
    date: String,
    landing: u64,
    /// How many landings there have been since.
    ago: u64,
}

impl Met {
    fn new(entry: &Entry, now: &Landing) -> Self {
        Self {
            share: entry.share.number(),
            cells: entry.cells,
            commit: entry.commit.clone(),
            date: entry.date.clone(),
            landing: entry.landing,
            ago: now.number.saturating_sub(entry.landing),
        }
    }
}

impl Coverage {
    pub(super) fn new(sets: &[Set], ledger: &Ledger, now: &Landing) -> Self {
        let of_set = |set: &Set| {
            let last = |share| ledger.last(*set, share).map(|entry| Met::new(entry, now));
            let met: Vec<_> = Share::all(set.shares).filter_map(last).collect();
            let is_met = |number: &u32| met.iter().any(|met| met.share == *number);
            OfSet {
                set: set.name,
                shares: set.shares,
                since: met.iter().min_by_key(|met| met.landing).cloned(),
                never: Share::all(set.shares).map(Share::number).filter(|number| !is_met(number)).collect(),
                met,
            }
        };
        let (landing, commit) = (now.number, now.commit.clone());
        Self { landing, commit, sets: sets.iter().map(of_set).collect() }
    }

    /// For people, a line for each set.
    pub(super) fn text(&self) -> String {
        let lines: String = self.sets.iter().map(|set| format!("{}\n", set.line())).collect();
        format!("coverage at landing {} ({})\n{lines}", self.landing, self.commit)
    }

    /// For scripts.
    pub(super) fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

impl OfSet {
    fn line(&self) -> String {
        let Self { set, shares, since, met, never } = self;
        let Some(since) = since else {
            return format!("  {set}: never ({shares} {})", plural(*shares, "share"));
        };
        let cells: usize = met.iter().map(|met| met.cells).sum();
        let ago = match since.ago {
            0 => "at this landing".to_owned(),
            ago => format!("{ago} {} ago", plural(ago, "landing")),
        };
        let since = format!("since {} of {}, {ago}", since.commit, since.date);
        let run = format!(
            "  {set}: {} of {shares} {}, {cells} cells, {since}",
            met.len(),
            plural(*shares, "share")
        );
        let never: Vec<_> = never.iter().map(u32::to_string).collect();
        if never.is_empty() { run } else { format!("{run}; never: {}", never.join(", ")) }
    }
}

fn plural(count: impl Into<u64>, what: &str) -> String {
    if count.into() == 1 { what.to_owned() } else { format!("{what}s") }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::tests::{SETS, ledger};
    use super::*;

    fn coverage(entries: &[(&str, &str, u64)]) -> Coverage {
        let now = Landing { number: 20, commit: "c20".into(), void: None };
        Coverage::new(SETS, &ledger(entries), &now)
    }

    #[test]
    fn it_says_since_when_all_that_has_run_has_run_and_what_never_has() {
        let text = coverage(&[("matrix", "3/3", 18), ("matrix", "1/3", 13), ("matrix", "2/4", 1)]).text();
        assert_eq!(
            text,
            "coverage at landing 20 (c20)\n  matrix: 2 of 3 shares, 24 cells, since c13 of 2026-11-28, 7 landings ago; never: 2\n  soak: never (1 share)\n"
        );
    }

    #[test]
    fn a_set_that_is_whole_has_nothing_that_never_ran() {
        let all = [("matrix", "1/3", 20), ("matrix", "2/3", 20), ("matrix", "3/3", 20), ("soak", "1/1", 19)];
        let text = coverage(&all).text();
        assert!(
            text.contains("  matrix: 3 of 3 shares, 36 cells, since c20 of 2026-11-28, at this landing\n")
        );
        assert!(text.ends_with("  soak: 1 of 1 share, 12 cells, since c19 of 2026-11-28, 1 landing ago\n"));
    }

    #[test]
    fn scripts_get_every_share() {
        let json = coverage(&[("soak", "1/1", 25)]).json().unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["sets"][0]["never"], serde_json::json!([1, 2, 3]));
        assert_eq!(value["sets"][1]["met"][0]["ago"], 0, "what lies ahead, on another branch, is not old");
        assert_eq!(value["sets"][1]["since"]["commit"], "c25");
    }
}
