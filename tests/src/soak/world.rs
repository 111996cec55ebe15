//! The soak's namespaces, traffic and daemon, and the looks that compare them with the model.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::model::{Entry, Kind, Known, Model};
use crate::daemon::binary;
use crate::fault::Fault;
use crate::kernel::Attach;
use crate::measure::{Echo, Tcp, tcp_rtt, udp_rtt};
use crate::netns::output;
use crate::process::{Process, wait_until};
use crate::{Daemon, Error, Mcp, Pair, Residue, Result, UdpFlow};

/// An answer later than this did not come. Beyond the delays of all latency faults at once.
const PATIENCE: Duration = Duration::from_millis(250);
/// Everything is as it was this soon after everything ended.
const SETTLE: Duration = Duration::from_secs(3);
/// What could not be undone at once is tried again every two seconds.
const UNDONE: Duration = Duration::from_secs(8);
/// Packets per second of the bystander.
const RATE: u32 = 500;

/// Everything the soak touches. Fields go in this order.
pub(super) struct World {
    attach: Attach,
    pub(super) mcp: Mcp,
    pub(super) daemon: Daemon,
    pub(super) site: Site,
    pub(super) model: Model,
}

/// Namespaces with traffic between them.
pub(super) struct Site {
    flow: UdpFlow,
    echo: Echo,
    pub(super) pair: Pair,
    before: Residue,
}

impl Site {
    fn new() -> Result<Self> {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let before = Residue::take(&[&pair.near, &pair.far])?;
        let flow = UdpFlow::start(&pair.near, &pair.far, (Pair::FAR_V6, 9).into(), RATE)?;
        Ok(Self { flow, echo, pair, before })
    }
}

impl World {
    pub(super) fn new(attach: Attach) -> Result<Self> {
        let site = Site::new()?;
        let daemon = start(attach)?;
        Ok(Self { attach, mcp: daemon.mcp()?, daemon, site, model: Model::default() })
    }

    /// A fault of this kind under this name.
    pub(super) fn fault(&self, name: &str, kind: Kind, duration: Duration) -> Fault {
        let (kind, narrow, params) = match kind {
            Kind::Partition => ("network_partition", json!({"cidr": "10.77.0.2"}), json!({})),
            Kind::Timeout => ("timeout", json!({"port": 7, "protocol": "udp"}), json!({})),
            Kind::Error => ("error", json!({"port": 7}), json!({})),
            Kind::Latency => ("latency", json!({"cidr": "10.77.0.0/24"}), json!({"delay_ms": 20})),
            Kind::Cpu => ("resource_exhaustion", Value::Null, json!({"cpu_percent": 5, "cores": 1})),
        };
        let fault = Fault::new(kind).with(params).named(name).lasting(duration);
        if narrow.is_null() { fault } else { fault.on(&self.site.pair.near, narrow) }
    }

    /// Injects it, and notes it.
    pub(super) fn inject(&mut self, name: &str, kind: Kind, duration: Duration) -> Result<()> {
        self.fault(name, kind, duration).inject(&self.mcp)?;
        self.model.faults.insert(name.to_owned(), Entry { kind, end: Instant::now() + duration });
        Ok(())
    }

    /// Compares the daemon's status and the packets with the model.
    pub(super) fn check(&mut self) -> Result<()> {
        self.model.tidy();
        self.check_status()?;
        let (from, to) = (&self.site.pair.near, self.site.echo.address());
        let (blocked, cut) = (
            self.model.any(&[Kind::Partition, Kind::Timeout]),
            self.model.any(&[Kind::Partition, Kind::Error]),
        );
        match blocked {
            Known::Yes if udp_rtt(from, to, PATIENCE)?.is_some() => self.wrong("UDP gets through"),
            Known::No if !wait_until(SETTLE, || matches!(udp_rtt(from, to, PATIENCE), Ok(Some(_)))) => {
                self.wrong("UDP does not get through")
            }
            _ => Ok(()),
        }?;
        let answered = || matches!(tcp_rtt(from, to, PATIENCE), Ok(Tcp::Answered { .. }));
        match cut {
            Known::Yes if answered() => self.wrong("TCP gets through"),
            Known::No if !wait_until(SETTLE, answered) => self.wrong("TCP does not get through"),
            _ => Ok(()),
        }
    }

    fn wrong(&self, what: &str) -> Result<()> {
        let (faults, log) = (&self.model.faults, self.daemon.log());
        // A fault may have ended while it was looked at.
        let sure = faults.keys().all(|name| self.model.active(name) == Known::Yes);
        match sure {
            true => Err(Error::Different(format!("{what}, with {faults:?} active; log:\n{log}"))),
            false => Ok(()),
        }
    }

    fn check_status(&mut self) -> Result<()> {
        let mut last = String::new();
        let agrees = wait_until(SETTLE, || match self.mcp.call_tool("chaos_status", json!({})) {
            Ok(answer) => {
                last = self.disagreement(&answer.json);
                last.is_empty()
            }
            Err(error) => {
                last = error.to_string();
                false
            }
        });
        match agrees {
            true => Ok(()),
            false => Err(Error::Different(format!("status: {last}; log:\n{}", self.daemon.log()))),
        }
    }

