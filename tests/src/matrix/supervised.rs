//! The crash matrix of supervised faults, which outlive every process of the daemon: at every event of such a fault's life
//! the injector dies, and its guard, whom nobody tells, leaves nothing within what is promised. And the guard itself dies
//! at every event of its undoing; one that is started after it finishes.

use std::fmt;
use std::time::{Duration, Instant};

use chaos_daemon::fail_point::{Action, Point, Role, Trap};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use super::cells::{Event, Repeats};
use super::trap::TrapFile;
use super::{Found, HEARTBEAT, MOST, PROGRAM};
use crate::daemon::binary;
use crate::guard::Guard;
use crate::kernel::Context;
use crate::kernel::supervised::settled;
use crate::kernel::supervised::stage::{self, Make, Stage};
use crate::netns::output;
use crate::process::{Process, wait_until};
use crate::skip::Environment;
use crate::victim::has_controllers;
use crate::{Daemon, Error, Mcp, Residue, Result};

/// Three seconds after the last heartbeat are promised; a machine under load is not a fault.
const LIMIT: Duration = Duration::from_secs(5);
/// A link that is up again checks its addresses for a second or two.
const SETTLE: Duration = Duration::from_secs(5);
/// How soon a guard is dead that ran into a trap after the last thing to wait for.
const DYING: Duration = Duration::from_millis(300);

/// What a kind needs of the machine.
#[derive(Debug, Clone, Copy)]
enum Needs {
    Nothing,
    /// These controllers of cgroup v2.
    Controllers(&'static [&'static str]),
    /// A clock that is nobody else's.
    OwnClock,
}

/// Every supervised kind.
const KINDS: &[(&str, Make, Needs)] = &[
    ("pause", stage::pause, Needs::Nothing),
    ("link_down", stage::link, Needs::Nothing),
    ("link_down_in_a_rhythm", stage::flaps, Needs::Nothing),
    ("cpu_limit", stage::cpu, Needs::Controllers(stage::CONTROLLERS)),
    ("pids_limit", stage::pids, Needs::Controllers(stage::CONTROLLERS)),
    ("memory_limit", stage::memory, Needs::Controllers(stage::CONTROLLERS)),
    ("io_limit", stage::disk, Needs::Controllers(&["io"])),
    ("clock_skew", stage::clock, Needs::OwnClock),
];

/// Kinds that cannot be done here, and why.
pub fn lacking(context: &Context) -> Vec<(&'static str, &'static str)> {
    let known = KINDS.iter().filter_map(|(kind, _, needs)| Some((*kind, needs.lacking(context)?)));
    known.chain([("service_stop", "no service manager is PID 1 here; the tests on systemd do it")]).collect()
}

/// Every kind that can be done here.
pub fn all(context: &Context, stride: u32) -> Vec<Supervised> {
    let here = KINDS.iter().filter(|(.., needs)| needs.lacking(context).is_none());
    here.map(|(kind, make, _)| Supervised { kind, make: *make, stride }).collect()
}

impl Needs {
    fn lacking(self, context: &Context) -> Option<&'static str> {
        match self {
            Self::Controllers(wanted) if !has_controllers(wanted) => {
                Some("the controllers of cgroup v2 are not there")
            }
            Self::OwnClock if context.environment == Environment::Host => {
                Some("the clock of a host is not a test's to change")
            }
            _ => None,
        }
    }
}

/// The events of one supervised fault's life.
#[derive(Clone, Copy)]
pub struct Supervised {
    /// What is changed.
    pub kind: &'static str,
    make: Make,
    /// Of requests to the kernel, every how many; 1 is every one.
    stride: u32,
}

