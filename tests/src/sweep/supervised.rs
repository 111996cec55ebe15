//! The sweep over supervised faults, which outlive every process of the daemon: at every system call of injector and holder
//! that changes something the process dies, everybody dies, the guard with them, or the call fails; and likewise at every call
//! by which the guard undoes what a dead injector has left. Whoever is left, or recovers, leaves nothing.

use std::fmt;
use std::mem;
use std::time::Instant;

use nix::libc;
use nix::sys::signal::Signal;

use super::calls::Strike;
use super::passes::{self, Missed, Passes};
use super::tracer::{Aim, Seen, Trace};
use super::{Found, Kind, MOST, list, nameless};
use crate::kernel::supervised::stage::Make;
use crate::late::SecondTry;
use crate::matrix::place::{Place, Programs};
use crate::{Error, Result};

/// Whose calls are struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Injector,
    Holder,
    /// Those by which it undoes what the injector has left, which was killed.
    Guard,
}

/// One pass over all calls that one process makes for one supervised fault.
#[derive(Clone, Copy)]
pub struct Supervised {
    /// What is changed.
    pub kind: &'static Kind,
    make: Make,
    whose: Whose,
    strike: Strike,
    /// Every how many calls; 1 is every one.
    stride: usize,
    /// The first of them, from 1.
    first: usize,
}

/// The sweeps of every kind; what is left out by a stride is up to the offset.
pub(super) fn all(stride: usize, offset: usize) -> Vec<Vec<Supervised>> {
    use Strike::{Fail, Kill, KillEverything};
    use Whose::{Guard, Holder, Injector};
    const PASSES: &[(Whose, Strike)] = &[
        (Injector, Kill),
        (Injector, KillEverything),
        (Injector, Fail(libc::ENOMEM)),
        (Injector, Fail(libc::EIO)),
        (Holder, Kill),
        (Holder, KillEverything),
        (Holder, Fail(libc::EPERM)),
        (Guard, Kill),
        (Guard, Fail(libc::ENOMEM)),
        (Guard, Fail(libc::EIO)),
    ];
    let sweeps = |(position, kind, make)| {
        let first = passes::first(position, offset, stride);
        let sweep = |(whose, strike): &(Whose, Strike)| Supervised {
            kind,
            make,
            whose: *whose,
            strike: *strike,
            stride,
            first,
        };
        PASSES.iter().map(sweep).collect()
    };
    list::guarded().map(sweeps).collect()
}

impl Supervised {
    /// Carries it out, until `deadline` at most: being late is a failure.
    ///
    /// # Errors
    /// When it cannot be carried out at all.
    pub fn run(&self, deadline: Instant) -> Result<Found> {
        let mut place = self.place()?;
        let mut found = Found::default();
        let (mut passes, mut second_try) = (Passes::new(self.first, self.stride), SecondTry::default());
        while passes.at() < MOST {
            let at = passes.at();
            if Instant::now() > deadline {
                found.failures.push(format!("not done in time, at call {at}"));
                break;
            }
            let point = self.point(&mut place, at);
            found.judged.merge(mem::take(&mut place.judged));
            match point {
                Ok(Seen { struck: None, calls }) => match passes.missed(calls) {
                    Missed::Another => continue,
                    Missed::Done => break,
                    Missed::Nothing => {
                        found.failures.push("made no call that counts".into());
                        break;
                    }
                },
                Ok(_) => {}
                Err(error) => {
                    let (what, log) = (format!("{self}, call {at}"), place.log());
                    drop(place);
                    place = self.place()?;
                    if second_try.is_due(what.clone(), &error) {
                        continue;
                    }
                    found.failures.push(format!("{what}: {error}{log}"));
                }
            }
            passes.struck();
            found.points += 1;
        }
        Ok(found)
    }

    fn place(&self) -> Result<Place> {
        let environment = Vec::new();
        Place::new(self.make, Programs { daemon: "chaos-daemon", guard: "chaos-daemon", environment })
    }

    fn point(&self, place: &mut Place, at: usize) -> Result<Seen> {
        match self.whose {
            Whose::Guard => self.undoing(place, at),
            Whose::Injector | Whose::Holder => self.doing(place, at),
        }
    }

    /// Injects and removes, with a strike at a call of the daemon's.
    fn doing(&self, place: &mut Place, at: usize) -> Result<Seen> {
        let fault = place.fault();
        let running = place.running()?;
        let (guard, server) = (running.guard.pid(), running.daemon.server());
        let everybody = running.daemon.processes().iter().map(|process| process.pid).chain([guard]).collect();
        let (pid, children) = (running.daemon.injector_pid(), self.whose == Whose::Holder);
        let trace = Trace::start(Aim { pid, children, at, strike: self.strike, everybody })?;
        let injected = fault.inject(&running.mcp);
        if injected.is_ok() {
            trace.unless_struck(|| place.assert_acts())?;
        }
        let running = place.running()?;
        let removed = injected.is_ok().then(|| fault.remove(&running.mcp));
        let seen = trace.finish()?;
        let Some((call, struck)) = seen.struck else {
            injected?;
            removed.transpose()?;
            return Ok(seen);
        };
        let judged = match (self.whose, self.strike) {
            (_, Strike::KillEverything) => place.judge_recovery(),
            (Whose::Injector, Strike::Kill) => place.judge_guard(struck),
            _ => match nameless(server, [Some(injected), removed]) {
                Some(answer) => Err(Error::Different(format!("an error without a name: {answer}"))),
                None => place.judge_survival(&fault),
            },
        };
        judged.map(|()| seen).map_err(|error| Error::Different(format!("{call}: {error}")))
    }

    /// The injector dies with the fault active, and a call of the guard's is struck while it undoes that. A guard that ends
    /// is started again, as systemd does.
    fn undoing(&self, place: &mut Place, at: usize) -> Result<Seen> {
        let fault = place.fault();
        fault.inject(&place.running()?.mcp)?;
        place.assert_acts()?;
        let running = place.running()?;
        let (pid, injector) = (running.guard.pid(), running.daemon.injector());
        let aim = Aim { pid, children: false, at, strike: self.strike, everybody: Vec::new() };
        let trace = Trace::start(aim)?;
        if let Some(injector) = injector {
            injector.signal(Signal::SIGKILL);
        }
        place.wait_for_guard();
        let seen = trace.finish()?;
        if place.guard_has_ended(seen.struck.is_some() && matches!(self.strike, Strike::Kill)) {
            place.replace_guard()?;
        }
        let call = seen.struck.map_or("no call", |(call, _)| call);
        let judged = place.judge_guard(Instant::now());
        judged.map(|()| seen).map_err(|error| Error::Different(format!("{call}: {error}")))
    }
}

impl fmt::Display for Supervised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under a guard, {:?} {}", self.kind.name, self.whose, self.strike)
    }
}
