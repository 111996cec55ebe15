//! `cargo xtask test --affected`: from the files that a change touches to the steps that can notice it.
//!
//! One table of prefixes, the narrowest first. A file that no line names asks for everything that runs on this machine: better an
//! hour too much than a fault that nobody has looked for.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::error::Error;
use crate::{kinds, run};

/// Steps of the test command, with what each is to run of itself; without a filter, all of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// The revision since which something has changed, and how many files have.
    base: String,
    files: usize,
    steps: BTreeMap<&'static str, BTreeSet<String>>,
    whole: BTreeSet<&'static str>,
}

/// So many names of a step are shown, and of more how many they are.
const MOST_SHOWN: usize = 6;

impl Selection {
    fn ask(&mut self, asks: &[Ask]) {
        asks.iter().for_each(|(step, filters)| self.add(step, filters));
    }

    fn add(&mut self, step: &'static str, filters: &[&str]) {
        let known = self.steps.entry(step).or_default();
        known.extend(filters.iter().map(ToString::to_string));
        if filters.is_empty() {
            self.whole.insert(step);
        }
    }

    /// Whether a step is to run.
    pub(super) fn has(&self, step: &str) -> bool {
        self.steps.contains_key(step)
    }

    /// For people: what is run, and what is left out.
    pub(super) fn lines(&self, steps: impl Iterator<Item = &'static str>) -> Vec<String> {
        let (run, left): (Vec<_>, Vec<_>) = steps.partition(|step| self.has(step));
        let shown = |step: &&str| match self.filters(step).len() {
            0 => format!("  {step}"),
            1..=MOST_SHOWN => format!("  {step}: {}", self.filters(step).join(", ")),
            count => format!("  {step}: {count} names"),
        };
        let mut lines = vec![format!("changed since {}: {} files", self.base, self.files)];
        lines.extend(run.iter().map(shown));
        lines.push(format!("left out, as no change reaches them: {}", left.join(", ")));
        lines
    }

    /// What a step is to run of itself; empty: all of it.
    pub(super) fn filters(&self, step: &str) -> Vec<String> {
        match self.steps.get(step) {
            Some(filters) if !self.whole.contains(step) => filters.iter().cloned().collect(),
            _ => Vec::new(),
        }
    }
}

