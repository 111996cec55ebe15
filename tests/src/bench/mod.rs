//! Measurements against the goals, behind `cargo xtask bench`: us beside the tools that people use instead, in one
//! run, on links of our own. Each figure is a median over interleaved rounds, since the machine is rarely quiet.

mod accuracy;
mod activation;
mod bystander;
mod cost;
mod figures;
mod gates;
mod hostile;
mod kills;
mod probe;
mod processors;
mod service;
mod targets;
mod trial;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::wait_until;
use crate::skip::kernel_release;
use crate::{Daemon, Error, Result};

pub use figures::Report;
use processors::Processors;

/// What to measure, and how thoroughly.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Fewer rounds and sizes.
    pub quick: bool,
    /// Parts to measure, by name; empty is all of [`PARTS`].
    pub only: Vec<String>,
    /// Where to write the figures as JSON.
    pub json: Option<PathBuf>,
}

impl Options {
    /// How often, thoroughly or quickly.
    fn pick<T>(&self, thorough: T, quick: T) -> T {
        if self.quick { quick } else { thorough }
    }
}

type Part = fn(&Options, Processors, &mut Report) -> Result<()>;

/// The parts, in their order.
pub const PARTS: &[(&str, Part)] = &[
    ("activation", activation::measure),
    ("bystander", bystander::measure),
    ("service", service::measure),
    ("network", accuracy::measure_network),
    ("load", accuracy::measure_load),
    ("kills", kills::measure_all),
    ("gates", gates::measure),
    ("hostile", hostile::measure),
];

/// Waits until the daemon's next holder is loaded, which happens in the background; a client is not usually that quick.
fn await_stock(daemon: &Daemon) -> Result<()> {
    const STOCK: Duration = Duration::from_secs(5);
    if !wait_until(STOCK, || daemon.holders().len() == 1) {
        return Err(Error::Late { what: "the next holder".into(), after: STOCK });
    }
    std::thread::sleep(Duration::from_millis(150));
    Ok(())
}

/// Measures, prints, writes; the last line is how many goals were met. True when that is every one that was measured.
///
/// # Errors
/// When a measurement cannot be made, which says nothing about any goal.
pub fn run(options: &Options) -> Result<bool> {
    let started = Instant::now();
    let processors = Processors::choose()?;
    processors.keep_to_actions()?;
    let mut report = Report::default();
    for (name, part) in PARTS {
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            part(options, processors, &mut report)?;
        }
    }
    report.print_goals();
    println!("took {:.0} s", started.elapsed().as_secs_f64());
    if let Some(path) = &options.json {
        let facts =
            json!({"kernel": kernel_release(), "quick": options.quick, "version": env!("CARGO_PKG_VERSION")});
        write(path, &report.json(facts))?;
    }
    let counts = report.counts();
    println!("{counts}");
    Ok(counts.all_met())
}

fn write(path: &Path, figures: &serde_json::Value) -> Result<()> {
    // In one line, which is what a serial line takes too.
    let text = format!("{figures}\n");
    std::fs::write(path, text).map_err(Error::io("write", path.display().to_string()))?;
    println!("figures in {}", path.display());
    Ok(())
}
