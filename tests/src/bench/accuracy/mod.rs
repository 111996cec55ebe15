//! Parts E and F: how near a fault comes to what was asked for, beside the tool that people use instead, in one run.

mod cpu;
mod memory;
mod network;

use super::Options;
use super::figures::Report;
use super::processors::Processors;
use crate::Result;

/// What netem does for us, and what it does for `tc`. Needs a kernel with `sch_netem`.
pub(super) fn measure_network(options: &Options, _: Processors, report: &mut Report) -> Result<()> {
    network::measure(options, report)
}

/// Processor time beside `stress-ng`, and memory beside a loop that only populates it.
pub(super) fn measure_load(options: &Options, processors: Processors, report: &mut Report) -> Result<()> {
    cpu::measure(options, processors, report)?;
    memory::measure(options, processors, report)
}
