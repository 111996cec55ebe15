//! The tests of the installed service, for the VM with systemd: `cargo xtask vm --systemd`.

use std::process::ExitCode;

use chaos_tests::systemd;
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(code) = chaos_tests::caller::serve_if_asked() {
        return code;
    }
    // In the order of the list: the first installs, the last removes.
    let trials = systemd::all()
        .into_iter()
        .map(|(name, run)| Trial::test(name, move || run().map_err(|error| error.to_string().into())))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
