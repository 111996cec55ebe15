//! A node that is not there, for tests: devices, filters, processes, control groups, clocks and services as values. It answers
//! the messages of routing netlink and of the message bus, and the files of control groups, as kernel and systemd do, so that
//! everything above is the production code; and each of its operations can fail, or be the last before everything of ours dies.
//!
//! Its time goes by only while somebody sleeps. What takes time in truth is under way until then.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::netlink::{Belongings, Netlink, NetlinkError};
use super::node::{Node, OpenGroup, StepError, Undone};
use super::process::ProcessId;
use super::systemd::{Systemd, SystemdError};
use crate::host::CgroupRef;
use crate::host::netns::NetNs;

/// What goes wrong, and at which operation, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Everything of ours dies before it.
    DieBefore(usize),
    /// It is done, and everything of ours dies.
    DieAfter(usize),
    /// It and the next ones, so many together, are refused.
    Refuse(usize, usize),
    /// It and the next ones, so many together, are done, and their answers are lost.
    LoseAnswer(usize, usize),
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FakeLink {
    pub(crate) name: String,
    pub(crate) peer: Option<u32>,
    pub(crate) up: bool,
    /// Addresses of both families, routes and neighbours, each in order.
    pub(crate) has: Belongings,
}

/// Where a filter is: device, hook, preference, handle.
pub(crate) type Place = (u32, u32, u16, u32);

/// What a filter is: kind and bpf name.
pub(crate) type FakeFilter = (String, Option<String>);

/// A control group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FakeGroup {
    pub(crate) id: u64,
    /// By the names of its files.
    pub(crate) files: BTreeMap<&'static str, String>,
}

/// What is about to be done with a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    Stop,
    Start,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FakeUnit {
    pub(crate) load: &'static str,
    pub(crate) active: &'static str,
    /// Which start of it was the last.
    pub(crate) start: u8,
    pub(crate) job: Option<Job>,
}

/// What is on the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) links: BTreeMap<u32, FakeLink>,
    /// Device and parent; kind.
    pub(crate) qdiscs: BTreeMap<(u32, u32), String>,
    pub(crate) filters: BTreeMap<Place, FakeFilter>,
    /// Number and start time.
    pub(crate) processes: BTreeMap<i32, u64>,
    /// By their paths.
    pub(crate) groups: BTreeMap<PathBuf, FakeGroup>,
    /// Wall clock minus boot clock.
    pub(crate) clock_distance_ns: i64,
    /// By their names.
    pub(crate) units: BTreeMap<String, FakeUnit>,
    /// Orders that systemd has not read yet.
    pub(crate) orders: Vec<(Job, String)>,
    /// Whether the host goes down.
    pub(crate) is_stopping: bool,
}

impl Objects {
    /// As everything is once nothing is under way any more.
    pub(crate) fn settled(mut self) -> Self {
        loop {
            let later = self.clone().after_a_while();
            if later == self {
                return self;
            }
            self = later;
        }
    }

    fn after_a_while(mut self) -> Self {
        self.carry_out_orders();
        self.units.values_mut().for_each(FakeUnit::go_on);
        self.groups.values_mut().for_each(FakeGroup::go_on);
        self
    }

    /// Systemd reads what it is told. An order takes the place of what was about to be done.
    pub(super) fn carry_out_orders(&mut self) {
        for (job, name) in mem::take(&mut self.orders) {
            if let Some(unit) = self.units.get_mut(&name) {
                let is_done = unit.job.is_none()
                    && match job {
                        Job::Stop => unit.active == "inactive",
                        Job::Start => unit.active == "active",
                    };
                unit.job = (!is_done).then_some(job);
            }
        }
    }
}

impl FakeUnit {
    fn go_on(&mut self) {
        (self.active, self.job) = match (self.job, self.active) {
            (Some(Job::Stop), "active" | "activating") => ("deactivating", self.job),
            (_, "deactivating") => ("inactive", self.job.filter(|job| *job == Job::Start)),
            (Some(Job::Start), "inactive") => {
                self.start += 1;
                ("activating", self.job)
            }
            (_, "activating") => ("active", None),
            (_, active) => (active, None),
        };
    }
}

