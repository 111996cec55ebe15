//! From the list and what the tests have said to the table.

use std::fmt;

use super::kept::{Column, Kept, Place, Said, suite_of};
use super::{Refused, Row, SYSTEMD_TESTS};
use crate::verdict::Outcome;

/// What is known of a kind on a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    /// Every test of it has passed here.
    Pass,
    /// On the host, and nothing of it depends on the kernel.
    AsOnTheHost,
    /// A test has seen the daemon refuse it, in these words.
    Impossible(String),
    /// It may be possible, and nobody tries it here, for the reason that these words begin with.
    Untried(String),
    /// Nobody was meant to try.
    LeftOut(String),
    /// This test has failed.
    Fail(String),
    /// Nobody knows.
    Silent(String),
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => write!(formatter, "pass"),
            Self::AsOnTheHost => write!(formatter, "as on the host"),
            // All of the words are below the table.
            Self::Impossible(words) => {
                write!(formatter, "not possible: {}", words.split(':').next().unwrap_or_default())
            }
            Self::Untried(words) => {
                write!(formatter, "not tried here: {}", words.split(':').next().unwrap_or_default())
            }
            Self::LeftOut(why) => write!(formatter, "left out: {why}"),
            Self::Fail(test) => write!(formatter, "**FAIL**: {test}"),
            Self::Silent(why) => write!(formatter, "**not run**: {why}"),
        }
    }
}

impl Cell {
    /// What the daemon has said.
    fn words(&self) -> Option<&str> {
        match self {
            Self::Impossible(words) | Self::Untried(words) => Some(words),
            _ => None,
        }
    }

    fn says(&self, note: &str) -> bool {
        self.words() == Some(note)
    }
}

/// What a count of cells is called, and which of them it counts.
type Counted = (&'static str, fn(&Cell) -> bool);

const COUNTED: [Counted; 7] = [
    ("pass", |cell| matches!(cell, Cell::Pass)),
    ("as on the host", |cell| matches!(cell, Cell::AsOnTheHost)),
    ("not possible", |cell| matches!(cell, Cell::Impossible(_))),
    ("not tried here", |cell| matches!(cell, Cell::Untried(_))),
    ("left out", |cell| matches!(cell, Cell::LeftOut(_))),
    ("failed", |cell| matches!(cell, Cell::Fail(_))),
    ("not run", |cell| matches!(cell, Cell::Silent(_))),
];

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<String>,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    kind: String,
    what: String,
    cells: Vec<Cell>,
    tests: Vec<String>,
}

impl Table {
    pub(super) fn new(rows: &[Row], kept: &Kept) -> Self {
        let line = |row: &Row| Line {
            kind: row.kind.clone(),
            what: row.what.clone(),
            cells: kept.columns.iter().map(|column| cell(row, column, kept)).collect(),
            tests: row.tests.clone(),
        };
        Self { columns: kept.columns.iter().map(heading).collect(), lines: rows.iter().map(line).collect() }
    }

    pub(super) fn has_columns(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Cells that nobody has filled.
    pub(super) fn gaps(&self) -> Vec<String> {
        self.those(|cell| matches!(cell, Cell::Silent(_)))
    }

    /// Whether no cell is empty or failed.
    pub(super) fn holds(&self) -> bool {
        self.has_columns() && self.those(|cell| matches!(cell, Cell::Silent(_) | Cell::Fail(_))).is_empty()
    }

    fn those(&self, wanted: impl Fn(&Cell) -> bool) -> Vec<String> {
        let of_line = |line: &Line| -> Vec<String> {
            let cells = self.columns.iter().zip(&line.cells).filter(|(_, cell)| wanted(cell));
            cells.map(|(column, cell)| format!("{}, {}, {column}: {cell}", line.kind, line.what)).collect()
        };
        self.lines.iter().flat_map(of_line).collect()
    }

    /// As Markdown, with who sees it act or without.
    pub(super) fn markdown(&self, with_tests: bool) -> String {
        let tests = |words: &str| with_tests.then(|| words.to_owned());
        let heads = ["fault", "what of it"].map(str::to_owned).into_iter().chain(self.columns.clone());
        let heads: Vec<_> = heads.chain(tests("seen by")).collect();
        let mut text = format!("{}\n|{}\n", in_a_row(&heads), "---|".repeat(heads.len()));
        let notes = self.notes();
        for line in &self.lines {
            let cells = line.cells.iter().map(|cell| match notes.iter().position(|note| cell.says(note)) {
                None => cell.to_string(),
                Some(index) => format!("{cell} [{}]", index + 1),
            });
            let words = [line.kind.clone(), line.what.clone()].into_iter().chain(cells);
            let words: Vec<_> = words.chain(tests(&line.tests.join(", "))).collect();
            text.push_str(&format!("{}\n", in_a_row(&words)));
        }
        let number = |(index, note): (usize, &&str)| format!("[{}] {note}\n", index + 1);
        let notes: String = notes.iter().enumerate().map(number).collect();
        format!("# Every kind of fault on every kernel\n\n{text}\n{notes}\n{}\n", self.counts())
    }

    /// Everything that the daemon has said of what is not possible or not tried, each once.
    fn notes(&self) -> Vec<&str> {
        let mut notes = Vec::new();
        for cell in self.lines.iter().flat_map(|line| &line.cells) {
            if let Some(words) = cell.words()
                && !notes.contains(&words)
            {
                notes.push(words);
            }
        }
        notes
    }

    fn counts(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| &line.cells);
        let count = |(name, is): &Counted| format!("{} {name}", all().filter(|cell| is(cell)).count());
        let counts: Vec<_> = COUNTED.iter().map(count).collect();
        format!("{} lines, {} kernels: {}", self.lines.len(), self.columns.len(), counts.join(", "))
    }
}

