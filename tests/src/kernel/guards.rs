//! The guards themselves: what a test makes is gone afterwards, also when the test panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Context, Outcome, TestResult, tests};
use crate::{NetNs, Pair, Residue, UdpFlow, netns};

tests![
    a_namespace_is_gone_after_a_panic_inside_it,
    a_pair_is_gone_after_its_test_panicked,
    a_command_runs_inside_its_namespace,
    a_change_of_a_link_shows_as_residue,
    a_bystander_counts_what_an_unplugged_cable_loses,
];

fn a_namespace_is_gone_after_a_panic_inside_it(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let path = namespace.path();
    assert!(path.exists());
    let panicked = catch_unwind(AssertUnwindSafe(move || namespace.run(|| panic!("on purpose"))));
    assert!(panicked.is_err());
    assert!(!path.exists(), "{} is left", path.display());
    Ok(Outcome::Pass)
}

fn a_pair_is_gone_after_its_test_panicked(_: &Context) -> TestResult {
    let before = netns::left_by(std::process::id());
    let panicked = catch_unwind(|| {
        let pair = Pair::new();
        assert!(pair.is_err(), "on purpose");
    });
    assert!(panicked.is_err());
    assert_eq!(netns::left_by(std::process::id()), before);
    Ok(Outcome::Pass)
}

fn a_command_runs_inside_its_namespace(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let outside = std::fs::read_link("/proc/self/ns/net")?;
    let inside = namespace.run(|| std::fs::read_link("/proc/thread-self/ns/net"))?;
    let command = netns::output(namespace.command("readlink").arg("/proc/self/ns/net"))?;
    assert_ne!(inside, outside);
    assert_eq!(inside.to_string_lossy(), command.trim());
    Ok(Outcome::Pass)
}

fn a_change_of_a_link_shows_as_residue(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near, &pair.far])?;
    assert_eq!(before.difference(&Residue::take(&[&pair.near, &pair.far])?), "");
    pair.near.ip(&["link", "set", "eth0", "mtu", "1400"])?;
    let difference = before.difference(&Residue::take(&[&pair.near, &pair.far])?);
    assert!(difference.contains("1400"), "{difference}");
    Ok(Outcome::Pass)
}

fn a_bystander_counts_what_an_unplugged_cable_loses(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let flow = UdpFlow::start(&pair.near, &pair.far, (Pair::FAR_V6, 9).into(), 200)?;
    std::thread::sleep(std::time::Duration::from_millis(200));
    pair.far.ip(&["link", "set", "eth0", "down"])?;
    std::thread::sleep(std::time::Duration::from_millis(200));
    let report = flow.finish()?;
    assert!(report.received > 5, "{report:?}");
    assert!(report.lost() + report.refused > 5, "{report:?}");
    Ok(Outcome::Pass)
}
