//! `cargo xtask bench`: builds optimised programs and measures them beside iptables and nft, in one run.

use std::process::{Command, ExitCode};

use clap::Args;

use crate::error::Error;
use crate::{artifacts, run, tools};

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Options {
    /// Fewer rounds and sizes: less than a minute, more noise
    #[arg(long)]
    quick: bool,
    /// Only this part; may be repeated
    #[arg(long, value_parser = ["activation", "bystander", "service", "kills"])]
    only: Vec<String>,
}

/// Succeeds when every goal is met.
pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    if !tools::is_root() {
        return Err(Error::Lacking(
            "the measurements need root: they make network namespaces and load eBPF programs. Nothing was changed"
                .into(),
        ));
    }
    tools::require(tools::OBSERVERS)?;
    tools::require(tools::PEERS)?;
    let built = artifacts::build_release(&["chaos-daemon", "bench"])?;
    let mut command = Command::new(built.program("bench")?);
    command.arg("--json").arg(run::root().join("target/bench.json"));
    command.args(options.quick.then_some("--quick"));
    command.args(options.only.iter().map(|part| format!("--only={part}")));
    command.env("CHAOS_BIN_DIR", built.bin_dir()?).env_remove("CHAOS_ENVIRONMENT");
    let status = command.status().map_err(|source| run::start_error(&command, source))?;
    // A goal that is missed has been said; what says nothing by itself is said here.
    if status.code().is_none() {
        println!("bench was cut short: {status}");
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
