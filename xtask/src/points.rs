//! `cargo xtask matrix` and `cargo xtask sweep`: every event, and every system call, at which something can go wrong.

use std::process::ExitCode;

use clap::Args;

use crate::error::Error;
use crate::test::quoted;
use crate::{test, tools};

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
    /// Only the cell of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    cell: Vec<String>,
    /// No longer than this: what is not done then is a failure
    #[arg(long, value_name = "M", default_value_t = 600)]
    minutes: u64,
}

pub(crate) fn main(program: &str, options: &Options) -> Result<ExitCode, Error> {
    if !tools::is_root() {
        return Err(Error::Lacking(format!("{program}: needs root to make network namespaces")));
    }
    let Options { stride, offset, only, cell, minutes } = options;
    let (stride, offset) = (format!("--stride={stride}"), format!("--offset={offset}"));
    let limit = format!("--limit={}", minutes * 60);
    let only = only.iter().map(|kind| format!("--only={kind}"));
    let cells = cell.iter().map(|cell| format!("--cell={cell}"));
    let arguments: Vec<_> =
        [stride.clone(), offset.clone(), limit].into_iter().chain(only).chain(cells).collect();
    let replay = |cell: &str| format!("cargo xtask {program} {stride} {offset} --cell {}", quoted(cell));
    let tally = test::program(program, &arguments, &replay)?;
    tally.print_exceptions();
    Ok(tally.exit_code())
}
