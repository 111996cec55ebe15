//! The kernel tests as one executable with libtest's flags: `kernel-tests [FILTER]`, `--list`, `--exact`.
//! Needs root; touches only namespaces, processes and files of its own.

use std::process::ExitCode;

use crate::kernel::{self, Context, Outcome};
use libtest_mimic::{Arguments, Completion, Trial};

pub(super) fn main() -> ExitCode {
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    let trials = kernel::all()
        .into_iter()
        .map(|test| {
            Trial::ignorable_test(test.name, move || match (test.run)(&Context::new()) {
                Ok(Outcome::Pass) => Ok(Completion::Completed),
                Ok(Outcome::Skip(reason, detail)) => {
                    crate::skip(reason, &detail);
                    Ok(Completion::ignored_with(reason.name()))
                }
                Err(failure) => Err(failure.to_string().into()),
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
