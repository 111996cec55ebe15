//! How soon is everything normal? After SIGKILL of every process, when a fault's time is over and everybody is stopped,
//! and when a fault is removed; with a dense flow of packets, and many times over. `kills` is the program.

mod figures;
mod lease;
mod list;
mod watch;

use std::process::Command;
use std::time::{Duration, Instant};

use chaos_daemon::kernel::process::{Process as Pinned, ProcessId};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::daemon::{ROOM, binary, policy_file};
use crate::kinds::sign::Sign;
use crate::late::HANG;
use crate::netns::output;
use crate::{Daemon, Error, Mcp, Residue, Result};

pub use figures::Figures;
use list::Scene;
pub use list::{Kind, kinds};
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

impl End {
    /// How many of so many rounds are done: only deaths are what everything depends on.
    pub fn count(self, asked: usize) -> usize {
        match self {
            Self::Kill => asked,
            Self::Time | Self::Removal => asked.min(10.max(asked / 5)),
        }
    }
}

impl Kind {
    /// The ways to end that are measured for it.
    pub fn ends(self) -> &'static [End] {
        match self.sign {
            // They look at the clock as the programs do, but nothing outside tells the time at which they let go.
            Sign::Holder | Sign::Traced | Sign::Port | Sign::Proxy => &[End::Kill, End::Removal],
            _ => &[End::Kill, End::Time, End::Removal],
        }
    }

    fn traffic(self) -> Option<Traffic> {
        match self.sign {
            Sign::Echoes | Sign::SomeEchoes => Some(Traffic::Echoes),
            Sign::Twins => Some(Traffic::Twins),
            Sign::Resets => Some(Traffic::Connections),
            Sign::Holder
            | Sign::Traced
            | Sign::Continued
            | Sign::Calls
            | Sign::Trips
            | Sign::Files
            | Sign::Port
            | Sign::Proxy
            | Sign::Questions
            | Sign::Clients(_)
            | Sign::Holds(..) => None,
        }
    }
}

/// A kind and an end.
#[derive(Debug)]
pub struct Cell {
    /// Of both.
    pub name: String,
    /// What is ended.
    pub kind: Kind,
    /// By what.
    pub end: End,
}

/// Every cell there is, by what ends it: alike ones are neighbours.
pub fn cells() -> Vec<Cell> {
    let ended_by = |end| {
        let kinds = list::all().filter(move |kind| kind.ends().contains(&end));
        kinds.map(move |kind| Cell { name: format!("{} {end:?}", kind.name), kind, end })
    };
    [End::Kill, End::Time, End::Removal].into_iter().flat_map(ended_by).collect()
}

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Figures, by what they are of.
    pub figures: Vec<(String, Figures)>,
    /// What was not normal within its limit, or could not be measured. The rounds before it are in the figures.
    pub failure: Option<Error>,
    /// What was late once, so that a round was tried again.
    pub late: Option<String>,
}

/// Ends a fault of this kind so many times.
///
/// # Errors
/// When it cannot even begin.
pub fn measure(kind: Kind, end: End, count: usize) -> Result<Measured> {
    let place = Place::new(kind)?;
    let mut rounds = Vec::new();
    let mut go_on = || match end {
        End::Kill => place.kills(count, &mut rounds),
        End::Time => place.expiries(count, &mut rounds),
        End::Removal => place.removals(count, &mut rounds),
    };
    let mut ended = go_on();
    let late = ended.as_ref().err().filter(|error| error.is_late()).map(Error::to_string);
    if late.is_some() {
        ended = go_on();
    }
    let ends = [&place.scene.pair.near, &place.scene.pair.far];
    let failure = ended.and_then(|()| place.before.assert_unchanged_within(&ends, HANG)).err();
    let column = |at: usize| Figures::new(rounds.iter().map(|round| round[at]).collect());
    let what: &[_] = match end {
        End::Kill => &["SIGKILL of everything to normal", "distance of packets then", "recover after it"],
        End::Time => &["end to normal, everybody stopped", "distance of packets then"],
        End::Removal => &["remove to normal", "distance of packets then", "remove to answer"],
    };
    let figures = what.iter().enumerate().map(|(at, what)| (format!("{}: {what}", kind.name), column(at)));
    Ok(Measured { figures: figures.filter(|(_, figures)| !figures.is_zero()).collect(), failure, late })
}

/// Where a kind is measured.
struct Place {
    kind: Kind,
    scene: Scene,
    before: Residue,
}

/// What is measured of one round: until all was normal; how far the packets that tell it were from each other; and what
/// only some ways to end have.
type Round = [Duration; 3];

/// What tells whether a fault is still there.
enum Observer<'a> {
    Flow(Watch, Sign),
    /// What holds something.
    Process(Pinned),
    /// Something that can be asked at any time.
    Scene(&'a Scene, Sign),
}

