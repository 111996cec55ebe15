//! The smallest plain test: shows that files of this folder are run.

#![cfg(test)]

use chaos_tests::NetNs;

#[test]
fn two_namespaces_have_two_names() {
    let (one, two) = (NetNs::new().unwrap(), NetNs::new().unwrap());
    assert_ne!(one.name(), two.name());
    assert!(one.path().exists() && two.path().exists());
}
