//! What runs on this machine's own kernel: the suites, and the programs of the tests that need root.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::chosen::{Chosen, Share};
use super::{results_of, unless_lacking};
use crate::artifacts;
use crate::error::Error;
use crate::kinds::{self, Place};
use crate::said::believe;
use crate::summary::{Replay, Tally, print_replay};
use crate::verdict::{self, Outcome, Verdict};
use crate::{kills, run, soak, tools};

/// The suite of probes and experiments against real servers, which is a step.
pub(super) const SERVERS: &str = "servers";
/// Runners of what is in `tests/`, side by side: most tests wait most of the time.
const RUNNERS: u32 = 4;
/// Rounds of each kind and end. `cargo xtask vm --kills 100` and `cargo xtask bench --only kills` do more.
const KILLS: u32 = 10;
/// Of calls of one cell, every how many are struck; others in the next round.
const STRIDE: &str = "--stride=64";
/// Of what is said to a tool, every how many; others in the next round.
const SAID: &str = "--stride=8";
/// What a share of the soak does: steps, minutes that they may take, and injections beside a bystander.
const SOAK: (u64, u64, u32) = (334, 10, 167);

/// The arguments of a program that goes through cells of a set.
fn arguments(chosen: &Chosen) -> Result<Vec<String>, Error> {
    Ok(chosen.arguments().into_iter().chain(until(chosen)?).collect())
}

/// When it begins no further cell, by how long this machine has been up (proc(5)).
fn until(chosen: &Chosen) -> Result<Option<String>, Error> {
    let Some(left) = chosen.time_left() else { return Ok(None) };
    let path = Path::new("/proc/uptime");
    let text = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
    let up: Option<f64> = text.split(' ').next().and_then(|seconds| seconds.parse().ok());
    let up = up.ok_or_else(|| Error::Lacking(format!("/proc/uptime is {text:?}")))?;
    Ok(Some(format!("--until={:.0}", up + left.as_secs_f64())))
}

/// Where the verdicts of these tests are, a file for each runner.
pub(super) fn results() -> impl Iterator<Item = PathBuf> {
    Share::all(RUNNERS).map(|part| results_of(&format!("host-{}", part.number())))
}

/// What is in `tests/` on this machine's kernel, inside namespaces of its own, but for what has a step of its own.
pub(super) fn host(chosen: &Chosen) -> Result<Tally, Error> {
    unless_lacking(chosen.step, tools::root(), || {
        let mut tally = Tally::default();
        let verdicts = run_suites(chosen, RUNNERS, |suite| suite != SERVERS, &mut tally)?;
        kinds::keep(Place::Host, kinds::KERNEL_TESTS, &verdicts)?;
        Ok(tally)
    })
}

/// Probes and experiments against Debian's own servers.
pub(super) fn servers(chosen: &Chosen) -> Result<Tally, Error> {
    unless_lacking(chosen.step, tools::root(), || {
        let mut tally = Tally::default();
        run_suites(chosen, 1, |suite| suite == SERVERS, &mut tally)?;
        Ok(tally)
    })
}

