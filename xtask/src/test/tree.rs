//! What is checked of the tree itself, before anything of it runs: form, lints, rules, and the eBPF object.

use std::process::ExitCode;

use crate::error::Error;
use crate::summary::Tally;
use crate::{ebpf, run, tidy};

/// Whether rustfmt would write it as it is.
pub(super) fn form() -> Result<Tally, Error> {
    cargo(&["fmt", "--all", "--check"])
}

/// Every target, with the features that only builds for tests have: what is compiled without them, unit tests compile.
pub(super) fn lints() -> Result<Tally, Error> {
    const FEATURES: &str = "--features=chaos-daemon/fail-points,chaos-daemon/sabotage";
    cargo(&["clippy", "--workspace", "--all-targets", FEATURES, "--", "-D", "warnings"])
}

/// The rules that the compiler does not know; the README's table of faults is a unit test's.
pub(super) fn rules() -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let problems = tidy::check(&tidy::sources()?);
    problems.iter().for_each(|problem| tally.fail(format!("tidy: {problem}")));
    tally.pass(usize::from(problems.is_empty()));
    Ok(tally)
}

/// Whether the committed object is that of the sources.
pub(super) fn object() -> Result<Tally, Error> {
    let code = ebpf::main(&ebpf::Task::Check)?;
    Ok(one(code == ExitCode::SUCCESS, "ebpf: the object is not that of the sources, see above"))
}

fn cargo(words: &[&str]) -> Result<Tally, Error> {
    let mut command = run::cargo();
    let status = command.args(words).status().map_err(|source| run::start_error(&command, source))?;
    Ok(one(status.success(), &format!("cargo {}: {status}", words.join(" "))))
}

fn one(is_well: bool, otherwise: &str) -> Tally {
    let mut tally = Tally::default();
    match is_well {
        true => tally.pass(1),
        false => tally.fail(otherwise),
    }
    tally
}
