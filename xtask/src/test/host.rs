//! What runs on this machine's own kernel: the suites, and the programs of the tests that need root.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{results_of, unless_lacking};
use crate::artifacts;
use crate::error::Error;
use crate::kinds::{self, Place};
use crate::said::believe;
use crate::summary::Tally;
use crate::verdict::{self, Verdict};
use crate::{kills, run, tools};

/// The suite of probes and experiments against real servers, which is a step.
pub(super) const SERVERS: &str = "servers";
/// Rounds of each kind and end. `cargo xtask vm --kills 100` and `cargo xtask bench --only kills` do more.
const KILLS: u32 = 10;

/// What is in `tests/` on this machine's kernel, inside namespaces of its own, but for what has a step of its own.
pub(super) fn host() -> Result<Tally, Error> {
    unless_lacking("host", tools::root(), || {
        let mut tally = Tally::default();
        let verdicts = run_suites("host", |suite| suite != SERVERS, &mut tally)?;
        kinds::keep(Place::Host, kinds::KERNEL_TESTS, &verdicts)?;
        Ok(tally)
    })
}

/// Probes and experiments against Debian's own servers.
pub(super) fn servers() -> Result<Tally, Error> {
    unless_lacking(SERVERS, tools::root(), || {
        let mut tally = Tally::default();
        run_suites(SERVERS, |suite| suite == SERVERS, &mut tally)?;
        Ok(tally)
    })
}

fn run_suites(step: &str, is_meant: impl Fn(&str) -> bool, tally: &mut Tally) -> Result<Vec<Verdict>, Error> {
    tools::require(tools::OBSERVERS)?;
    tools::require(tools::HOST)?;
    let built = artifacts::build()?;
    let kernel_tests = built.program(kinds::KERNEL_TESTS)?;
    let suites = built.tests.iter().map(PathBuf::as_path).chain([kernel_tests]);
    let mut command = built.command("test-runner")?;
    command.args(suites.filter(|path| is_meant(&artifacts::suite(path))));
    verdicts(step, &mut command, tally)
}

/// Whether a test notices each guard that is taken out of the daemon.
pub(super) fn sabotage() -> Result<Tally, Error> {
    unless_lacking("sabotage", tools::root(), || {
        tools::require(tools::OBSERVERS)?;
        let mut tally = Tally::default();
        verdicts("sabotage", &mut artifacts::build()?.command("sabotage")?, &mut tally)?;
        Ok(tally)
    })
}

/// How soon everything is normal after every kind of end. What is asserted is generous, what is printed is not.
pub(super) fn kill() -> Result<Tally, Error> {
    unless_lacking("kills", tools::root(), || {
        tools::require(tools::OBSERVERS)?;
        let (mut tally, mut command) = (Tally::default(), artifacts::build()?.command("kills")?);
        command.arg(format!("--count={KILLS}"));
        kills::keep(&verdicts("kills", &mut command, &mut tally)?)?;
        Ok(tally)
    })
}

/// A test program of ours that needs root, and that reports as a script does.
pub(super) fn program(name: &str, args: &[&str]) -> Result<Tally, Error> {
    unless_lacking(name, tools::root(), || {
        tools::require(tools::OBSERVERS)?;
        let (mut tally, mut command) = (Tally::default(), artifacts::build()?.command(name)?);
        command.args(args).stderr(Stdio::inherit());
        believe(name, &mut command, &mut tally)?;
        Ok(tally)
    })
}

/// Runs a program that writes a verdict a line to the file that it is told.
fn verdicts(name: &str, command: &mut Command, tally: &mut Tally) -> Result<Vec<Verdict>, Error> {
    let path = results_of(name);
    std::fs::write(&path, "").map_err(Error::file("write", &path))?;
    command.arg(format!("--results={}", path.display())).env_remove("CHAOS_ENVIRONMENT");
    let mut process = command.spawn().map_err(|source| run::start_error(command, source))?;
    let (results, _) = verdict::follow(&mut process, &path, None, |verdict| {
        println!("{}", verdict.line());
        tally.add(verdict);
    })?;
    if let Some(doubt) = results.doubt() {
        tally.fail(format!("{name}: {doubt}"));
    }
    Ok(results.verdicts)
}
