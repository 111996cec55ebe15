//! The programs of the tests: one executable, `chaos-tests`, that is each of them by the name it is started under.
//!
//! Each links the daemon's code, so that a dozen executables would be a dozen times that code: to link, to pack into the images of
//! the VMs, and to unpack there. `cargo xtask` links the names beside the executable.

mod bench;
mod demo;
mod hostile;
mod kernel_tests;
mod kills;
mod kinds;
mod matrix;
mod sabotage;
mod soak;
mod struck;
mod sweep;
mod systemd_tests;
mod test_runner;
mod vm_init;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

/// The name under which a program is started, and its main function.
type Program = (&'static str, fn() -> ExitCode);

/// Every program, by the name under which it is started.
const PROGRAMS: &[Program] = &[
    ("bench", bench::main),
    ("demo", demo::main),
    ("hostile", hostile::main),
    ("kernel-tests", kernel_tests::main),
    ("kills", kills::main),
    ("kinds", kinds::main),
    ("matrix", matrix::main),
    ("sabotage", sabotage::main),
    ("soak", soak::main),
    ("sweep", sweep::main),
    ("systemd-tests", systemd_tests::main),
    ("test-runner", test_runner::main),
    ("vm-init", vm_init::main),
];

/// Is the program whose name this process was started under. Under the executable's own name, it says which there are.
pub fn main() -> ExitCode {
    let roles =
        [crate::caller::serve_if_asked, crate::claimant::serve_if_asked, crate::hostile::serve_if_asked];
    if let Some(code) = roles.into_iter().find_map(|serve| serve()) {
        return code;
    }
    let name = std::env::args_os().next().as_deref().and_then(name).unwrap_or_default();
    if let Some((_, program)) = PROGRAMS.iter().find(|(known, _)| *known == name) {
        return program();
    }
    PROGRAMS.iter().for_each(|(name, _)| println!("{name}"));
    ExitCode::SUCCESS
}

fn name(started_as: &OsStr) -> Option<String> {
    Some(Path::new(started_as).file_name()?.to_string_lossy().into_owned())
}
