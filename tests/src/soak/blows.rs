//! The soak's deaths: of a holder, the server, the injector, of all of them; by SIGKILL, and by standing still.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::Soak;
use super::ledger::Expected;
use super::script::{Action, Step};
use super::world::World;
use crate::late::HANG;
use crate::process::{Process, wait_for, wait_until};
use crate::{Error, Result};

/// After a death of everything.
pub(super) const NORMAL: Duration = Duration::from_secs(1);
/// One heartbeat keeps a fault for 3 s.
pub(super) const LEASE: Duration = Duration::from_millis(3500);
/// How long the injector may stand still without anything ending: less than a lease without one heartbeat.
const MOST_PAUSE_MS: u64 = 900;

/// How soon after a blow packets came through again, and what outlives the daemon had ended, where that was looked at.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) normal: Option<Duration>,
    pub(super) guarded: Option<Duration>,
}

impl Soak {
    /// Whether the target is cut off, so that it can be seen when that ends.
    pub(super) fn is_cut(&self) -> bool {
        self.world.expected() == Expected::Cut
    }

    /// Everything ends by this blow, which recovers, too; then there is another daemon.
    pub(super) fn strike(
        &mut self,
        action: Action,
        blow: impl FnOnce(&mut World) -> Result<Seen>,
    ) -> Result<()> {
        self.end_by(action, blow)?;
        self.world.start()?;
        self.world.assert_calm()
    }

    /// Everything ends by this blow; notes what was seen of it.
    pub(super) fn end_by(
        &mut self,
        action: Action,
        blow: impl FnOnce(&mut World) -> Result<Seen>,
    ) -> Result<()> {
        let cut = self.is_cut();
        let seen = self.world.change(|active| active.clear(), blow)?;
        self.figures.guarded.extend(seen.guarded);
        if let (true, Some(normal)) = (cut, seen.normal) {
            self.note_normal(action, normal);
        }
        Ok(())
    }

    pub(super) fn kill_holder(&mut self, action: Action) -> Result<()> {
        let holder = self.world.holder_of(action.name)?;
        let cut = self.is_cut();
        let since = Instant::now();
        let end = |world: &mut World| {
            holder.signal(Signal::SIGKILL);
            wait_for("a killed holder gone", || !holder.runs())?;
            // Where a clsact goes with its fault, that is a change, too.
            let name = action.name;
            wait_until(HANG, || world.active_names().is_ok_and(|names| !names.iter().any(|n| n == name)));
            Ok(())
        };
        self.world.change(|active| _ = active.remove(action.name), end)?;
        if cut && !self.is_cut() {
            let normal = self.world.time_to_normal(since, NORMAL)?;
            self.note_normal(action, normal);
        }
        self.world.check()
    }

    /// A holder that does not run for a while misses nothing: the kernel acts for it.
    pub(super) fn pause_holder(&mut self, action: Action) -> Result<()> {
        let holder = self.world.holder_of(action.name)?;
        self.pause(&holder, action)
    }

    /// Nor does the server, which has no part in an active fault.
    pub(super) fn pause_server(&mut self, action: Action) -> Result<()> {
        let Some(server) = self.world.daemon.server() else { return Ok(()) };
        self.pause(&server, action)
    }

    /// Nor the injector, while a lease lasts.
    pub(super) fn pause_injector(&mut self, action: Action) -> Result<()> {
        let Some(injector) = self.world.daemon.injector() else { return Ok(()) };
        self.pause(&injector, action)
    }

