//! Delay, rate and loss: by us, in our loop, and by `tc`, as root queue of the device itself, one after the other on one pair.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::Options;
use crate::bench::figures::{Report, median, row};
use crate::fault::Fault;
use crate::pair::INTERFACE;
use crate::skip::Environment;
use crate::trace::{Load, Trace};
use crate::{Daemon, Error, Mcp, Pair, Result};

/// How much more the median of a delay may be than what was asked for, and how much less, which is at most half of it: no delay at
/// all is not near one of a millisecond.
const GOAL_DELAY_MS: f64 = 2.0;
const GOAL_RATE: (f64, f64) = (0.95, 1.05);
/// A share that chance moves further than this is wrong, 997 times of 1,000.
const GOAL_ERRORS: f64 = 3.0;
/// Data of a full frame, and the headers of UDP, IP and Ethernet.
const DATA: usize = 1472;
const FRAME: usize = DATA + 8 + 20 + 14;

/// A fault of ours, and what does the same with `tc`.
struct Case {
    kind: &'static str,
    params: Value,
    netem: Vec<String>,
}

impl Case {
    fn new(kind: &'static str, params: Value, netem: &str) -> Self {
        Self { kind, params, netem: netem.split(' ').map(str::to_owned).collect() }
    }
}

struct Site {
    pair: Pair,
    daemon: Daemon,
    mcp: Mcp,
}

impl Site {
    fn new() -> Result<Self> {
        let pair = Pair::new()?;
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        Ok(Self { pair, daemon, mcp })
    }

    fn send(&self, load: Load) -> Result<Trace> {
        load.send(&self.pair.near, &self.pair.far, (Pair::FAR_V4, 9).into())
    }

    /// What arrives with our fault, and with the queue of `tc`. `None`: this kernel has no netem.
    fn both(&self, case: &Case, load: Load) -> Result<Option<[Trace; 2]>> {
        let fault =
            Fault::new(case.kind).on(&self.pair.near, json!({"cidr": "10.77.0.2"})).with(case.params.clone());
        let fault = fault.lasting(Duration::from_secs(600));
        match fault.inject(&self.mcp) {
            Err(Error::Mcp { problem, .. })
                if problem.contains("sch_netem") && Environment::detect() == Environment::Host =>
            {
                return Ok(None);
            }
            injected => injected.map(drop)?,
        }
        let ours = self.send(load)?;
        // A lease that lapsed meanwhile would show as another figure.
        let met = fault.status(&self.mcp)?["evidence"]["packets_matched"].as_u64();
        if met != Some(ours.sent) {
            return Err(Error::Different(format!(
                "{}: {met:?} of {} packets were met",
                case.kind, ours.sent
            )));
        }
        fault.remove(&self.mcp)?;
        let mut words = vec!["qdisc", "add", "dev", INTERFACE, "root", "netem"];
        words.extend(case.netem.iter().map(String::as_str));
        self.pair.near.tc(&words)?;
        let theirs = self.send(load)?;
        self.pair.near.tc(&["qdisc", "del", "dev", INTERFACE, "root"])?;
        Ok(Some([ours, theirs]))
    }
}

/// What is asked for, each with a goal.
const DELAYS_MS: [u32; 4] = [1, 10, 100, 1000];
const RATES_KBIT: [u32; 3] = [1_000, 5_000, 20_000];
const LOSSES_PERCENT: [f64; 3] = [1.0, 10.0, 50.0];

pub(super) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let mut site = Site::new()?;
    let there =
        delays(options, &site, report)? && rates(options, &site, report)? && losses(options, &site, report)?;
    if !there {
        let goals = DELAYS_MS.len() + RATES_KBIT.len() + LOSSES_PERCENT.len();
        report.skip("network: kernel-without-sch_netem; `cargo xtask bench --vm` measures it in a VM", goals);
    }
    site.daemon.stop()
}

