//! From what was read to what is left: what a running daemon uses is taken out, the rest is named, with what it does and how
//! it goes away. Pure.

use std::collections::BTreeSet;
use std::path::PathBuf;

use chaos_common::name;

use super::census::{BpfIds, Process, Role};
use super::{JournalSeen, Seen};
use crate::kernel::bpf::inventory::{Link, Pinned, Program};
use crate::kernel::netlink::marks::BPF_PREFIX;
use crate::kernel::netlink::residue::Residue;
use crate::kernel::process::ProcessId;
use crate::kernel::step::Step;
use crate::request::{Leftover, Level};

const SWEEP_HERE: &str = "`chaos-daemon recover --sweep` removes it";
const SWEEP: &str = "`chaos-daemon recover --sweep --everywhere` removes it";
const START: &str = "removed at the next start of the daemon, or by `chaos-daemon recover`";

const COLLECTED: &str = "it goes when its parent collects it";
const LET_GO: &str = "it goes when the kernel lets go of it, and nobody can end it sooner";

/// How a thing is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// In the network namespace of that number in the census.
    Network(usize, Residue),
    /// Ended.
    Process(ProcessId),
    /// Unlinked.
    Pin(PathBuf),
}

/// A leftover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) leftover: Leftover,
    /// What it is, for as long as it is there.
    pub(super) key: String,
    pub(super) mark: Option<Mark>,
}

/// Everything that is left, and how many things are in use.
pub(super) fn judge(seen: &Seen) -> (Vec<Found>, usize) {
    let mut judge = Judge::new(seen);
    judge.processes();
    judge.networks();
    judge.objects();
    judge.places();
    judge.journals();
    let unknown = [&seen.unknown, &seen.census.unknown, &seen.places.unknown];
    for what in unknown.into_iter().flatten() {
        judge.note(
            Level::Unknown,
            "look",
            what.clone(),
            "",
            "look again; as root, or with CAP_SYS_ADMIN and CAP_SYS_PTRACE",
        );
    }
    (judge.found, judge.in_use)
}

struct Judge<'a> {
    seen: &'a Seen,
    /// Daemons that can renew and undo.
    daemons: Vec<i32>,
    /// Open in the holders of running faults.
    used: BpfIds,
    /// Open in some other process, which is named for all it holds.
    told: BpfIds,
    found: Vec<Found>,
    in_use: usize,
}

impl<'a> Judge<'a> {
    fn new(seen: &'a Seen) -> Self {
        let processes = &seen.census.processes;
        let injectors = processes.iter().filter(|process| process.role == Role::Injector && process.runs());
        let mut judge = Self {
            seen,
            daemons: injectors.map(|process| process.pid).collect(),
            used: BpfIds::default(),
            told: BpfIds::default(),
            found: Vec::new(),
            in_use: 0,
        };
        for process in processes {
            if judge.is_kept(process) {
                judge.in_use += 1;
                judge.used.add(&process.bpf);
            } else {
                judge.told.add(&process.bpf);
            }
        }
        judge
    }

    /// Whether it is the holder of a fault that its daemon renews and will end.
    fn is_kept(&self, process: &Process) -> bool {
        process.role == Role::Holder && process.runs() && self.daemons.contains(&process.parent)
    }

    fn note(&mut self, level: Level, kind: &str, what: String, place: &str, goes: &str) -> &mut Found {
        let leftover =
            Leftover { level, kind: kind.to_owned(), place: place.to_owned(), goes: goes.to_owned(), what };
        let key = format!("{kind} {} {place}", leftover.what);
        self.found.push(Found { leftover, key, mark: None });
        let last = self.found.len() - 1;
        &mut self.found[last]
    }

    /// The seconds that the latest lease among some maps has left; `None` when all are over.
    fn lease(&self, maps: &BTreeSet<u32>) -> Option<f64> {
        let ours = self.seen.inventory.maps.iter().filter(|map| maps.contains(&map.id));
        let deadline = ours.filter_map(|map| map.deadline_ns).max()?;
        let left = deadline.checked_sub(self.seen.now_ns).filter(|left| *left > 0)?;
        Some(std::time::Duration::from_nanos(left).as_secs_f64())
    }

