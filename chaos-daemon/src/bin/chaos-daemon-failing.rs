//! `chaos-daemon` with fail points (`fail_point.rs`), for the crash matrix of the tests only; never installed.

use std::process::ExitCode;

fn main() -> ExitCode {
    chaos_daemon::roles::main()
}