/// Of a step, the tests whose names contain one of these, or the kinds; empty: all of it.
type Ask = (&'static str, &'static [&'static str]);

const FORMAT: Ask = ("fmt", &[]);
const TIDY: Ask = ("tidy", &[]);
const CLIPPY: Ask = ("clippy", &[]);
const OBJECT: Ask = ("ebpf", &[]);
const DAEMON: Ask = ("unit", &["chaos-daemon"]);
const ADVISE: Ask = ("unit", &["chaos-advise"]);
const AUDIT: Ask = ("unit", &["chaos-audit"]);
const SEARCH: Ask = ("unit", &["chaos-search"]);
const COMMON: Ask = ("unit", &["chaos-common"]);
const TESTS: Ask = ("unit", &["chaos-tests"]);
const XTASK: Ask = ("unit", &["xtask"]);
const HOST: Ask = ("host", &[]);

const fn host(filters: &'static [&'static str]) -> Ask {
    ("host", filters)
}

/// What a file asks for that no line names.
const EVERYTHING: &[Ask] = &[
    OBJECT,
    ("unit", &[]),
    HOST,
    ("matrix", &[]),
    ("sweep", &[]),
    ("sabotage", &[]),
    ("mcp-client", &[]),
    ("chaostoolkit", &[]),
    ("report", &[]),
    ("servers", &[]),
    ("vagrant", &[]),
    ("soak", &[]),
    ("kills", &[]),
    ("hostile", &[]),
    ("vm", &[]),
];

/// What begins so asks for this. The first line that fits counts.
const RULES: &[(&str, &[Ask])] = &[
    // The unprivileged side.
    (
        "chaos-daemon/src/probe/",
        &[
            DAEMON,
            host(&["kernel-tests::probes::", "kernel-tests::credentials::", "kernel-tests::programs::"]),
        ],
    ),
    ("chaos-daemon/src/report/", &[DAEMON, ("report", &[])]),
    ("chaos-daemon/src/cli/", &[DAEMON, host(&["kernel-tests::hub::", "kernel-tests::experiments::"])]),
    (
        "chaos-daemon/src/mcp/",
        &[DAEMON, ("mcp-client", &[]), ("hostile", &[]), host(&["kernel-tests::bad_input::"])],
    ),
    (
        "chaos-daemon/src/experiment/",
        &[
            DAEMON,
            ("chaostoolkit", &[]),
            ("mcp-client", &[]),
            ("report", &[]),
            host(&["kernel-tests::experiments::", "kernel-tests::verdicts::", "kernel-tests::hub::"]),
        ],
    ),
    (
        "chaos-daemon/src/server/",
        &[
            DAEMON,
            ("mcp-client", &[]),
            ("hostile", &[]),
            host(&["kernel-tests::hub::", "kernel-tests::experiments::"]),
        ],
    ),
    ("chaos-daemon/src/policy/", &[DAEMON, host(&["kernel-tests::policy::"])]),
    ("chaos-daemon/src/fuzzing/", &[DAEMON]),
    ("chaos-daemon/tests/mcp/", &[DAEMON]),
    ("chaos-daemon/experiments/", &[DAEMON, ("servers", &[])]),
    ("chaos-daemon/search/", &[SEARCH, DAEMON]),
    ("chaos-daemon/advise/", &[ADVISE, DAEMON, host(&["kernel-tests::advice::"])]),
    ("chaos-daemon/audit/", &[AUDIT, DAEMON, host(&["kernel-tests::audit::"])]),
    // What holds, ends and recovers faults, of every kind.
    (
        "chaos-daemon/",
        &[
            DAEMON,
            HOST,
            ("matrix", &[]),
            ("sweep", &[]),
            ("sabotage", &[]),
            ("soak", &[]),
            ("kills", &[]),
            ("hostile", &[]),
        ],
    ),
    // What packets and calls meet.
    ("chaos-common/", &[COMMON, OBJECT, DAEMON, HOST, ("vm", &[]), ("kills", &[])]),
    ("chaos-ebpf/", &[OBJECT, HOST, ("vm", &[]), ("kills", &[])]),
    // The tests themselves.
    ("fuzz/", &[DAEMON]),
    ("tests/tests/servers/", &[("servers", &[])]),
    ("tests/mcp/", &[("mcp-client", &[])]),
    ("tests/chaostoolkit/", &[("chaostoolkit", &[])]),
    ("tests/report/", &[("report", &[])]),
    ("tests/kubernetes/", &[("kubernetes", &[])]),
    ("tests/systemd/", &[("systemd", &[])]),
    ("tests/src/systemd/", &[TESTS, ("systemd", &[])]),
    ("tests/src/jobs.rs", &[TESTS, host(&["runner::"]), ("vm", &["abilities::"])]),
    ("tests/src/programs/vm_init.rs", &[TESTS, host(&["runner::"]), ("vm", &["abilities::"])]),
    ("tests/src/matrix/", &[TESTS, ("matrix", &[])]),
    ("tests/src/sweep/", &[TESTS, ("sweep", &[]), ("matrix", &[])]),
    ("tests/src/soak/", &[TESTS, ("soak", &[])]),
    ("tests/src/kills/", &[TESTS, ("kills", &[])]),
    ("tests/src/hostile/", &[TESTS, ("hostile", &[])]),
    ("tests/src/sabotage", &[TESTS, ("sabotage", &[])]),
    ("tests/src/bench/", &[TESTS]),
    ("tests/src/demo/", &[TESTS]),
    (
        "tests/src/kinds/",
        &[
            TESTS,
            ("matrix", &[]),
            ("sweep", &[]),
            ("kills", &[]),
            ("hostile", &[]),
            host(&["kernel-tests::lacks::", "kernel-tests::dry_runs::"]),
        ],
    ),
    ("tests/ledger.toml", &[XTASK]),
    // What builds and runs them.
    ("xtask/src/vm/", &[XTASK, ("vm", &["abilities::"])]),
    ("xtask/", &[XTASK]),
    ("systemd/", &[DAEMON, ("systemd", &[])]),
    ("vagrant/", &[("vagrant", &[])]),
    ("rustfmt.toml", &[]),
    ("clippy.toml", &[]),
    (".gitignore", &[]),
];

/// The folder of every kind of fault.
const FAULTS: &str = "chaos-daemon/src/fault/";
/// Files of faults that are not called as their kinds, or whose kinds are several.
const KINDS_OF: &[(&str, &[&str])] = &[
    ("cpu", &["resource_exhaustion cpu"]),
    ("memory", &["resource_exhaustion memory"]),
    ("oom", &["resource_exhaustion memory"]),
    ("disk_fill", &["resource_exhaustion disk_fill"]),
    ("disk_io", &["resource_exhaustion disk_io"]),
    ("descriptors", &["resource_exhaustion file_descriptors"]),
    ("pids", &["resource_exhaustion pids"]),
    ("inodes", &["resource_exhaustion inodes"]),
    ("ports", &["resource_exhaustion ports"]),
    ("packet_drop", &["timeout", "network_partition"]),
];

/// What a file that changes is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Changed<'a> {
    path: &'a str,
    /// Whether more of it changes than comments.
    is_code: bool,
}

