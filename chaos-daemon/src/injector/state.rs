//! What the injector keeps: the faults that are active, those that ended lately, and a warm holder.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use chaos_audit::Audit;
use ipnet::IpNet;
use tokio::sync::Notify;

use super::approvals::book::Book;
use super::claims::{self, Claims};
use super::holders::{Holder, HolderFailure};
use super::orders::Line;
use super::pace::Pace;
use super::reload::Grounds;
use super::site::Site;
use super::watch::{GuardPost, Sight, words};
use super::{AttachChoice, Options, audit, told};
use crate::fault::Attach;
use crate::holder::Preload;
use crate::host::{Facts, NetNs, NetNsIdentity, Privileges, Unusable};
use crate::journal::Journal;
use crate::journal::down::FILE;
use crate::kernel::bpf::{Capacity, Family};
use crate::kernel::step::Step;
use crate::policy::Policy;
use crate::request::names::{Resolver, resolver};
use crate::request::{Evidence, FaultState, FaultStatus, Removal};
use crate::spec::LifetimeClass;
use crate::spec::{FaultType, QualifiedName};

/// How long one heartbeat keeps a fault.
pub const LEASE_WINDOW: Duration = Duration::from_secs(3);
/// How long `status` waits for the holders.
const REFRESH_LIMIT: Duration = Duration::from_millis(250);
/// Room of the programs that are loaded before any work is known.
const WARM: Capacity = Capacity { hosts: 1024, prefixes: 1024 };
/// How often it is looked whether the warm holder still waits.
const STOCK_WATCH: Duration = Duration::from_secs(1);
/// How many ended faults `status` still shows.
const RECENT: usize = 20;

/// The injector's state. One thread; borrowed only between awaits.
pub struct Injector {
    /// What the operator allows now.
    policy: RefCell<Rc<Policy>>,
    /// How often it has been replaced.
    policies: Cell<u64>,
    /// Rings when it is to be read again.
    pub(super) reloads: Notify,
    /// Rings when nothing may run here any more.
    pub(super) halted: Notify,
    /// What waits for an approval, and who has approved of what.
    pub(super) approvals: RefCell<Book>,
    /// In whose name the server may ask.
    pub(super) claims: Arc<Mutex<Claims>>,
    /// Where it is written down, one after the other.
    pub(super) state_dir: PathBuf,
    pub(super) writes: tokio::sync::Mutex<()>,
    pub(super) privileges: Privileges,
    pub(super) audit: Audit,
    /// What is needed to look at this node, also away from the loop.
    pub(super) site: Arc<Site>,
    /// Why the last holder that was to wait could not load its programs.
    unloadable: RefCell<Option<String>>,
    pub(super) journal: Journal,
    /// What was seen of the guard when it was last looked.
    pub(super) guard: RefCell<Sight>,
    /// The TCP ports at which sshd was when it was last looked.
    pub(super) ways_in: RefCell<Vec<u16>>,
    pub(super) active: RefCell<BTreeMap<QualifiedName, Active>>,
    /// How often every fault has been ended.
    epoch: Cell<u64>,
    /// What has begun and ended lately.
    pub(super) pace: Pace,
    /// How many faults have gone that had set something on this node.
    given_back: Cell<u64>,
    /// Injections that are looked at.
    undecided: RefCell<Vec<Weak<Undecided>>>,
    /// Rings when a fault has become active or has gone.
    pub(super) changed: Notify,
    recent: RefCell<VecDeque<FaultStatus>>,
    /// By which the prober that was started last looks names up.
    resolver: Resolver,
    warm: RefCell<Option<Holder>>,
    restocking: Cell<bool>,
    /// Not with stubs: they are no tcx.
    keeper: RefCell<Option<Holder>>,
}

/// Whether the name of a fault is to be free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is a new fault.
    New,
    /// It is active under this name, and waits for its target.
    Waiting,
}

/// An injection of which it is not decided yet whether it may be: it has no entry, and can be removed all the same.
#[derive(Debug)]
pub(super) struct Undecided {
    name: QualifiedName,
    removed: Cell<bool>,
}