    pub(super) fn pause(&mut self, process: &Process, action: Action) -> Result<()> {
        process.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(100 + action.number * (MOST_PAUSE_MS - 100) / 1000));
        process.signal(Signal::SIGCONT);
        self.world.check()
    }

    /// One that does not run again is ended by whoever ends its fault.
    pub(super) fn stop_holder(&mut self, action: Action) -> Result<()> {
        let holder = self.world.holder_of(action.name)?;
        holder.signal(Signal::SIGSTOP);
        self.remove(action)?;
        match wait_until(HANG, || !holder.runs()) {
            true => Ok(()),
            false => Err(Error::Different("a holder that stands still outlives its fault".into())),
        }
    }

    pub(super) fn kill_server(&mut self) -> Result<()> {
        let Some(server) = self.world.daemon.server() else { return Ok(()) };
        let end = |world: &mut World| {
            server.signal(Signal::SIGKILL);
            world.reconnect(&server)
        };
        self.world.change(|active| active.clear(), end)?;
        self.world.assert_calm()
    }

    /// Ending needs no server: a signal does it, and has another one started.
    pub(super) fn stop_server(&mut self) -> Result<()> {
        let (Some(server), Some(injector)) = (self.world.daemon.server(), self.world.daemon.injector())
        else {
            return Ok(());
        };
        let since = Instant::now();
        let end = |world: &mut World| {
            server.signal(Signal::SIGSTOP);
            injector.signal(Signal::SIGUSR1);
            world.time_to_normal(since, HANG)?;
            world.reconnect(&server)
        };
        self.world.change(|active| active.clear(), end)?;
        self.world.assert_calm()
    }

    /// By SIGKILL: the injector alone, everything at once, the whole control group.
    pub(super) fn kill(&mut self, action: Action) -> Result<()> {
        let all = self.world.daemon.processes();
        let since = Instant::now();
        self.strike(action, |world| {
            match action.step {
                Step::KillInjector => all[0].signal(Signal::SIGKILL),
                Step::KillCgroup => world.cgroup.kill()?,
                _ => all.iter().for_each(|process| process.signal(Signal::SIGKILL)),
            }
            let normal = Some(world.time_to_normal(since, NORMAL)?);
            let guarded = world.guard_ends(since)?;
            world.recover_from(&all)?;
            Ok(Seen { normal, guarded })
        })
    }

    /// Everything at once, whatever becomes of packets.
    pub(super) fn kill_and_recover(&mut self) -> Result<()> {
        let all = self.world.daemon.processes();
        let end = |world: &mut World| {
            world.daemon.kill_everything();
            world.recover(&all)
        };
        self.world.change(|active| active.clear(), end)?;
        self.world.start()
    }

    /// The lease ends what an injector that stands still does not; when it runs again, it can be told to. If it has something to
    /// guard, the guard kills it instead.
    pub(super) fn hang_injector(&mut self, action: Action) -> Result<()> {
        let Some(injector) = self.world.daemon.injector() else { return Ok(()) };
        let (all, is_guarded) = (self.world.daemon.processes(), self.world.is_guarded());
        let since = Instant::now();
        self.end_by(action, |world| {
            injector.signal(Signal::SIGSTOP);
            let normal = world.time_to_normal(since, LEASE);
            let guarded = world.guard_ends(since);
            if is_guarded && guarded.is_ok() {
                world.recover_from(&all)?;
            } else {
                injector.signal(Signal::SIGCONT);
                world.mcp.call_tool("chaos_stop", serde_json::json!({}))?.ok()?;
            }
            Ok(Seen { normal: Some(normal?), guarded: guarded? })
        })?;
        if is_guarded {
            self.world.start()?;
        }
        self.world.assert_calm()
    }

    /// What is stopped can neither renew nor undo: the lease ends it, or recovery.
    pub(super) fn stop_and_recover(&mut self, action: Action) -> Result<()> {
        let since = Instant::now();
        self.strike(action, |world| {
            let all = world.signal_all(Signal::SIGSTOP);
            let stands =
                |process: &Process| Process::read(process.pid).is_none_or(|now| "TZ".contains(now.state));
            wait_until(HANG, || all.iter().all(stands));
            let mut seen = Seen::default();
            if action.number.is_multiple_of(2) {
                seen.normal = Some(world.time_to_normal(since, LEASE)?);
                seen.guarded = world.guard_ends(since)?;
            }
            world.recover(&all[1..])?;
            Ok(seen)
        })
    }

    pub(super) fn terminate(&mut self) -> Result<()> {
        let all = self.world.daemon.processes();
        let end = |world: &mut World| {
            world.daemon.stop()?;
            world.recover(&all)
        };
        self.world.change(|active| active.clear(), end)?;
        self.world.start()?;
        self.world.assert_calm()
    }
}
