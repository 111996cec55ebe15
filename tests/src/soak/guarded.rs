//! Supervised faults of the soak: what they are aimed at, whether they act, and the steps that strike their guard.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::Soak;
use super::blows::{LEASE, NORMAL, Seen};
use super::script::{Action, Kind, Step};
use super::world::World;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::kernel::supervised::settled;
use crate::kernel::supervised::stage::{self, Make, Stage};
use crate::late::{HANG, within};
use crate::process::{Process, wait_until};
use crate::{Error, Result};

/// Long enough for whoever is dying to be dead.
const DYING: Duration = Duration::from_millis(300);

/// What supervised faults change, one of each kind.
pub(super) struct Guarded(Vec<Place>);

struct Place {
    kind: Kind,
    stage: RefCell<Box<dyn Stage>>,
    /// What the kernel shows of it without a fault.
    before: String,
}

impl Guarded {
    pub(super) fn new() -> Result<Self> {
        let makes: [(Kind, Make); 2] = [(Kind::Frozen, stage::pause), (Kind::Link, stage::link)];
        let place = |(kind, make): (Kind, Make)| {
            let stage = make()?;
            let before = settled(stage.as_ref())?;
            Ok(Place { kind, stage: RefCell::new(stage), before })
        };
        makes.into_iter().map(place).collect::<Result<_>>().map(Self)
    }

    /// The fault of this kind, if it is one of these.
    pub(super) fn fault(&self, kind: Kind) -> Option<Fault> {
        self.0.iter().find(|place| place.kind == kind).map(|place| place.stage.borrow().fault())
    }

    /// A kind that acts and should not, or the other way round, still after `limit`.
    pub(super) fn differs(&self, should_act: impl Fn(Kind) -> bool, limit: Duration) -> Option<Kind> {
        let until = Instant::now() + limit;
        let is_right = |place: &&Place| {
            let acts = || place.stage.borrow_mut().acts();
            let left = until.saturating_duration_since(Instant::now());
            wait_until(left, || acts().is_ok_and(|acts| acts == should_act(place.kind)))
        };
        self.0.iter().find(|place| !is_right(place)).map(|place| place.kind)
    }

    /// Nothing acts, and what a fault takes away is there again.
    pub(super) fn assert_as_before(&self) -> Result<()> {
        if let Some(kind) = self.differs(|_| false, HANG) {
            return Err(Error::Different(format!("{kind:?} still acts")));
        }
        for Place { kind, stage, before } in &self.0 {
            let mut now = String::new();
            let is_same = || {
                now = stage.borrow().picture().unwrap_or_default();
                now == *before
            };
            if !wait_until(HANG, is_same) {
                return Err(Error::Different(format!("{kind:?}, before:\n{before}\nafter:\n{now}")));
            }
        }
        Ok(())
    }
}

impl World {
    /// Whether something is active that outlives every process of the daemon.
    pub(super) fn is_guarded(&self) -> bool {
        self.active.values().any(|kind| kind.is_supervised())
    }

    /// The injector died, or stood still, at that moment: the guard ends what outlives it, and nobody else does. How long after
    /// that; `None` when there was nothing.
    pub(super) fn guard_ends(&self, since: Instant) -> Result<Option<Duration>> {
        if !self.is_guarded() {
            return Ok(None);
        }
        let goes_on = self.guarded.differs(|_| false, HANG);
        match (goes_on, since.elapsed()) {
            (None, after) => within(LEASE, after, "the end of everything by the guard").map(|()| Some(after)),
            (goes_on, after) => {
                self.wrong(&format!("after {after:?} the guard has not ended everything: {goes_on:?}"))
            }
        }
    }

    /// Another guard, when there was one that has been killed.
    fn start_guard(&mut self) -> Result<()> {
        self.guard.kill();
        self.guard = Guard::start(&self.daemon)?;
        Ok(())
    }
}

impl Soak {
    /// A fault that loses its guard is ended by the daemon; the others go on. The guard is killed, or stands still until then.
    pub(super) fn lose_guard(&mut self, action: Action) -> Result<()> {
        let kills = action.step == Step::KillGuard;
        let end = |world: &mut World| {
            world.guard.signal(if kills { Signal::SIGKILL } else { Signal::SIGSTOP });
            let goes_on = world.guarded.differs(|_| false, HANG);
            world.guard.signal(Signal::SIGCONT);
            if kills {
                world.start_guard()?;
            }
            match goes_on {
                None => Ok(()),
                Some(kind) => world.wrong(&format!("{kind:?} goes on without a guard")),
            }
        };
        self.world.change(|active| active.retain(|_, kind| !kind.is_supervised()), end)?;
        self.world.check()
    }

    /// A guard that misses a few beats is not lost.
    pub(super) fn pause_guard(&mut self, action: Action) -> Result<()> {
        let Some(guard) = Process::read(self.world.guard.pid()) else { return Ok(()) };
        self.pause(&guard, action)
    }

    /// Another guard takes over at once, and the injector dies: whether or not the daemon has noticed, nothing is left.
    pub(super) fn replace_guard(&mut self, action: Action) -> Result<()> {
        let all = self.world.daemon.processes();
        self.strike(action, |world| {
            world.start_guard()?;
            let since = Instant::now();
            all[0].signal(Signal::SIGKILL);
            let normal = Some(world.time_to_normal(since, NORMAL)?);
            let guarded = world.guard_ends(since)?;
            world.recover_from(&all)?;
            Ok(Seen { normal, guarded })
        })
    }

    /// With the guard dies the injector, or everybody: what outlives them stays until somebody recovers, which `recover`, another
    /// guard and another daemon do.
    pub(super) fn kill_with_guard(&mut self, action: Action) -> Result<()> {
        let all = self.world.daemon.processes();
        let (alone, next) = (action.number.is_multiple_of(2), action.number / 2 % 3);
        let since = Instant::now();
        self.end_by(action, |world| {
            world.guard.signal(Signal::SIGKILL);
            let others = if alone { &all[..1] } else { &all[..] };
            others.iter().for_each(|process| process.signal(Signal::SIGKILL));
            let normal = world.time_to_normal(since, NORMAL)?;
            wait_until(HANG, || !all.iter().any(Process::runs));
            std::thread::sleep(DYING);
            let active: Vec<_> = world.active.values().copied().collect();
            if let Some(kind) = world.guarded.differs(|kind| active.contains(&kind), Duration::ZERO) {
                return world.wrong(&format!("nobody is there, and {kind:?} is not as it was"));
            }
            match next {
                0 => world.recover(&all[1..])?,
                1 => {
                    world.start_guard()?;
                    world.guard_ends(Instant::now())?;
                    world.recover(&all[1..])?;
                }
                _ => world.start_again(&all[1..])?,
            }
            Ok(Seen { normal: Some(normal), guarded: None })
        })?;
        if next < 2 {
            self.world.start()?;
        }
        self.world.assert_calm()
    }
}
