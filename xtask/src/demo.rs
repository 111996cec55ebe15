//! `cargo xtask demo`: shows a fault from its beginning to its end, measured, on this machine and in the VM.
//!
//! On this machine it only touches two network namespaces that it makes and removes. The programs are those that
//! `cargo xtask test` builds, in its target folder, so that either finds the other's work done.

use std::process::ExitCode;

use clap::Args;

use crate::artifacts::{self, Artifacts};
use crate::error::Error;
use crate::{run, tools, vm};

/// Options of `cargo xtask demo`.
#[derive(Args)]
pub(crate) struct Options {
    /// Then boot a VM, and delay packets there with netem, which kernels of containers and clouds often lack
    #[arg(long)]
    vm: bool,
    /// Kernel of the VM
    #[arg(long, default_value = "6.12", value_parser = vm::KERNELS.to_vec())]
    kernel: String,
}

pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    if !tools::is_root() {
        return Err(Error::Lacking(
            "the demo needs root: it makes two network namespaces and loads eBPF programs. Nothing was changed. \
             Become root (`su -` or `sudo -i`) and run `cargo xtask demo` again"
                .into(),
        ));
    }
    tools::require(tools::OBSERVERS)?;
    eprintln!("building (the first time takes a few minutes)");
    let built = artifacts::build_programs(&["chaos-daemon", "chaosctl", "chaos-tests"])?;
    println!("== here: a partition");
    let mut held = here(&built)?;
    if options.vm {
        println!("== in a VM: a delay of 100 ms");
        let argv = [vm::program("demo"), "delay".to_owned()];
        held &= vm::show(&built, &options.kernel, &argv)?.failure.is_none();
    }
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn here(built: &Artifacts) -> Result<bool, Error> {
    let mut command = built.command("demo")?;
    command.arg("partition").current_dir(run::root()).env_remove("CHAOS_ENVIRONMENT");
    let status = command.status().map_err(|source| run::start_error(&command, source))?;
    Ok(status.success())
}
