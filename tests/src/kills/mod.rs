//! How soon is everything normal? After SIGKILL of every process, when a fault's time is over and everybody is stopped,
//! and when a fault is removed; with a dense flow of packets, and many times over. `kills` is the program.

mod figures;
mod lease;
mod watch;

use std::process::Command;
use std::time::{Duration, Instant};

use chaos_daemon::kernel::process::{Process as Pinned, ProcessId};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::daemon::binary;
use crate::fault::Fault;
use crate::kernel::{Attach, Context};
use crate::netns::output;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

pub use figures::Figures;
use watch::{Traffic, Watch, normal_from};

/// Normal within this of a death or an end, whatever the machine is doing; what is aimed at is far less.
const LIMIT: Duration = Duration::from_secs(1);
/// The same of a call, which goes through three processes.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// Packets that a fault has to have met, and packets that have to be normal after it.
const ENOUGH: usize = 20;
/// How long a fault lasts whose end is waited for, at first and at most: everybody has to be stopped by then, and one
/// lease has to reach that far.
const SHORT: Duration = Duration::from_millis(250);
const LONG: Duration = Duration::from_secs(2);
/// How long objects may take to go.
const SETTLE: Duration = Duration::from_secs(3);

/// A kind of fault, and how it is attached.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// What it is called in figures.
    pub name: &'static str,
    fault_type: &'static str,
    attach: Attach,
}

/// What ends a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// SIGKILL of every process.
    Kill,
    /// Its time, with every process stopped.
    Time,
    /// `remove`.
    Removal,
}

/// Every kind that this kernel can do.
pub fn kinds() -> Vec<Kind> {
    let context = Context::new();
    let mut kinds = Vec::new();
    let mut add = |name, fault_type, attach| kinds.push(Kind { name, fault_type, attach });
    if context.kernel >= (6, 6) {
        add("partition (tcx)", "network_partition", Attach::Auto);
    }
    add("partition (stub)", "network_partition", Attach::Clsact);
    add("timeout", "timeout", Attach::Auto);
    add("error", "error", Attach::Auto);
    add("cpu", "resource_exhaustion", Attach::Auto);
    if context.has_netem() {
        add("latency", "latency", Attach::Auto);
    }
    kinds
}

impl Kind {
    /// The ways to end that are measured for it.
    pub fn ends(self) -> &'static [End] {
        match self.fault_type {
            // Its threads look at the clock as the programs do, but nothing outside tells the time that they stop.
            "resource_exhaustion" => &[End::Kill, End::Removal],
            _ => &[End::Kill, End::Time, End::Removal],
        }
    }

    fn fault(self, pair: &Pair) -> Fault {
        let fault = Fault::new(self.fault_type);
        match self.fault_type {
            "resource_exhaustion" => fault.with(json!({"cpu_percent": 20, "cores": 1})),
            "latency" => {
                fault.on(&pair.near, json!({"cidr": "10.77.0.2"})).with(json!({"delay_ms": watch::DELAY_MS}))
            }
            _ => fault.on(&pair.near, json!({"cidr": "10.77.0.2"})),
        }
    }

    fn traffic(self) -> Traffic {
        // Only TCP can be reset.
        if self.fault_type == "error" { Traffic::Connections } else { Traffic::Echoes }
    }
}

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Figures, by what they are of.
    pub figures: Vec<(String, Figures)>,
    /// What was not normal within its limit, or could not be measured. The rounds before it are in the figures.
    pub failure: Option<Error>,
}

/// Ends a fault of this kind so many times.
///
/// # Errors
/// When it cannot even begin.
pub fn measure(kind: Kind, end: End, count: usize) -> Result<Measured> {
    let place = Place::new(kind)?;
    let mut rounds = Vec::new();
    let ended = match end {
        End::Kill => place.kills(count, &mut rounds),
        End::Time => place.expiries(count, &mut rounds),
        End::Removal => place.removals(count, &mut rounds),
    };
    let ends = [&place.pair.near, &place.pair.far];
    let failure = ended.and_then(|()| place.before.assert_unchanged_within(&ends, SETTLE)).err();
    let column = |at: usize| Figures::new(rounds.iter().map(|round| round[at]).collect());
    let what: &[_] = match end {
        End::Kill => &["SIGKILL of everything to normal", "distance of packets then", "recover after it"],
        End::Time => &["end to normal, everybody stopped", "distance of packets then"],
        End::Removal => &["remove to normal", "distance of packets then", "remove to answer"],
    };
    let figures = what.iter().enumerate().map(|(at, what)| (format!("{}: {what}", kind.name), column(at)));
    Ok(Measured { figures: figures.filter(|(_, figures)| !figures.is_zero()).collect(), failure })
}

/// Where a kind is measured.
struct Place {
    kind: Kind,
    pair: Pair,
    before: Residue,
}

/// What is measured of one round: until all was normal; how far the packets that tell it were from each other; and what
/// only some ways to end have.
type Round = [Duration; 3];

/// What tells whether a fault is still there.
enum Observer {
    Flow(Watch),
    /// A burning process.
    Process(Pinned),
}

