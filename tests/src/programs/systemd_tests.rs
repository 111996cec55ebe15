//! The tests of the installed service, for the VM with systemd: `cargo xtask vm --systemd`.

use std::process::ExitCode;

use crate::systemd;
use libtest_mimic::{Arguments, Trial};

pub(super) fn main() -> ExitCode {
    // In the order of the list: the first installs, the last removes.
    let trials = systemd::all()
        .into_iter()
        .map(|(name, run)| Trial::test(name, move || run().map_err(|error| error.to_string().into())))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