    fn disagreement(&self, status: &Value) -> String {
        let listed = status["active_faults"].as_array().cloned().unwrap_or_default();
        let active: Vec<_> = listed
            .iter()
            .filter(|fault| fault["active"] == true)
            .filter_map(|f| f["name"].as_str())
            .collect();
        let extra = active.iter().filter(|name| self.model.active(name) == Known::No);
        let mut text: String = extra.map(|name| format!("{name} is active; ")).collect();
        for name in self.model.faults.keys() {
            if self.model.active(name) == Known::Yes && !active.contains(&name.as_str()) {
                text.push_str(&format!("{name} is not active; "));
            }
        }
        text
    }

    /// Every fault has ended: nothing is left, nothing runs, and traffic is as ever.
    pub(super) fn assert_calm(&mut self) -> Result<()> {
        self.model.faults.clear();
        self.check()?;
        self.assert_no_journal()?;
        self.site.before.assert_unchanged_within(&[&self.site.pair.near, &self.site.pair.far], SETTLE)?;
        let idle = || self.daemon.holders().iter().all(|holder| holder.arguments.len() > 2);
        match wait_until(SETTLE, idle) {
            true => Ok(()),
            false => Err(Error::Different(format!("holders left: {:?}", self.daemon.holders()))),
        }
    }

    fn assert_no_journal(&self) -> Result<()> {
        match wait_until(UNDONE, || self.journals().is_empty()) {
            true => Ok(()),
            false => Err(Error::Different(format!("journals left: {:?}", self.journals()))),
        }
    }

    /// Texts of the journals, one per fault.
    fn journals(&self) -> Vec<String> {
        let folder = self.daemon.runtime_dir().join("journal");
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect()
    }

    /// The fault that a holder holds, by the journal.
    pub(super) fn held_by(&self, holder: &Process) -> Option<String> {
        let journals = self.journals();
        let text = journals.iter().find(|text| text.contains(&format!("\"pid\":{},", holder.pid)))?;
        let first: Value = serde_json::from_str(text.lines().next()?).ok()?;
        first["fault"]["name"].as_str().map(str::to_owned)
    }

    /// From `since` until a packet comes through; the time at which that one left.
    pub(super) fn time_to_normal(&self, since: Instant, limit: Duration) -> Result<Duration> {
        let (from, to) = (&self.site.pair.near, self.site.echo.address());
        while since.elapsed() < limit {
            let sent = since.elapsed();
            if udp_rtt(from, to, Duration::from_millis(5))?.is_some() {
                return Ok(sent);
            }
        }
        Err(Error::Late { what: "traffic normal".into(), after: limit })
    }

    /// Recovers after a death of the daemon, and starts another.
    pub(super) fn revive(&mut self, dead: &[Process]) -> Result<()> {
        let mut command = Command::new(binary("chaos-daemon")?);
        let said = output(command.arg("recover").arg("--runtime-dir").arg(self.daemon.runtime_dir()))?;
        if said.contains("STUCK") {
            return Err(Error::Different(said));
        }
        if !wait_until(SETTLE, || !dead.iter().any(Process::runs)) {
            return Err(Error::Different(format!("still running: {dead:?}")));
        }
        self.daemon.kill_everything();
        self.model.faults.clear();
        self.assert_no_journal()?;
        self.site.before.assert_unchanged_within(&[&self.site.pair.near, &self.site.pair.far], SETTLE)?;
        let fresh = start(self.attach)?;
        self.mcp = fresh.mcp()?;
        self.daemon = fresh;
        self.assert_calm()
    }

    /// Waits until the server is another one, and connects to it.
    pub(super) fn reconnect(&mut self, old: &Process) -> Result<()> {
        let daemon = &self.daemon;
        wait_until(SETTLE, || daemon.server().is_some_and(|now| now.pid != old.pid));
        self.mcp = daemon.mcp()?;
        Ok(())
    }

    /// Sends a signal to every process of the daemon.
    pub(super) fn signal_all(&self, signal: Signal) -> Vec<Process> {
        let all = self.daemon.processes();
        all.iter().for_each(|process| process.signal(signal));
        all
    }

    /// What became of the bystander; with a site of its own for what comes next. `spared` when nothing but faults
    /// happened to its device.
    pub(super) fn renew_site(&mut self, spared: bool) -> Result<u64> {
        let old = std::mem::replace(&mut self.site, Site::new()?);
        let report = old.flow.finish()?;
        // A fault's first clsact, and its last, restart the queue of the device.
        if spared && self.attach == Attach::Auto && report.lost() + report.refused > 0 {
            return Err(Error::Different(format!("the bystander lost packets: {report:?}")));
        }
        Ok(report.sent)
    }
}

fn start(attach: Attach) -> Result<Daemon> {
    Daemon::start_with(|command| attach.configure(command))
}
