//! What the injector keeps: the faults that are active, those that ended lately, and a warm holder.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use tokio::sync::Notify;

use super::holders::{Holder, HolderFailure};
use super::inject::settings;
use super::orders::Line;
use super::watch::GuardPost;
use super::{AttachChoice, Options};
use crate::fault::Attach;
use crate::holder::Preload;
use crate::host::{Facts, NetNs, NetNsIdentity, Privileges, Unusable};
use crate::journal::Journal;
use crate::journal::down::FILE;
use crate::kernel::bpf::{Capacity, Family};
use crate::kernel::step::Step;
use crate::policy::Policy;
use crate::request::{Evidence, FaultState, FaultStatus, LifetimeClass, Removal};
use crate::spec::{FaultName, FaultType};

/// How long one heartbeat keeps a fault.
pub const LEASE_WINDOW: Duration = Duration::from_secs(3);
/// How long `status` waits for the holders.
const REFRESH_LIMIT: Duration = Duration::from_millis(250);
/// Room of the programs that are loaded before any work is known.
const WARM: Capacity = Capacity { hosts: 1024, prefixes: 1024 };
/// How often it is looked whether the warm holder still waits.
const STOCK_WATCH: Duration = Duration::from_secs(1);
/// The warning about processes in whose place nobody comes.
const ALONE: &str = "no new process seen: no supervisor?";
/// How many ended faults `status` still shows.
const RECENT: usize = 20;

/// The injector's state. One thread; borrowed only between awaits.
pub struct Injector {
    pub(super) policy: Policy,
    pub(super) privileges: Privileges,
    pub(super) facts: Facts,
    /// Why the last holder that was to wait could not load its programs.
    unloadable: RefCell<Option<String>>,
    pub(super) journal: Journal,
    pub(super) runtime_dir: PathBuf,
    /// Where it is written down before this host goes down.
    pub(super) down_record: PathBuf,
    pub(super) attach: Attach,
    /// The network namespace of the daemon: that of every target that names none.
    pub(super) home: NetNs,
    pub(super) guard: GuardPost,
    /// The TCP ports at which sshd was when it was last looked.
    pub(super) ways_in: RefCell<Vec<u16>>,
    pub(super) active: RefCell<BTreeMap<FaultName, Active>>,
    /// How often every fault has been ended.
    epoch: Cell<u64>,
    /// Rings when a fault has become active or has gone.
    pub(super) changed: Notify,
    recent: RefCell<VecDeque<FaultStatus>>,
    warm: RefCell<Option<Holder>>,
    restocking: Cell<bool>,
    /// Not with stubs: they are no tcx.
    keeper: RefCell<Option<Holder>>,
}

/// A fault that is active, or starting, or being undone.
pub(super) struct Active {
    pub(super) fault_type: FaultType,
    pub(super) lifetime: LifetimeClass,
    pub(super) description: String,
    pub(super) state: FaultState,
    pub(super) started: Instant,
    pub(super) duration: Duration,
    pub(super) evidence: Evidence,
    pub(super) note: Option<String>,
    /// The device and the level on it, of a network fault.
    pub(super) place: Option<(NetNsIdentity, u32, u8)>,
    /// The settings of the node that it changes, by their places.
    pub(super) settings: Vec<String>,
    /// What the host that it names stands for, as far as it is about it.
    pub(super) addresses: Vec<IpNet>,
    /// Whether it undoes the device's clsact qdisc.
    pub(super) owns_clsact: bool,
    /// To the task that keeps it.
    pub(super) line: Line,
}

impl Injector {
    pub(super) fn new(
        options: &Options,
        privileges: Privileges,
        facts: Facts,
        journal: Journal,
        home: NetNs,
        ways_in: Vec<u16>,
    ) -> Self {
        let attach = match options.attach {
            AttachChoice::Auto if facts.tcx => Attach::Tcx,
            AttachChoice::Auto | AttachChoice::Clsact => Attach::Stub,
        };
        Self {
            policy: options.policy.clone(),
            privileges,
            facts,
            unloadable: RefCell::default(),
            journal,
            runtime_dir: options.runtime_dir.clone(),
            down_record: options.state_dir.join(FILE),
            attach,
            home,
            guard: GuardPost::new(&options.runtime_dir),
            ways_in: RefCell::new(ways_in),
            active: RefCell::default(),
            epoch: Cell::new(0),
            changed: Notify::new(),
            recent: RefCell::default(),
            warm: RefCell::default(),
            restocking: Cell::new(false),
            keeper: RefCell::default(),
        }
    }

    /// What the kernel can do, by what the last holder that was to wait has met as well. That need not be so for ever: an
    /// injection tries anew.
    pub(super) fn facts_met(&self) -> Facts {
        let unloadable = self.unloadable.borrow().clone().map(Unusable::Refused);
        Facts { packet_programs: self.facts.packet_programs.clone().or(unloadable), ..self.facts.clone() }
    }

