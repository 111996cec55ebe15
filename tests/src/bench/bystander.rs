//! Part B: what a flow that nobody blocks pays while others are blocked: by us, by iptables rules, by nft sets.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use tempfile::NamedTempFile;

use super::Options;
use super::cost::{Bystander, Sample};
use super::figures::{Report, median, row};
use super::processors::Processors;
use super::targets::{self, Kind};
use crate::fault::Fault;
use crate::{Daemon, Error, Mcp, Pair, Result};

/// Longer than all measurements.
const FAULT: Duration = Duration::from_secs(900);
const MOST_ADDED_NS: f64 = 150.0;
const MOST_ADDED_AT_REST_NS: f64 = 20.0;
const FLAT: (f64, f64) = (0.9, 1.1);
const NOTHING: &str = "nothing";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Nobody,
    Ours,
    Iptables,
    Nft,
}

/// One way to block so many targets, on a cable of its own, with its bystander.
struct Lane {
    name: String,
    who: Who,
    kind: Kind,
    count: u32,
    bystander: Bystander,
    samples: Vec<Sample>,
    // Last: the sockets are in its namespaces.
    _pair: Pair,
}

/// Who blocks how many of what. iptables takes minutes for 100,000 rules, and 270 µs per packet then.
fn plan(options: &Options) -> Vec<(Who, Kind, u32)> {
    let mut plan = vec![(Who::Nobody, Kind::Hosts, 0)];
    let sizes: &[u32] = options.pick(&[1, 1_000, 100_000], &[1, 100_000]);
    for (who, kind) in [(Who::Ours, Kind::Hosts), (Who::Ours, Kind::Mixed)] {
        plan.extend(sizes.iter().map(|size| (who, kind, *size)));
    }
    let rules: &[u32] = options.pick(&[1, 1_000, 10_000], &[1, 1_000]);
    plan.extend(rules.iter().map(|size| (Who::Iptables, Kind::Hosts, *size)));
    plan.extend(sizes.iter().map(|size| (Who::Nft, Kind::Hosts, *size)));
    plan.push((Who::Nft, Kind::Mixed, 100_000));
    plan
}

/// A daemon at rest has the kernel's packet hooks switched on: what a packet pays for that, beside no daemon at all.
fn at_rest(options: &Options, processors: Processors, report: &mut Report) -> Result<()> {
    let pair = targets::pair()?;
    let bystander = Bystander::new(&pair)?;
    let (rounds, length) = options.pick((11, Duration::from_millis(60)), (5, Duration::from_millis(30)));
    let added = std::thread::scope(|scope| {
        let visits = || {
            processors.keep_to_packets()?;
            let mut added = Vec::new();
            for _ in 0..rounds {
                let before = bystander.visit(length)?;
                let mut daemon = Daemon::start()?;
                super::await_stock(&daemon)?;
                let during = bystander.visit(length)?;
                daemon.stop()?;
                added.push(during.cpu_ns - before.cpu_ns);
            }
            Ok(median(&added))
        };
        let visits = scope.spawn(visits).join();
        visits.unwrap_or_else(|_| Err(Error::Different("the thread of the bystander panicked".into())))
    })?;
    println!("== a daemon at rest adds {added:.0} ns to a packet");
    report.keep("bystander", "daemon at rest", json!({"added_ns": added, "rounds": rounds}));
    report.at_most("a daemon at rest: added per packet", added, MOST_ADDED_AT_REST_NS, " ns");
    Ok(())
}

pub(super) fn measure(options: &Options, processors: Processors, report: &mut Report) -> Result<()> {
    at_rest(options, processors, report)?;
    println!("== bystander: a flow that is not blocked, while others are (UDP, 18 bytes, one processor)");
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let mut lanes = Vec::new();
    for (who, kind, count) in plan(options) {
        lanes.push(Lane::new(who, kind, count, &mcp)?);
    }
    let (rounds, length) = options.pick((11, Duration::from_millis(60)), (5, Duration::from_millis(30)));
    std::thread::scope(|scope| {
        scope
            .spawn(|| go_round(&mut lanes, rounds, length, processors))
            .join()
            .unwrap_or_else(|_| Err(Error::Different("the thread of the bystanders panicked".into())))
    })?;
    publish(&lanes, report);
    println!("  (iptables: 10,000 at most, since it takes minutes to put in 100,000 rules)");
    Ok(())
}