impl FakeGroup {
    /// Its processes follow the switch.
    fn go_on(&mut self) {
        if let Some(frozen) = self.files.get("cgroup.freeze") {
            let events = format!("populated 1\nfrozen {frozen}");
            self.files.insert("cgroup.events", events);
        }
    }

    /// Somebody writes to one of its files.
    pub(crate) fn write(&mut self, file: &str, text: &str) -> Result<(), Errno> {
        let value = self.files.get_mut(file).ok_or(Errno::ENOENT)?;
        match file {
            "io.max" => *value = limited(value, text)?,
            _ => text.clone_into(value),
        }
        Ok(())
    }
}

/// `io.max`, where `text` is written to it: a device, and those of its rates that are to change. Of one without a limit it says
/// nothing.
fn limited(value: &str, text: &str) -> Result<String, Errno> {
    const FREE: &str = "rbps=max wbps=max riops=max wiops=max";
    let (device, changes) = text.split_once(' ').ok_or(Errno::EINVAL)?;
    let prefix = format!("{device} ");
    let (of_it, others): (Vec<_>, Vec<_>) = value.lines().partition(|line| line.starts_with(&prefix));
    let before = of_it.first().map_or(FREE, |line| &line[prefix.len()..]);
    let rate = |before: &str| {
        let name = before.split_inclusive('=').next().unwrap_or_default();
        changes.split(' ').find(|change| change.starts_with(name)).unwrap_or(before).to_owned()
    };
    let after = before.split(' ').map(rate).collect::<Vec<_>>().join(" ");
    let line = (after != FREE).then(|| format!("{device} {after}"));
    Ok(others.into_iter().map(str::to_owned).chain(line).collect::<Vec<_>>().join("\n"))
}

#[derive(Debug, Default)]
struct State {
    objects: Objects,
    operations: usize,
    trouble: Option<Trouble>,
    dead: bool,
    slept: Duration,
    overlooked: usize,
    checked: usize,
}

/// What answers.
#[derive(Debug, Default)]
pub(crate) struct FakeKernel {
    state: Mutex<State>,
}

/// The node. What is connected to it shares it.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeNode(pub(crate) Arc<FakeKernel>);

impl Node for FakeNode {
    fn connect(&self, netns: NetNs) -> Result<Netlink, NetlinkError> {
        Netlink::fake(&self.0, netns)
    }

    fn end(&self, id: ProcessId) -> Result<Undone, StepError> {
        let overlooked = self.0.overlooks();
        self.0
            .operate(|objects| match objects.processes.get(&id.pid) {
                Some(start) if *start == id.start_time && !overlooked => {
                    objects.processes.remove(&id.pid);
                    Ok(Undone::Removed)
                }
                _ => Ok(Undone::Absent),
            })
            .map_err(|errno| StepError::End { pid: id.pid, source: errno.into() })
    }

    fn runs(&self, id: ProcessId) -> Result<bool, StepError> {
        self.0
            .operate(|objects| Ok(objects.processes.get(&id.pid) == Some(&id.start_time)))
            .map_err(|errno| StepError::End { pid: id.pid, source: errno.into() })
    }

    fn cgroup(&self, cgroup: &CgroupRef) -> io::Result<Option<impl OpenGroup>> {
        let found = self.0.operate(|objects| Ok(objects.group(cgroup).is_ok()))?;
        Ok(found.then(|| FakeOpenGroup { kernel: Arc::clone(&self.0), cgroup: cgroup.clone() }))
    }

    fn clock_distance_ns(&self) -> io::Result<i64> {
        Ok(self.0.operate(|objects| Ok(objects.clock_distance_ns))?)
    }

    fn step_clock(&self, offset_ns: i64) -> io::Result<()> {
        let step = |objects: &mut Objects| {
            objects.clock_distance_ns += offset_ns;
            Ok(())
        };
        Ok(self.0.operate(step)?)
    }

