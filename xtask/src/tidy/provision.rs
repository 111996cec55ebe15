//! What the script that provisions the Vagrant box brings to the kernel tests: whatever program of ours they ask for.

use std::collections::BTreeSet;

use super::Source;
use crate::dist;

const SCRIPT: &str = "vagrant/provision.sh";
const BUILD: &str = "vagrant/build.sh";
const IMAGE: &str = "xtask/src/vm/debian.rs";
const MANIFEST: &str = "chaos-daemon/Cargo.toml";
const TESTS: &str = "tests/src/";
const TEST_PROGRAMS: &str = "tests/src/bin/";
/// It starts other builds, in a folder of its own, and is no kernel test.
const SABOTAGE: &str = "tests/src/sabotage.rs";

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let text = |path| {
        sources.iter().find(|source| source.path == path).map_or("", |source: &Source| source.text.as_str())
    };
    let brought: BTreeSet<&str> = text(SCRIPT)
        .lines()
        .filter_map(|line| line.strip_prefix("for name in ")?.strip_suffix("; do"))
        .flat_map(str::split_whitespace)
        .collect();
    let mut problems = Vec::new();
    for (name, flags) in asked_for(sources, text(MANIFEST)) {
        let mut lacks =
            |path: &str| problems.push(format!("{path}: lacks {name}, which kernel tests ask for"));
        if !brought.contains(name.as_str()) {
            lacks(SCRIPT);
        }
        if dist::PROGRAMS.contains(&name.as_str()) {
            continue;
        }
        if !text(BUILD).lines().any(|line| line.starts_with("cargo build ") && line.ends_with(&flags)) {
            lacks(BUILD);
        }
        if !text(IMAGE).contains(&format!("\"{name}\"")) {
            lacks(IMAGE);
        }
    }
    problems.extend(left_out(sources, text(SCRIPT)));
    problems
}

/// Our programs that the sources of the tests name, each with what has cargo build it.
fn asked_for(sources: &[Source], manifest: &str) -> Vec<(String, String)> {
    let of_tests =
        sources.iter().filter_map(|source| source.path.strip_prefix(TEST_PROGRAMS)?.strip_suffix(".rs"));
    let of_daemon = manifest
        .split("[[bin]]")
        .skip(1)
        .filter_map(|table| table.split_once("name = \"")?.1.split_once('"').map(|(name, _)| name));
    let programs = of_tests
        .filter(|name| name.starts_with("chaos-"))
        .map(|name| (name.to_owned(), "--package chaos-tests --bins".to_owned()))
        .chain(of_daemon.map(|name| (name.to_owned(), format!("--bin {name}"))));
    let callers: Vec<_> = sources
        .iter()
        .filter(|source| source.path.starts_with(TESTS) && !source.path.starts_with(TEST_PROGRAMS))
        .filter(|source| source.path != SABOTAGE)
        .collect();
    programs
        .filter(|(name, _)| callers.iter().any(|source| source.text.contains(&format!("\"{name}\""))))
        .collect()
}

/// The test that the script leaves out has to be one.
fn left_out(sources: &[Source], script: &str) -> Option<String> {
    let test = script.lines().find_map(|line| line.strip_prefix("test="))?;
    let function = format!("fn {}(", test.rsplit("::").next().unwrap_or(test));
    let mut tests = sources.iter().filter(|source| source.path.starts_with(TESTS));
    let is_there = tests.any(|source| source.text.contains(&function));
    (!is_there).then(|| format!("{SCRIPT}: leaves out {test}, which is no test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: &str =
        r#"binary("chaosctl"); binary("chaos-worker"); start_program("chaos-daemon-failing"); fn a(x) {}"#;
    const PROVISION: &str =
        "for name in chaosctl; do\nfor name in chaos-worker chaos-daemon-failing; do\ntest=m::a\n";
    const BUILT: &str = "cargo build --package chaos-tests --bins\ncargo build --bin chaos-daemon-failing\n";
    const PACKED: &str = r#"["chaos-worker", "chaos-daemon-failing"]"#;

    fn problems(script: &str, build: &str, image: &str) -> Vec<String> {
        let bins = "[[bin]]\nname = \"chaosctl\"\n[[bin]]\nname = \"chaos-daemon-failing\"\n";
        let tree = [
            ("tests/src/kernel/a.rs", ASKS),
            ("tests/src/bin/chaos-worker.rs", ""),
            (MANIFEST, bins),
            (SCRIPT, script),
            (BUILD, build),
            (IMAGE, image),
        ];
        check(&tree.map(|(path, text)| Source { path: path.into(), text: text.into() }))
    }

    #[test]
    fn whatever_the_kernel_tests_ask_for_is_built_packed_and_brought() {
        assert_eq!(problems(PROVISION, BUILT, PACKED), [""; 0]);
        for name in ["chaosctl", "chaos-worker", "chaos-daemon-failing"] {
            assert_eq!(problems(&PROVISION.replace(name, ""), BUILT, PACKED).len(), 1, "{name}");
        }
        for name in ["chaos-worker", "chaos-daemon-failing"] {
            assert_eq!(problems(PROVISION, BUILT, &PACKED.replace(name, "")).len(), 1, "{name}");
        }
        for flags in ["--bins", "--bin chaos-daemon-failing"] {
            assert_eq!(problems(PROVISION, &BUILT.replace(flags, ""), PACKED).len(), 1, "{flags}");
        }
    }

    #[test]
    fn what_the_script_leaves_out_is_a_test() {
        assert_eq!(problems(&PROVISION.replace("m::a", "m::b"), BUILT, PACKED).len(), 1);
    }
}