/// What a change asks for. `kinds`: of every kind of fault its name and a test that sees it act.
fn select(changed: &[Changed<'_>], kinds: &[(String, String)]) -> Selection {
    let mut selection = Selection::default();
    selection.ask(&[FORMAT, TIDY]);
    for Changed { path, .. } in changed.iter().filter(|changed| changed.is_code && !is_document(changed.path))
    {
        if is_rust(path) {
            selection.ask(&[CLIPPY]);
        }
        if of_kind(path, kinds, &mut selection) || of_kernel_tests(path, &mut selection) {
            continue;
        }
        let rule = RULES.iter().find(|(prefix, _)| path.starts_with(prefix));
        selection.ask(rule.map_or(EVERYTHING, |(_, asks)| asks));
    }
    selection
}

fn is_document(path: &str) -> bool {
    path.ends_with(".md") || path == "LICENSE"
}

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs") || path.ends_with("Cargo.toml") || path == "Cargo.lock"
}

/// A file of one kind of fault: its tests on this host and on a kernel that has all that it needs, and every end of it.
fn of_kind(path: &str, kinds: &[(String, String)], selection: &mut Selection) -> bool {
    let file = path.strip_prefix(FAULTS).and_then(|rest| rest.strip_suffix(".rs"));
    let Some(stem) = file.and_then(|file| file.rsplit('/').next()) else { return false };
    let own = [stem];
    let names = KINDS_OF.iter().find(|(file, _)| *file == stem).map_or(&own[..], |(_, names)| names);
    let tests: Vec<_> = kinds
        .iter()
        .filter(|(kind, _)| names.contains(&kind.as_str()))
        .map(|(_, test)| test.as_str())
        .collect();
    if tests.is_empty() {
        return false;
    }
    selection.ask(&[DAEMON]);
    let systemd = |test: &str| test.starts_with("systemd-tests::");
    for test in tests.into_iter().filter(|test| !systemd(test)) {
        selection.add("host", &[test]);
        selection.add("vm", &[test]);
    }
    for name in names {
        // Matrix, sweep and kills call what uses something up by what that is.
        let name = name.strip_prefix("resource_exhaustion ").unwrap_or(name);
        ["matrix", "sweep", "kills"].iter().for_each(|deep| selection.add(deep, &[name]));
    }
    true
}

/// A module of the kernel tests: its tests.
fn of_kernel_tests(path: &str, selection: &mut Selection) -> bool {
    let Some(module) = path.strip_prefix("tests/src/kernel/").map(|rest| rest.trim_end_matches(".rs")) else {
        return false;
    };
    let module = module.split('/').next().unwrap_or(module);
    if module == "mod" {
        return false;
    }
    selection.ask(&[TESTS]);
    selection.add("host", &[&format!("kernel-tests::{module}::")]);
    true
}

/// What the changes since a revision ask for.
pub(super) fn since(base: Option<&str>) -> Result<Selection, Error> {
    let base = base.map_or_else(usual_base, |base| Ok(base.to_owned()))?;
    let changed = changed_since(&base)?;
    let changed: Vec<_> = changed.iter().map(|(path, is_code)| Changed { path, is_code: *is_code }).collect();
    // Who sees a kind act is asked of a program, which has to be built.
    let needs_kinds = changed.iter().any(|changed| changed.is_code && changed.path.starts_with(FAULTS));
    let kinds = if needs_kinds { kinds::seers()? } else { Vec::new() };
    Ok(Selection { base, files: changed.len(), ..select(&changed, &kinds) })
}

/// What a branch has been taken from; on the main branch itself, what is committed.
fn usual_base() -> Result<String, Error> {
    const MAIN: &str = "main";
    let branch = run::text(Command::new("git").args(["branch", "--show-current"]).current_dir(run::root()))?;
    Ok(if branch.trim() == MAIN { "HEAD".to_owned() } else { MAIN.to_owned() })
}

/// What differs between a revision and the tree, with what is new and not yet added.
fn changed_since(base: &str) -> Result<Vec<(String, bool)>, Error> {
    let git = |words: &[&str]| run::text(Command::new("git").args(words).current_dir(run::root()));
    let fork = git(&["merge-base", base, "HEAD"])?;
    let mut changed: BTreeMap<String, bool> =
        of_diff(&git(&["diff", "--unified=0", "--no-renames", fork.trim()])?);
    for path in git(&["ls-files", "--others", "--exclude-standard"])?.lines() {
        changed.insert(path.to_owned(), true);
    }
    Ok(changed.into_iter().collect())
}