/// Runs suites by so many runners side by side, of which each has a part of the tests. What is asked for by name has one.
fn run_suites(
    chosen: &Chosen,
    runners: u32,
    is_meant: impl Fn(&str) -> bool,
    tally: &mut Tally,
) -> Result<Vec<Verdict>, Error> {
    tools::require(tools::OBSERVERS)?;
    tools::require(tools::HOST)?;
    let built = artifacts::build()?;
    let kernel_tests = built.program(kinds::KERNEL_TESTS)?;
    let suites = built.tests.iter().map(PathBuf::as_path).chain([kernel_tests]);
    let suites: Vec<_> = suites.filter(|path| is_meant(&artifacts::suite(path))).collect();
    let is_by_name = !chosen.cells.is_empty() || !chosen.filters.is_empty();
    let run = &|part: Share| -> Result<_, Error> {
        let mut command = built.command("test-runner")?;
        command.args(chosen.arguments()).args(chosen.filters.iter().map(|text| format!("--filter={text}")));
        if part.of() > 1 {
            command.arg(format!("--partition={part}"));
        }
        let (mut tally, path) = (Tally::default(), results_of(&format!("{}-{}", chosen.step, part.number())));
        let verdicts = verdicts(chosen, command.args(&suites), &path, &mut tally)?;
        Ok((verdicts, tally))
    };
    let parts: Vec<_> = std::thread::scope(|scope| {
        let parts = Share::all(if is_by_name { 1 } else { runners });
        let running: Vec<_> = parts.map(|part| scope.spawn(move || run(part))).collect();
        running.into_iter().map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let mut all = Vec::new();
    for part in parts {
        let (verdicts, of_part): (Vec<_>, _) = part?;
        tally.merge(of_part);
        all.extend(verdicts);
    }
    Ok(all)
}

/// The crash matrix, or the sweep over system calls, of every kind that this kernel can do.
pub(super) fn points(chosen: &Chosen) -> Result<Tally, Error> {
    let only = chosen.filters.iter().map(|filter| format!("--only={filter}"));
    let arguments: Vec<_> = arguments(chosen)?.into_iter().chain(only).chain([STRIDE.to_owned()]).collect();
    unless_lacking(chosen.step, tools::root(), || {
        program(chosen.step, &arguments, &|cell| chosen.replay(cell))
    })
}

/// Random steps and deaths, by a seed of this landing.
pub(super) fn soak(chosen: &Chosen) -> Result<Tally, Error> {
    let (steps, minutes, cycles) = SOAK;
    let plan = soak::Plan { seed: chosen.seed(), steps: Some(steps), minutes, lane: None, cycles };
    unless_lacking(chosen.step, tools::root(), || Ok(plan.run(until(chosen)?)?.by_seed(plan.seed)))
}

/// Whether a test notices each guard that is taken out of the daemon.
pub(super) fn sabotage(chosen: &Chosen) -> Result<Tally, Error> {
    unless_lacking(chosen.step, tools::root(), || {
        tools::require(tools::OBSERVERS)?;
        let (mut tally, mut command) = (Tally::default(), artifacts::build()?.command("sabotage")?);
        verdicts(chosen, command.args(arguments(chosen)?), &results_of(chosen.step), &mut tally)?;
        Ok(tally)
    })
}

/// How soon everything is normal after every kind of end. What is asserted is generous, what is printed is not.
pub(super) fn kill(chosen: &Chosen) -> Result<Tally, Error> {
    unless_lacking(chosen.step, tools::root(), || {
        tools::require(tools::OBSERVERS)?;
        let (mut tally, mut command) = (Tally::default(), artifacts::build()?.command("kills")?);
        command.arg(format!("--count={KILLS}")).args(arguments(chosen)?);
        command.args(chosen.filters.iter().map(|filter| format!("--only={filter}")));
        kills::keep(&verdicts(chosen, &mut command, &results_of(chosen.step), &mut tally)?)?;
        Ok(tally)
    })
}

/// Users who may speak to the daemon say everything they can, and nothing comes of it.
pub(super) fn hostile(chosen: &Chosen) -> Result<Tally, Error> {
    unless_lacking(chosen.step, tools::root(), || {
        tools::require(tools::OBSERVERS)?;
        let (mut tally, mut command) = (Tally::default(), artifacts::build()?.command("hostile")?);
        command.arg(SAID).args(arguments(chosen)?);
        command.args(chosen.filters.iter().map(|filter| format!("--only={filter}")));
        verdicts(chosen, &mut command, &results_of(chosen.step), &mut tally)?;
        Ok(tally)
    })
}

/// A test program of ours that needs root, and that reports as a script does.
pub(crate) fn program(name: &str, arguments: &[String], replay: Replay<'_>) -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let (mut tally, mut command) = (Tally::default(), artifacts::build()?.command(name)?);
    command.args(arguments).stderr(Stdio::inherit());
    believe(name, &mut command, replay, &mut tally)?;
    Ok(tally)
}

/// Runs a program that writes a verdict a line to this file.
fn verdicts(
    chosen: &Chosen,
    command: &mut Command,
    path: &Path,
    tally: &mut Tally,
) -> Result<Vec<Verdict>, Error> {
    std::fs::write(path, "").map_err(Error::file("write", path))?;
    command.arg(format!("--results={}", path.display())).env_remove("CHAOS_ENVIRONMENT");
    let mut process = command.spawn().map_err(|source| run::start_error(command, source))?;
    let replay: Replay<'_> = &|test| chosen.replay(test);
    let results = verdict::follow(&mut process, path, |verdict| {
        println!("{}", verdict.line());
        if verdict.outcome == Outcome::Fail {
            print_replay(&replay(&verdict.test));
        }
        tally.add(verdict, replay);
    })?;
    tally.cells += results.cells();
    tally.left += results.left;
    if let Some(doubt) = results.doubt() {
        tally.fail(format!("{}: {doubt}", chosen.step));
    }
    Ok(results.verdicts)
}
