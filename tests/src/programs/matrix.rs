//! `matrix [--stride=N] [--share=N] [--offset=N] [--limit=SECONDS] [--only=TEXT[,TEXT…]] [--rare] [--partition=K/N] [--cell=NAME]...
//! [--list]`: the crash matrix for every kind that this kernel can do. Prints what it found; its last line is `N passed, N failed, N
//! skipped`, in points.

use std::process::ExitCode;
use std::time::Duration;

use super::struck::Program;
use crate::matrix;

pub(super) fn main() -> ExitCode {
    let cells = |asked: &_, context: &crate::kernel::Context| matrix::cells(asked, context.kernel);
    Program { name: "matrix", limit: Duration::from_secs(1800), shares: true, cells }.main()
}
