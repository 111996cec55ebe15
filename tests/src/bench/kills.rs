//! Part D: how soon everything is normal, for every kind of fault and every way to end it.

use super::Options;
use super::figures::Report;
use super::processors::Processors;
use crate::Result;
use crate::kills::{End, kinds, measure};

/// From SIGKILL of everything to normal, in milliseconds.
const GOAL_P99: f64 = 20.0;

pub(super) fn measure_all(options: &Options, processors: Processors, report: &mut Report) -> Result<()> {
    println!("== kills: until everything is normal and stays so");
    // Whoever dies and whoever looks on would be in each other's way.
    processors.keep_to_both()?;
    for kind in kinds() {
        for end in kind.ends() {
            let measured = measure(kind, *end, options.pick(100, 20))?;
            measured.failure.map_or(Ok(()), Err)?;
            for (position, (what, figures)) in measured.figures.into_iter().enumerate() {
                println!("  {what:<56}{figures}");
                report.keep("kills", &what, figures.json());
                if *end == End::Kill && position == 0 {
                    report.at_most(format!("{what}, p99"), figures.percentile_ms(0.99), GOAL_P99, " ms");
                }
            }
        }
    }
    processors.keep_to_actions()
}
