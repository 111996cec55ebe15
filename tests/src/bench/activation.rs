//! Part A: from the call to the first packet dropped, and from the removal to the first packet through. Through MCP,
//! by the script of the field's guides (bash and iptables), by iptables alone, and the kernel's own floor.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use chaos_common::PacketRule;
use chaos_common::rule::{self, EVERY_PEER, PortRange};
use chaos_daemon::kernel::bpf::{BpfError, Capacity, Family, Hook, Programs, kernel_has_tcx};
use chaos_daemon::spec::Direction;
use serde_json::json;

use super::figures::{Report, median, micros, percentile, row};
use super::processors::Processors;
use super::trial::{Times, Way, trial};
use super::{Options, await_stock};
use crate::fault::Fault;
use crate::netns::output;
use crate::pair::INTERFACE;
use crate::{Daemon, Error, Mcp, NetNs, Pair, Result};

const PORT: u16 = 4999;
const GOAL_RATIO: f64 = 0.25;

const MCP: &str = "chaos-daemon, over MCP";
const SCRIPT: &str = "script: bash + iptables REJECT";

pub(super) fn measure(options: &Options, processors: Processors, report: &mut Report) -> Result<()> {
    println!("== activation: from the call to the first packet dropped, and back (us)");
    let pair = Pair::new()?;
    // As on a host: the daemon is in the namespace of its target, and so is the script.
    let daemon = Daemon::start_with(|command| pair.near.place(command))?;
    let mcp = daemon.mcp()?;
    let to = SocketAddr::from((far_v4(), PORT));
    let mut ways: Vec<Box<dyn Way + '_>> = vec![
        Box::new(Ours::new(&daemon, &mcp)),
        Box::new(Rules { name: SCRIPT, shell: true, namespace: &pair.near }),
        Box::new(Rules { name: "iptables alone", shell: false, namespace: &pair.near }),
    ];
    if kernel_has_tcx().map_err(different)? {
        ways.push(Box::new(Floor::attaching(&pair.near)?));
        ways.push(Box::new(Floor::writing(&pair.near)?));
    } else {
        println!("  (no floor: this kernel attaches nothing through tcx)");
    }
    let mut times: Vec<Vec<Times>> = vec![Vec::new(); ways.len()];
    for round in 0..options.pick(21, 7) {
        for step in 0..ways.len() {
            // Another order each round, so that nobody always follows the same neighbour.
            let turn = (round + step) % ways.len();
            times[turn].push(trial(ways[turn].as_mut(), &pair, to, processors)?);
        }
    }
    let names: Vec<_> = ways.iter().map(|way| way.name()).collect();
    publish(&names, &times, report);
    Ok(())
}

fn publish(names: &[&'static str], times: &[Vec<Times>], report: &mut Report) {
    let column = |times: &[Times], of: fn(&Times) -> Duration| -> Vec<f64> {
        times.iter().map(|times| micros(of(times))).collect()
    };
    row("median of rounds", &["active", "ratio", "p90", "returned", "removed"].map(str::to_owned));
    let script = names.iter().position(|name| *name == SCRIPT).unwrap_or(0);
    let base = median(&column(&times[script], |times| times.active));
    for (name, times) in names.iter().zip(times) {
        let active = column(times, |times| times.active);
        let (returned, removed) = (column(times, |t| t.returned), column(times, |t| t.removed));
        let cell = |value: f64| format!("{value:.0}");
        let ratio = median(&active) / base;
        row(
            name,
            &[
                cell(median(&active)),
                format!("{ratio:.3}"),
                cell(percentile(&active, 0.9)),
                cell(median(&returned)),
                cell(median(&removed)),
            ],
        );
        let figure = json!({
            "active_us": median(&active), "active_p90_us": percentile(&active, 0.9), "ratio_to_script": ratio,
            "returned_us": median(&returned), "removed_us": median(&removed), "rounds": times.len(),
        });
        report.keep("activation", name, figure);
        if *name == MCP {
            report.at_most("active over MCP, of the script's time", ratio, GOAL_RATIO, "");
        }
    }
}

fn far_v4() -> Ipv4Addr {
    match Pair::FAR_V4 {
        std::net::IpAddr::V4(address) => address,
        std::net::IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

fn different(error: BpfError) -> Error {
    Error::Different(format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string)))
}

/// The daemon, as a client sees it.
struct Ours<'a> {
    daemon: &'a Daemon,
    mcp: &'a Mcp,
    fault: Fault,
}

