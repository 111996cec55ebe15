//! The daemon as an installed service on a real systemd: install, stop, kill, hang, upgrade, reboot, lose power, take the machine
//! down, remove, each while faults are active. Changes the machine it runs on: only for the VM (`tests/systemd/boot.sh` runs it there).

mod first_boot;
mod going_down;
mod lab;
mod second_boot;
mod second_boot_guard;
pub(crate) mod service;
mod settings;
mod supervised;
mod third_boot;
pub(crate) mod unit;

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
    // Last in the second boot: from then on a fault is active.
    let (back, power_cut) = second_boot::TESTS.split_at(1);
    let later = [back, second_boot_guard::TESTS, power_cut, third_boot::TESTS, going_down::TESTS].concat();
    first_boot::all()
        .into_iter()
        .chain(later)
        .map(|(name, run)| (name.trim_start_matches("chaos_tests::systemd::"), run))
        .collect()
}