    fn program(&self, id: u32) -> Option<&'a Program> {
        self.seen.inventory.programs.iter().find(|program| program.id == id)
    }

    /// Where programs among these act on packets, as `eth0 egress in ...`.
    fn hooked(&self, programs: &BTreeSet<u32>) -> Vec<String> {
        let mut places = Vec::new();
        for network in self.seen.networks.iter().flatten() {
            let within = |place: String| match network.label.as_str() {
                "" => place,
                label => format!("{place} in {label}"),
            };
            for hook in network.hooks.iter().filter(|hook| programs.contains(&hook.attached.program)) {
                let acts = self.program(hook.attached.program).is_some_and(|program| acts(&program.name));
                places.extend(
                    acts.then(|| within(format!("{} {}", hook.device, hook.attached.direction.name()))),
                );
            }
            for item in &network.marked {
                if let Residue::Filter { device, direction, program: Some(id), .. } = item
                    && programs.contains(id)
                {
                    places.push(within(format!("{device} {}", direction.name())));
                }
            }
        }
        let links = self.seen.inventory.links.iter().filter(|link| programs.contains(&link.program));
        let met = |link: &Link| {
            let severs = self.program(link.program).is_some_and(|program| severs(&program.name));
            Some((link.cgroup?, if severs { "packets" } else { "calls" }))
        };
        let groups: BTreeSet<_> = links.filter_map(met).collect();
        places.extend(groups.iter().map(|(id, what)| format!("the {what} of cgroup id {id}")));
        places
    }

    fn processes(&mut self) {
        for process in &self.seen.census.processes {
            let id = process.pid;
            let parent_runs = self.daemons.contains(&process.parent);
            match process.role {
                Role::Injector if process.runs() => {}
                Role::Injector => {
                    let what =
                        format!("process {id} is {}: it renews nothing and ends nothing", condition(process));
                    let goes = match process.dying {
                        true => format!("{LET_GO}; what it has left goes by `chaos-daemon recover`"),
                        false => "`chaos-daemon recover` ends it, and with it its holders".to_owned(),
                    };
                    self.note(Level::Inert, "daemon", what, "", &goes);
                }
                Role::Server | Role::Prober if parent_runs && process.runs() => {}
                Role::Runner if process.runs() && (parent_runs || self.is_of_runner(process)) => {}
                // It waits for the next daemon, whether there is one now or not.
                Role::Guard if process.runs() => {}
                Role::Server | Role::Prober | Role::Runner | Role::Guard => self.servant(process),
                Role::Holder if self.is_kept(process) => {}
                Role::Holder | Role::Stranger => self.keeper(process),
            }
        }
    }

    /// Whether a runner of a running daemon has started it.
    fn is_of_runner(&self, process: &Process) -> bool {
        self.seen.census.processes.iter().any(|runner| {
            runner.pid == process.parent
                && runner.role == Role::Runner
                && runner.runs()
                && self.daemons.contains(&runner.parent)
        })
    }

    /// A process that holds nothing, and does not do what it is for.
    fn servant(&mut self, process: &Process) {
        let kind = match process.role {
            Role::Prober => "prober",
            Role::Runner => "runner",
            Role::Guard => "guard",
            _ => "server",
        };
        let goes = match (process.state, process.role) {
            _ if process.dying => LET_GO,
            ('Z', _) => COLLECTED,
            (_, Role::Guard) => "SIGKILL ends it; no supervised fault starts without another",
            _ => "it ends with its daemon, or by SIGKILL",
        };
        let what = format!("process {} is {}", process.pid, condition(process));
        self.note(Level::Inert, kind, what, "", goes);
    }

    /// A process that holds what is ours, and is no running fault.
    fn keeper(&mut self, process: &Process) {
        let inventory = &self.seen.inventory;
        let count = |ids: &BTreeSet<u32>, ours: &mut dyn Iterator<Item = u32>| {
            ours.filter(|id| ids.contains(id)).count()
        };
        let links = count(&process.bpf.links, &mut inventory.links.iter().map(|link| link.id));
        let programs = count(&process.bpf.programs, &mut inventory.programs.iter().map(|program| program.id));
        let maps = count(&process.bpf.maps, &mut inventory.maps.iter().map(|map| map.id));
        let is_holder = process.role == Role::Holder;
        if !is_holder && links + programs + maps + process.nameless.len() == 0 {
            return;
        }
        let mut what = match is_holder {
            true => format!("process {} is {}", process.pid, self.holder_condition(process)),
            false => format!("process {} ({})", process.pid, process.name),
        };
        let mut level = Level::Inert;
        if links + programs + maps > 0 {
            what.push_str(&format!("; it holds {links} links, {programs} programs and {maps} maps of ours"));
        }
        let places = self.hooked(&process.bpf.programs);
        // A map need not be open: its program keeps it.
        let used = inventory.programs.iter().filter(|program| process.bpf.programs.contains(&program.id));
        let maps_used = used.flat_map(|program| &program.maps).chain(&process.bpf.maps).copied().collect();
        if let (Some(left), false) = (self.lease(&maps_used), places.is_empty()) {
            level = Level::Effect;
            what.push_str(&format!("; its fault acts on {} for {left:.1} s more", places.join(", ")));
        }
        for file in &process.nameless {
            level = Level::Effect;
            what.push_str(&format!("; it keeps {file}, which has no name any more and takes up room"));
        }
        for held in process.holds.words() {
            level = Level::Effect;
            what.push_str(&format!("; it holds {held}"));
        }
        if let Some(first) = process.traces.first() {
            level = Level::Effect;
            what.push_str(&format!("; it has process {first} stand still"));
            if let more @ 1.. = process.traces.len() - 1 {
                what.push_str(&format!(", and {more} more"));
            }
        }
        if is_holder && maps == 0 && process.runs() && super::census::burns(process.pid) {
            level = Level::Effect;
            what.push_str("; it burns CPU time");
        }
        let (kind, goes) = match is_holder {
            true if process.dying => ("holder", LET_GO),
            true if process.state == 'Z' => ("holder", COLLECTED),
            true => (
                "holder",
                "its own timer kills it 8 s after the end of its fault; `chaos-daemon recover` at once",
            ),
            false => ("process", "when that process closes them, or ends"),
        };
        let (pid, id) = (process.pid, process.id());
        let found = self.note(level, kind, what, "", goes);
        // What it does changes while it is looked at.
        found.key = format!("{kind} {pid}");
        let ends = process.dying || process.state != 'Z';
        found.mark = (is_holder && ends).then_some(Mark::Process(id));
    }

    fn holder_condition(&self, process: &Process) -> String {
        if !process.runs() {
            return condition(process).to_owned();
        }
        let processes = &self.seen.census.processes;
        match processes.iter().find(|parent| parent.pid == process.parent && parent.role == Role::Injector) {
            Some(daemon) => format!("a fault whose daemon (process {}) is {}", daemon.pid, condition(daemon)),
            None => "a fault without a daemon".to_owned(),
        }
    }

    fn networks(&mut self) {
        for (index, network) in self.seen.networks.iter().enumerate() {
            let Some(network) = network else { continue };
            let here = network.label.is_empty();
            for item in &network.marked {
                let (kind, used, level, note) = match item {
                    Residue::Device { fault, .. } => ("device", self.is_journalled(*fault), Level::Inert, ""),
                    Residue::Filter { program, .. } => {
                        let used = program.is_some_and(|id| self.used.programs.contains(&id));
                        let (level, note) = self.stub(program.unwrap_or_default());
                        ("filter", used, level, note)
                    }
                };
                if used {
                    self.in_use += 1;
                    continue;
                }
                let goes = match self.is_left_in_journal(item) {
                    Some(goes) => goes,
                    None if here => SWEEP_HERE.to_owned(),
                    None => SWEEP.to_owned(),
                };
                let text = item.to_string();
                let what = format!("{}{note}", text.strip_prefix(kind).unwrap_or(&text).trim());
                self.note(level, kind, what, &network.label, &goes).mark =
                    Some(Mark::Network(index, item.clone()));
            }
            for hook in &network.hooks {
                let Some(program) = self.program(hook.attached.program) else { continue };
                let (id, link) = (program.id, hook.attached.link);
                if self.used.has_link_or_program(link, id) || self.told.links.contains(&link) {
                    continue;
                }
                let place = format!("{} {}", hook.device, hook.attached.direction.name());
                let what = format!("{link} runs program {} ({id}) on {place}", program.name);
                self.link(what, program, link, &network.label);
            }
        }
    }

    /// A link that no process holds.
    fn link(&mut self, mut what: String, program: &Program, link: u32, place: &str) {
        let lease = self.lease(&program.maps.iter().copied().collect()).filter(|_| acts(&program.name));
        let level = if lease.is_some() { Level::Effect } else { Level::Inert };
        if let Some(left) = lease {
            what.push_str(&format!(", which acts for {left:.1} s more"));
        }
        let pin = self.seen.places.pins.iter().find(|(_, pin)| *pin == Pinned::Link(link));
        let goes = match pin {
            Some((path, _)) => format!("it goes with its pin {}; {SWEEP}", path.display()),
            None => "it goes with what keeps it, which was not found".to_owned(),
        };
        self.note(level, "link", what, place, &goes).key = format!("link {link}");
    }

    /// What a stub does: it jumps into what a process holds, or a pin keeps, or nowhere.
    fn stub(&self, program: u32) -> (Level, &'static str) {
        let maps: BTreeSet<u32> =
            self.program(program).map(|stub| stub.maps.iter().copied().collect()).unwrap_or_default();
        if maps.iter().any(|map| self.told.maps.contains(map)) {
            return (Level::Inert, ", which does what the process that holds its program says");
        }
        let pinned = |map: &u32| self.seen.places.pins.iter().any(|(_, pin)| *pin == Pinned::Map(*map));
        let everything = self.seen.inventory.maps.iter().map(|map| map.id).collect();
        match maps.iter().any(pinned) && self.lease(&everything).is_some() {
            true => (Level::Effect, ", whose program array is pinned"),
            false => (Level::Inert, ""),
        }
    }

    /// Programs, maps and links that no process holds and nothing found so far keeps.
    fn objects(&mut self) {
        let inventory = &self.seen.inventory;
        for link in &inventory.links {
            let known = self.found.iter().any(|found| found.key == format!("link {}", link.id));
            let held = self.used.links.contains(&link.id) || self.told.links.contains(&link.id);
            if let (false, false, Some(program)) = (known, held, self.program(link.program)) {
                let what = format!(
                    "{} of type {} runs program {} ({})",
                    link.id, link.kind, program.name, program.id
                );
                self.link(what, program, link.id, "");
            }
        }
        let linked: BTreeSet<u32> = inventory.links.iter().map(|link| link.program).collect();
        let marked = self.seen.networks.iter().flatten().flat_map(|network| &network.marked);
        let filtered: BTreeSet<u32> = marked
            .filter_map(|item| match item {
                Residue::Filter { program, .. } => *program,
                Residue::Device { .. } => None,
            })
            .collect();
        let lone = "it goes with what keeps it (a pin, a program array), which is named if it was found";
        for program in &inventory.programs {
            let id = program.id;
            let kept = linked.contains(&id)
                || filtered.contains(&id)
                || self.holds(|ids| ids.programs.contains(&id));
            if !kept {
                self.note(Level::Inert, "program", format!("{} ({id})", program.name), "", lone);
            }
        }
        for map in &inventory.maps {
            let used = inventory.programs.iter().any(|program| program.maps.contains(&map.id));
            if !used && !self.holds(|ids| ids.maps.contains(&map.id)) {
                self.note(Level::Inert, "map", format!("{} ({})", map.name, map.id), "", lone);
            }
        }
    }

    fn holds(&self, has: impl Fn(&BpfIds) -> bool) -> bool {
        has(&self.used) || has(&self.told)
    }

    fn places(&mut self) {
        for (path, pin) in &self.seen.places.pins {
            let what = match pin {
                Pinned::Program(id) => format!("of program {id}"),
                Pinned::Map(id) => format!("of map {id}"),
                Pinned::Link(id) => format!("of link {id}"),
            };
            self.note(Level::Inert, "pin", what, &path.display().to_string(), SWEEP).mark =
                Some(Mark::Pin(path.clone()));
        }
        for cgroup in &self.seen.places.cgroups {
            let (level, what) = match cgroup.processes {
                0 => (Level::Inert, "that is empty".to_owned()),
                count => (Level::Effect, format!("that limits {count} processes")),
            };
            let goes = "move its processes out and remove it with rmdir";
            self.note(level, "cgroup", what, &cgroup.path.display().to_string(), goes);
        }
        for mount in &self.seen.places.mounts {
            let path = mount.display();
            self.note(Level::Inert, "mount", "of ours".into(), &path.to_string(), &format!("umount {path}"));
        }
    }

    fn journals(&mut self) {
        for journal in &self.seen.journals {
            let found = &journal.found;
            let fault = found.fault.as_ref().map_or("an unknown fault".to_owned(), |(name, kind)| {
                format!("fault {name} ({})", kind.name())
            });
            let steps = found.steps.len();
            let unclear = found.not_understood();
            let (what, goes) = match journal.keeper {
                _ if let Some(unclear) = &unclear => {
                    let present = match journal.present.is_empty() {
                        true => String::new(),
                        false => format!(", still there: {}", journal.present.join(", ")),
                    };
                    (format!("of {fault}, with {unclear}{present}"), found.remedy())
                }
                Some(_) if !found.ending => {
                    self.in_use += 1;
                    continue;
                }
                Some(pid) => (
                    match journal.present.is_empty() {
                        true => format!("of {fault}, which is being undone"),
                        false => format!(
                            "of {fault}, which is being undone, still there: {}",
                            journal.present.join(", ")
                        ),
                    },
                    format!("the daemon (process {pid}) tries until all of it is gone"),
                ),
                None if !found.of_this_boot => (format!("of {fault} in an earlier boot"), START.to_owned()),
                None if journal.present.is_empty() => {
                    (format!("of {fault} with {steps} steps to undo, all of them gone"), START.to_owned())
                }
                None => {
                    let present = journal.present.join(", ");
                    (
                        format!("of {fault} with {steps} steps to undo, still there: {present}"),
                        START.to_owned(),
                    )
                }
            };
            // What nobody's death ends is no mere leftover, also where a daemon has not got rid of it yet.
            let acts = found.is_supervised() && !journal.present.is_empty();
            let level = match unclear {
                _ if acts => Level::Effect,
                Some(_) => Level::Unknown,
                None => Level::Inert,
            };
            self.note(level, "journal", what, &found.path.display().to_string(), &goes);
        }
    }

    /// Whether a running daemon has this fault in its journal as one that goes on.
    fn is_journalled(&self, fault: u32) -> bool {
        let goes_on = |journal: &&JournalSeen| journal.keeper.is_some() && !journal.found.ending;
        // The second loop of a fault has the next number.
        self.seen.journals.iter().filter(goes_on).any(|journal| journal.found.id() == Some(fault & !1))
    }

    /// How it goes, if some journal has it.
    fn is_left_in_journal(&self, item: &Residue) -> Option<String> {
        let matches = |step: &Step| match (step, item) {
            (Step::NearEnd { id, .. }, Residue::Device { fault, .. }) => id == fault,
            (
                Step::Stub { ifindex, direction, level, .. },
                Residue::Filter { ifindex: on, direction: side, pref, .. },
            ) => {
                let same = crate::kernel::netlink::marks::filter_pref(*level) == Some(*pref);
                (ifindex, direction) == (on, side) && same
            }
            _ => false,
        };
        let has =
            |journal: &&JournalSeen| journal.found.of_this_boot && journal.found.steps.iter().any(matches);
        let journal = self.seen.journals.iter().find(has)?;
        Some(match journal.keeper {
            Some(pid) => format!("the daemon (process {pid}) is removing it"),
            None => START.to_owned(),
        })
    }
}

