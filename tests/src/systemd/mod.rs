//! The daemon as an installed service on a real systemd: install, stop, kill, hang, upgrade, reboot, remove, each while
//! faults are active. Changes the machine it runs on: only for the VM (`tests/systemd/boot.sh` runs it there).

mod first_boot;
mod lab;
mod second_boot;
mod second_boot_guard;
mod unit;

/// What a test returns.
pub type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A name, and what to do.
pub type Test = (&'static str, fn() -> TestResult);

/// Makes the list of a module: names come from the functions.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(super) const TESTS: &[$crate::systemd::Test] = &[
            $((
                concat!(module_path!(), "::", stringify!($name)),
                $name,
            )),*
        ];
    };
}
use tests;

/// Every test, in the order in which they build on each other.
pub fn all() -> Vec<Test> {
    // The removal of the package comes last.
    let (before, removal) = second_boot::TESTS.split_at(second_boot::TESTS.len() - 1);
    let tests = [first_boot::TESTS, before, second_boot_guard::TESTS, removal].concat();
    tests.into_iter().map(|(name, run)| (name.trim_start_matches("chaos_tests::systemd::"), run)).collect()
}
