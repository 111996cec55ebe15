//! The ledger: which share of which set has run and passed, and when. A tracked file, a line for each share.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer};

use super::chosen::Share;
use super::landing::Landing;
use crate::error::Error;
use crate::run;

/// Where it is in the tree.
pub(super) const FILE: &str = "tests/ledger.toml";

/// What its reader has to know.
const HEAD: &str = "\
# Which share of which set of tests has run and passed, and at which landing (`git rev-list --count HEAD`).
# `cargo xtask test` writes it, `cargo xtask test --coverage` says what it means. Of two lines for one share the later one counts,
# so that a merge may keep both (.gitattributes).
";

/// A set of tests, and how many shares its cells are run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) shares: u32,
}

/// A share that has passed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) set: String,
    #[serde(deserialize_with = "share")]
    pub(super) share: Share,
    pub(super) landing: u64,
    pub(super) commit: String,
    pub(super) date: String,
    /// How many were run.
    pub(super) cells: usize,
    /// Of what was left to chance.
    pub(super) seed: Option<u64>,
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

impl Entry {
    fn line(&self) -> String {
        let Self { set, share, landing, commit, date, cells, seed } = self;
        let seed = seed.map(|seed| format!(", seed = {seed}")).unwrap_or_default();
        format!(
            "    {{ set = \"{set}\", share = \"{share}\", landing = {landing}, commit = \"{commit}\", date = \"{date}\", cells = {cells}{seed} }},\n"
        )
    }
}

/// All of it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ledger {
    #[serde(default)]
    shares: Vec<Entry>,
}

impl Ledger {
    /// Reads its text.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| Error::Lacking(format!("parse {FILE}: {error}")))
    }

    /// Reads the file; nothing where there is none.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::file("read", path)(error)),
            Ok(text) => Self::parse(&text),
        }
    }

    /// The last time that a share passed.
    pub(super) fn last(&self, set: Set, share: Share) -> Option<&Entry> {
        let mine = self.shares.iter().filter(|entry| entry.set == set.name && entry.share == share);
        mine.max_by_key(|entry| entry.landing)
    }

    /// Adds one.
    pub(super) fn add(&mut self, entry: Entry) {
        self.shares.push(entry);
    }

    /// The text of the file: the last word on each share of these sets, in their order. What was a share when a set had another
    /// number of them is none.
    pub(super) fn text(&self, sets: &[Set]) -> String {
        let of_set = |set: &Set| {
            let set = *set;
            Share::all(set.shares).filter_map(move |share| self.last(set, share)).map(Entry::line)
        };
        let lines: String = sets.iter().flat_map(of_set).collect();
        format!("{HEAD}shares = [\n{lines}]\n")
    }
}

/// The ledger of this tree, into which what passes is entered at once.
pub(super) struct Book {
    tree: PathBuf,
    sets: Vec<Set>,
    /// Where the tree was when the run began.
    landing: Landing,
    /// What has passed in this run, also where the tree has changes.
    passed: Mutex<Ledger>,
}

impl Book {
    /// That of a tree, of which this is the landing.
    pub(super) fn open(tree: &Path, sets: Vec<Set>, landing: Landing) -> Result<Self, Error> {
        let passed = Mutex::new(Ledger::read(&tree.join(FILE))?);
        Ok(Self { tree: tree.to_path_buf(), sets, landing, passed })
    }

