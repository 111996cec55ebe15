//! Every program of the tests in one executable; see `chaos_tests::programs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    chaos_tests::programs::main()
}