impl Undecided {
    /// Whether the fault was removed after it was asked for.
    pub(super) fn is_removed(&self) -> bool {
        self.removed.get()
    }
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
    /// What keeps packets from meeting it, for people, for as long as it is applied.
    pub(super) warning: Option<String>,
    /// Why it most likely meets nothing, while it does.
    pub(super) idle: Option<String>,
    /// By what it is decided again under another policy.
    pub(super) grounds: Option<Box<Grounds>>,
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
        (privileges, audit): (Privileges, Audit),
        facts: Facts,
        journal: Journal,
        home: NetNs,
        ways_in: Vec<u16>,
    ) -> Self {
        let attach = match options.attach {
            AttachChoice::Auto if facts.tcx => Attach::Tcx,
            AttachChoice::Auto | AttachChoice::Clsact => Attach::Stub,
        };
        let site = Site {
            facts,
            home,
            runtime_dir: options.runtime_dir.clone(),
            audit: audit::folder(&options.state_dir),
            down_record: options.state_dir.join(FILE),
            attach,
            guard: GuardPost::new(&options.runtime_dir),
        };
        Self {
            policy: RefCell::new(Rc::new(options.policy.clone())),
            policies: Cell::new(0),
            reloads: Notify::new(),
            halted: Notify::new(),
            approvals: RefCell::default(),
            claims: Arc::default(),
            state_dir: options.state_dir.clone(),
            writes: tokio::sync::Mutex::default(),
            privileges,
            audit,
            site: Arc::new(site),
            unloadable: RefCell::default(),
            journal,
            guard: RefCell::new(Err("it was not looked for".to_owned())),
            ways_in: RefCell::new(ways_in),
            active: RefCell::default(),
            epoch: Cell::new(0),
            pace: Pace::default(),
            given_back: Cell::new(0),
            undecided: RefCell::default(),
            changed: Notify::new(),
            recent: RefCell::default(),
            resolver: resolver(),
            warm: RefCell::default(),
            restocking: Cell::new(false),
            keeper: RefCell::default(),
        }
    }

    /// What the operator allows now.
    pub(super) fn policy(&self) -> Rc<Policy> {
        Rc::clone(&self.policy.borrow())
    }

    /// Another policy holds from here on. Returns the one before.
    pub(super) fn replace_policy(&self, policy: Policy) -> Rc<Policy> {
        self.policies.set(self.policies.get().wrapping_add(1));
        self.policy.replace(Rc::new(policy))
    }

    /// Another number under each policy: what was asked under an earlier one is not injected by it.
    pub(super) fn policies(&self) -> u64 {
        self.policies.get()
    }

    /// In whose name the server may ask, now.
    pub(super) fn claims(&self) -> MutexGuard<'_, Claims> {
        claims::lock(&self.claims)
    }

    /// By which names are looked up.
    pub(super) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// What the kernel can do, by what the last holder that was to wait has met as well. That need not be so for ever: an
    /// injection tries anew.
    pub(super) fn facts_met(&self) -> Facts {
        let unloadable = self.unloadable.borrow().clone().map(Unusable::Refused);
        let facts = &self.site.facts;
        Facts { packet_programs: facts.packet_programs.clone().or(unloadable), ..facts.clone() }
    }

    /// What is active, and what ended lately: one entry a name, since what ended says nothing of what is active again.
    pub(super) fn status(&self) -> Vec<FaultStatus> {
        let (active, recent) = (self.active.borrow(), self.recent.borrow());
        let guard = self.guard.borrow();
        let running = active.iter().map(|(name, active)| active.status(name, &guard));
        running.chain(recent.iter().filter(|ended| !active.contains_key(&ended.name)).cloned()).collect()
    }

    /// The status of one active fault.
    pub(super) fn status_of(&self, name: &QualifiedName) -> Option<FaultStatus> {
        self.active.borrow().get(name).map(|active| active.status(name, &self.guard.borrow()))
    }

    /// Changes one active fault's entry.
    pub(super) fn update(&self, name: &QualifiedName, change: impl FnOnce(&mut Active)) {
        if let Some(active) = self.active.borrow_mut().get_mut(name) {
            change(active);
        }
    }

    /// How many faults have gone that had set something on this node: what was read before another one went may be what that one
    /// had set.
    pub(super) fn given_back(&self) -> u64 {
        self.given_back.get()
    }

    /// Takes a fault from the active ones, of which nothing is left.
    pub(super) fn take_out(&self, name: &QualifiedName) -> Option<Active> {
        let active = self.active.borrow_mut().remove(name)?;
        if active.owns_clsact || !active.settings.is_empty() {
            self.given_back.set(self.given_back.get().wrapping_add(1));
        }
        self.changed.notify_one();
        Some(active)
    }

    /// Notes that nothing of an active fault is on this node for now: what it had set is given back.
    pub(super) fn release(&self, name: &QualifiedName) {
        self.update(name, |active| {
            if active.owns_clsact || !active.settings.is_empty() {
                self.given_back.set(self.given_back.get().wrapping_add(1));
            }
            (active.place, active.owns_clsact, active.warning, active.idle) = (None, false, None, None);
            active.settings.clear();
            active.addresses.clear();
        });
    }

    /// Moves a fault from the active ones to those that ended lately.
    pub(super) fn retire(&self, name: &QualifiedName) {
        let Some(mut active) = self.take_out(name) else { return };
        self.pace.end(name.owner, Instant::now());
        active.state = FaultState::Ended;
        self.note_fault("fault_ended", name, active.note.as_deref());
        let mut status = active.status(name, &self.guard.borrow());
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
    pub(super) fn changer_of(&self, place: &str) -> Option<QualifiedName> {
        self.first(|active| active.settings.iter().any(|each| each == place))
    }

    /// The first active fault, by name, of which this holds.
    pub(super) fn first(&self, holds: impl Fn(&Active) -> bool) -> Option<QualifiedName> {
        let active = self.active.borrow();
        active.iter().find(|(_, active)| holds(active)).map(|(name, _)| name.clone())
    }

    /// Whether there is a fault of which is told how the guard is.
    pub(super) fn has_supervised(&self) -> bool {
        self.active.borrow().values().any(|active| active.lifetime == LifetimeClass::Supervised)
    }

    /// Looks at the guard, away from the loop, and keeps what was seen.
    pub(super) async fn look_at_guard(&self) -> Sight {
        let sight = self.site.guard.look_aside().await;
        *self.guard.borrow_mut() = sight.clone();
        sight
    }

    /// The faults that need a guard, but for those that are ending already.
    pub(super) fn supervised(&self) -> Vec<QualifiedName> {
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

    /// Whether a fault of this name is active, or is asked for.
    pub(super) fn knows(&self, name: &QualifiedName) -> bool {
        let undecided = self.undecided.borrow();
        let is_asked_for = undecided.iter().filter_map(Weak::upgrade).any(|each| each.name == *name);
        is_asked_for || self.active.borrow().contains_key(name)
    }

    /// The active faults of others that have this name.
    pub(super) fn of_others(&self, name: &QualifiedName) -> Vec<QualifiedName> {
        let active = self.active.borrow();
        active.keys().filter(|other| other.name == name.name && other.owner != name.owner).cloned().collect()
    }

    /// Keeps in mind that a fault of this name was asked for, for as long as the result lives.
    pub(super) fn undecided(&self, name: &QualifiedName) -> Rc<Undecided> {
        let new = Rc::new(Undecided { name: name.clone(), removed: Cell::new(false) });
        let mut all = self.undecided.borrow_mut();
        all.retain(|each| each.strong_count() > 0);
        all.push(Rc::downgrade(&new));
        new
    }

    /// Ends one fault and waits until it has been undone. `None` when there is none of this name; one that was asked for and is not
    /// decided yet is not injected then.
    pub(super) async fn end(&self, name: &QualifiedName, reason: &str) -> Option<Removal> {
        for each in self.undecided.borrow().iter().filter_map(Weak::upgrade) {
            each.removed.set(each.removed.get() || each.name == *name);
        }
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
        let protected = &self.policy().protect;
        Preload {
            family,
            capacity,
            protected_peers: protected.cidrs.clone(),
            protected_tcp_ports: protected.tcp_ports.clone(),
        }
    }

    /// Gets the next warm holder ready, in the background.
    pub(super) fn restock(self: &Rc<Self>) {
        if self.site.facts.packet_programs.is_some()
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
        let mut hooks = self.site.attach == Attach::Tcx && self.site.facts.packet_programs.is_none();
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
            warning: None,
            idle: None,
            grounds: None,
            place: steps.iter().find_map(place),
            settings: settings(steps),
            addresses: Vec::new(),
            owns_clsact: steps.iter().any(|step| matches!(step, Step::Clsact { .. })),
            line,
        }
    }

    fn status(&self, name: &QualifiedName, guard: &Sight) -> FaultStatus {
        let age = self.started.elapsed();
        let likely = self.idle.as_deref().filter(|_| !self.evidence.is_effect());
        FaultStatus {
            name: name.clone(),
            fault_type: self.fault_type,
            state: self.state,
            lifetime: self.lifetime,
            guard: words(guard, self.lifetime),
            description: self.description.clone(),
            age,
            remaining: self.duration.saturating_sub(age),
            evidence: self.evidence,
            addresses: self.addresses.iter().map(IpNet::addr).collect(),
            began: self.grounds.as_ref().map(|grounds| grounds.began()),
            note: told::note([&self.warning, &self.note], likely, &self.evidence, self.fault_type),
            likely: likely.map(str::to_owned),
        }
    }

    /// Becomes what was decided of the target that is there again. Its start and its end stay.
    pub(super) fn become_anew(&mut self, new: Self) {
        let Self { started, duration, evidence, note, line, .. } = std::mem::replace(self, new);
        (self.started, self.duration) = (started, duration);
        // Until it is applied what it had met is what there is to say.
        (self.evidence, self.note, self.line) = (evidence, note, line);
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
            self.idle = None;
        }
    }
}

/// The places of the settings among these steps.
pub(super) fn settings(steps: &[Step]) -> Vec<String> {
    let place = |step: &Step| match step {
        Step::Setting(setting) => Some(setting.place()),
        _ => None,
    };
    steps.iter().filter_map(place).collect()
}
