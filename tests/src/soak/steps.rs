//! The steps of a soak.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::Soak;
use super::model::{Kind, Known};
use crate::pair::INTERFACE;
use crate::process::{limit_descriptors, wait_until};
use crate::{Error, Result};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// After a death of everything.
const NORMAL: Duration = Duration::from_secs(1);
/// One heartbeat keeps a fault for 3 s.
const LEASE: Duration = Duration::from_millis(3500);
const SETTLE: Duration = Duration::from_secs(5);

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Step {
    Inject,
    InjectAgain,
    Remove,
    StopAll,
    Wait,
    KillHolder,
    PauseHolder,
    KillServer,
    KillInjector,
    KillAll,
    StopAndRecover,
    Terminate,
    Halt,
    RenameDevice,
    DeleteDevice,
    DeleteNamespace,
    ExhaustDescriptors,
}

/// Each with its weight.
pub(super) const STEPS: &[(Step, usize)] = &[
    (Step::Inject, 40),
    (Step::InjectAgain, 4),
    (Step::Remove, 18),
    (Step::StopAll, 3),
    (Step::Wait, 8),
    (Step::KillHolder, 7),
    (Step::PauseHolder, 3),
    (Step::KillServer, 3),
    (Step::KillInjector, 3),
    (Step::KillAll, 5),
    (Step::StopAndRecover, 2),
    (Step::Terminate, 2),
    (Step::Halt, 2),
    (Step::RenameDevice, 3),
    (Step::DeleteDevice, 2),
    (Step::DeleteNamespace, 2),
    (Step::ExhaustDescriptors, 2),
];

