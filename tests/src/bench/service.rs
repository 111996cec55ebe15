//! Part C: many targets in one request, the price of a call, of an idle daemon, and of a start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use super::bystander::write;
use super::figures::{Report, median, micros, percentile, row};
use super::processors::Processors;
use super::targets::{self, BLOCKED, Kind};
use super::trial::{Way, trial};
use super::{Options, await_stock};
use crate::fault::Fault;
use crate::netns::output;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, NetNs, Pair, Result};

const PORT: u16 = 4997;
/// Their places among the ways to block many targets: a fault that is known, nft, and the script next.
const KNOWN: usize = 1;
const NFT: usize = 2;

pub(super) fn measure(options: &Options, processors: Processors, report: &mut Report) -> Result<()> {
    starts(options, report)?;
    let pair = targets::pair()?;
    // As on a host: the daemon is in the namespace of its target, and so are the others.
    let daemon = Daemon::start_with(|command| pair.near.place(command))?;
    let mcp = daemon.mcp()?;
    memory(&daemon, report)?;
    calls(options, &mcp, report)?;
    println!("== many targets in one request: until the first packet to one of them is dropped (ms)");
    row("median of rounds", &["active", "ratio", "returned", "removed"].map(str::to_owned));
    for (count, rounds) in [(1_000, options.pick(7, 3)), (100_000, options.pick(5, 1))] {
        many(count, rounds, &daemon, &mcp, &pair, processors, report)?;
    }
    Ok(())
}

/// From starting the process to the first answer of `chaos_status`.
fn starts(options: &Options, report: &mut Report) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..options.pick(7, 3) {
        let started = Instant::now();
        let daemon = Daemon::start()?;
        daemon.mcp()?.call_tool("chaos_status", json!({}))?.ok()?;
        times.push(micros(started.elapsed()) / 1e3);
    }
    println!("== start of the daemon to its first answer: {:.1} ms (looked every 5 ms)", median(&times));
    report.keep("service", "start_to_answer_ms", json!(median(&times)));
    Ok(())
}

/// Resident memory of the idle processes.
fn memory(daemon: &Daemon, report: &mut Report) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(5);
    if !wait_until(LIMIT, || daemon.holders().len() == 1) {
        return Err(Error::Late { what: "the warm holder".into(), after: LIMIT });
    }
    std::thread::sleep(Duration::from_millis(300));
    let processes = [
        ("injector", daemon.injector()),
        ("server", daemon.server()),
        ("warm holder", daemon.holders().into_iter().next()),
        ("keeper", daemon.keeper()),
        ("prober", daemon.prober()),
    ];
    let mut words = Vec::new();
    let mut sum = 0.0;
    for (name, process) in processes {
        let resident =
            process.as_ref().map_or(f64::NAN, |process| process.status("VmRSS") as f64 / f64::from(1 << 20));
        report.keep("service", &format!("resident_mib {name}"), json!(resident));
        words.push(format!("{name} {resident:.1}"));
        sum += resident;
    }
    println!("== idle, resident MiB: {}; together {sum:.1}", words.join(", "));
    Ok(())
}

/// Round trips of the cheapest tool that reaches the injector.
fn calls(options: &Options, mcp: &Mcp, report: &mut Report) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..options.pick(3_000, 500) {
        let started = Instant::now();
        mcp.call_tool("chaos_status", json!({}))?.ok()?;
        times.push(micros(started.elapsed()));
    }
    let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
    println!("== chaos_status over MCP: p50 {p50:.0} us, p99 {p99:.0} us");
    report.keep("service", "chaos_status_us", json!({"p50": p50, "p99": p99, "calls": times.len()}));
    Ok(())
}

