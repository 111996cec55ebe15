//! The documents' tables of faults and parameters are the code's: a test of chaos-tests compares them, or writes them for `tidy --fix`.
//! (xtask depends on no crate of the workspace, so that it builds when they do not.)

use crate::error::Error;
use crate::run;

/// Compares, or, with `fix`, writes.
pub(super) fn check(fix: bool) -> Result<Option<String>, Error> {
    let mut command = run::cargo();
    command.args(["test", "--quiet", "--package=chaos-tests", "--lib", "readme::"]);
    if fix {
        command.env("CHAOS_FIX", "1");
    }
    match run::text(&mut command) {
        Ok(text) if text.contains(" 1 passed") => Ok(None),
        Ok(text) => {
            Ok(Some(format!("docs/parameters.md:1: the tables of faults were not compared: {}", text.trim())))
        }
        Err(Error::Status { .. }) => Ok(Some(
            "docs/parameters.md:1: a table of faults or parameters is not the code's: cargo xtask tidy --fix"
                .into(),
        )),
        Err(error) => Err(error),
    }
}
