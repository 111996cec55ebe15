//! The privileged daemon: its command line, and the roles that one binary plays.

mod arguments;

use std::process::ExitCode;

fn main() -> ExitCode {
    arguments::main()
}