impl Observer {
    fn start(kind: Kind, pair: &Pair, daemon: &Daemon) -> Result<Self> {
        if kind.fault_type == "resource_exhaustion" {
            let holders = daemon.holders();
            let burner = holders.iter().find(|holder| holder.arguments.len() == 2);
            let burner = burner.and_then(|burner| ProcessId::of(burner.pid).ok()?.open().ok()?);
            return burner.map(Self::Process).ok_or_else(|| Error::Different("no burning process".into()));
        }
        let watch = Watch::start(pair, kind.traffic())?;
        watch.await_sent(ENOUGH)?;
        Ok(Self::Flow(watch))
    }

    /// From `since` until everything is normal and stays so. Before, nothing may have been.
    fn time_to_normal(self, since: Instant, limit: Duration) -> Result<(Duration, Duration)> {
        let late = || Error::Late { what: "everything normal".into(), after: limit };
        match self {
            Self::Process(process) => match process.wait(limit) {
                Ok(true) => Ok((since.elapsed(), Duration::ZERO)),
                _ => Err(late()),
            },
            Self::Flow(watch) => {
                watch.await_normal(ENOUGH)?;
                let shots = watch.finish()?;
                // A packet may be under way while the time comes.
                let early = shots.iter().filter(|shot| shot.normal && shot.at + watch::CLOSE < since).count();
                if early > 0 {
                    return Err(Error::Different(format!("{early} packets were normal under the fault")));
                }
                let normal = normal_from(&shots, since).filter(|time| *time < limit).ok_or_else(late)?;
                Ok((normal, watch::distance(&shots)))
            }
        }
    }
}

impl Place {
    fn new(kind: Kind) -> Result<Self> {
        let pair = Pair::new()?;
        let before = Residue::take(&[&pair.near, &pair.far])?;
        Ok(Self { kind, pair, before })
    }

    fn daemon(&self) -> Result<(Daemon, Mcp)> {
        let daemon = Daemon::start_with(|command| self.kind.attach.configure(command))?;
        let mcp = daemon.mcp()?;
        Ok((daemon, mcp))
    }

    fn kills(&self, count: usize, rounds: &mut Vec<Round>) -> Result<()> {
        (0..count).try_for_each(|_| self.kill().map(|round| rounds.push(round)))
    }

    fn kill(&self) -> Result<Round> {
        let (mut daemon, mcp) = self.daemon()?;
        self.kind.fault(&self.pair).inject(&mcp)?;
        let observer = Observer::start(self.kind, &self.pair, &daemon)?;
        let processes = daemon.processes();
        let killed = Instant::now();
        // At once: looking at each before would give the first one's children time to see it dead.
        for process in &processes {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        let normal = observer.time_to_normal(killed, LIMIT);
        daemon.kill_everything();
        let (normal, distance) = normal?;
        let mut command = Command::new(binary("chaos-daemon")?);
        let started = Instant::now();
        let said = output(command.arg("recover").arg("--runtime-dir").arg(daemon.runtime_dir()))?;
        let recovered = started.elapsed();
        if said.contains("STUCK") {
            return Err(Error::Different(said));
        }
        Ok([normal, distance, recovered])
    }

    fn removals(&self, count: usize, rounds: &mut Vec<Round>) -> Result<()> {
        let (daemon, mcp) = self.daemon()?;
        let fault = self.kind.fault(&self.pair);
        let remove = |_| {
            fault.inject(&mcp)?;
            let observer = Observer::start(self.kind, &self.pair, &daemon)?;
            let called = Instant::now();
            fault.remove(&mcp)?;
            let answered = called.elapsed();
            let (normal, distance) = observer.time_to_normal(called, CALL_LIMIT)?;
            rounds.push([normal, distance, answered]);
            Ok(())
        };
        (0..count).try_for_each(remove)
    }

    fn expiries(&self, count: usize, rounds: &mut Vec<Round>) -> Result<()> {
        let (daemon, mcp) = self.daemon()?;
        let mut lasting = SHORT;
        while rounds.len() < count {
            match self.expire(&daemon, &mcp, lasting)? {
                Some(round) => rounds.push(round),
                None if lasting >= LONG => {
                    return Err(Error::Late { what: "every process stopped".into(), after: lasting });
                }
                None => lasting = LONG.min(2 * lasting),
            }
        }
        Ok(())
    }

    /// `None` when the end came before everybody was stopped.
    fn expire(&self, daemon: &Daemon, mcp: &Mcp, lasting: Duration) -> Result<Option<Round>> {
        let fault = self.kind.fault(&self.pair).lasting(lasting);
        fault.inject(mcp)?;
        let Some(end) = lease::end(&daemon.holders()) else {
            fault.remove(mcp)?;
            return Ok(None);
        };
        let observer = Observer::start(self.kind, &self.pair, daemon)?;
        let processes = daemon.processes();
        processes.iter().for_each(|process| process.signal(Signal::SIGSTOP));
        let in_time = Instant::now() < end;
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        let late = observer.time_to_normal(end, LIMIT);
        processes.iter().for_each(|process| process.signal(Signal::SIGCONT));
        fault.remove(mcp)?;
        if !in_time {
            return Ok(None);
        }
        let (late, distance) = late?;
        Ok(Some([late, distance, Duration::ZERO]))
    }
}