/// The paths of a diff, and whether a line of each is more than a comment. `git diff --no-renames` names both ends of a move.
fn of_diff(diff: &str) -> BTreeMap<String, bool> {
    let mut changed = BTreeMap::new();
    let mut path = String::new();
    for line in diff.lines() {
        if let Some(names) = line.strip_prefix("diff --git a/") {
            path = names.split(" b/").next().unwrap_or(names).to_owned();
            changed.entry(path.clone()).or_insert(false);
        } else if let Some(text) = line.strip_prefix(['+', '-']).filter(|_| !is_heading(line)) {
            let text = text.trim();
            let comment = text.is_empty() || (path.ends_with(".rs") && text.starts_with("//"));
            *changed.entry(path.clone()).or_insert(false) |= !comment;
        } else if line.starts_with("Binary files ") || line.starts_with("old mode ") {
            changed.insert(path.clone(), true);
        }
    }
    changed
}

fn is_heading(line: &str) -> bool {
    ["+++ ", "--- "].iter().any(|heading| line.starts_with(heading))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Vec<(String, String)> {
        [
            ("latency", "kernel-tests::effects::a_delay"),
            ("latency", "systemd-tests::of_a_unit"),
            ("resource_exhaustion cpu", "kernel-tests::cpu::burns"),
        ]
        .map(|(kind, test)| (kind.to_owned(), test.to_owned()))
        .into()
    }

    fn of(paths: &[&str]) -> Selection {
        let changed: Vec<_> = paths.iter().map(|path| Changed { path, is_code: true }).collect();
        select(&changed, &kinds())
    }

    #[test]
    fn documents_and_comments_ask_for_no_test() {
        let comment = [Changed { path: "chaos-daemon/src/holder/arm.rs", is_code: false }];
        for selection in [of(&["README.md", "docs/faults.md", "LICENSE"]), select(&comment, &kinds())] {
            assert_eq!(selection.steps.keys().copied().collect::<Vec<_>>(), ["fmt", "tidy"]);
        }
    }

    #[test]
    fn a_probe_asks_for_the_tests_of_probes_alone() {
        let selection = of(&["chaos-daemon/src/probe/tcp.rs"]);
        assert_eq!(selection.filters("unit"), ["chaos-daemon"]);
        assert!(selection.filters("host").contains(&"kernel-tests::probes::".to_owned()));
        assert!(!selection.has("matrix") && !selection.has("vm"));
    }

    #[test]
    fn a_fault_asks_for_its_own_tests_and_every_end_of_it() {
        let selection = of(&["chaos-daemon/src/fault/detour/latency.rs"]);
        assert_eq!(selection.filters("host"), ["kernel-tests::effects::a_delay"]);
        assert_eq!(selection.filters("vm"), ["kernel-tests::effects::a_delay"]);
        assert_eq!(selection.filters("sweep"), ["latency"]);
        assert_eq!(of(&["chaos-daemon/src/fault/cpu.rs"]).filters("matrix"), ["cpu"]);
    }

    #[test]
    fn whole_steps_are_not_narrowed_by_another_file() {
        let selection = of(&["chaos-daemon/src/fault/detour/latency.rs", "chaos-daemon/src/holder/arm.rs"]);
        assert!(selection.has("host") && selection.filters("host").is_empty());
    }

    #[test]
    fn a_file_that_no_line_names_asks_for_everything_here() {
        let selection = of(&["something/new.rs"]);
        assert!(["unit", "host", "matrix", "soak", "vm"].iter().all(|step| selection.has(step)));
    }

    #[test]
    fn a_diff_tells_comments_from_code_and_names_both_ends_of_a_move() {
        let diff = "diff --git a/x.rs b/x.rs\n--- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n-// old\n+// new\n\
            diff --git a/y.rs b/y.rs\n--- a/y.rs\n+++ b/y.rs\n@@ -1 +1 @@\n-let a = 1; // one\n+let a = 2;\n\
            diff --git a/z.yaml b/z.yaml\n+++ b/z.yaml\n+// no comment there\n\
            diff --git a/old.rs b/old.rs\n--- a/old.rs\n+++ /dev/null\n-fn a() {}\n";
        let changed = of_diff(diff);
        let expected = [("old.rs", true), ("x.rs", false), ("y.rs", true), ("z.yaml", true)];
        assert_eq!(changed, expected.map(|(path, code)| (path.to_owned(), code)).into());
    }
}
