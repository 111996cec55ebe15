//! The daemon with one guard taken out (`chaos_daemon::sabotage`): the same command line. Built for
//! tests alone, by `xtask/src/artifacts.rs`.

#[path = "chaos-daemon/arguments.rs"]
mod arguments;

use std::process::ExitCode;

fn main() -> ExitCode {
    arguments::main()
}
