//! `cargo xtask matrix` and `cargo xtask sweep`: every event, and every system call, at which something can go wrong.

use std::process::ExitCode;

use clap::Args;

use crate::error::Error;
use crate::{artifacts, run, tools};

/// Options of both.
#[derive(Args)]
pub(crate) struct Options {
    /// Of requests to the kernel, or of system calls, every how many
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    stride: u32,
    /// Which of them: with another number, others; every run says its own
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u32,
    /// Only what has this in its name, as `latency`; may be repeated
    #[arg(long, value_name = "KIND")]
    only: Vec<String>,
    /// No longer than this: what is not done then is a failure
    #[arg(long, value_name = "M", default_value_t = 600)]
    minutes: u64,
}

pub(crate) fn main(program: &str, options: &Options) -> Result<ExitCode, Error> {
    if !tools::is_root() {
        return Err(Error::Lacking(format!("{program}: needs root to make network namespaces")));
    }
    tools::require(tools::OBSERVERS)?;
    let built = artifacts::build()?;
    let mut command = built.command(program)?;
    command.arg(format!("--stride={}", options.stride)).arg(format!("--offset={}", options.offset));
    command.arg(format!("--limit={}", options.minutes * 60));
    command.args(options.only.iter().map(|kind| format!("--only={kind}")));
    let status = command.status().map_err(|source| run::start_error(&command, source))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
