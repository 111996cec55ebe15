//! What `cargo xtask test` can be asked for.

use std::time::Duration;

use clap::Args;

use super::steps::{Step, steps};

/// For how many minutes a whole run begins cells.
const MINUTES: u64 = 35;

/// Options of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only this step; may be repeated
    #[arg(long, value_parser = steps().map(|step| step.name).collect::<Vec<_>>())]
    pub(super) only: Vec<String>,
    /// Only what can notice the changes since a revision; says what it leaves out
    #[arg(long, conflicts_with_all = ["only", "long", "coverage", "one"])]
    pub(super) affected: bool,
    /// That revision. Default: main; on main itself, the last commit
    #[arg(long, value_name = "REV", requires = "affected")]
    pub(super) base: Option<String>,
    /// Leave out what needs QEMU
    #[arg(long)]
    pub(super) no_vm: bool,
    /// Go on where the ledger ends: shares of what takes long, those that never ran first, then the oldest
    #[arg(long, conflicts_with = "one")]
    pub(super) long: bool,
    /// Begin no share, and no cell of one, when so many minutes are over. Default: 35 of a whole run. With --long, end the last share
    #[arg(long, value_name = "M", conflicts_with = "coverage")]
    pub(super) minutes: Option<u64>,
    /// Run nothing: print which shares have run since which commit, and which never
    #[arg(long, conflicts_with_all = ["long", "one", "under_load"])]
    pub(super) coverage: bool,
    /// As JSON
    #[arg(long, requires = "coverage")]
    pub(super) json: bool,
    /// Beside two processes that use up all the processor time they get
    #[arg(long)]
    pub(super) under_load: bool,
    #[command(flatten)]
    pub(super) one: OfOne,
}

/// What is run of one step, which `--only` names.
#[derive(Args)]
#[group(id = "one", multiple = true)]
pub(super) struct OfOne {
    /// Of one step, another share than this landing's, from 1
    #[arg(long, value_name = "K", conflicts_with_all = ["cell", "filter"], value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) share: Option<u32>,
    /// Of one step, the cell, or the test, of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(super) cell: Vec<String>,
    /// Of one step, what has this in its name; may be repeated (of unit tests, a package)
    #[arg(long, value_name = "TEXT")]
    pub(super) filter: Vec<String>,
    /// Of one step, which calls and events are struck of those that a stride leaves out: every run says its own
    #[arg(long, value_name = "N")]
    pub(super) offset: Option<u64>,
}

impl OfOne {
    /// Why a step cannot be run so, if so.
    fn refused_by(&self, step: &Step) -> Option<String> {
        let name = step.name;
        if self.share.is_some_and(|share| share > step.shares) {
            return Some(format!("--share: {name} has {} shares", step.shares));
        }
        let given = [
            ("--cell", !self.cell.is_empty(), step.takes.cells),
            ("--filter", !self.filter.is_empty(), step.takes.filters),
            ("--offset", self.offset.is_some(), step.takes.offset),
        ];
        let (option, ..) = given.into_iter().find(|(_, is_given, is_taken)| *is_given && !is_taken)?;
        Some(format!("{option}: {name} has no such choice"))
    }

    fn is_given(&self) -> bool {
        self.share.is_some() || self.offset.is_some() || !self.cell.is_empty() || !self.filter.is_empty()
    }
}

impl Options {
    /// How long shares and their cells are begun, if there is a limit. Of everything there is, those are begun that a landing has time
    /// for.
    pub(super) fn limit(&self) -> Option<Duration> {
        let is_whole = self.only.is_empty() && !self.affected && !self.long;
        self.minutes.or(is_whole.then_some(MINUTES)).map(|minutes| Duration::from_secs(60 * minutes))
    }

    pub(super) fn wants(&self, step: &Step) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == step.name)
    }

    /// Why a step is not run at a landing, if so.
    pub(super) fn leaves_out(&self, step: &Step, landing: u64) -> Option<String> {
        let is_asked_for = self.long || self.affected || !self.only.is_empty();
        match self.no_vm && step.needs_qemu() {
            true => Some("--no-vm".to_owned()),
            false if is_asked_for => None,
            false => step.waits_at(landing),
        }
    }

    /// Why nothing can be run by these, if so.
    pub(super) fn problem(&self) -> Option<String> {
        let mut chosen = steps().filter(|step| !self.only.is_empty() && self.wants(step));
        match (self.one.is_given(), chosen.next(), chosen.next()) {
            (false, ..) => None,
            (true, Some(step), None) => self.one.refused_by(step),
            _ => Some("--share, --cell, --filter and --offset are for one step, which --only names".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn problem(words: &str) -> Option<String> {
        let line = Line::try_parse_from(["test"].into_iter().chain(words.split_whitespace()));
        line.map_or_else(|error| Some(error.to_string()), |line| line.options.problem())
    }

    #[test]
    fn what_is_of_one_step_needs_one_that_has_it() {
        for words in
            ["--only matrix --cell a --offset 7", "--only matrix --share 1", "--only host --filter dns::"]
        {
            assert_eq!(problem(words), None, "{words}");
        }
        for words in [
            "--cell a",
            "--only matrix --only sweep --cell a",
            "--only report --cell a",
            "--only host --offset 7",
            "--only host --share 1",
            "--only matrix --share 13",
            "--only matrix --share 0",
            "--only matrix --share 1 --cell a",
        ] {
            assert!(problem(words).is_some(), "{words}");
        }
    }

    #[test]
    fn what_goes_on_chooses_by_itself_and_coverage_runs_nothing() {
        for words in [
            "--long --minutes 5 --only matrix",
            "--minutes 90",
            "--only sweep --minutes 5",
            "--coverage --json --only sweep",
            "--under-load --only soak",
            "--affected --base HEAD",
        ] {
            assert_eq!(problem(words), None, "{words}");
        }
        for words in [
            "--coverage --minutes 5",
            "--json",
            "--long --only matrix --share 1",
            "--coverage --long",
            "--base HEAD",
            "--affected --only unit",
        ] {
            assert!(problem(words).is_some(), "{words}");
        }
    }
}