impl Soak {
    pub(super) fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Inject => self.inject(),
            Step::InjectAgain => self.inject_again(),
            Step::Remove => self.remove(),
            Step::StopAll => self.stop_all(),
            Step::Wait => {
                std::thread::sleep(Duration::from_millis(50 + self.random.below(300) as u64));
                self.world.check()
            }
            Step::KillHolder => self.kill_holder(),
            Step::PauseHolder => self.pause_holder(),
            Step::KillServer => self.kill_server(),
            Step::KillInjector => self.kill(false),
            Step::KillAll => self.kill(true),
            Step::StopAndRecover => self.stop_and_recover(),
            Step::Terminate => self.terminate(),
            Step::Halt => self.halt(),
            Step::RenameDevice => self.rename_device(),
            Step::DeleteDevice => self.delete_device(),
            Step::DeleteNamespace => self.delete_namespace(),
            Step::ExhaustDescriptors => self.exhaust_descriptors(),
        }
    }

    /// Names whose faults are active, or not, for certain.
    fn names(&self, known: Known) -> Vec<&'static str> {
        NAMES.into_iter().filter(|name| self.world.model.active(name) == known).collect()
    }

    fn inject(&mut self) -> Result<()> {
        let Some(name) = self.random.pick(&self.names(Known::No)) else { return Ok(()) };
        let Some(kind) = self.random.pick(&self.kinds) else { return Ok(()) };
        let duration = Duration::from_millis(1000 + self.random.below(15_000) as u64);
        self.world.inject(name, kind, duration)?;
        self.world.check()
    }

    fn inject_again(&mut self) -> Result<()> {
        let Some(name) = self.random.pick(&self.names(Known::Yes)) else { return Ok(()) };
        let order = json!({"fault_name": name, "action": "inject"});
        let answer = self.world.mcp.call_tool("chaos_inject_fault", order)?;
        if !answer.is_error && self.world.model.active(name) == Known::Yes {
            return Err(Error::Different(format!("{name} was injected twice: {}", answer.json)));
        }
        self.world.check()
    }

    fn remove(&mut self) -> Result<()> {
        let Some(name) = self.random.pick(&self.names(Known::Yes)) else { return Ok(()) };
        self.world.fault(name, Kind::Partition, SETTLE).remove(&self.world.mcp)?;
        self.world.model.faults.remove(name);
        self.world.check()
    }

    fn stop_everything(&mut self) -> Result<()> {
        self.world.mcp.call_tool("chaos_stop", json!({}))?.ok()?;
        self.world.model.faults.clear();
        Ok(())
    }

    fn stop_all(&mut self) -> Result<()> {
        self.stop_everything()?;
        self.world.assert_calm()
    }

    fn kill_holder(&mut self) -> Result<()> {
        let count = self.world.daemon.holders().len();
        let Some(holder) = self.world.daemon.holders().into_iter().nth(self.random.below(count)) else {
            return Ok(());
        };
        let held = self.world.held_by(&holder);
        holder.signal(Signal::SIGKILL);
        wait_until(SETTLE, || !holder.runs());
        if let Some(name) = held {
            self.world.model.faults.remove(&name);
        }
        self.world.check()
    }

    /// A holder that does not run for a while misses nothing: the kernel acts for it.
    fn pause_holder(&mut self) -> Result<()> {
        let Some(holder) = self.world.daemon.holders().into_iter().next() else { return Ok(()) };
        holder.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(100 + self.random.below(400) as u64));
        holder.signal(Signal::SIGCONT);
        self.world.check()
    }

    fn kill_server(&mut self) -> Result<()> {
        let Some(server) = self.world.daemon.server() else { return Ok(()) };
        server.signal(Signal::SIGKILL);
        self.world.reconnect(&server)?;
        self.world.assert_calm()
    }

    fn kill(&mut self, everything: bool) -> Result<()> {
        let blocked = self.world.model.any(&[Kind::Partition, Kind::Timeout]) == Known::Yes;
        let all = self.world.daemon.processes();
        let since = Instant::now();
        let count = if everything { all.len() } else { 1 };
        all[..count].iter().for_each(|process| process.signal(Signal::SIGKILL));
        let normal = self.world.time_to_normal(since, NORMAL)?;
        if blocked {
            self.figures.normal.push(normal);
        }
        wait_until(SETTLE, || !all.iter().skip(1).any(crate::process::Process::runs));
        self.world.revive(&all[1..])
    }

    /// What is stopped can neither renew nor undo: the lease ends it, or recovery.
    fn stop_and_recover(&mut self) -> Result<()> {
        let all = self.world.signal_all(Signal::SIGSTOP);
        if self.random.below(2) == 0 {
            self.world.time_to_normal(Instant::now(), LEASE)?;
        }
        self.world.revive(&all[1..])
    }

    fn terminate(&mut self) -> Result<()> {
        let all = self.world.daemon.processes();
        self.world.daemon.stop()?;
        self.world.revive(&all)
    }

    fn halt(&mut self) -> Result<()> {
        if let Some(injector) = self.world.daemon.injector() {
            injector.signal(Signal::SIGUSR1);
        }
        self.world.assert_calm()
    }

    /// A fault is on a device, not on a name.
    fn rename_device(&mut self) -> Result<()> {
        let near = |from: &str, to: &str| {
            let (from, to) = (from.to_owned(), to.to_owned());
            format!("link set {from} down\nlink set {from} name {to}\nlink set {to} up\n")
        };
        self.world.site.pair.near.ip_batch(&near(INTERFACE, "other0"))?;
        let lost = self.world.fault("lost", Kind::Partition, SETTLE).inject(&self.world.mcp);
        self.world.site.pair.near.ip_batch(&near("other0", INTERFACE))?;
        if !matches!(&lost, Err(Error::Mcp { problem, .. }) if problem.contains("TARGET_NOT_FOUND")) {
            return Err(Error::Different(format!("injected on a device that is not there: {lost:?}")));
        }
        self.world.site.pair.wait_up()?;
        self.spared = false;
        // Taking a device down takes its IPv6 addresses along; so a new one goes on.
        self.world.check()?;
        self.stop_everything()?;
        self.renew_site()
    }

    fn delete_device(&mut self) -> Result<()> {
        self.world.site.pair.near.ip(&["link", "delete", INTERFACE])?;
        self.spared = false;
        self.stop_everything()?;
        self.renew_site()?;
        self.world.assert_calm()
    }

    /// Its name goes; the namespace itself goes with the last holder in it.
    fn delete_namespace(&mut self) -> Result<()> {
        self.spared = false;
        self.renew_site()?;
        self.stop_everything()?;
        self.world.assert_calm()
    }

    /// No further descriptor for the injector: injecting fails by name, and what is active ends all the same, at
    /// the latest a little after there is room again.
    fn exhaust_descriptors(&mut self) -> Result<()> {
        let pid = self.world.daemon.injector_pid();
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(64, Iterator::count);
        let old = limit_descriptors(pid, open as u64)?;
        let refused = self.world.fault("refused", Kind::Partition, SETTLE).inject(&self.world.mcp);
        let stopped = self.world.mcp.call_tool("chaos_stop", json!({}));
        limit_descriptors(pid, old)?;
        // A descriptor may have become free meanwhile.
        match &refused {
            Ok(_) => {}
            Err(Error::Mcp { problem, .. }) if problem.contains("INJECTION_FAILED") => {}
            Err(Error::Mcp { problem, .. }) if problem.contains("TARGET_NOT_FOUND") => {}
            Err(error) => return Err(Error::Different(format!("no error with a name: {error}"))),
        }
        stopped?;
        let mcp = &self.world.mcp;
        let none = || {
            let status =
                mcp.call_tool("chaos_status", json!({})).map(|answer| answer.json).unwrap_or_default();
            let faults = status["active_faults"].as_array().cloned().unwrap_or_default();
            faults.iter().all(|fault| fault["active"] == false)
        };
        if !wait_until(SETTLE, none) {
            return Err(Error::Different(format!("stuck; log:\n{}", self.world.daemon.log())));
        }
        self.world.assert_calm()
    }
}
