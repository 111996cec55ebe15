//! A bystander's flow beside a fault that comes and goes: how many of its packets are lost.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::fault::Fault;
use crate::flow::FlowReport;
use crate::kernel::Attach;
use crate::pair::INTERFACE;
use crate::skip::Environment;
use crate::{Daemon, Error, Pair, Result, UdpFlow};

/// From the rate we want, which a busy machine gets more than one try at, to the lowest that says anything.
const RATES: [u32; 7] = [10_000, 10_000, 10_000, 5_000, 2_000, 1_000, 500];
/// An emulated processor stands still for a second and more when the machine is busy: what is sent to catch up after
/// that must not overflow the kernel's own queues, of 1,000 packets each.
const MOST_IN_VM: u32 = 500;
/// How long a rate is tried without any fault.
const TRIAL: Duration = Duration::from_secs(1);

/// What became of the bystander.
#[derive(Debug, Clone, Copy)]
pub struct Bystander {
    /// Packets per second: the highest of a few that the machine sustains without loss when nothing is injected.
    pub rate: u32,
    /// Times that the fault was injected and removed.
    pub cycles: u32,
    /// All cycles together.
    pub took: Duration,
    /// What became of the packets.
    pub flow: FlowReport,
}

/// Beside what it is measured.
#[derive(Debug, Clone, Copy)]
pub struct Beside {
    /// Times that the fault is injected and removed.
    pub cycles: u32,
    /// How programs are attached.
    pub attach: Attach,
    /// The device's root qdisc; `None`: what a veth has by itself, none (`noqueue`).
    pub queue: Option<&'static str>,
    /// Whether a clsact qdisc is on the device before the first fault, so that none comes and goes with them.
    pub clsact: bool,
    /// What is injected and removed.
    pub kind: &'static str,
}

impl Beside {
    /// Partitions, on a device as it comes, with programs attached as the daemon finds best.
    pub fn cycles(cycles: u32) -> Self {
        Self { cycles, attach: Attach::Auto, queue: None, clsact: false, kind: "network_partition" }
    }

    /// Injects and removes a fault of another peer on the same device, so many times, beside a steady flow.
    ///
    /// # Errors
    /// When the machine sustains no rate, or a fault fails.
    pub fn measure(self) -> Result<Bystander> {
        let pair = Pair::new()?;
        let add = |words: &[&str]| pair.near.tc(&[&["qdisc", "add", "dev", INTERFACE], words].concat());
        self.queue.map(|queue| add(&["root", queue])).transpose()?;
        self.clsact.then(|| add(&["clsact"])).transpose()?;
        let daemon = Daemon::start_with(|command| self.attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let fault = Fault::new(self.kind).on(&pair.near, json!({"cidr": "10.77.0.3"}));
        fault.inject(&mcp)?;
        fault.remove(&mcp)?;
        let rate = sustained(&pair)?;
        let flow = flow(&pair, rate)?;
        let started = Instant::now();
        for _ in 0..self.cycles {
            fault.inject(&mcp)?;
            fault.remove(&mcp)?;
        }
        let took = started.elapsed();
        Ok(Bystander { rate, cycles: self.cycles, took, flow: flow.finish()? })
    }
}

impl Bystander {
    /// Packets per second that were sent beside all cycles.
    pub fn achieved(&self) -> f64 {
        self.flow.sent as f64 / self.took.as_secs_f64()
    }

    /// Packets that were lost, refused, or came twice.
    pub fn harmed(&self) -> u64 {
        self.flow.lost() + self.flow.refused + self.flow.duplicated
    }
}

impl std::fmt::Display for Bystander {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rate, cycles, took, flow } = self;
        write!(
            f,
            "{cycles} cycles in {:.1} s beside {rate} packets/s: {} sent, {} lost, {} refused, {} twice, slowest {:?}",
            took.as_secs_f64(),
            flow.sent,
            flow.lost(),
            flow.refused,
            flow.duplicated,
            flow.slowest,
        )
    }
}

fn flow(pair: &Pair, rate: u32) -> Result<UdpFlow> {
    UdpFlow::start(&pair.near, &pair.far, (Pair::FAR_V4, 9).into(), rate)
}

fn sustained(pair: &Pair) -> Result<u32> {
    let most = match Environment::detect() {
        Environment::Host => u32::MAX,
        Environment::Vm => MOST_IN_VM,
    };
    for rate in RATES.into_iter().filter(|rate| *rate <= most) {
        let trial = flow(pair, rate)?;
        std::thread::sleep(TRIAL);
        let report = trial.finish()?;
        let kept_up = report.sent * 10 >= u64::from(rate) * 9;
        if kept_up && report.lost() + report.refused == 0 {
            return Ok(rate);
        }
    }
    Err(Error::Different(format!("no rate of {RATES:?} arrives whole even without a fault")))
}