fn delays(options: &Options, site: &Site, report: &mut Report) -> Result<bool> {
    println!("== delay: median of one-way times, less that of the bare path (ms)");
    row("asked for", &["ours", "tc netem", "our error", "its error"].map(str::to_owned));
    let packets = options.pick(200, 50);
    let bare = median(&site.send(Load::of(packets, 100))?.times());
    for asked in DELAYS_MS {
        let case = Case::new("latency", json!({"delay_ms": asked}), &format!("limit 10000 delay {asked}ms"));
        let linger = Duration::from_millis(u64::from(asked) + 500);
        let Some(traces) = site.both(&case, Load { linger, ..Load::of(packets, 100) })? else {
            return Ok(false);
        };
        let [ours, theirs] = traces.map(|trace| median(&trace.times()) - bare);
        let errors = [ours, theirs].map(|delay| delay - f64::from(asked));
        row(&asked.to_string(), &[ours, theirs, errors[0], errors[1]].map(|value| format!("{value:.2}")));
        report.keep(
            "delay",
            &format!("{asked} ms"),
            json!({"ours_ms": ours, "tc_ms": theirs, "bare_ms": bare}),
        );
        let bounds = (-GOAL_DELAY_MS.min(f64::from(asked) / 2.0), GOAL_DELAY_MS);
        report.within(format!("error of a delay of {asked} ms"), errors[0], bounds, " ms");
    }
    Ok(true)
}

/// Of what arrives while twice as much is sent.
fn rates(options: &Options, site: &Site, report: &mut Report) -> Result<bool> {
    println!("== rate: what arrives of full frames, of which twice as much is sent (kbit/s)");
    row("asked for", &["ours", "tc netem", "ours of it", "its"].map(str::to_owned));
    for asked in RATES_KBIT {
        let per_second = f64::from(asked) * 1000.0 / (FRAME * 8) as f64;
        let seconds = options.pick(4.0, 1.0);
        let packets = (2.0 * per_second * seconds) as u64;
        let load = Load {
            bytes: DATA,
            linger: Duration::from_secs(1),
            ..Load::of(packets, (2.0 * per_second) as u32)
        };
        let case =
            Case::new("bandwidth", json!({"rate_kbit": asked}), &format!("limit 1000 rate {asked}kbit"));
        let Some(traces) = site.both(&case, load)? else { return Ok(false) };
        let [ours, theirs] = traces.map(|trace| kilobits(&trace));
        let shares = [ours, theirs].map(|rate| rate / f64::from(asked));
        row(&asked.to_string(), &[ours, theirs, shares[0], shares[1]].map(|value| format!("{value:.3}")));
        report.keep("rate", &format!("{asked} kbit"), json!({"ours_kbit": ours, "tc_kbit": theirs}));
        report.within(format!("rate of {asked} kbit/s, of it"), shares[0], GOAL_RATE, "");
    }
    Ok(true)
}

fn kilobits(trace: &Trace) -> f64 {
    let (Some(first), Some(last)) = (trace.arrivals.first(), trace.arrivals.last()) else { return 0.0 };
    let bits = ((trace.arrivals.len() - 1) * FRAME * 8) as f64;
    bits / 1000.0 / (last.at - first.at).as_secs_f64()
}

fn losses(options: &Options, site: &Site, report: &mut Report) -> Result<bool> {
    let packets: u64 = options.pick(100_000, 10_000);
    println!("== loss: percent of {packets} packets, and the distance in standard errors");
    row("asked for", &["ours", "tc netem", "our distance", "its distance"].map(str::to_owned));
    for asked in LOSSES_PERCENT {
        let case =
            Case::new("packet_loss", json!({"loss_percent": asked}), &format!("limit 10000 loss {asked}%"));
        let Some(traces) = site.both(&case, Load::of(packets, 4_000))? else { return Ok(false) };
        let error = 100.0 * (asked / 100.0 * (1.0 - asked / 100.0) / packets as f64).sqrt();
        let [ours, theirs] = traces.map(|trace| 100.0 * trace.lost());
        let distances = [ours, theirs].map(|lost| (lost - asked) / error);
        row(
            &asked.to_string(),
            &[ours, theirs, distances[0], distances[1]].map(|value| format!("{value:.3}")),
        );
        report.keep(
            "loss",
            &format!("{asked} percent"),
            json!({"ours": ours, "tc": theirs, "packets": packets}),
        );
        report.at_most(
            format!("loss of {asked} %, distance"),
            distances[0].abs(),
            GOAL_ERRORS,
            " standard errors",
        );
    }
    Ok(true)
}