fn go_round(lanes: &mut [Lane], rounds: usize, length: Duration, processors: Processors) -> Result<()> {
    processors.keep_to_packets()?;
    for round in 0..rounds {
        for step in 0..lanes.len() {
            // Another beginning each round, and now forwards, now backwards.
            let step = if round % 2 == 0 { step } else { lanes.len() - 1 - step };
            let turn = (step + round * 5) % lanes.len();
            let sample = lanes[turn].bystander.visit(length)?;
            lanes[turn].samples.push(sample);
        }
    }
    Ok(())
}

impl Lane {
    fn new(who: Who, kind: Kind, count: u32, mcp: &Mcp) -> Result<Self> {
        let pair = targets::pair()?;
        let list = if who == Who::Nobody { Vec::new() } else { targets::list(kind, count) };
        let (name, file) = match who {
            Who::Nobody => (NOTHING, None),
            Who::Ours => {
                let name = format!("b-{kind:?}-{count}");
                let fault = Fault::new("network_partition").on(&pair.near, json!({"cidrs": list}));
                fault.named(&name).lasting(FAULT).inject(mcp)?;
                ("chaos-daemon", None)
            }
            Who::Iptables => ("iptables rules", Some((&["iptables-restore"][..], targets::iptables(&list)))),
            Who::Nft => ("nft set", Some((&["nft", "-f"][..], targets::nft(kind, &list)))),
        };
        if let Some((words, text)) = file {
            targets::run(&pair.near, words, write(&text)?.path())?;
        }
        let bystander = Bystander::new(&pair)?;
        bystander.check(&pair, who != Who::Nobody)?;
        let name = match (who, kind) {
            (Who::Nobody, _) => name.to_owned(),
            (_, Kind::Hosts) => format!("{name}, {count} hosts"),
            (_, Kind::Mixed) => format!("{name}, {count} mixed prefixes"),
        };
        Ok(Self { name, who, kind, count, bystander, samples: Vec::new(), _pair: pair })
    }

    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(&self.samples.iter().map(of).collect::<Vec<_>>())
    }

    /// Nanoseconds more than `base`, round by round: what disturbs the machine disturbs both.
    fn added(&self, base: &Self) -> f64 {
        let pairs = self.samples.iter().zip(&base.samples);
        median(&pairs.map(|(mine, theirs)| mine.cpu_ns - theirs.cpu_ns).collect::<Vec<_>>())
    }

    fn ratio(&self, base: &Self) -> f64 {
        let pairs = self.samples.iter().zip(&base.samples);
        median(&pairs.map(|(mine, theirs)| mine.cpu_ns / theirs.cpu_ns).collect::<Vec<_>>())
    }
}

/// A temporary file with this text.
pub(super) fn write(text: &str) -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new().map_err(Error::io("create", "a temporary file"))?;
    file.write_all(text.as_bytes()).map_err(Error::io("write", "a temporary file"))?;
    Ok(file)
}

fn publish(lanes: &[Lane], report: &mut Report) {
    let base = &lanes[0];
    row("median of rounds", &["ns/packet", "ratio", "added ns", "kpps", "rtt p50 us"].map(str::to_owned));
    for lane in lanes {
        let (cpu, rate) = (lane.median(|sample| sample.cpu_ns), lane.median(|sample| sample.rate));
        let round_trip = lane.median(|sample| sample.round_trip_us);
        let (ratio, added) = (lane.ratio(base), lane.added(base));
        row(
            &lane.name,
            &[
                format!("{cpu:.0}"),
                format!("{ratio:.3}"),
                format!("{added:.0}"),
                format!("{:.0}", rate / 1e3),
                format!("{round_trip:.2}"),
            ],
        );
        let figure = json!({
            "cpu_ns": cpu, "ratio_to_nothing": ratio, "added_ns": added, "packets_per_second": rate,
            "round_trip_p50_us": round_trip, "rounds": lane.samples.len(),
        });
        report.keep("bystander", &lane.name, figure);
        if lane.who == Who::Ours {
            report.at_most(format!("{}: added per packet", lane.name), added, MOST_ADDED_NS, " ns");
        }
    }
    for kind in [Kind::Hosts, Kind::Mixed] {
        let mut ours = lanes.iter().filter(|lane| lane.who == Who::Ours && lane.kind == kind);
        if let (Some(few), Some(many)) = (ours.next(), ours.next_back()) {
            let what = format!("CPU per packet, {} blocked over {}, {kind:?}", many.count, few.count);
            report.within(what, many.ratio(few), FLAT, "");
        }
    }
}
