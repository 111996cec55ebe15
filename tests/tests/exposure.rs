//! What `systemd-analyze security` counts against the units that are installed, and that each of it is explained in the unit.

#![cfg(test)]

use std::path::Path;
use std::process::Command;

use chaos_tests::runner::FIGURE;

/// The units, and the most that each may have, in tenths. The last two are not installed: they stand for what server and prober
/// give up by themselves.
const UNITS: &[(&str, u32)] = &[
    ("systemd/chaos-daemon.service", 30),
    ("systemd/chaos-daemon-guard.service", 30),
    ("tests/systemd/server-reference.service", 10),
    ("tests/systemd/prober-reference.service", 12),
];
/// How a line begins of what is counted.
const COUNTED: &str = "✗ ";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// What `systemd-analyze` says of a unit's file; it fails above the threshold.
fn analyzed(unit: &str, most: u32) -> (bool, String) {
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--no-pager", "--offline=yes", &format!("--threshold={most}")]);
    let output = command.arg(root().join(unit)).env("LC_ALL", "C.UTF-8").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(COUNTED), "{unit}: {said}{}", String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

/// What a line counts, as a unit calls it: `CAP_KILL` of `CapabilityBoundingSet=~CAP_KILL`.
fn counted(line: &str) -> Option<&str> {
    let name = line.strip_prefix(COUNTED)?.split_whitespace().next()?;
    let sets = ["CapabilityBoundingSet=~", "RestrictAddressFamilies=~", "SystemCallFilter=~"];
    Some(sets.iter().find_map(|set| name.strip_prefix(set)).unwrap_or(name))
}

#[test]
fn no_unit_is_exposed_more_than_it_may_be() {
    for (unit, most) in UNITS {
        let (within, said) = analyzed(unit, *most);
        let exposure = said.lines().last().and_then(|line| line.split_once(": ")).map(|(_, level)| level);
        println!("{FIGURE}exposure of {unit}: {}", exposure.unwrap_or_default());
        assert!(within, "{unit} may have {most} tenths at most: {said}");
    }
}

#[test]
fn each_thing_that_systemd_counts_against_an_installed_unit_is_explained_in_it() {
    for (unit, most) in UNITS.iter().filter(|(unit, _)| unit.starts_with("systemd/")) {
        let text = std::fs::read_to_string(root().join(unit)).unwrap();
        let (_, explained) = text.split_once("--- What stays exposed, and why").unwrap();
        let (_, said) = analyzed(unit, *most);
        let missing: Vec<_> =
            said.lines().filter_map(counted).filter(|name| !explained.contains(name)).collect();
        assert!(missing.is_empty(), "{unit} does not explain {missing:?}");
    }
}