    async fn systemd(&self) -> Result<Systemd, SystemdError> {
        self.0.operate(|_| Ok(())).map_err(|errno| SystemdError::Absent(errno.into()))?;
        Ok(Systemd::fake(&self.0))
    }

    fn now(&self) -> Instant {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        *START + self.0.lock().slept
    }

    fn sleep(&self, time: Duration) {
        let mut state = self.0.lock();
        state.slept += time;
        // Whoever has died sleeps no more.
        if !state.dead {
            state.objects = mem::take(&mut state.objects).after_a_while();
        }
    }
}

struct FakeOpenGroup {
    kernel: Arc<FakeKernel>,
    cgroup: CgroupRef,
}

impl Objects {
    fn group(&mut self, cgroup: &CgroupRef) -> Result<&mut FakeGroup, Errno> {
        let found = self.groups.get_mut(&cgroup.path).filter(|group| group.id == cgroup.id);
        found.ok_or(Errno::ENOENT)
    }
}

impl OpenGroup for FakeOpenGroup {
    fn read(&self, file: &str) -> io::Result<String> {
        let read = |objects: &mut Objects| {
            objects.group(&self.cgroup)?.files.get(file).cloned().ok_or(Errno::ENOENT)
        };
        Ok(self.kernel.operate(read)?)
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        Ok(self.kernel.operate(|objects| objects.group(&self.cgroup)?.write(file, text))?)
    }
}

impl FakeKernel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What is on the node.
    pub(crate) fn objects(&self) -> Objects {
        self.lock().objects.clone()
    }

    /// Changes the node from outside.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Objects)) {
        change(&mut self.lock().objects);
    }

    /// From here on: this trouble, operations counted anew, and whoever died is there again.
    pub(crate) fn expect(&self, trouble: Option<Trouble>) {
        let mut state = self.lock();
        (state.trouble, state.operations, state.dead) = (trouble, 0, false);
    }

    /// From here on, so many attempts to end a process do not find it.
    pub(crate) fn overlook(&self, times: usize) {
        self.lock().overlooked = times;
    }

    fn overlooks(&self) -> bool {
        let mut state = self.lock();
        let left = state.overlooked;
        state.overlooked = left.saturating_sub(1);
        left > 0
    }

    /// From here on, so many routes with a source are refused because that is checked for duplicates still.
    pub(crate) fn check_addresses(&self, times: usize) {
        self.lock().checked = times;
    }

    pub(super) fn checks(&self) -> bool {
        let mut state = self.lock();
        let left = state.checked;
        state.checked = left.saturating_sub(1);
        left > 0
    }

    /// Operations since [`FakeKernel::expect`].
    pub(crate) fn operations(&self) -> usize {
        self.lock().operations
    }

    /// Whether everything of ours has died since [`FakeKernel::expect`].
    pub(crate) fn died(&self) -> bool {
        self.lock().dead
    }

    pub(super) fn operate<T>(&self, act: impl FnOnce(&mut Objects) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut state = self.lock();
        if state.dead {
            return Err(Errno::EIO);
        }
        state.operations += 1;
        let at = state.operations;
        let within = |from: usize, times: usize| (from..from.saturating_add(times)).contains(&at);
        match state.trouble {
            Some(Trouble::DieBefore(point)) if at == point => {
                state.dead = true;
                Err(Errno::EIO)
            }
            Some(Trouble::Refuse(from, times)) if within(from, times) => Err(Errno::EIO),
            Some(Trouble::DieAfter(point)) if at == point => {
                // Whatever came of it, nobody is there to hear.
                let _ = act(&mut state.objects);
                state.dead = true;
                Err(Errno::EIO)
            }
            Some(Trouble::LoseAnswer(from, times)) if within(from, times) => {
                let _ = act(&mut state.objects);
                Err(Errno::EIO)
            }
            _ => act(&mut state.objects),
        }
    }
}
