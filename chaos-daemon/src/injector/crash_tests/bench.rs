//! A node that is not there with the journal of a fault on it, and what can happen to either.

use std::path::PathBuf;

use super::cases::{Case, HOLDER};
use crate::fault::{FlapWork, Work};
use crate::host::NetNs;
use crate::injector::recover::{Recovered, recover_on};
use crate::journal::{Entry, Event, Journal, undo_on};
use crate::kernel::fake::{FakeLink, FakeNode, Objects, Trouble};
use crate::kernel::netlink::marks::{self, FILTER_HANDLE, FILTER_PREFIX};
use crate::kernel::netlink::{Netlink, NetlinkError};
use crate::kernel::node::Node;
use crate::kernel::step::Step;
use crate::spec::QualifiedName;

/// No plan makes so many operations.
pub(super) const MOST: usize = 200;

/// As the node is once nothing is under way any more. Which start of a service it is does not count: one that was stopped has
/// to be started.
pub(super) fn seen(objects: Objects) -> Objects {
    let mut objects = objects.settled();
    objects.units.values_mut().for_each(|unit| unit.start = 0);
    objects
}

/// A node with a fault's journal on it.
pub(super) struct Bench<'a> {
    pub(super) case: &'a Case,
    pub(super) node: FakeNode,
    pub(super) journal: Journal,
    folder: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    pub(super) fn new(case: &'a Case) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let journal = Journal::open(folder.path().into()).unwrap();
        let node = FakeNode::default();
        node.0.change(|objects| *objects = case.before.clone());
        Self { case, node, journal, folder }
    }

    /// Injects: writes the journal, makes the holder, and makes in its place what it makes. `true` when all went well.
    pub(super) fn inject(&self, trouble: Option<Trouble>) -> (Entry, bool) {
        self.node.0.expect(trouble);
        self.node.0.change(|objects| {
            objects.processes.insert(HOLDER.pid, HOLDER.start_time);
        });
        let mut steps = self.case.plan.steps.clone();
        steps.push(Step::Holder(HOLDER));
        let name = QualifiedName::parse("a").unwrap();
        let mut entry = self.journal.begin(1, &name, self.case.fault_type, &steps).unwrap();
        let made = self.make();
        if made {
            entry.note(Event::Applied).unwrap();
        }
        (entry, made)
    }

    /// Makes what can outlive the holder, in the order of the plan, by the calls that the holder makes.
    fn make(&self) -> bool {
        match &self.case.plan.work {
            Work::Settings(settings) => settings.iter().all(|setting| setting.apply(&self.node).is_ok()),
            // Down, up, and down again.
            Work::Flap(FlapWork { setting, .. }) => {
                let set_down = || setting.apply(&self.node).is_ok();
                set_down() && setting.undo(&self.node).is_ok() && set_down()
            }
            _ => self.make_objects(),
        }
    }

    fn make_objects(&self) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for step in &self.case.plan.steps {
                let netlink = self.node.connect(NetNs::current().unwrap()).unwrap();
                if make_one(step, &netlink).await.is_err() {
                    return false;
                }
            }
            true
        })
    }

    /// Everything of ours has died, the holder too; its pair goes soon after it, or has gone.
    pub(super) fn everything_died(&self, pair_lingers: bool) {
        self.node.0.expect(None);
        self.node.0.change(|objects| {
            objects.processes.remove(&HOLDER.pid);
            if !pair_lingers {
                let ours = |link: &FakeLink| {
                    link.name.starts_with("chaos12345678") && !link.name.ends_with('x')
                        || link.name.starts_with("chaos12345679")
                };
                objects.links.retain(|_, link| !ours(link));
            }
        });
    }

    pub(super) fn recover(&self, trouble: Option<Trouble>) -> Recovered {
        self.node.0.expect(trouble);
        recover_on(&self.node, &self.journal).unwrap()
    }

    /// What is on the node: see [`seen`].
    pub(super) fn seen(&self) -> Objects {
        seen(self.node.0.objects())
    }

    pub(super) fn journals(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// Recovers without trouble: the node is as before, and recovering again finds nothing.
    pub(super) fn assert_recovers(&self, after: &str) {
        let what = &self.case.what;
        let recovered = self.recover(None);
        assert_eq!(recovered.stuck, [""; 0], "{what}, {after}");
        assert_eq!(self.seen(), seen(self.case.before.clone()), "{what}, {after}: {recovered:?}");
        assert!(self.journals().is_empty(), "{what}, {after}: a journal is left");
        let again = self.recover(None);
        assert!(again.removed.is_empty() && again.stuck.is_empty(), "{what}, {after}: {again:?}");
        assert_eq!(self.seen(), seen(self.case.before.clone()), "{what}, {after}, recovered twice");
    }

    /// As the injector does while it lives, until nothing is left: at most `attempts` times. `true` when done.
    pub(super) fn remove(&self, entry: Entry, attempts: usize) -> bool {
        for _ in 0..attempts {
            if undo_on(&self.node, entry.steps()).stuck.is_empty() {
                entry.close().unwrap();
                return true;
            }
        }
        false
    }
}

async fn make_one(step: &Step, netlink: &Netlink) -> Result<(), NetlinkError> {
    match step {
        Step::NearEnd { id, .. } => {
            let pair =
                netlink.create_veth_pair(&marks::near_name(*id), netlink, &marks::far_name(*id)).await?;
            netlink.set_up(pair.near.ifindex).await
        }
        Step::Clsact { ifindex, .. } => netlink.add_clsact(*ifindex).await.map(drop),
        Step::Stub { ifindex, direction, level, .. } => {
            let program = std::fs::File::open("/dev/null").unwrap();
            let (program, pref) = (std::os::fd::AsFd::as_fd(&program), marks::filter_pref(*level).unwrap());
            netlink.add_bpf_filter(*ifindex, *direction, pref, FILTER_HANDLE, program, FILTER_PREFIX).await
        }
        Step::Holder(_) | Step::Setting(_) => unreachable!("{step} is no object that netlink makes"),
    }
}

/// All that can happen at one operation.
pub(super) fn troubles(at: usize) -> [Trouble; 4] {
    [Trouble::DieBefore(at), Trouble::DieAfter(at), Trouble::Refuse(at, 1), Trouble::LoseAnswer(at, 1)]
}

/// Runs `cell` with every trouble at every operation that it makes; returns how many cells there were. `cell` says how
/// many operations it made.
pub(super) fn at_every_operation(mut cell: impl FnMut(Trouble) -> usize) -> usize {
    let mut cells = 0;
    for at in 1..MOST {
        for trouble in troubles(at) {
            if cell(trouble) < at {
                return cells;
            }
            cells += 1;
        }
    }
    panic!("more than {MOST} operations");
}