    /// What is active, and what ended lately: one entry a name, since what ended says nothing of what is active again.
    pub(super) fn status(&self) -> Vec<FaultStatus> {
        let (active, recent) = (self.active.borrow(), self.recent.borrow());
        let running = active.iter().map(|(name, active)| active.status(name, &self.guard));
        running.chain(recent.iter().filter(|ended| !active.contains_key(&ended.name)).cloned()).collect()
    }

    /// The status of one active fault.
    pub(super) fn status_of(&self, name: &FaultName) -> Option<FaultStatus> {
        self.active.borrow().get(name).map(|active| active.status(name, &self.guard))
    }

    /// Changes one active fault's entry.
    pub(super) fn update(&self, name: &FaultName, change: impl FnOnce(&mut Active)) {
        if let Some(active) = self.active.borrow_mut().get_mut(name) {
            change(active);
        }
    }

    /// Moves a fault from the active ones to those that ended lately.
    pub(super) fn retire(&self, name: &FaultName) {
        let Some(mut active) = self.active.borrow_mut().remove(name) else { return };
        self.changed.notify_one();
        active.state = FaultState::Ended;
        let mut status = active.status(name, &self.guard);
        status.remaining = Duration::ZERO;
        self.remember(status);
    }

    /// Shows a fault among those that ended lately.
    pub(super) fn remember(&self, status: FaultStatus) {
        let mut recent = self.recent.borrow_mut();
        recent.retain(|earlier| earlier.name != status.name);
        recent.push_front(status);
        recent.truncate(RECENT);
    }

    /// The level for a further fault on a device: behind every one that is there.
    pub(super) fn next_level(&self, netns: NetNsIdentity, ifindex: u32) -> u8 {
        let active = self.active.borrow();
        let levels = active.values().filter_map(|active| active.place);
        levels
            .filter(|(ns, index, _)| (*ns, *index) == (netns, ifindex))
            .map(|(.., level)| level)
            .max()
            .unwrap_or(0)
            .saturating_add(1)
    }

    /// Whether the clsact qdisc of this device is one that our faults brought.
    pub(super) fn brought_clsact(&self, netns: NetNsIdentity, ifindex: u32) -> bool {
        let active = self.active.borrow();
        let here = |place: (NetNsIdentity, u32, u8)| (place.0, place.1) == (netns, ifindex);
        active.values().any(|active| active.owns_clsact && active.place.is_some_and(here))
    }

    /// The active fault that has changed the setting at this place.
    pub(super) fn changer_of(&self, place: &str) -> Option<FaultName> {
        self.first(|active| active.settings.iter().any(|each| each == place))
    }

    /// The first active fault, by name, of which this holds.
    pub(super) fn first(&self, holds: impl Fn(&Active) -> bool) -> Option<FaultName> {
        let active = self.active.borrow();
        active.iter().find(|(_, active)| holds(active)).map(|(name, _)| name.clone())
    }

    /// The faults that need a guard, but for those that are ending already.
    pub(super) fn supervised(&self) -> Vec<FaultName> {
        let active = self.active.borrow();
        let lasting = |active: &Active| {
            active.lifetime == LifetimeClass::Supervised
                && matches!(
                    active.state,
                    FaultState::Starting | FaultState::NoTraffic | FaultState::Effective
                )
        };
        active.iter().filter(|(_, active)| lasting(active)).map(|(name, _)| name.clone()).collect()
    }

    /// Ends one fault and waits until it has been undone. `None` when there is none of this name.
    pub(super) async fn end(&self, name: &FaultName, reason: &str) -> Option<Removal> {
        let removal = self.active.borrow().get(name)?.line.end(reason)?;
        removal.await.ok()
    }

    /// Another number each time that every fault has been ended: what was asked for in an earlier epoch is not injected any more.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Ends every fault, all at once, and waits until each has been undone.
    pub(super) async fn end_all(&self, reason: &str) -> Vec<Removal> {
        self.epoch.set(self.epoch.get().wrapping_add(1));
        let waiting: Vec<_> =
            self.active.borrow().values().filter_map(|active| active.line.end(reason)).collect();
        let mut removals = Vec::new();
        for each in waiting {
            removals.extend(each.await.ok());
        }
        removals
    }

    /// Asks every holder what its fault has met. One that does not answer in time keeps its last word.
    pub(super) async fn refresh(&self) {
        let waiting: Vec<_> = self.active.borrow().values().filter_map(|active| active.line.ask()).collect();
        let all = async {
            for each in waiting {
                // A fault that has ended meanwhile has nothing new to say.
                let _ = each.await;
            }
        };
        // Late answers reach the entries all the same.
        let _ = tokio::time::timeout(REFRESH_LIMIT, all).await;
    }