impl<'a> Ours<'a> {
    fn new(daemon: &'a Daemon, mcp: &'a Mcp) -> Self {
        let narrow = json!({"protocol": "udp", "remote_port": PORT});
        Self { daemon, mcp, fault: Fault::new("network_partition").here(narrow) }
    }
}

impl Way for Ours<'_> {
    fn name(&self) -> &'static str {
        MCP
    }

    fn prepare(&mut self) -> Result<()> {
        self.fault.register(self.mcp)?;
        await_stock(self.daemon)
    }

    fn block(&mut self) -> Result<()> {
        let call = json!({"fault_name": "network_partition", "action": "inject"});
        self.mcp.call_tool("chaos_inject_fault", call)?.ok().map(drop)
    }

    fn unblock(&mut self) -> Result<()> {
        self.fault.remove(self.mcp).map(drop)
    }
}

/// A rule of iptables, put in by a shell or directly.
struct Rules<'a> {
    name: &'static str,
    shell: bool,
    namespace: &'a NetNs,
}

impl Rules<'_> {
    fn run(&self, what: &str) -> Result<()> {
        let port = PORT.to_string();
        let words = ["iptables", what, "OUTPUT", "-p", "udp", "--dport", &port, "-j", "REJECT"];
        let mut command = if self.shell {
            let mut command = self.namespace.command("bash");
            command.args(["-c", &format!("{}\n:", words.join(" "))]);
            command
        } else {
            let mut command = self.namespace.command(words[0]);
            command.args(&words[1..]);
            command
        };
        output(&mut command).map(drop)
    }
}

impl Way for Rules<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn block(&mut self) -> Result<()> {
        self.run("-A")
    }

    fn unblock(&mut self) -> Result<()> {
        self.run("-D")
    }
}

/// The daemon's own programs, loaded in this process: what the kernel needs at least.
struct Floor<'a> {
    namespace: &'a NetNs,
    programs: Programs,
    /// Whether blocking is attaching, or writing to a map with the program attached.
    attaches: bool,
}

impl<'a> Floor<'a> {
    fn attaching(namespace: &'a NetNs) -> Result<Self> {
        let load = || {
            let mut programs = Programs::load(Family::Packets, Capacity { hosts: 16, prefixes: 16 })?;
            let rule = PacketRule {
                protocol: rule::UDP.into(),
                remote_ports: PortRange::one(PORT),
                probability: rule::ALWAYS,
                flags: EVERY_PEER,
                level: 1,
                ..PacketRule::default()
            };
            programs.set_rule(&rule, &[])?;
            Ok(programs)
        };
        let mut programs: Programs = load().map_err(different)?;
        programs.renew(u64::MAX).map_err(different)?;
        Ok(Self { namespace, programs, attaches: true })
    }

    fn writing(namespace: &'a NetNs) -> Result<Self> {
        let mut floor = Self { attaches: false, ..Self::attaching(namespace)? };
        floor.programs.disarm().map_err(different)?;
        floor.attach()?;
        Ok(floor)
    }

    fn attach(&mut self) -> Result<()> {
        let programs = &mut self.programs;
        self.namespace
            .run(|| {
                let index = nix::net::if_::if_nametoindex(INTERFACE).unwrap_or_default();
                programs.attach_tcx(Hook::Drop, Direction::Egress, index, INTERFACE)
            })
            .map_err(different)
    }
}

impl Way for Floor<'_> {
    fn name(&self) -> &'static str {
        if self.attaches { "floor: attach in this process" } else { "floor: one map write" }
    }

    fn block(&mut self) -> Result<()> {
        if self.attaches { self.attach() } else { self.programs.renew(u64::MAX).map_err(different) }
    }

    fn unblock(&mut self) -> Result<()> {
        if self.attaches { self.programs.detach() } else { self.programs.disarm() }.map_err(different)
    }
}
