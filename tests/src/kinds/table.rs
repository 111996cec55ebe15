//! The table of all kinds: which tests measure what a kind does, by something that has nothing of the daemon (ping, sockets, stat,
//! procfs): before, during and after. `cargo xtask kinds` makes it of this and of what they said on each kernel.

use chaos_daemon::spec::{FAULT_TYPES, FaultType};
use serde::Serialize;

use super::of;
use crate::runner::FIGURE;

/// What a test puts before the words in which the daemon refuses a kind, behind [`FIGURE`]; xtask looks for it.
const IMPOSSIBLE: &str = "not possible: ";

/// Likewise of a kind that nobody has tried, though it may be possible.
const UNTRIED: &str = "not tried: ";

/// Says, for the table, with which words the daemon has refused a kind, which the table knows there by this name.
pub(crate) fn impossible(of: &str, words: &str) {
    say(IMPOSSIBLE, of, words);
}

/// Says, for the table, why nobody tries a kind here, in a few words, and what the daemon has said when it was asked for.
pub(crate) fn untried(of: &str, why: &str, words: &str) {
    say(UNTRIED, of, &format!("{why}: {words}"));
}

fn say(what: &str, of: &str, words: &str) {
    println!("{FIGURE}{what}{of}: {}", words.replace('\n', " ").trim());
}

/// Which program has the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suite {
    /// On this host and on every kernel of the VM.
    Kernel,
    /// With the package, in a VM with systemd.
    Systemd,
}

impl Suite {
    const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel-tests",
            Self::Systemd => "systemd-tests",
        }
    }

    fn full(self, test: &str) -> String {
        format!("{}::{test}", self.name())
    }
}

/// A part of a kind, and who has seen it act.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    what: &'static str,
    suite: Suite,
    tests: &'static [&'static str],
    /// The kernel test that sees it refused where it is not possible, and how that calls it.
    refused: Option<(&'static str, &'static str)>,
}

/// Possible on every kernel that there is.
pub(super) const fn part(what: &'static str, tests: &'static [&'static str]) -> Part {
    Part { what, suite: Suite::Kernel, tests, refused: None }
}

/// Of a unit, tried by the installed package, where there is a service manager.
pub(super) const fn of_unit(tests: &'static [&'static str]) -> Part {
    let refused = Some(("lacks::a_unit_that_nobody_has_is_refused_by_name", "a unit"));
    Part { what: "of a unit", suite: Suite::Systemd, tests, refused }
}

impl Part {
    /// Where it is not possible, this kernel test has the daemon say so, of what it calls `of`.
    pub(super) const fn unless(self, test: &'static str, of: &'static str) -> Self {
        Self { refused: Some((test, of)), ..self }
    }
}

/// What many kinds have a part for.
pub(super) const OF_CGROUP: &str = "of a cgroup";

/// Packets, calls and files of a unit.
pub(super) const SCOPED: Part = of_unit(&[
    "first_boot::scopes::packets_calls_and_files_of_a_unit_meet_faults_of_its_own_and_nobody_elses_do",
]);

/// Who sees what needs netem refused.
const NO_NETEM: &str = "lacks::without_netem_whatever_needs_it_is_refused_by_name_and_nothing_is_changed";

/// Of what needs netem, by one of the names that its [`Needs`](super::needs::Needs) have.
pub(super) const fn netem(of: &'static str, what: &'static str, tests: &'static [&'static str]) -> Part {
    part(what, tests).unless(NO_NETEM, of)
}

/// Of what is lost, corrupted and reordered by netem.
pub(super) const fn inwards(of: &'static str) -> Part {
    netem(
        of,
        "on the way in, IPv4 and IPv6",
        &[
            "impairments::what_arrives_is_lost_corrupted_and_reordered_on_both_families_and_what_leaves_is_not",
        ],
    )
}

