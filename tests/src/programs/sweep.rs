//! `sweep [--stride=N] [--offset=N] [--limit=SECONDS] [--only=TEXT[,TEXT…]] [--rare] [--partition=K/N] [--cell=NAME]... [--list]`: the
//! sweep over system calls for every kind that this kernel can do. Prints what it found; its last line is `N passed, N failed, N
//! skipped`, in points.

use std::process::ExitCode;
use std::time::Duration;

use super::struck::Program;
use crate::sweep;

pub(super) fn main() -> ExitCode {
    let cells = |asked: &_, _: &_| sweep::cells(asked);
    Program { name: "sweep", limit: Duration::from_secs(900), shares: false, cells }.main()
}
