//! The command of operators, and the bridge for agents. All of it is in [`chaos_daemon::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    chaos_daemon::cli::chaosctl()
}