impl Supervised {
    /// The injector dies at each of those `events` that kill it, until `deadline` at most: being late is a failure.
    ///
    /// # Errors
    /// When it cannot be carried out at all.
    pub fn run(&self, events: &[Event], deadline: Instant) -> Result<Found> {
        let file = TrapFile::new()?;
        let mut place = Place::new(self.make, &file)?;
        let mut found = Found::default();
        for event in events.iter().filter(|event| event.kills_injector()) {
            let stride = self.stride_of(event.repeats());
            for at in (1..MOST).step_by(stride as usize) {
                if Instant::now() > deadline {
                    found.failures.push(format!("{self}: not done in time, at {event} {at}"));
                    return Ok(found);
                }
                match place.injector_dies(event, at) {
                    Ok(true) => found.cells += 1,
                    // A value in a file is changed by no request of those that count.
                    Ok(false) if at == 1 && event.repeats() != Repeats::PerCall => {
                        found.failures.push(format!("{self}: never came to {event}"));
                        break;
                    }
                    Ok(false) => break,
                    Err(error) => {
                        found.cells += 1;
                        found.failures.push(format!("{self}, {event} {at}: {error}{}", place.log()));
                        file.clear()?;
                        drop(place);
                        place = Place::new(self.make, &file)?;
                    }
                }
            }
        }
        Ok(found)
    }

    /// The injector dies while the fault is active, and its guard at each event of its undoing of `points` in
    /// turn; one that is started then leaves nothing. Until `deadline` at most.
    ///
    /// # Errors
    /// When it cannot be carried out at all.
    pub fn guards(&self, points: &[Point], deadline: Instant) -> Result<Found> {
        let file = TrapFile::new()?;
        let mut found = Found::default();
        for &point in points {
            let stride = if point == Point::AfterCall { self.stride } else { 1 };
            for at in (1..MOST).step_by(stride as usize) {
                if Instant::now() > deadline {
                    found.failures.push(format!("{self}: not done in time, at the guard's {point:?} {at}"));
                    return Ok(found);
                }
                let mut place = Place::new(self.make, &file)?;
                match place.guard_dies(point, at) {
                    Ok(true) => found.cells += 1,
                    Ok(false) if at == 1 && point != Point::AfterCall => {
                        found.failures.push(format!("{self}: the guard never came to {point:?}"));
                        break;
                    }
                    Ok(false) => break,
                    Err(error) => {
                        found.cells += 1;
                        let log = place.log();
                        found.failures.push(format!("{self}, guard at {point:?} {at}: {error}{log}"));
                        file.clear()?;
                    }
                }
            }
        }
        Ok(found)
    }

    fn stride_of(&self, repeats: Repeats) -> u32 {
        match repeats {
            Repeats::PerCall => self.stride,
            Repeats::PerStep => 1,
            Repeats::Not => MOST,
        }
    }
}

impl fmt::Display for Supervised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under a guard", self.kind)
    }
}

/// Where a kind is tried, and how it was before.
struct Place<'a> {
    file: &'a TrapFile,
    running: Option<Running>,
    stage: Box<dyn Stage>,
    policy: NamedTempFile,
    picture: String,
    before: Residue,
}

/// Dropped in this order: who hangs up, who would end the daemon's faults, the daemon.
struct Running {
    mcp: Mcp,
    guard: Guard,
    daemon: Daemon,
}

impl<'a> Place<'a> {
    fn new(make: Make, file: &'a TrapFile) -> Result<Self> {
        let policy = NamedTempFile::new().map_err(Error::io("create", "a policy"))?;
        std::fs::write(policy.path(), "clock_skew = true\n").map_err(Error::io("write", "a policy"))?;
        let stage = make()?;
        let picture = settled(stage.as_ref())?;
        let before = Residue::take_with(&stage.namespaces(), &stage.cgroups())?;
        Ok(Self { file, running: None, stage, policy, picture, before })
    }

    /// A daemon with fail points, and its guard.
    fn running(&mut self, guard: &str) -> Result<&mut Running> {
        if self.running.is_none() {
            let daemon = Daemon::start_program(PROGRAM, |command| {
                command.arg("--policy").arg(self.policy.path()).envs(self.file.environment());
            })?;
            let guard = Guard::start_program(&binary(guard)?, self.file.environment(), &daemon)?;
            self.running = Some(Running { mcp: daemon.mcp()?, guard, daemon });
        }
        self.running.as_mut().ok_or_else(|| Error::Different("no daemon".into()))
    }

    /// Injects and removes, with a trap for the injector on the way; says whether it died.
    fn injector_dies(&mut self, event: &Event, at: u32) -> Result<bool> {
        let (fault, file) = (self.stage.fault(), self.file);
        let running = self.running("chaos-daemon")?;
        let (point, role, action) = (event.point, event.role, event.action);
        file.set(&Trap { point, role, first: at, times: Some(1), action })?;
        let injected = fault.inject(&running.mcp);
        if injected.is_ok() && event.is_renewal() {
            file.wait_sprung(HEARTBEAT);
        }
        let removed = injected.is_ok().then(|| fault.remove(&running.mcp));
        match file.clear()? {
            Some(struck) => self.judge(struck).map(|()| true),
            None => {
                injected?;
                removed.transpose()?;
                Ok(false)
            }
        }
    }

