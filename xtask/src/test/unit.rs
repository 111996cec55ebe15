//! Unit tests.

use std::process::Stdio;

use crate::error::Error;
use crate::run;
use crate::said::read_libtest;
use crate::summary::Tally;

/// Unit tests of every crate. What chaos-tests has in `tests/` needs root: that is the next step.
pub(super) fn unit() -> Result<Tally, Error> {
    let mut tally = Tally::default();
    cargo_test(&["test", "--no-fail-fast", "--workspace", "--exclude=chaos-tests"], &mut tally)?;
    cargo_test(&["test", "--no-fail-fast", "--package=chaos-tests", "--lib"], &mut tally)?;
    Ok(tally)
}

fn cargo_test(args: &[&str], tally: &mut Tally) -> Result<(), Error> {
    let mut command = run::cargo();
    command.args(args).env("CARGO_TERM_COLOR", "never").stderr(Stdio::inherit());
    let output = command.output().map_err(|source| run::start_error(&command, source))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let ran = read_libtest(&text, tally);
    if !output.status.success() {
        println!("{text}");
    }
    if ran.passed != ran.announced || output.status.success() == (ran.failed > 0) {
        tally.fail(format!("cargo {}: {}, {ran:?}", args.join(" "), output.status));
    }
    Ok(())
}
