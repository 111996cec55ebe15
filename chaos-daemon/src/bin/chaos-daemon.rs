//! The privileged daemon: see `chaos_daemon::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    chaos_daemon::cli::daemon()
}
