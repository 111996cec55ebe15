//! The smallest plain tests: they show that files of this folder are run, and what the programs under test are.

#![cfg(test)]

use std::time::Duration;

use chaos_daemon::fail_point::VARIABLE;
use chaos_tests::daemon::binary;
use chaos_tests::netns::output;
use chaos_tests::{NetNs, Pair, Residue};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

#[test]
fn two_namespaces_have_two_names() {
    let (one, two) = (NetNs::new().unwrap(), NetNs::new().unwrap());
    assert_ne!(one.name(), two.name());
    assert!(one.path().exists() && two.path().exists());
}

/// Here and not among the kernel's tests: the VM's image has no `nft`.
#[test]
fn an_nft_table_and_its_rules_show_as_residue() {
    let namespace = NetNs::new().unwrap();
    let nft = |words: &str| output(namespace.command("nft").args(words.split(' '))).unwrap();
    let before = Residue::take(&[&namespace]).unwrap();
    for (command, shows) in [
        ("add table ip somebodys", "nft tables"),
        ("add chain ip somebodys there", "nft chains"),
        ("add rule ip somebodys there counter", "nft rules"),
        ("add set ip somebodys these { type ipv4_addr; }", "nft sets"),
    ] {
        let earlier = Residue::take(&[&namespace]).unwrap();
        nft(command);
        let difference = earlier.difference(&Residue::take(&[&namespace]).unwrap());
        assert!(difference.contains(shows), "{command}: {difference}");
    }
    nft("delete table ip somebodys");
    assert_eq!(before.difference(&Residue::take(&[&namespace]).unwrap()), "");
}

/// Processor time, not by the clock, for others may use this machine; and here, for in an emulated one it is the host's
/// load that is measured.
#[test]
fn a_picture_of_a_pair_takes_less_than_the_sweep_can_spare() {
    let pair = Pair::new().unwrap();
    let used = || {
        let of = |who| {
            let usage = getrusage(who).unwrap();
            usage.user_time().num_microseconds() + usage.system_time().num_microseconds()
        };
        Duration::from_micros((of(UsageWho::RUSAGE_SELF) + of(UsageWho::RUSAGE_CHILDREN)).unsigned_abs())
    };
    let one = |_| {
        let before = used();
        Residue::take(&[&pair.near, &pair.far]).unwrap();
        used() - before
    };
    let quickest = (0..9).map(one).min().unwrap();
    println!("a picture takes {quickest:?}");
    assert!(quickest < Duration::from_millis(30), "{quickest:?}");
}

#[test]
fn a_normal_build_has_no_fail_points() {
    let has_any = |program: &str| {
        let bytes = std::fs::read(binary(program).unwrap()).unwrap();
        String::from_utf8_lossy(&bytes).contains(VARIABLE)
    };
    assert!(has_any("chaos-daemon-failing"), "the search finds nothing where there is something");
    for program in ["chaos-daemon", "chaosctl"] {
        assert!(!has_any(program), "{program} has fail points");
    }
}
