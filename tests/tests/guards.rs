//! The smallest plain tests: they show that files of this folder are run, and what the programs under test are.

#![cfg(test)]

use chaos_daemon::fail_point::VARIABLE;
use chaos_tests::NetNs;
use chaos_tests::daemon::binary;

#[test]
fn two_namespaces_have_two_names() {
    let (one, two) = (NetNs::new().unwrap(), NetNs::new().unwrap());
    assert_ne!(one.name(), two.name());
    assert!(one.path().exists() && two.path().exists());
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
