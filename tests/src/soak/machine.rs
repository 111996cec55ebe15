//! The soak's steps that take something away from the daemon: descriptors, room, memory, its files, the time.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime, clock_settime};
use serde_json::json;

use super::Soak;
use super::blows::{LEASE, Seen};
use super::script::{Action, Kind};
use super::world::{LASTING, World};
use crate::daemon::TMPFS;
use crate::late::HANG;
use crate::mounts::{Ballast, Disk};
use crate::process::{Process, limit_descriptors, wait_until};
use crate::{Error, Result};

const HOUR: Duration = Duration::from_secs(3600);

impl Soak {
    /// No further descriptor for the injector: injecting fails by name, and what is active ends all the same, at
    /// the latest a little after there is room again.
    pub(super) fn exhaust_descriptors(&mut self) -> Result<()> {
        self.world.change(|active| active.clear(), stop_without_descriptors)?;
        self.world.assert_calm()
    }

    /// No room for a journal: nothing new begins, and what is active can end.
    pub(super) fn fill_journal(&mut self, action: Action) -> Result<()> {
        let full = Ballast::fill(&self.world.daemon.runtime_dir())?;
        let refused = self.world.fault("refused", Kind::Partition, LASTING).inject(&self.world.mcp);
        if !matches!(&refused, Err(Error::Mcp { problem, .. }) if problem.contains("write the journal")) {
            return Err(Error::Different(format!("injected without a journal: {refused:?}")));
        }
        if self.world.active.contains_key(action.name) {
            self.remove(action)?;
        }
        self.world.check()?;
        drop(full);
        self.world.check()
    }

    /// Whom the kernel kills is its choice; nothing of a fault may be left, whoever it was.
    pub(super) fn out_of_memory(&mut self, action: Action) -> Result<()> {
        let all = self.world.daemon.processes();
        let since = Instant::now();
        self.strike(action, |world| {
            let used: u64 = world.cgroup.get("memory.current")?.trim().parse().unwrap_or(1 << 20);
            // One of them at least, or all.
            let most = if action.number.is_multiple_of(2) { used / 2 } else { 1 << 16 };
            // EBUSY: nobody was left to kill, and it is too much still.
            let _ = world.cgroup.set("memory.max", &most.to_string());
            let died = wait_until(HANG, || !all.iter().all(Process::runs));
            world.cgroup.set("memory.max", "max")?;
            if !died {
                return Err(Error::Different(format!("{most} of {used} bytes were enough for everybody")));
            }
            let (injector_died, noticed) = (!all[0].runs(), Instant::now());
            let normal = injector_died.then(|| world.time_to_normal(since, HANG)).transpose()?;
            let guarded = injector_died.then(|| world.guard_ends(noticed)).transpose()?.flatten();
            let rest = world.signal_all(Signal::SIGKILL);
            wait_until(HANG, || !all.iter().chain(&rest).any(Process::runs));
            world.recover(&all[1..])?;
            Ok(Seen { normal, guarded })
        })
    }

    /// The injector stands in the kernel, writing its journal, and nothing can end it: the deadline ends the fault.
    pub(super) fn freeze_files(&mut self, action: Action) -> Result<()> {
        self.terminate()?;
        self.world.stop()?;
        let image = Disk::mount_on(Path::new(TMPFS), 4)?;
        self.world.start()?;
        let normal = self.hang_in_the_kernel(&image, action);
        self.world.stop()?;
        drop(image);
        self.world.start()?;
        self.note_normal(action, normal?);
        self.world.assert_calm()
    }

    fn hang_in_the_kernel(&mut self, image: &Disk, action: Action) -> Result<Duration> {
        let Action { name, .. } = action;
        self.world.change(
            |active| _ = active.insert(name, Kind::Partition),
            |world| world.fault(name, Kind::Partition, LASTING).inject(&world.mcp),
        )?;
        self.world.check()?;
        let injector = self.world.daemon.injector().ok_or_else(|| Error::Different("no injector".into()))?;
        let (client, second) = (self.world.daemon.mcp()?, self.world.fault("second", Kind::Timeout, LASTING));
        let dies = action.number.is_multiple_of(2);
        self.world.change(
            |active| active.clear(),
            |world| {
                let all = world.daemon.processes();
                let normal = std::thread::scope(|scope| {
                    let frozen = image.freeze()?;
                    scope.spawn(move || second.inject(&client));
                    let hangs = || Process::read(injector.pid).is_some_and(|now| now.state == 'D');
                    if !wait_until(HANG, hangs) {
                        return Err(Error::Different("the injector does not hang".into()));
                    }
                    // Until now it renewed.
                    let since = Instant::now();
                    if dies {
                        injector.signal(Signal::SIGKILL);
                    }
                    let normal = world.time_to_normal(since, LEASE);
                    drop(frozen);
                    normal
                });
                if dies {
                    world.recover_from(&all)?;
                    world.start()?;
                } else {
                    world.mcp.call_tool("chaos_stop", json!({}))?.ok()?;
                }
                normal
            },
        )
    }

    /// An hour there, and back: leases and deadlines go by another clock.
    pub(super) fn set_clock(&mut self, action: Action) -> Result<()> {
        let forward = action.number.is_multiple_of(2);
        step(forward)?;
        // Longer than a heartbeat.
        std::thread::sleep(Duration::from_millis(1200));
        let there = self.world.check();
        step(!forward)?;
        there?;
        self.world.check()
    }
}

fn stop_without_descriptors(world: &mut World) -> Result<()> {
    let pid = world.daemon.injector_pid();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(64, Iterator::count);
    let old = limit_descriptors(pid, open as u64)?;
    let refused = world.fault("refused", Kind::Cpu, LASTING).inject(&world.mcp);
    let stopped = world.mcp.call_tool("chaos_stop", json!({}));
    limit_descriptors(pid, old)?;
    // A descriptor may have become free meanwhile.
    match &refused {
        Ok(_) => {}
        Err(Error::Mcp { problem, .. }) if problem.contains("INJECTION_FAILED") => {}
        Err(error) => return Err(Error::Different(format!("no error with a name: {error}"))),
    }
    stopped?;
    if !wait_until(HANG, || world.active_names().is_ok_and(|names| names.is_empty())) {
        return world.wrong("stuck without descriptors");
    }
    Ok(())
}

fn step(forward: bool) -> Result<()> {
    let clock = ClockId::CLOCK_REALTIME;
    let now = Duration::from(clock_gettime(clock).map_err(Error::sys("read", "the clock"))?);
    let then = if forward { now + HOUR } else { now.saturating_sub(HOUR) };
    clock_settime(clock, then.into()).map_err(Error::sys("step", "the clock"))
}