impl<'a> Observer<'a> {
    fn start(kind: Kind, scene: &'a Scene, daemon: &Daemon) -> Result<Self> {
        if let Some(traffic) = kind.traffic() {
            let watch = Watch::start(&scene.pair, traffic)?;
            watch.await_sent(ENOUGH)?;
            return Ok(Self::Flow(watch, kind.sign));
        }
        if kind.sign == Sign::Holder {
            let holders = daemon.holders();
            let holder = holders.iter().find(|holder| holder.arguments.len() == 2);
            let holder = holder.and_then(|holder| ProcessId::of(holder.pid).ok()?.open().ok()?);
            return holder.map(Self::Process).ok_or_else(|| Error::Different("nobody holds anything".into()));
        }
        match scene.is_normal(kind.sign)? {
            true => Err(Error::Different("everything is normal under the fault".into())),
            false => Ok(Self::Scene(scene, kind.sign)),
        }
    }

    /// From `since` until everything is normal and stays so. Before, nothing may have been.
    fn time_to_normal(self, since: Instant, limit: Duration) -> Result<(Duration, Duration)> {
        let late = || Error::in_vain("everything normal", limit);
        match self {
            Self::Process(process) => match process.wait(limit) {
                Ok(true) => Ok((since.elapsed(), Duration::ZERO)),
                _ => Err(late()),
            },
            Self::Scene(scene, sign) => {
                let mut last = since;
                while since.elapsed() < limit {
                    let asked = Instant::now();
                    if scene.is_normal(sign)? {
                        return Ok((asked - since, asked - last));
                    }
                    last = asked;
                }
                Err(late())
            }
            Self::Flow(watch, sign) => {
                watch.await_normal(ENOUGH)?;
                let shots = watch.finish()?;
                // The time may come while a packet is being sent.
                let before: Vec<_> = shots.iter().filter(|shot| shot.sent < since).collect();
                let early = before.iter().filter(|shot| shot.normal).count();
                let most = if sign == Sign::SomeEchoes { before.len() / 2 } else { 0 };
                if early > most {
                    let problem = format!("{early} of {} packets were normal under the fault", before.len());
                    return Err(Error::Different(problem));
                }
                let normal = normal_from(&shots, since).filter(|time| *time < limit).ok_or_else(late)?;
                Ok((normal, watch::distance(&shots)))
            }
        }
    }
}

impl Place {
    fn new(kind: Kind) -> Result<Self> {
        let scene = Scene::new()?;
        let before = Residue::take(&[&scene.pair.near, &scene.pair.far])?;
        Ok(Self { kind, scene, before })
    }

    fn daemon(&self) -> Result<(Daemon, Mcp)> {
        let policy = policy_file(ROOM)?;
        let daemon = Daemon::start_with(|command| {
            self.kind.attach.configure(command);
            command.arg("--policy").arg(policy.path());
        })?;
        let mcp = daemon.mcp()?;
        Ok((daemon, mcp))
    }

    fn kills(&self, count: usize, rounds: &mut Vec<Round>) -> Result<()> {
        (rounds.len()..count).try_for_each(|_| self.kill().map(|round| rounds.push(round)))
    }

    fn kill(&self) -> Result<Round> {
        let (mut daemon, mcp) = self.daemon()?;
        self.kind.fault(&self.scene).inject(&mcp)?;
        let observer = Observer::start(self.kind, &self.scene, &daemon)?;
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
        let fault = self.kind.fault(&self.scene);
        let left = rounds.len()..count;
        let remove = |_| {
            fault.inject(&mcp)?;
            let observer = Observer::start(self.kind, &self.scene, &daemon)?;
            let called = Instant::now();
            fault.remove(&mcp)?;
            let answered = called.elapsed();
            let (normal, distance) = observer.time_to_normal(called, CALL_LIMIT)?;
            rounds.push([normal, distance, answered]);
            Ok(())
        };
        { left }.try_for_each(remove)
    }

    fn expiries(&self, count: usize, rounds: &mut Vec<Round>) -> Result<()> {
        let (daemon, mcp) = self.daemon()?;
        let mut lasting = SHORT;
        while rounds.len() < count {
            match self.expire(&daemon, &mcp, lasting)? {
                Some(round) => rounds.push(round),
                None if lasting >= LONG => {
                    return Err(Error::in_vain("every process stopped", lasting));
                }
                None => lasting = LONG.min(2 * lasting),
            }
        }
        Ok(())
    }

    /// `None` when the end came before everybody was stopped.
    fn expire(&self, daemon: &Daemon, mcp: &Mcp, lasting: Duration) -> Result<Option<Round>> {
        let fault = self.kind.fault(&self.scene).lasting(lasting);
        fault.inject(mcp)?;
        let Some(end) = lease::end(&daemon.holders()) else {
            fault.remove(mcp)?;
            return Ok(None);
        };
        let observer = match Observer::start(self.kind, &self.scene, daemon) {
            // It was over before anybody looked.
            Err(_) if Instant::now() >= end => {
                fault.remove(mcp)?;
                return Ok(None);
            }
            started => started?,
        };
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
