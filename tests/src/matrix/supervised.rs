//! The crash matrix of supervised faults, which outlive every process of the daemon: at every event of such a fault's life
//! the injector dies, and its guard, whom nobody tells, leaves nothing within what is promised. And the guard itself dies
//! at every event of its undoing; one that is started after it finishes.

use std::fmt;
use std::mem;
use std::time::{Duration, Instant};

use chaos_daemon::fail_point::{Action, Point, Role, Trap};
use nix::sys::signal::Signal;

use super::cells::{Event, Repeats};
use super::place::{Place, Programs, journals};
use super::trap::TrapFile;
use super::{HEARTBEAT, MOST, PROGRAM};
use crate::kernel::supervised::stage::Make;
use crate::late::{HANG, SecondTry};
use crate::process::wait_until;
use crate::sweep::passes::{self, Missed, Passes};
use crate::sweep::{Found, Kind, list};
use crate::{Error, Result};

/// How soon a guard that may have something left to do after the last journal has done it.
const DYING: Duration = Duration::from_secs(2);

/// Every kind; what is left out by a stride is up to the offset.
pub fn all(stride: usize, offset: usize) -> Vec<Supervised> {
    let each = |(position, kind, make)| {
        let first = passes::first(position, offset, stride);
        Supervised { kind, make, stride, first }
    };
    list::guarded().map(each).collect()
}

/// The events of one supervised fault's life.
#[derive(Clone, Copy)]
pub struct Supervised {
    /// What is changed.
    pub kind: &'static Kind,
    make: Make,
    /// Of requests to the kernel, every how many; 1 is every one.
    stride: usize,
    /// The first of them, from 1.
    first: usize,
}

impl Supervised {
    /// The injector dies at each of those `events` that kill it, until `deadline` at most: being late is a failure.
    ///
    /// # Errors
    /// When it cannot be carried out at all.
    pub fn run(&self, events: &[Event], deadline: Instant) -> Result<Found> {
        let file = TrapFile::new()?;
        let mut place = self.place("chaos-daemon", &file)?;
        let (mut found, mut second_try) = (Found::default(), SecondTry::default());
        for event in events.iter().filter(|event| event.kills_injector()) {
            let mut passes = self.passes(event.repeats());
            while let Ok(at @ ..MOST) = u32::try_from(passes.at()) {
                if Instant::now() > deadline {
                    found.failures.push(format!("not done in time, at {event} {at}"));
                    return Ok(found);
                }
                let died = injector_dies(&mut place, &file, event, at);
                found.judged.merge(mem::take(&mut place.judged));
                match died {
                    Ok(true) => {}
                    Ok(false) => match passes.missed(1) {
                        Missed::Another => continue,
                        // A value in a file is changed by no request of those that count.
                        Missed::Nothing if event.repeats() != Repeats::PerCall => {
                            found.failures.push(format!("never came to {event}"));
                            break;
                        }
                        Missed::Nothing | Missed::Done => break,
                    },
                    Err(error) => {
                        let (what, log) = (format!("{self}, {event} {at}"), place.log());
                        file.clear()?;
                        drop(place);
                        place = self.place("chaos-daemon", &file)?;
                        if second_try.is_due(what.clone(), &error) {
                            continue;
                        }
                        found.failures.push(format!("{what}: {error}{log}"));
                    }
                }
                passes.struck();
                found.points += 1;
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
        let (mut found, mut second_try) = (Found::default(), SecondTry::default());
        for &point in points {
            let calls = point == Point::AfterCall;
            let mut passes = self.passes(if calls { Repeats::PerCall } else { Repeats::PerStep });
            while let Ok(at @ ..MOST) = u32::try_from(passes.at()) {
                if Instant::now() > deadline {
                    found.failures.push(format!("not done in time, at the guard's {point:?} {at}"));
                    return Ok(found);
                }
                let mut place = self.place(PROGRAM, &file)?;
                let died = guard_dies(&mut place, &file, point, at);
                found.judged.merge(place.judged);
                match died {
                    Ok(true) => {}
                    Ok(false) => match passes.missed(1) {
                        Missed::Another => continue,
                        Missed::Nothing if !calls => {
                            found.failures.push(format!("the guard never came to {point:?}"));
                            break;
                        }
                        Missed::Nothing | Missed::Done => break,
                    },
                    Err(error) => {
                        let (what, log) = (format!("{self}, guard at {point:?} {at}"), place.log());
                        file.clear()?;
                        if second_try.is_due(what.clone(), &error) {
                            continue;
                        }
                        found.failures.push(format!("{what}: {error}{log}"));
                    }
                }
                passes.struck();
                found.points += 1;
            }
        }
        Ok(found)
    }

    /// With a daemon that has fail points, and this guard.
    fn place(&self, guard: &'static str, file: &TrapFile) -> Result<Place> {
        Place::new(self.make, Programs { daemon: PROGRAM, guard, environment: file.environment() })
    }

    /// Which passes of an event are struck.
    fn passes(&self, repeats: Repeats) -> Passes {
        match repeats {
            Repeats::PerCall => Passes::new(self.first, self.stride),
            Repeats::PerStep => Passes::new(1, 1),
            Repeats::Not => Passes::once(),
        }
    }
}

impl fmt::Display for Supervised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under a guard", self.kind.name)
    }
}

/// Injects and removes, with a trap for the injector on the way; says whether it died.
fn injector_dies(place: &mut Place, file: &TrapFile, event: &Event, at: u32) -> Result<bool> {
    let fault = place.fault();
    let (point, role, action) = (event.point, event.role, event.action);
    let trap = Trap { point, role, first: at, times: Some(1), action };
    place.running()?;
    if !event.is_of_active() {
        file.set(&trap)?;
    }
    let injected = fault.inject(&place.running()?.mcp);
    if injected.is_ok() {
        file.unless_sprung(|| place.assert_acts())?;
    }
    if event.is_of_active() {
        file.set(&trap)?;
    }
    if injected.is_ok() && event.is_renewal() {
        file.wait_sprung(HEARTBEAT);
    }
    let running = place.running()?;
    let removed = injected.is_ok().then(|| fault.remove(&running.mcp));
    match file.clear()? {
        Some(struck) => place.judge_guard(struck).map(|()| true),
        None => {
            injected?;
            removed.transpose()?;
            Ok(false)
        }
    }
}

/// The injector dies with the fault active, and the guard at a trap; says whether it came to that. A guard that is dead is
/// started again.
fn guard_dies(place: &mut Place, file: &TrapFile, point: Point, at: u32) -> Result<bool> {
    let fault = place.fault();
    fault.inject(&place.running()?.mcp)?;
    place.assert_acts()?;
    let running = place.running()?;
    let (role, action) = (Role::Recovery, Action::Kill);
    file.set(&Trap { point, role, first: at, times: Some(1), action })?;
    let mut struck = Instant::now();
    if let Some(injector) = running.daemon.injector() {
        injector.signal(Signal::SIGKILL);
    }
    wait_until(HANG, || running.guard.has_ended() || journals(&running.daemon) == 0);
    if point == Point::AfterForget {
        file.wait_sprung(DYING);
    }
    let died = file.has_sprung() && wait_until(HANG, || running.guard.has_ended());
    if file.clear()?.is_some() != died {
        return Err(Error::Different(format!("the guard died: {died}")));
    }
    if died {
        struck = Instant::now();
        place.replace_guard()?;
    }
    place.judge_guard(struck).map(|()| died)
}
