//! `cargo xtask test`: every test there is, step by step, and one line at the end that says how it went.

mod host;
mod scripts;
mod steps;
mod tree;
mod unit;
mod vm;

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::error::Error;
use crate::summary::Tally;
use crate::{kinds, run};
use steps::{IN_VM, LONG, Lane, PHASES, Step, steps};

/// Options of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only this step; may be repeated
    #[arg(long, value_parser = steps().map(|step| step.name).collect::<Vec<_>>())]
    only: Vec<String>,
    /// Leave out what needs QEMU
    #[arg(long)]
    no_vm: bool,
    /// Also what takes long: more of what dies, and the package on systemd, on emulated machines
    #[arg(long)]
    long: bool,
}

impl Options {
    fn wants(&self, step: &Step) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == step.name)
    }

    /// Why a step is not run, if so.
    fn leaves_out(&self, step: &Step) -> Option<&'static str> {
        let (in_vm, is_long) = (IN_VM.contains(&step.name), LONG.contains(&step.name));
        match self {
            Self { no_vm: true, .. } if in_vm => Some("--no-vm"),
            Self { long: false, .. } if is_long && self.only.is_empty() => Some("only with --long"),
            _ => None,
        }
    }
}

pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    let folder = run::vm_dir();
    std::fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
    // What passed in another run says nothing of this one.
    let _ = std::fs::remove_file(results_of("host"));
    if options.only.is_empty() {
        kinds::begin(options.long)?;
    }
    let mut total = Tally::default();
    let mut lines = Vec::new();
    for phase in PHASES {
        for (name, tally, took) in side_by_side(phase, options) {
            lines.push(format!("{name}: {} ({:.0} s)", tally.line(), took.as_secs_f64()));
            total.merge(tally);
        }
    }
    println!("== summary");
    total.print_exceptions();
    lines.iter().for_each(|line| println!("{line}"));
    println!("{}", total.line());
    Ok(total.exit_code())
}

/// What came of a step, and how long it took.
type Done = (&'static str, Tally, Duration);

fn side_by_side(lanes: &'static [Lane], options: &Options) -> Vec<Done> {
    std::thread::scope(|scope| {
        let running: Vec<_> = lanes.iter().map(|lane| scope.spawn(|| one_by_one(lane, options))).collect();
        running
            .into_iter()
            .flat_map(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

fn one_by_one(lane: Lane, options: &Options) -> Vec<Done> {
    lane.iter().filter(|step| options.wants(step)).map(|step| carry_out(step, options)).collect()
}

fn carry_out(step: &Step, options: &Options) -> Done {
    println!("== {}", step.name);
    let started = Instant::now();
    // A step that cannot be run is a failure of that step, not the end of the others.
    let tally = match options.leaves_out(step) {
        Some(why) => Tally::skipped(format!("{}: {why}", step.name)),
        None => (step.run)().unwrap_or_else(|error| {
            crate::error::report(&error);
            let mut tally = Tally::default();
            tally.fail(format!("{}: {error}", step.name));
            tally
        }),
    };
    (step.name, tally, started.elapsed())
}

/// Runs a step whose tools are there. Where they cannot be had, it is left out by name, but never in CI.
pub(super) fn unless_lacking(
    name: &str,
    tools: Result<(), Error>,
    step: impl FnOnce() -> Result<Tally, Error>,
) -> Result<Tally, Error> {
    match tools {
        Err(Error::Lacking(what)) if std::env::var_os("CI").is_none() => {
            let mut tally = Tally::default();
            tally.skip(format!("{name}: {what}"));
            Ok(tally)
        }
        Err(error) => Err(error),
        Ok(()) => step(),
    }
}

/// Where a step's verdicts are written.
fn results_of(step: &str) -> PathBuf {
    run::vm_dir().join(format!("{step}-results.jsonl"))
}

/// Has share and stride choose others each time, as long as nobody looks for one that has failed: it is said which they were. As
/// many numbers as it takes for each event of a share to meet each call of a stride.
fn other_ones() -> String {
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("--offset={}", age.as_secs() / 60 % 10_000)
}