/// Of a service, by its fault type.
pub(super) const fn service(of: &'static str, tests: &'static [&'static str]) -> Part {
    of_unit(tests).unless("supervised::refusals::services_that_nobody_can_stop_are_refused_by_name", of)
}

/// Of the host, which goes down.
pub(super) const fn down(of: &'static str, what: &'static str, tests: &'static [&'static str]) -> Part {
    Part { what, ..of_unit(tests) }
        .unless("policy::taking_the_host_down_is_refused_by_the_default_policy_and_leaves_nothing_behind", of)
}

/// A line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The fault type, and the resource if it has one.
    pub kind: String,
    /// What of it.
    pub what: &'static str,
    /// Tests that all see it act, with their suite.
    pub tests: Vec<String>,
    /// Who sees it refused where it is not possible.
    pub refused: Option<Refused>,
}

/// A test that passes where a kind is not possible or not tried, and says why.
#[derive(Debug, Clone, Serialize)]
pub struct Refused {
    /// With its suite.
    pub test: String,
    /// What its words begin with if it has seen that the kind is not possible.
    pub begins: String,
    /// What they begin with if it has seen only why nobody tries it.
    pub untried: String,
}

/// What there is of a fault type.
#[derive(Debug, Clone, Copy)]
pub(super) enum Table {
    /// Its parts.
    Whole(&'static [Part]),
    /// The parts of each resource.
    OfResources(&'static [OfResource]),
}

/// A resource, and its parts.
type OfResource = (&'static str, &'static [Part]);

/// Every line.
pub fn rows() -> Vec<Row> {
    let whole = |kind: &FaultType| match of(*kind).table {
        Table::Whole(parts) => named(kind.name(), parts),
        Table::OfResources(all) => {
            let of = |(resource, parts): &OfResource| named(&format!("{} {resource}", kind.name()), parts);
            all.iter().flat_map(of).collect()
        }
    };
    FAULT_TYPES.iter().flat_map(whole).collect()
}

fn named(kind: &str, parts: &'static [Part]) -> Vec<Row> {
    let row = |part: &Part| Row {
        kind: kind.to_owned(),
        what: part.what,
        tests: part.tests.iter().map(|test| part.suite.full(test)).collect(),
        refused: part.refused.map(|(test, of)| Refused {
            test: Suite::Kernel.full(test),
            begins: format!("{IMPOSSIBLE}{of}: "),
            untried: format!("{UNTRIED}{of}: "),
        }),
    };
    parts.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use chaos_daemon::spec::resource;

    use super::*;
    use crate::{kernel, systemd};

    #[test]
    fn every_fault_type_and_every_resource_has_a_line() {
        let rows = rows();
        let has = |kind: &str| rows.iter().any(|row| row.kind == kind);
        let types = FAULT_TYPES.iter().filter(|kind| **kind != FaultType::ResourceExhaustion);
        let kinds = types.map(|kind| kind.name().to_owned());
        let missing = kinds
            .chain(resource::names().map(|resource| format!("resource_exhaustion {resource}")))
            .filter(|kind| !has(kind));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new());
        assert!(rows.iter().all(|row| !row.tests.is_empty()));
    }

    #[test]
    fn whoever_is_named_is_a_test() {
        let all: BTreeSet<_> = kernel::all()
            .iter()
            .map(|test| Suite::Kernel.full(test.name))
            .chain(systemd::all().iter().map(|(name, _)| Suite::Systemd.full(name)))
            .collect();
        for row in rows() {
            let named = row.tests.iter().chain(row.refused.iter().map(|refused| &refused.test));
            let unknown: Vec<_> = named.filter(|test| !all.contains(*test)).collect();
            assert!(unknown.is_empty(), "{} {}: {unknown:?}", row.kind, row.what);
        }
    }

    #[test]
    fn no_two_lines_are_one() {
        let rows = rows();
        let names: BTreeSet<_> = rows.iter().map(|row| (&row.kind, row.what)).collect();
        assert_eq!(names.len(), rows.len());
    }
}
