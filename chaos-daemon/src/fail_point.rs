//! Fail points, for tests only: the events of a fault's life at which a test may have a process die or an operation
//! fail. Without the cargo feature `fail-points`, which no build for users has, passing one is nothing at all; with it,
//! a file that [`VARIABLE`] names says which point is a trap, and can be changed while the daemon runs.
//!
//! Why not the crate `fail`: its actions know no SIGKILL, and it cannot count passes, tell the roles of one binary apart,
//! or be changed from outside the process.

use serde::{Deserialize, Serialize};

/// The environment variable that names the file with the [`Trap`], as JSON. No file: no trap. Every child inherits it.
pub const VARIABLE: &str = "CHAOS_FAIL_POINTS";

/// Appended to the file's name: there each process writes a line when it runs into the trap.
pub const SPRUNG: &str = ".sprung";

/// An event at which something can be made to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// The journal of a fault is about to be begun.
    BeforeIntent,
    /// Every step is on file, none is made.
    AfterIntent,
    /// The holder has its orders, and has done nothing yet.
    BeforeArming,
    /// A request to the kernel is about to be made: netlink or bpf(2).
    BeforeCall,
    /// The kernel has done it, and nobody has heard of it.
    AfterCall,
    /// The holder has made everything, and has not said so.
    AfterArming,
    /// The injector knows, the journal does not.
    BeforeApplied,
    /// The journal says that everything is made.
    AfterApplied,
    /// A heartbeat has arrived at the holder, and has not renewed anything.
    BeforeRenewal,
    /// The lease is renewed, and nobody has heard of it.
    AfterRenewal,
    /// The fault is to end, and the journal does not say so.
    BeforeEnding,
    /// The journal says that the fault ends.
    AfterEnding,
    /// The holder is told to disarm, and has not.
    BeforeDisarm,
    /// The fault acts no more, its queue is empty, everything is in place still.
    AfterDisarm,
    /// A step is about to be undone.
    BeforeUndo,
    /// A step has been undone, and nobody has looked whether it is gone.
    AfterUndo,
    /// Everything is undone, the journal's file is there.
    BeforeForget,
    /// The journal's file is gone.
    AfterForget,
}

/// Which process passes a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The privileged daemon.
    Injector,
    /// A fault's own process, from the arrival of its work on.
    Holder,
    /// `chaos-daemon recover`.
    Recovery,
}

/// What happens at a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The process that passes dies by SIGKILL.
    Kill,
    /// The injector dies by SIGKILL there, whoever passes; a holder that passes waits for its own end.
    KillInjector,
    /// The operation fails.
    Fail,
}

/// A point at which something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trap {
    /// Where.
    pub point: Point,
    /// Whose passes count; each process counts its own.
    pub role: Role,
    /// The pass at which it springs first, from 1.
    pub first: u32,
    /// At how many passes it springs; without a number, at every one from then on.
    pub times: Option<u32>,
    /// What happens.
    pub action: Action,
}

#[cfg(not(feature = "fail-points"))]
mod imp {
    use super::{Point, Role};

    /// Nothing: this build has no fail points.
    #[inline(always)]
    pub fn enter(_: Role) {}

    /// Nothing: this build has no fail points.
    ///
    /// # Errors
    /// Never.
    #[inline(always)]
    pub fn pass(_: Point) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "fail-points")]
mod imp {
    use std::fs::OpenOptions;
    use std::io::{self, Write};
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, OnceLock, PoisonError};
    use std::time::Duration;

    use nix::sys::signal::{Signal, kill};
    use nix::time::{ClockId, clock_gettime};
    use nix::unistd::{getpid, getppid};

    use super::{Action, Point, Role, SPRUNG, Trap, VARIABLE};

    static ROLE: OnceLock<Role> = OnceLock::new();
    /// The trap that was last read, and how often its point has been passed since.
    static PASSED: Mutex<Option<(Trap, u32)>> = Mutex::new(None);

    /// From here on the points that this process passes count, as those of this role.
    pub fn enter(role: Role) {
        // A process has one role.
        let _ = ROLE.set(role);
    }

    /// Passes a point.
    ///
    /// # Errors
    /// When the trap says so.
    pub fn pass(point: Point) -> io::Result<()> {
        let (Some(role), Some(path)) = (ROLE.get().copied(), std::env::var_os(VARIABLE)) else {
            return Ok(());
        };
        let path = PathBuf::from(path);
        let trap = read(&path)?;
        let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
        if passed.as_ref().map(|(trap, _)| *trap) != trap {
            *passed = trap.map(|trap| (trap, 0));
        }
        let Some((trap, count)) = passed.as_mut() else { return Ok(()) };
        if (trap.point, trap.role) != (point, role) {
            return Ok(());
        }
        *count += 1;
        let sprung = count.checked_sub(trap.first);
        if sprung.is_none_or(|since| trap.times.is_some_and(|times| since >= times)) {
            return Ok(());
        }
        let (trap, count) = (*trap, *count);
        drop(passed);
        // First the time, of a clock that no fault sets.
        let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?).as_nanos();
        note(&path, &format!("{now} {trap:?} at pass {count} of process {}\n", getpid()))?;
        spring(trap)
    }

    fn spring(trap: Trap) -> io::Result<()> {
        match (trap.action, trap.role) {
            (Action::Fail, _) => return Err(io::Error::other(format!("fail point {:?}", trap.point))),
            (Action::KillInjector, Role::Holder) => kill(getppid(), Signal::SIGKILL)?,
            (Action::Kill | Action::KillInjector, _) => kill(getpid(), Signal::SIGKILL)?,
        }
        // Nothing happens after this point: the holder dies with its parent.
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn read(path: &Path) -> io::Result<Option<Trap>> {
        match std::fs::read(path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn note(path: &Path, line: &str) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(SPRUNG);
        OpenOptions::new().append(true).create(true).open(name)?.write_all(line.as_bytes())
    }
}

pub use imp::{enter, pass};