fn many(
    count: u32,
    rounds: usize,
    daemon: &Daemon,
    mcp: &Mcp,
    pair: &Pair,
    processors: Processors,
    report: &mut Report,
) -> Result<()> {
    let list = targets::list(Kind::Hosts, count);
    let file = write(&targets::nft(Kind::Hosts, &list))?;
    let script = write(&targets::script(&list))?;
    let fault = Fault::new("network_partition").here(json!({"cidrs": list}));
    let (whole, known) = (fault.clone().named("whole"), fault.named("known"));
    let mut ways: Vec<Box<dyn Way + '_>> = vec![
        Box::new(Ours { daemon, mcp, fault: whole, registers: true }),
        Box::new(Ours { daemon, mcp, fault: known, registers: false }),
        Box::new(Nft { namespace: &pair.near, file: file.path().to_path_buf() }),
    ];
    // It takes seconds for 1,000, and would hours for 100,000.
    if count <= 1_000 {
        ways.push(Box::new(Script { namespace: &pair.near, file: script.path().to_path_buf() }));
    }
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            // The far side's buffers, and our next holder, settle.
            std::thread::sleep(Duration::from_millis(100));
            times.push(trial(way.as_mut(), pair, SocketAddr::from((BLOCKED, PORT)), processors)?);
        }
    }
    let column = |turn: usize, of: fn(&super::trial::Times) -> Duration| {
        median(&times[turn].iter().map(|times| micros(of(times)) / 1e3).collect::<Vec<_>>())
    };
    for (turn, way) in ways.iter().enumerate() {
        let active = column(turn, |times| times.active);
        let ratio = active / column(NFT, |times| times.active);
        let (returned, removed) = (column(turn, |times| times.returned), column(turn, |times| times.removed));
        let name = format!("{}, {count} targets", way.name());
        row(&name, &[active, ratio, returned, removed].map(|value| format!("{value:.2}")));
        let figure = json!({
            "active_ms": active, "ratio_to_nft": ratio, "returned_ms": returned, "removed_ms": removed,
            "rounds": rounds,
        });
        report.keep("many targets", &name, figure);
    }
    if count <= 1_000 {
        let ours = column(KNOWN, |times| times.active);
        for (turn, goal) in [(NFT, 1.0 / 3.0), (NFT + 1, 0.01)] {
            let what = format!("{count} targets active, of the time of {}", ways[turn].name());
            report.at_most(&what, ours / column(turn, |times| times.active), goal, "");
        }
    }
    Ok(())
}

/// With the call that brings the targets along, as the others have their files read meanwhile; or without, for a fault that is known.
struct Ours<'a> {
    daemon: &'a Daemon,
    mcp: &'a Mcp,
    fault: Fault,
    /// Whether that call is timed.
    registers: bool,
}

impl Way for Ours<'_> {
    fn name(&self) -> &'static str {
        if self.registers { "register and inject" } else { "inject alone" }
    }

    fn prepare(&mut self) -> Result<()> {
        if !self.registers {
            self.fault.register(self.mcp)?;
        }
        await_stock(self.daemon)
    }

    fn block(&mut self) -> Result<()> {
        if self.registers {
            self.fault.register(self.mcp)?;
        }
        let call = json!({"fault_name": self.fault.name(), "action": "inject"});
        self.mcp.call_tool("chaos_inject_fault", call)?.ok().map(drop)
    }

    fn unblock(&mut self) -> Result<()> {
        self.fault.remove(self.mcp).map(drop)
    }
}

/// One process of `iptables` for each target.
struct Script<'a> {
    namespace: &'a NetNs,
    file: PathBuf,
}

impl Way for Script<'_> {
    fn name(&self) -> &'static str {
        "iptables, a process each"
    }

    fn block(&mut self) -> Result<()> {
        targets::run(self.namespace, &["sh", "-e"], &self.file)
    }

    fn unblock(&mut self) -> Result<()> {
        output(self.namespace.command("iptables").args(["-F", "OUTPUT"])).map(drop)
    }
}

struct Nft<'a> {
    namespace: &'a NetNs,
    file: PathBuf,
}

impl Way for Nft<'_> {
    fn name(&self) -> &'static str {
        "nft -f, a set"
    }

    fn block(&mut self) -> Result<()> {
        targets::run(self.namespace, &["nft", "-f"], &self.file)
    }

    fn unblock(&mut self) -> Result<()> {
        self.namespace
            .command("nft")
            .args(["delete", "table", "inet", "bench"])
            .status()
            .map(drop)
            .map_err(Error::io("run", "nft"))
    }
}
