//! `cargo xtask bench`: builds optimised programs and measures them beside iptables and nft, in one run.

use std::process::ExitCode;

use clap::Args;

use crate::error::Error;
use crate::{artifacts, run, tools, vm};

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Options {
    /// Fewer rounds and sizes: less than a minute, more noise
    #[arg(long)]
    quick: bool,
    /// Only this part; may be repeated
    #[arg(long, value_parser = ["activation", "bystander", "service", "network", "load", "kills", "gates", "hostile", "search"])]
    only: Vec<String>,
    /// In a VM, what needs netem, which kernels of containers and clouds often lack; writes target/bench-vm.json
    #[arg(long, conflicts_with = "only")]
    vm: bool,
}

/// Succeeds when every goal that was measured is met.
pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    if options.only == ["search"] {
        return search();
    }
    if options.only.iter().any(|part| part == "search") {
        return Err(Error::Lacking(
            "--only search is in simulated time, and measures nothing of this machine: give it alone. Nothing was changed"
                .into(),
        ));
    }
    if !tools::is_root() {
        return Err(Error::Lacking(
            "the measurements need root: they make network namespaces and load eBPF programs. Nothing was changed"
                .into(),
        ));
    }
    tools::require(tools::OBSERVERS)?;
    if options.vm {
        let built = artifacts::build_programs(&["chaos-daemon", "chaos-tests"])?;
        let mut argv = vec![vm::program("bench"), "--only=network".to_owned()];
        argv.extend(["--json", vm::RESULTS].map(str::to_owned));
        argv.extend(options.quick.then(|| "--quick".to_owned()));
        let kernel = vm::KERNELS.last().copied().unwrap_or_default();
        let heard = vm::show(&built, kernel, &argv)?;
        if let Some(measured) = &heard.results.measured {
            let path = run::root().join("target/bench-vm.json");
            let json = |source| Error::Json { what: path.display().to_string(), source };
            let text = serde_json::to_string_pretty(measured).map_err(json)?;
            std::fs::write(&path, text + "\n").map_err(Error::file("write", &path))?;
            println!("figures in target/bench-vm.json");
        }
        return Ok(if heard.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    tools::require(tools::PEERS)?;
    let built = artifacts::build_release(&[
        "chaos-daemon",
        "chaosctl",
        "chaos-tests",
        "chaos-worker",
        "chaos-tools",
    ])?;
    let mut command = built.command("bench")?;
    command.env_remove("CHAOS_ENVIRONMENT");
    command.arg("--json").arg(run::root().join("target/bench.json"));
    command.args(options.quick.then_some("--quick"));
    command.args(options.only.iter().map(|part| format!("--only={part}")));
    let status = command.status().map_err(|source| run::start_error(&command, source))?;
    // A goal that is missed has been said; what says nothing by itself is said here.
    if status.code().is_none() {
        println!("bench was cut short: {status}");
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The searches against services whose truth is known: nothing of it needs root, or a quiet machine.
fn search() -> Result<ExitCode, Error> {
    let mut command = run::cargo();
    command.args(["run", "--quiet", "--release", "--package=chaos-search", "--example=search-bench"]);
    let status = command.status().map_err(|source| run::start_error(&command, source))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