    /// A holder with these programs and so much room, warm when there is one; `None` needs no programs.
    pub(super) async fn holder(&self, needed: Option<(Family, Capacity)>) -> Result<Holder, HolderFailure> {
        let warm = match needed {
            Some((Family::Packets, needed)) if WARM.holds(needed) => self.warm.borrow_mut().take(),
            _ => None,
        };
        // It may have been killed while it waited.
        if let Some(holder) = warm
            && holder.runs()
        {
            return Ok(holder);
        }
        Holder::start(needed.map(|(family, capacity)| self.preload(family, capacity))).await
    }

    /// What a holder of programs gets ready before it has work.
    fn preload(&self, family: Family, capacity: Capacity) -> Preload {
        let protected = &self.policy.protect;
        Preload {
            family,
            capacity,
            protected_peers: protected.cidrs.clone(),
            protected_tcp_ports: protected.tcp_ports.clone(),
        }
    }

    /// Gets the next warm holder ready, in the background.
    pub(super) fn restock(self: &Rc<Self>) {
        if self.facts.packet_programs.is_some()
            || self.warm.borrow().is_some()
            || self.restocking.replace(true)
        {
            return;
        }
        let injector = Rc::clone(self);
        tokio::task::spawn_local(async move {
            match Holder::start(Some(injector.preload(Family::Packets, WARM))).await {
                Ok(holder) => {
                    *injector.warm.borrow_mut() = Some(holder);
                    injector.unloadable.take();
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot keep a warm holder; injections will start slower");
                    if let HolderFailure::Refused(reason) = error {
                        injector.unloadable.replace(Some(reason));
                    }
                }
            }
            injector.restocking.set(false);
        });
    }

    /// Has the packet hooks kept switched on. False when that cannot be done, nor tried again.
    async fn keep_hooks(&self) -> bool {
        if self.keeper.borrow().as_ref().is_some_and(Holder::runs) {
            return true;
        }
        match Holder::start_keeper().await {
            Ok(keeper) => {
                *self.keeper.borrow_mut() = Some(keeper);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot keep the packet hooks on; the first fault will take effect a little later");
                false
            }
        }
    }

    /// Replaces what was killed while it waited, the warm holder or the keeper: for as long as the daemon runs.
    pub(super) async fn watch_stock(self: Rc<Self>) {
        let mut hooks = self.attach == Attach::Tcx && self.facts.packet_programs.is_none();
        loop {
            hooks = hooks && self.keep_hooks().await;
            tokio::time::sleep(STOCK_WATCH).await;
            let ended = self.warm.borrow().as_ref().is_some_and(|holder| !holder.runs());
            if ended {
                self.warm.borrow_mut().take();
                self.restock();
            }
        }
    }

    /// Ends the warm holder and the keeper.
    pub(super) fn clear_stock(&self) {
        self.restocking.set(true);
        self.warm.borrow_mut().take();
        self.keeper.borrow_mut().take();
    }
}

impl Active {
    /// What a daemon that died has left: these steps.
    pub(super) fn left(fault_type: FaultType, steps: &[Step], line: Line) -> Self {
        let place = |step: &Step| match step {
            Step::Stub { netns, ifindex, level, .. } => Some((netns.id, *ifindex, *level)),
            _ => None,
        };
        let lifetime = match steps.iter().any(Step::is_supervised) {
            true => LifetimeClass::Supervised,
            false => LifetimeClass::Kernel,
        };
        Self {
            fault_type,
            lifetime,
            description: format!("{}: left by a daemon that died", fault_type.name()),
            state: FaultState::Stuck,
            started: Instant::now(),
            duration: Duration::ZERO,
            evidence: Evidence::default(),
            note: None,
            place: steps.iter().find_map(place),
            settings: settings(steps),
            addresses: Vec::new(),
            owns_clsact: steps.iter().any(|step| matches!(step, Step::Clsact { .. })),
            line,
        }
    }

    fn status(&self, name: &FaultName, guard: &GuardPost) -> FaultStatus {
        let age = self.started.elapsed();
        FaultStatus {
            name: name.clone(),
            fault_type: self.fault_type,
            state: self.state,
            lifetime: self.lifetime,
            guard: guard.words(self.lifetime),
            description: self.description.clone(),
            age,
            remaining: self.duration.saturating_sub(age),
            evidence: self.evidence,
            addresses: self.addresses.iter().map(IpNet::addr).collect(),
            note: self
                .note
                .clone()
                .or_else(|| self.evidence.processes.alone.then(|| self.alone().to_owned())),
        }
    }

    /// The warning about what does not come back.
    fn alone(&self) -> &'static str {
        match self.fault_type {
            FaultType::ServiceRestart => "the service is not active again: `systemctl status` says why",
            _ => ALONE,
        }
    }

    /// Takes in that the fault was applied and read back, and what it has met by then.
    pub(super) fn applied(&mut self, evidence: Evidence) {
        self.state = FaultState::NoTraffic;
        self.met(evidence);
    }

    /// Takes in what the fault has met.
    pub(super) fn met(&mut self, evidence: Evidence) {
        self.evidence = evidence;
        if evidence.is_effect() {
            self.state = FaultState::Effective;
        }
    }
}