impl BpfIds {
    fn add(&mut self, other: &Self) {
        self.programs.extend(&other.programs);
        self.maps.extend(&other.maps);
        self.links.extend(&other.links);
    }

    fn has_link_or_program(&self, link: u32, program: u32) -> bool {
        self.links.contains(&link) || (link == 0 && self.programs.contains(&program))
    }
}

/// Whether a program does something to packets by itself while its lease lasts. The others only bring back, or turn around,
/// what one of these has diverted.
fn acts(program: &str) -> bool {
    let name = program.strip_prefix(BPF_PREFIX).unwrap_or(program);
    !name.is_empty() && ![name::HAIRPIN, name::COMEBACK].contains(&name)
}

/// Whether a program is about the packets of a control group. The kernel cuts names.
fn severs(program: &str) -> bool {
    [name::SEVER_EGRESS, name::SEVER_INGRESS]
        .iter()
        .any(|name| program.len() > BPF_PREFIX.len() && format!("{BPF_PREFIX}{name}").starts_with(program))
}

fn condition(process: &Process) -> &'static str {
    match process.state {
        _ if process.dying => "killed, and hangs in the kernel",
        'T' | 't' => "stopped",
        'Z' | 'X' => "a zombie",
        'D' => "hung in the kernel",
        _ => "without a daemon",
    }
}
