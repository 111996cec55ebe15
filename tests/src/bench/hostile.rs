//! Part F: how soon root's `chaosctl stop` is done beside sixteen users with eight calls each under way, of each tool alone and of all
//! mixed; how much memory the server has meanwhile; and whether faults of root's go on.

use std::time::Duration;

use serde_json::json;

use super::Options;
use super::figures::{Report, row};
use super::processors::Processors;
use crate::Result;
use crate::hostile::{How, cells};

/// In milliseconds.
const STOP_P99: f64 = 100.0;
/// In MiB.
const SERVER: f64 = 256.0;

pub(super) fn measure(options: &Options, processors: Processors, report: &mut Report) -> Result<()> {
    // Strangers do not leave the daemon a processor of its own.
    processors.keep_to_both()?;
    println!(
        "== hostile: `chaosctl stop` of root's beside 16 clients of four other users, 8 calls each (ms)"
    );
    row("calls", &["stops", "p50", "p99", "refused", "server MiB", "ended early"].map(str::to_owned));
    let lasting = Duration::from_secs(options.pick(6, 2));
    let (mut faults, mut early, mut refused, mut peak) = (0, 0, 0, 0.0_f64);
    for cell in cells()?.iter().filter(|cell| cell.is_of_calls()) {
        let judged = cell.run(&How { stride: 1, offset: 0, lasting })?;
        judged.problems.iter().for_each(|problem| println!("  {}: {problem}", cell.name));
        let Some(flood) = judged.flood else { continue };
        let [p50, p99] = [50, 99].map(|percent| flood.stop(percent).as_secs_f64() * 1e3);
        let mib = flood.peak as f64 / f64::from(1 << 20);
        let whole = |count: usize| count.to_string();
        row(
            &cell.name,
            &[
                whole(flood.stops.len()),
                format!("{p50:.1}"),
                format!("{p99:.1}"),
                whole(flood.refused.len()),
                format!("{mib:.0}"),
                format!("{} of {}", flood.early.len(), flood.faults),
            ],
        );
        let figure = json!({"stops": flood.stops.len(), "p50_ms": p50, "p99_ms": p99, "server_mib": mib,
            "answers": flood.answers, "refused": flood.refused.len(), "ended_early": flood.early.len()});
        report.keep("hostile", &cell.name, figure);
        report.at_most(format!("root's stop beside {}, p99", cell.name), p99, STOP_P99, " ms");
        (faults, early) = (faults + flood.faults, early + flood.early.len());
        (refused, peak) = (refused + flood.refused.len(), peak.max(mib));
    }
    println!("  {faults} faults of root's in all");
    report.at_most("stops of root's that were refused beside them", refused as f64, 0.0, "");
    report.at_most("faults of root's that ended early beside them", early as f64, 0.0, "");
    report.at_most("the server's memory beside them, at most", peak, SERVER, " MiB");
    processors.keep_to_actions()
}
