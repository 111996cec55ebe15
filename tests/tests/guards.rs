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

/// Here, too: the VM's image has no filter that needs no program.
#[test]
fn a_class_and_a_filter_of_a_root_qdisc_show_as_residue() {
    let namespace = NetNs::new().unwrap();
    let tc = |words: &str| namespace.tc(&words.split(' ').collect::<Vec<_>>()).unwrap();
    namespace.ip(&["link", "set", "lo", "up"]).unwrap();
    let bare = Residue::take(&[&namespace]).unwrap();
    tc("qdisc add dev lo root handle 1: htb");
    for (command, back, shows) in [
        (
            "class add dev lo parent 1: classid 1:7 htb rate 1mbit",
            "class delete dev lo classid 1:7",
            "class htb 1:7 on lo",
        ),
        (
            "filter add dev lo parent 1: protocol ip pref 10 u32 match ip dst 10.0.0.0/8 flowid 1:7",
            "filter delete dev lo parent 1: pref 10",
            "filters lo parent 1:",
        ),
    ] {
        let before = Residue::take(&[&namespace]).unwrap();
        tc(command);
        let difference = before.difference(&Residue::take(&[&namespace]).unwrap());
        assert!(difference.contains(&format!("+ {} {shows}: ", namespace.name())), "{command}: {difference}");
        tc(back);
        assert_eq!(before.difference(&Residue::take(&[&namespace]).unwrap()), "", "{back}");
    }
    tc("qdisc delete dev lo root");
    assert_eq!(bare.difference(&Residue::take(&[&namespace]).unwrap()), "");
}

/// As much of a processor as the sweep can spare for a picture, of which it takes two for each point.
const MOST_STARTS: f64 = 40.0;

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
    let quickest = |work: &dyn Fn()| {
        let one = |_| {
            let before = used();
            work();
            used() - before
        };
        (0..9).map(one).min().unwrap()
    };
    let picture = quickest(&|| drop(Residue::take(&[&pair.near, &pair.far]).unwrap()));
    // The floor: a program that does nothing, in a namespace.
    let nothing = quickest(&|| drop(output(&mut pair.near.command("true")).unwrap()));
    let times = picture.as_secs_f64() / nothing.as_secs_f64();
    println!("a picture takes {picture:?}, {times:.1} times what starting a program takes ({nothing:?})");
    assert!(times < MOST_STARTS, "a picture takes as much as {times:.1} starts of a program");
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
