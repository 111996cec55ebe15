//! The soak's ordinary steps, and what happens to the device.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::Soak;
use super::ledger::Expected;
use super::script::{Action, Kind, Step};
use super::world::LASTING;
use crate::bpf::{TCX_EGRESS, TCX_INGRESS, tcx_programs};
use crate::late::HANG;
use crate::pair::INTERFACE;
use crate::{Error, NetNs, Pair, Result};

/// How long a fault lasts that ends by itself.
const SHORT: Duration = Duration::from_secs(1);
/// What a device is called for a while.
const OTHER: &str = "other0";
/// A busy machine is late.
const EARLY: Duration = Duration::from_millis(20);

impl Soak {
    pub(super) fn take(&mut self, action: Action) -> Result<()> {
        match action.step {
            Step::Inject => self.inject(action),
            Step::InjectAgain => self.inject_again(action),
            Step::Change => self.change(action),
            Step::Expire => self.expire(action),
            Step::Remove => self.remove(action),
            Step::StopAll => self.stop_everything().and_then(|()| self.world.assert_calm()),
            Step::Wait => {
                std::thread::sleep(Duration::from_millis(50 + action.number / 4));
                self.world.check()
            }
            Step::KillHolder => self.kill_holder(action),
            Step::PauseHolder => self.pause_holder(action),
            Step::StopHolder => self.stop_holder(action),
            Step::KillServer => self.kill_server(),
            Step::PauseServer => self.pause_server(action),
            Step::StopServer => self.stop_server(),
            Step::KillInjector | Step::KillAll | Step::KillCgroup => self.kill(action),
            Step::PauseInjector => self.pause_injector(action),
            Step::HangInjector => self.hang_injector(action),
            Step::StopAndRecover => self.stop_and_recover(action),
            Step::Terminate => self.terminate(),
            Step::Halt => self.halt(action),
            Step::KillGuard | Step::StopGuard => self.lose_guard(action),
            Step::PauseGuard => self.pause_guard(action),
            Step::ReplaceGuard => self.replace_guard(action),
            Step::KillWithGuard => self.kill_with_guard(action),
            Step::RenameDevice => self.rename_device(action),
            Step::DeleteDevice => self.delete_device(),
            Step::MoveDevice => self.move_device(),
            Step::DeleteNamespace => self.delete_namespace(),
            Step::ExhaustDescriptors => self.exhaust_descriptors(),
            Step::FillJournal => self.fill_journal(action),
            Step::OutOfMemory => self.out_of_memory(action),
            Step::FreezeFiles => self.freeze_files(action),
            Step::SetClock => self.set_clock(action),
        }
    }

    fn inject(&mut self, action: Action) -> Result<()> {
        let Action { name, kind, .. } = action;
        self.world.change(
            |active| _ = active.insert(name, kind),
            |world| world.fault(name, kind, LASTING).inject(&world.mcp),
        )?;
        self.world.check()
    }

    fn inject_again(&mut self, action: Action) -> Result<()> {
        let order = json!({"fault_name": action.name, "action": "inject"});
        let answer = self.world.mcp.call_tool("chaos_inject_fault", order)?;
        if !answer.is_error {
            return Err(Error::Different(format!("injected twice: {}", answer.json)));
        }
        self.world.check()
    }

    fn change(&mut self, action: Action) -> Result<()> {
        let Action { name, kind, .. } = action;
        self.take_away(name)?;
        self.inject(action)?;
        match self.world.active.get(name) {
            Some(active) if *active == kind => Ok(()),
            other => Err(Error::Different(format!("{name} is {other:?}"))),
        }
    }

    /// Its deadline ends it, and nothing else.
    fn expire(&mut self, action: Action) -> Result<()> {
        let Action { name, kind, .. } = action;
        let (others, asked) = (self.world.expected(), Instant::now());
        self.world.change(
            |active| _ = active.insert(name, kind),
            |world| world.fault(name, kind, SHORT).inject(&world.mcp),
        )?;
        // The end is counted from a moment between the request and its answer.
        let latest = Instant::now() + SHORT;
        let during = self.world.expected();
        let restarts = self.world.lane.restarts_queue();
        if during != others || kind == Kind::Latency || restarts {
            self.world.site.target.expect(asked + SHORT - EARLY, Expected::Either);
        }
        if restarts {
            self.world.site.bystander.expect(asked + SHORT - EARLY, Expected::Either);
        }
        if during != others {
            let left = latest.saturating_duration_since(Instant::now());
            std::thread::sleep(left);
            let late = self.world.time_to_normal(latest, Duration::from_millis(500))?;
            self.figures.late.push(late);
        }
        self.world.active.remove(name);
        // The status says that it has ended when nothing of it is left.
        self.world.check()?;
        self.world.settle();
        Ok(())
    }

    fn take_away(&mut self, name: &'static str) -> Result<()> {
        let removed = self.world.change(
            |active| _ = active.remove(name),
            |world| world.fault(name, Kind::Partition, SHORT).remove(&world.mcp),
        );
        removed.map(drop)
    }

    pub(super) fn remove(&mut self, action: Action) -> Result<()> {
        self.take_away(action.name)?;
        self.world.check()
    }

