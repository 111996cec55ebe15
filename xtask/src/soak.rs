//! `cargo xtask soak`: random faults and deaths for as long as asked, then a bystander beside a thousand injections.

use std::process::ExitCode;

use clap::Args;

use crate::error::Error;
use crate::{artifacts, run, tools};

/// Options of `cargo xtask soak`.
#[derive(Args)]
pub(crate) struct Options {
    /// No longer than this
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Replay the steps of this seed; default: a new one, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// No more steps than this
    #[arg(long)]
    steps: Option<u64>,
    /// Only this lane of those that go side by side
    #[arg(long)]
    lane: Option<u64>,
    /// Injections beside the bystander
    #[arg(long, default_value_t = 1000)]
    cycles: u32,
}

pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    if !tools::is_root() {
        return Err(Error::Lacking("soak: needs root to make network namespaces".into()));
    }
    tools::require(tools::OBSERVERS)?;
    let built = artifacts::build()?;
    let mut command = built.command("soak")?;
    command.arg(format!("--minutes={}", options.minutes)).arg(format!("--cycles={}", options.cycles));
    command.args(options.seed.map(|seed| format!("--seed={seed}")));
    command.args(options.steps.map(|steps| format!("--steps={steps}")));
    command.args(options.lane.map(|lane| format!("--lane={lane}")));
    let status = command.status().map_err(|source| run::start_error(&command, source))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
