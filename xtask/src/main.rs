//! The build vocabulary of chaos-daemon: everything that `cargo build` and `cargo test` do not say.

mod ebpf;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

/// Build tasks of chaos-daemon.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// The eBPF object that is committed to the repository.
    #[command(subcommand)]
    Ebpf(ebpf::Task),
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let done: Result<(), Box<dyn Error>> = match Task::parse() {
        Task::Ebpf(task) => ebpf::run(&task, root).map_err(Into::into),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprintln!("  because: {cause}");
        source = cause.source();
    }
    ExitCode::FAILURE
}