    /// What it says now.
    pub(super) fn ledger(&self) -> Ledger {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Enters a share that has passed, unless the tree is not, or no longer, a commit: then says so.
    pub(super) fn enter(
        &self,
        set: &str,
        share: Share,
        cells: usize,
        seed: Option<u64>,
    ) -> Result<(), Error> {
        // Lanes go side by side.
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Landing::of(&self.tree);
        let void = now.void.or((now != self.landing).then_some("another commit was checked out meanwhile"));
        if let Some(why) = void {
            println!("{set} {share} is not in the ledger: {why}");
            return Ok(());
        }
        let date = run::text(Command::new("date").args(["--utc", "+%F"]))?.trim().to_owned();
        let (set, landing, commit) = (set.to_owned(), now.number, now.commit);
        // What others have written meanwhile stays.
        let path = self.tree.join(FILE);
        let mut ledger = Ledger::read(&path)?;
        ledger.add(Entry { set, share, landing, commit, date, cells, seed });
        // At once or not at all: whoever is stopped in the middle of this leaves what was there.
        let partial = self.tree.join("target/ledger.partial");
        std::fs::write(&partial, ledger.text(&self.sets)).map_err(Error::file("write", &partial))?;
        std::fs::rename(&partial, &path).map_err(Error::file("replace", &path))?;
        *passed = ledger;
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::landing;
    use super::*;

    pub(in crate::test) const SETS: &[Set] =
        &[Set { name: "matrix", shares: 3 }, Set { name: "soak", shares: 1 }];

    pub(in crate::test) fn entry(set: &str, share: &str, landing: u64) -> Entry {
        let (set, share, commit) = (set.to_owned(), share.parse().unwrap(), format!("c{landing}"));
        let seed = (set == "soak").then_some(7);
        Entry { set, share, landing, commit, date: "2026-11-28".into(), cells: 12, seed }
    }

    pub(in crate::test) fn ledger(entries: &[(&str, &str, u64)]) -> Ledger {
        Ledger { shares: entries.iter().map(|(set, share, landing)| entry(set, share, *landing)).collect() }
    }

    #[test]
    fn what_is_written_is_read_back_sorted_a_line_for_each_share() {
        let ledger = ledger(&[("soak", "1/1", 3), ("matrix", "3/3", 5), ("matrix", "1/3", 4)]);
        let text = ledger.text(SETS);
        let lines: Vec<_> = text.lines().filter(|line| line.contains("set = ")).collect();
        assert_eq!(
            lines,
            [
                r#"    { set = "matrix", share = "1/3", landing = 4, commit = "c4", date = "2026-11-28", cells = 12 },"#,
                r#"    { set = "matrix", share = "3/3", landing = 5, commit = "c5", date = "2026-11-28", cells = 12 },"#,
                r#"    { set = "soak", share = "1/1", landing = 3, commit = "c3", date = "2026-11-28", cells = 12, seed = 7 },"#,
            ]
        );
        let read = Ledger::parse(&text).unwrap();
        assert_eq!(read.text(SETS), text);
        assert_eq!(read.last(SETS[1], "1/1".parse().unwrap()), Some(&entry("soak", "1/1", 3)));
    }

    #[test]
    fn of_two_lines_that_a_merge_has_kept_the_later_landing_counts() {
        let merged = ledger(&[("matrix", "1/3", 9), ("matrix", "1/3", 4)]);
        assert_eq!(merged.last(SETS[0], "1/3".parse().unwrap()).unwrap().landing, 9);
        assert_eq!(merged.text(SETS).matches("set = ").count(), 1);
    }

    #[test]
    fn a_share_of_another_number_of_shares_and_a_set_that_is_gone_are_void() {
        let old = ledger(&[("matrix", "1/4", 9), ("matrix", "3/4", 9), ("gone", "1/1", 9)]);
        assert_eq!(old.last(SETS[0], "1/3".parse().unwrap()), None);
        assert_eq!(old.text(SETS).matches("set = ").count(), 0);
    }

    #[test]
    fn what_passes_is_entered_at_once_beside_what_others_enter_and_never_of_a_tree_with_changes() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path();
        for name in ["tests", "target"] {
            std::fs::create_dir(tree.join(name)).unwrap();
        }
        std::fs::write(tree.join(".gitignore"), "target").unwrap();
        landing::tests::commit(tree, ".gitignore");
        let book = || Book::open(tree, SETS.to_vec(), Landing::of(tree)).unwrap();
        let shares = || Ledger::read(&tree.join(FILE)).unwrap().shares.into_iter().map(|entry| entry.share);
        let (one, other): (Share, Share) = ("1/3".parse().unwrap(), "3/3".parse().unwrap());
        let (first, second) = (book(), book());
        first.enter("matrix", other, 5, None).unwrap();
        second.enter("matrix", one, 5, None).unwrap();
        assert_eq!(shares().collect::<Vec<_>>(), [one, other]);
        assert_eq!(second.ledger().last(SETS[0], other).map(|entry| entry.landing), Some(1));

        std::fs::write(tree.join("tests/new"), "").unwrap();
        first.enter("matrix", "2/3".parse().unwrap(), 5, None).unwrap();
        assert_eq!(shares().count(), 2, "with a new file");
        landing::tests::commit(tree, "tests/new");
        first.enter("matrix", "2/3".parse().unwrap(), 5, None).unwrap();
        assert_eq!(shares().count(), 2, "at another commit than it began at");
        book().enter("matrix", "2/3".parse().unwrap(), 5, None).unwrap();
        assert_eq!(shares().count(), 3);
    }

    #[test]
    fn a_file_that_is_damaged_is_an_error_and_none_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Ledger::read(&folder.path().join("none")).unwrap(), Ledger::default());
        for text in ["shares = 1", "shares = [ { set = \"a\" } ]", "shares = [", "others = []"] {
            assert!(Ledger::parse(text).is_err(), "{text}");
        }
    }
}
