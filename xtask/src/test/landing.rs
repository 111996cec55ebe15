//! Where the tree is: which landing, by the count of commits, and whether it has changes.

use std::path::Path;
use std::process::Command;

use super::ledger::FILE;
use crate::run;

/// The commit that is checked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Landing {
    /// How many commits it has behind it and is: `git rev-list --count HEAD`.
    pub(super) number: u64,
    /// Its short hash.
    pub(super) commit: String,
    /// Why nothing of this tree can be in the ledger, if so.
    pub(super) void: Option<&'static str>,
}

const NO_GIT: &str = "there is no git here, so that landings cannot be counted";
const SHALLOW: &str = "this clone is shallow, so that landings cannot be counted";
const CHANGED: &str = "the tree has changes";

impl Landing {
    /// Asks git of this tree. Without it, it is landing 0.
    pub(super) fn look() -> Self {
        Self::of(&run::root())
    }

    /// Asks git of a tree.
    pub(super) fn of(tree: &Path) -> Self {
        let git = |words: &[&str]| git(tree, words);
        let nowhere = |why| Self { number: 0, commit: "unknown".into(), void: Some(why) };
        let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return nowhere(NO_GIT) };
        if git(&["rev-parse", "--is-shallow-repository"]).is_none_or(|shallow| shallow != "false") {
            return Self { commit, ..nowhere(SHALLOW) };
        }
        let count = git(&["rev-list", "--count", "HEAD"]).and_then(|count| count.parse().ok());
        let Some(number) = count else { return Self { commit, ..nowhere(NO_GIT) } };
        // Whoever writes the ledger is not to stop the next one from doing so.
        let others = format!(":(exclude){FILE}");
        let changes = git(&["status", "--porcelain", "--", ".", &others]);
        let void = changes.is_none_or(|changes| !changes.is_empty()).then_some(CHANGED);
        Self { number, commit, void }
    }
}

fn git(tree: &Path, words: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    let text = run::text(command.arg("-C").arg(tree).args(words)).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    /// Does this in a tree, as somebody.
    fn does(tree: &Path, words: &[&str]) {
        let who = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false"];
        git(tree, &[who.as_slice(), words].concat()).unwrap_or_else(|| panic!("git {words:?}"));
    }

    /// Commits a file, in a repository that is made if there is none.
    pub(in crate::test) fn commit(tree: &Path, file: &str) {
        does(tree, &["init", "--quiet"]);
        does(tree, &["add", file]);
        does(tree, &["commit", "--quiet", "--message", file]);
    }

    #[test]
    fn landings_are_counted_and_the_ledger_alone_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path();
        assert_eq!(Landing::of(tree).void, Some(NO_GIT));
        fs::create_dir(tree.join("tests")).unwrap();
        for text in ["one", "two"] {
            fs::write(tree.join("file"), text).unwrap();
            commit(tree, "file");
        }
        fs::write(tree.join(FILE), "shares = []").unwrap();
        let landing = Landing::of(tree);
        assert_eq!((landing.number, landing.void), (2, None));
        assert_eq!(git(tree, &["rev-parse", &landing.commit]), git(tree, &["rev-parse", "HEAD"]));
        fs::write(tree.join("tests/other"), "").unwrap();
        assert_eq!(Landing::of(tree).void, Some(CHANGED));
    }

    #[test]
    fn a_shallow_clone_is_landing_0() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, shallow) = (folder.path().join("whole"), folder.path().join("shallow"));
        fs::create_dir(&whole).unwrap();
        does(&whole, &["init", "--quiet"]);
        for text in ["one", "two"] {
            does(&whole, &["commit", "--quiet", "--allow-empty", "--message", text]);
        }
        let (from, to) = (format!("file://{}", whole.display()), shallow.display().to_string());
        does(folder.path(), &["clone", "--quiet", "--depth", "1", &from, &to]);
        let landing = Landing::of(&shallow);
        assert_eq!((landing.number, landing.void), (0, Some(SHALLOW)));
    }
}
