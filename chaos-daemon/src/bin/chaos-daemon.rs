//! The privileged daemon; see [`chaos_daemon::roles`].

use std::process::ExitCode;

fn main() -> ExitCode {
    chaos_daemon::roles::main()
}