fn in_a_row(words: &[String]) -> String {
    let cells: String = words.iter().map(|word| format!(" {} |", word.replace('|', "\\|"))).collect();
    format!("|{cells}")
}

fn heading(column: &Column) -> String {
    match column.place {
        Place::Vm => column.kernel.clone(),
        Place::Host => format!("{} (host)", column.kernel),
    }
}

fn cell(row: &Row, column: &Column, kept: &Kept) -> Cell {
    let outcome = |test: &&String| column.tests.get(*test).map(|said| said.outcome);
    if let Some(test) = row.tests.iter().find(|test| outcome(test) == Some(Outcome::Fail)) {
        return Cell::Fail(test.clone());
    }
    if let Some(test) = row.tests.iter().find(|test| outcome(test).is_none() && !is_for_vms(test, column)) {
        return match kept.why_left_out(test, column.place) {
            Some(why) => Cell::LeftOut(why.to_owned()),
            None => Cell::Silent(test.clone()),
        };
    }
    let skips = |test: &String| match column.tests.get(test) {
        // Of a test that only VMs run, nobody has said why it is not run here.
        None => Some(""),
        Some(said) => (said.outcome == Outcome::Skip && !said.is_elsewhere()).then_some(said.reason.as_str()),
    };
    if let Some(reason) = row.tests.iter().find_map(skips) {
        return refused(row.refused.as_ref(), reason, column);
    }
    let elsewhere = |test: &&String| column.tests.get(*test).is_some_and(Said::is_elsewhere);
    match row.tests.iter().filter(elsewhere).map(|test| passed_on_host(test, kept)).reduce(|a, b| a && b) {
        None => Cell::Pass,
        Some(true) => Cell::AsOnTheHost,
        Some(false) => Cell::Silent("left out, and nobody knows whether it passed on the host".into()),
    }
}

/// The package is installed on no host.
fn is_for_vms(test: &str, column: &Column) -> bool {
    column.place == Place::Host && suite_of(test) == SYSTEMD_TESTS
}

fn passed_on_host(test: &str, kept: &Kept) -> bool {
    let mut hosts = kept.columns.iter().filter(|column| column.place == Place::Host);
    hosts.any(|column| column.tests.get(test).is_some_and(|said| said.outcome == Outcome::Pass))
}

