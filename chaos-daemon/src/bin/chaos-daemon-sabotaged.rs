//! The daemon with one guard taken out (`chaos_daemon::sabotage`): the same command line. Built for
//! tests alone, by `xtask/src/artifacts.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    chaos_daemon::roles::main()
}