    /// The injector dies with the fault active, and the guard at a trap; says whether it came to that. A guard that is dead is
    /// started again.
    fn guard_dies(&mut self, point: Point, at: u32) -> Result<bool> {
        let (fault, file) = (self.stage.fault(), self.file);
        fault.inject(&self.running(PROGRAM)?.mcp)?;
        if !self.stage.acts()? {
            return Err(Error::Different("injected, and does not act".into()));
        }
        let running = self.running(PROGRAM)?;
        let (role, action) = (Role::Recovery, Action::Kill);
        file.set(&Trap { point, role, first: at, times: Some(1), action })?;
        let mut struck = Instant::now();
        if let Some(injector) = running.daemon.injector() {
            injector.signal(Signal::SIGKILL);
        }
        wait_until(LIMIT, || running.guard.has_ended() || journals(&running.daemon) == 0);
        let died = wait_until(DYING, || running.guard.has_ended());
        if file.clear()?.is_some() != died {
            return Err(Error::Different(format!("the guard died: {died}")));
        }
        if died {
            struck = Instant::now();
            running.guard = Guard::start_program(&binary(PROGRAM)?, file.environment(), &running.daemon)?;
        }
        self.judge(struck).map(|()| died)
    }

    /// Since `struck` there is nobody but the guard: it leaves nothing, and nothing to do for `recover`.
    fn judge(&mut self, struck: Instant) -> Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        let changed = self.picture.lines().next().unwrap_or_default().to_owned();
        let normal = || {
            let now = self.stage.picture();
            now.is_ok_and(|now| now.lines().next() == Some(&changed)) && self.stage.stays_away()
        };
        let left = LIMIT.saturating_sub(struck.elapsed());
        let on_time = wait_until(left, || journals(&running.daemon) == 0 && normal());
        let (guard, journals) = (running.guard.log(), journals(&running.daemon));
        let guards = !running.guard.has_ended();
        bury(&mut running);
        if !on_time {
            let what =
                format!("normal; now {:?}, {journals} journals; guard:\n{guard}", self.stage.picture());
            return Err(Error::Late { what, after: LIMIT });
        }
        if !guards {
            return Err(Error::Different(format!("the guard has ended:\n{guard}")));
        }
        let mut command = std::process::Command::new(binary("chaos-daemon")?);
        let said = output(command.arg("recover").arg("--runtime-dir").arg(running.daemon.runtime_dir()))?;
        if !said.contains("nothing was left behind") {
            return Err(Error::Different(format!("the guard left something: {said}")));
        }
        let mut now = String::new();
        wait_until(SETTLE, || {
            now = self.stage.picture().unwrap_or_default();
            now == self.picture
        });
        if now != self.picture {
            return Err(Error::Different(format!("before:\n{}\nafter:\n{now}", self.picture)));
        }
        if self.stage.acts()? {
            return Err(Error::Different("it still acts".into()));
        }
        self.before.assert_unchanged_within(&self.stage.namespaces(), SETTLE)
    }

    /// What daemon and guard wrote lately.
    fn log(&self) -> String {
        let Some(running) = &self.running else { return String::new() };
        let (daemon, guard) = (running.daemon.log(), running.guard.log());
        let last = |log: &str| log.lines().rev().take(6).map(|line| format!("\n    {line}")).collect();
        [daemon, guard].map(|log| -> String { last(&log) }).concat()
    }
}

/// Collects what is left of a daemon whose injector has died, and of its guard.
fn bury(running: &mut Running) {
    let all = running.daemon.processes();
    running.daemon.kill_everything();
    running.guard.kill();
    wait_until(LIMIT, || !all.iter().any(Process::runs));
    for process in &all {
        // A child of ours only where orphans become ours.
        let _ = waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG));
    }
}

/// How many journals there are.
fn journals(daemon: &Daemon) -> usize {
    std::fs::read_dir(daemon.runtime_dir().join("journal")).map_or(0, Iterator::count)
}
