//! The smallest plain test: shows that files of this folder are run.

#![cfg(test)]

use chaos_tests::netns::output;
use chaos_tests::{NetNs, Residue};

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