/// Believed only if a test has passed here that saw the daemon refuse it.
fn refused(refused: Option<&Refused>, reason: &str, column: &Column) -> Cell {
    let Some(Refused { test, begins, untried }) = refused else {
        return Cell::Silent(format!("skipped ({reason}), and no test is there to see it refused"));
    };
    let seen = column.tests.get(test).filter(|said| said.outcome == Outcome::Pass);
    let found =
        |begins: &str| seen.and_then(|said| said.reason.lines().find_map(|line| line.strip_prefix(begins)));
    if let Some(words) = found(untried) {
        return Cell::Untried(words.to_owned());
    }
    let words = found(begins);
    let name = reason.split(':').next().unwrap_or_default();
    match words {
        None => Cell::Silent(format!("{test} has not seen it refused")),
        Some(words) if words.starts_with(name) => Cell::Impossible(words.to_owned()),
        Some(words) => Cell::Impossible(format!("{name}: {words}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SEER: &str = "kernel-tests::seer";

    fn row(test: &str, refused: bool) -> Row {
        let refused = refused
            .then(|| json!({"test": SEER, "begins": "not possible: k: ", "untried": "not tried: k: "}));
        let row = json!({"kind": "k", "what": "w", "tests": [test], "refused": refused});
        serde_json::from_value(row).unwrap()
    }

    /// What one test and the seer said in the VM, and the test on the host.
    fn judged(
        test: &str,
        refused: bool,
        vm: &[(&str, &str, &str)],
        host: &[(&str, &str, &str)],
    ) -> [Cell; 2] {
        let tests = |said: &[(&str, &str, &str)]| -> serde_json::Map<String, serde_json::Value> {
            let each = said.iter();
            each.map(|(test, outcome, why)| ((*test).to_owned(), json!({"outcome": outcome, "reason": why})))
                .collect()
        };
        let kept: Kept =
            serde_json::from_value(json!({"left_out": {"late": "only with --long"}, "columns": [
                {"place": "vm", "kernel": "6.1", "tests": tests(vm)},
                {"place": "host", "kernel": "6.18", "tests": tests(host)},
            ]}))
            .unwrap();
        let line = Table::new(&[row(test, refused)], &kept).lines.remove(0);
        line.cells.try_into().unwrap()
    }

    const T: &str = "kernel-tests::t";

    #[test]
    fn what_passed_passes_and_what_was_left_out_for_that_is_as_on_the_host() {
        let elsewhere = (T, "skip", "passed-on-the-host: nothing of it depends on the kernel");
        assert_eq!(judged(T, false, &[elsewhere], &[(T, "pass", "")]), [Cell::AsOnTheHost, Cell::Pass]);
        let [vm, host] = judged(T, false, &[elsewhere], &[(T, "fail", "")]);
        assert!(matches!(vm, Cell::Silent(_)) && host == Cell::Fail(T.into()), "{vm}, {host}");
        let [_, host] = judged(T, false, &[], &[]);
        assert_eq!(host, Cell::Silent(T.into()));
    }

    #[test]
    fn a_skip_is_believed_only_when_a_test_has_seen_the_refusal() {
        let skip = (T, "skip", "kernel-without-x: lacks y");
        let said = (SEER, "pass", "a figure\nnot possible: other: no\nnot possible: k: it lacks x");
        let [vm, host] = judged(T, true, &[skip, said], &[skip, (SEER, "fail", said.2)]);
        assert_eq!(vm, Cell::Impossible("kernel-without-x: it lacks x".into()));
        assert!(matches!(host, Cell::Silent(_)), "{host}");
        for (refused, seer) in [(false, said), (true, (SEER, "pass", "not possible: other: no"))] {
            let [vm, _] = judged(T, refused, &[skip, seer], &[]);
            assert!(matches!(vm, Cell::Silent(_)), "{vm}");
        }
    }

    #[test]
    fn the_package_is_for_vms_and_on_a_host_somebody_has_to_say_why_not() {
        let test = format!("{SYSTEMD_TESTS}::t");
        let said = (SEER, "pass", "not possible: k: no systemd");
        let [vm, host] = judged(&test, true, &[said], &[said]);
        assert_eq!((vm, host), (Cell::Silent(test.clone()), Cell::Impossible("no systemd".into())));
        let [_, host] = judged(&test, true, &[], &[]);
        assert!(matches!(host, Cell::Silent(_)), "{host}");
        let [vm, _] = judged("late::t", false, &[], &[]);
        assert_eq!(vm, Cell::LeftOut("only with --long".into()));
    }

    #[test]
    fn what_only_the_policy_refuses_is_not_called_impossible() {
        let skip = (T, "skip", "needs-a-machine-of-its-own: the clock");
        let said =
            (SEER, "pass", "not tried: k: refused by policy: POLICY_DENIED: the policy does not allow it");
        let [cell, _] = judged(T, true, &[skip, said], &[]);
        let words = "refused by policy: POLICY_DENIED: the policy does not allow it";
        assert_eq!(
            (&cell, cell.to_string()),
            (&Cell::Untried(words.into()), "not tried here: refused by policy".into())
        );
        // Of a test that failed, nothing is believed.
        let [cell, _] = judged(T, true, &[skip, (SEER, "fail", said.2)], &[]);
        assert!(matches!(cell, Cell::Silent(_)), "{cell}");
    }

    #[test]
    fn gaps_are_named_and_counted_and_a_table_with_one_does_not_hold() {
        let skip = json!({"outcome": "skip", "reason": "without-x: y"});
        let seer = json!({"outcome": "pass", "reason": "not possible: k: it lacks: x"});
        let kept: Kept = serde_json::from_value(json!({"left_out": {}, "columns": [
            {"place": "vm", "kernel": "6.1", "tests": {T: {"outcome": "pass", "reason": ""}}},
            {"place": "vm", "kernel": "6.12", "tests": {T: skip, SEER: seer}},
            {"place": "host", "kernel": "6.18", "tests": {}},
        ]}))
        .unwrap();
        let table = Table::new(&[row(T, true)], &kept);
        assert_eq!(table.gaps(), ["k, w, 6.18 (host): **not run**: kernel-tests::t"]);
        assert!(!table.holds());
        let text = table.markdown(true);
        for line in [
            "| fault | what of it | 6.1 | 6.12 | 6.18 (host) | seen by |\n|---|---|---|---|---|---|\n",
            "| k | w | pass | not possible: without-x [1] | **not run**: kernel-tests::t | kernel-tests::t |\n",
            "\n[1] without-x: it lacks: x\n",
            "1 lines, 3 kernels: 1 pass, 0 as on the host, 1 not possible, 0 not tried here, 0 left out, 0 failed, 1 not run\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!Table::new(&[row(T, false)], &Kept::default()).holds());
    }
}
