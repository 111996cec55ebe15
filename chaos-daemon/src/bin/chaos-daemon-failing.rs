//! `chaos-daemon` with fail points (`fail_point.rs`), for the crash matrix of the tests only; never installed.

#[path = "chaos-daemon/arguments.rs"]
mod arguments;

use std::process::ExitCode;

fn main() -> ExitCode {
    arguments::main()
}