    pub(super) fn stop_everything(&mut self) -> Result<()> {
        let stop = |world: &mut super::World| world.mcp.call_tool("chaos_stop", json!({}))?.ok();
        self.world.change(|active| active.clear(), stop).map(drop)
    }

    /// SIGUSR1, without any client.
    pub(super) fn halt(&mut self, action: Action) -> Result<()> {
        let (Some(server), Some(injector)) = (self.world.daemon.server(), self.world.daemon.injector())
        else {
            return Ok(());
        };
        let (cut, since) = (self.world.expected() == Expected::Cut, Instant::now());
        let normal = self.world.change(
            |active| active.clear(),
            |world| {
                injector.signal(Signal::SIGUSR1);
                let normal = world.time_to_normal(since, HANG);
                world.reconnect(&server)?;
                // Until the last of them is undone, more may change.
                let none = || world.active_names().is_ok_and(|names| names.is_empty());
                crate::process::wait_until(HANG, none);
                normal
            },
        )?;
        if cut {
            self.note_normal(action, normal);
        }
        self.world.assert_calm()
    }

    /// A fault is on a device, not on a name. In half of the cases it ends while its device has another one, by a request
    /// or with all its processes; in the others when the name is back.
    fn rename_device(&mut self, action: Action) -> Result<()> {
        self.world.hurt();
        self.world.site.pair.near.ip_batch(&renamed(INTERFACE, OTHER))?;
        let lost = self.world.fault("lost", Kind::Partition, SHORT).inject(&self.world.mcp);
        if !matches!(&lost, Err(Error::Mcp { problem, .. }) if problem.contains("TARGET_NOT_FOUND")) {
            return Err(Error::Different(format!("injected on a device that is not there: {lost:?}")));
        }
        match action.number % 4 {
            0 => self.end_elsewhere(|soak| soak.stop_everything())?,
            2 => self.end_elsewhere(|soak| soak.kill_and_recover())?,
            _ => {}
        }
        let near = &self.world.site.pair.near;
        near.ip_batch(&renamed(OTHER, INTERFACE))?;
        self.world.site.pair.wait_up()?;
        self.world.check()?;
        self.stop_everything()?;
        self.world.assert_calm()?;
        // Down, a device loses its IPv6 addresses. With them it is what it was; but for its packets, so a new one goes on.
        let address = format!("{}/64", Pair::NEAR_V6);
        self.world.site.pair.near.ip(&["address", "add", &address, "dev", INTERFACE, "nodad"])?;
        self.world.assert_networks_as_before()?;
        self.renew_site()
    }

    /// Has every fault ended while its device is called something else, and looks at the device.
    fn end_elsewhere(&mut self, end: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        end(self)?;
        self.world.assert_calm()?;
        let near = &self.world.site.pair.near;
        let queues = near.tc(&["qdisc", "show", "dev", OTHER])?;
        if queues.contains("clsact") != self.world.lane.clsact {
            return Err(Error::Different(format!("queues of the renamed device: {queues}")));
        }
        assert_bare(near, OTHER)
    }

    fn delete_device(&mut self) -> Result<()> {
        self.world.hurt();
        self.world.site.pair.near.ip(&["link", "delete", INTERFACE])?;
        self.stop_everything()?;
        self.renew_site()?;
        self.world.assert_calm()
    }

    /// A fault goes with its device, and ends there without leaving anything.
    fn move_device(&mut self) -> Result<()> {
        self.world.hurt();
        let elsewhere = NetNs::new()?;
        self.world.site.pair.near.ip(&["link", "set", INTERFACE, "netns", elsewhere.name()])?;
        self.stop_everything()?;
        // Before the far side goes, and the device with it.
        assert_bare(&elsewhere, INTERFACE)?;
        self.renew_site()?;
        self.world.assert_calm()
    }

    /// Its name goes; the namespace itself goes with the last holder in it.
    fn delete_namespace(&mut self) -> Result<()> {
        self.world.hurt();
        self.renew_site()?;
        self.stop_everything()?;
        self.world.assert_calm()
    }
}

/// Has `ip` give a device another name.
fn renamed(from: &str, to: &str) -> String {
    format!("link set {from} down\nlink set {from} name {to}\nlink set {to} up\n")
}

/// No program, filter or device of ours is with a device.
fn assert_bare(namespace: &NetNs, device: &str) -> Result<()> {
    let shown = ["ingress", "egress"].map(|way| namespace.tc(&["filter", "show", "dev", device, way]));
    let index =
        namespace.run(|| nix::net::if_::if_nametoindex(device)).map_err(Error::sys("find", device))?;
    let hooks = [TCX_INGRESS, TCX_EGRESS];
    let programs = namespace.run(|| hooks.map(|hook| tcx_programs(index, hook).unwrap_or_default()));
    let links = namespace.ip(&["-o", "link"])?;
    match format!("{shown:?} {links}").contains("chaos") || programs.iter().any(|found| !found.is_empty()) {
        true => Err(Error::Different(format!("with {device}: {shown:?} {programs:?} {links}"))),
        false => Ok(()),
    }
}
