//! What the tests have said, kept by kernel from run to run.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::verdict::{Outcome, Verdict};
use crate::vm::version;

/// Why a test is left out that has passed on the host (`tests/src/runner.rs`).
const ELSEWHERE: &str = "passed-on-the-host";

/// Where tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    Vm,
    Host,
}

/// What a test said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Said {
    pub(super) outcome: Outcome,
    pub(super) reason: String,
}

impl Said {
    /// Whether it was left out for having passed on the host.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.outcome == Outcome::Skip && self.reason.starts_with(ELSEWHERE)
    }
}

/// One kernel, in one place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Column {
    pub(super) place: Place,
    pub(super) kernel: String,
    pub(super) tests: BTreeMap<String, Said>,
}

/// Everything.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) columns: Vec<Column>,
    /// Suites that were not meant to run, and why.
    pub(super) left_out: BTreeMap<String, String>,
    /// Suites of which only a share was meant to run in VMs, and where the others are.
    #[serde(default)]
    pub(super) in_shares: BTreeMap<String, String>,
}

impl Kept {
    /// Nothing where there is no file yet.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::file("read", path)(error)),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| Error::Json { what: path.display().to_string(), source }),
        }
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let json = |source| Error::Json { what: path.display().to_string(), source };
        let text = serde_json::to_string_pretty(self).map_err(json)?;
        std::fs::write(path, text).map_err(Error::file("write", path))
    }

    pub(super) fn leave_out(&mut self, suite: &str, why: &str) {
        self.left_out.insert(suite.to_owned(), why.to_owned());
    }

    /// Says where the tests of a suite are that no VM was meant to run, if there are such.
    pub(super) fn others_in_vms(&mut self, suite: &str, others: Option<String>) {
        match others {
            Some(others) => self.in_shares.insert(suite.to_owned(), others),
            None => self.in_shares.remove(suite),
        };
    }

    /// Why nothing was heard of a test in one place, if that was meant.
    pub(super) fn why_left_out(&self, test: &str, place: Place) -> Option<&str> {
        let suite = suite_of(test);
        let in_share = || self.in_shares.get(suite).filter(|_| place == Place::Vm);
        self.left_out.get(suite).or_else(in_share).map(String::as_str)
    }

    /// Adds what the tests of a suite have said; other suites may have run beside it, and are not looked at.
    pub(super) fn add(&mut self, place: Place, suite: &str, verdicts: &[Verdict]) {
        let mine = verdicts.iter().filter(|verdict| suite_of(&verdict.test) == suite);
        for verdict in mine {
            self.left_out.remove(suite);
            let said = Said { outcome: verdict.outcome, reason: verdict.reason.clone() };
            self.column(place, &verdict.kernel).tests.insert(verdict.test.clone(), said);
        }
        self.columns.sort_by_key(|column| (column.place, version(&column.kernel)));
    }

    fn column(&mut self, place: Place, kernel: &str) -> &mut Column {
        let found = self.columns.iter().position(|column| column.place == place && column.kernel == kernel);
        let index = found.unwrap_or_else(|| {
            let (kernel, tests) = (kernel.to_owned(), BTreeMap::new());
            self.columns.push(Column { place, kernel, tests });
            self.columns.len() - 1
        });
        &mut self.columns[index]
    }
}

/// The suite of a test.
pub(super) fn suite_of(test: &str) -> &str {
    test.split("::").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(kernel: &str, test: &str, outcome: Outcome) -> Verdict {
        let (kernel, test) = (kernel.to_owned(), test.to_owned());
        Verdict {
            kernel,
            test,
            outcome,
            reason: String::new(),
            ms: 1,
            cpu_ms: None,
            tries: 1,
            figures: serde_json::Map::new(),
        }
    }

    #[test]
    fn kernels_are_in_order_the_machine_s_own_last_and_the_latest_word_counts() {
        let mut kept = Kept::default();
        kept.add(Place::Host, "s", &[verdict("5.4", "s::a", Outcome::Pass)]);
        kept.add(Place::Vm, "s", &[verdict("6.12.1-x", "s::a", Outcome::Fail)]);
        kept.add(Place::Vm, "s", &[verdict("6.1.9-x", "s::a", Outcome::Pass)]);
        kept.add(Place::Vm, "s", &[verdict("6.12.1-x", "s::a", Outcome::Pass)]);
        let kernels: Vec<_> = kept.columns.iter().map(|column| column.kernel.as_str()).collect();
        assert_eq!(kernels, ["6.1.9-x", "6.12.1-x", "5.4"]);
        assert_eq!(kept.columns[1].tests["s::a"].outcome, Outcome::Pass);
    }

    #[test]
    fn another_suite_is_not_looked_at_and_one_that_ran_is_not_left_out() {
        let mut kept = Kept::default();
        kept.leave_out("s", "why");
        kept.add(Place::Vm, "s", &[verdict("6.1", "other::a", Outcome::Pass)]);
        assert!(kept.columns.is_empty() && kept.left_out.contains_key("s"));
        kept.add(Place::Vm, "s", &[verdict("6.1", "s::a", Outcome::Pass)]);
        assert!(kept.left_out.is_empty());
    }

    #[test]
    fn of_a_suite_that_runs_in_shares_tests_may_be_missing_in_vms_alone() {
        let mut kept = Kept::default();
        kept.others_in_vms("s", Some("in another share".into()));
        let why =
            |kept: &Kept| [Place::Vm, Place::Host].map(|place| kept.why_left_out("s::a", place).is_some());
        assert_eq!(why(&kept), [true, false]);
        assert_eq!(kept.why_left_out("other::a", Place::Vm), None);
        kept.others_in_vms("s", None);
        assert_eq!(why(&kept), [false, false]);
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kinds.json");
        assert!(Kept::read(&path).unwrap().columns.is_empty());
        let mut kept = Kept::default();
        kept.add(Place::Vm, "s", &[verdict("6.1", "s::a", Outcome::Skip)]);
        kept.write(&path).unwrap();
        let read = Kept::read(&path).unwrap();
        assert_eq!(read.columns[0].tests, kept.columns[0].tests);
        std::fs::write(&path, "{").unwrap();
        assert!(Kept::read(&path).is_err());
    }
}
