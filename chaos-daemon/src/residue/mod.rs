//! The residue oracle: what of ours is on this node that no running fault uses, found by our marks alone, and whether it
//! still does anything.
//!
//! It looks into every network namespace that a process is in, that a descriptor refers to or that is mounted, but for
//! mount namespaces of user namespaces, lists every eBPF object, walks every bpffs and control group tree, and reads the
//! journals of daemons that run: what these name of faults that are not being ended is in use, not left over. Nothing
//! here changes the node but [`sweep`].

mod census;
mod holdings;
mod judge;
#[cfg(test)]
mod judge_tests;
mod network;
mod places;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::host::boot_time_ns;
use crate::journal;
use crate::kernel::bpf::inventory::{Inventory, inventory};
use crate::kernel::node::{Kernel, Node, Undone};
use crate::kernel::process::ProcessId;
use crate::request::{Leftover, Level, RUNTIME_DIR, ResidueReport, chain};
use census::{Census, Process, Role};
use judge::{Found, Mark, judge};
use network::Network;
use places::Places;

/// What is there twice, this long after one another, is not just coming or going.
const AGAIN: Duration = Duration::from_millis(100);

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// For devices and filters in the calling thread's network namespace only.
    Here,
    /// Everywhere on the node.
    Everywhere,
}

/// What was found, and with it the way to remove it.
#[derive(Debug)]
struct Look {
    seen: Seen,
    found: Vec<Found>,
    in_use: usize,
}

/// Everything that was read, before it is judged.
#[derive(Debug, Default)]
struct Seen {
    now_ns: u64,
    census: Census,
    inventory: Inventory,
    /// One for each namespace of the census; `None` when it could not be read.
    networks: Vec<Option<Network>>,
    places: Places,
    journals: Vec<JournalSeen>,
    unknown: Vec<String>,
}

/// A journal of some daemon.
#[derive(Debug)]
struct JournalSeen {
    found: journal::Found,
    /// The daemon that keeps it, if one runs.
    keeper: Option<i32>,
    /// The steps of it that nobody keeps and that are still there.
    present: Vec<String>,
}

/// Looks for what is left. `runtime_dir` is that of a daemon that need not run; those of running daemons are found. Blocks,
/// for some tens of milliseconds and longer when something is found.
pub fn look(runtime_dir: Option<&Path>, scope: Scope) -> ResidueReport {
    let look = look_twice(runtime_dir, scope);
    let leftovers: Vec<Leftover> = look.found.into_iter().map(|found| found.leftover).collect();
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    ResidueReport {
        level: leftovers.iter().map(|left| left.level).max().unwrap_or_default(),
        leftovers,
        namespaces: count(look.seen.networks.len()),
        mount_namespaces: count(look.seen.census.mounts.len()),
        processes: look.seen.census.looked_at,
        in_use: count(look.in_use),
    }
}

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// What was there and is gone.
    pub removed: Vec<String>,
    /// What is still there, and why.
    pub stuck: Vec<String>,
}

/// Removes what carries our marks and no running daemon uses: devices, filters, holders that nobody keeps, pins. What else
/// is found stays, and is `stuck` if it acts. Blocks.
pub fn sweep(runtime_dir: Option<&Path>, scope: Scope) -> Swept {
    let look = look_twice(runtime_dir, scope);
    let mut swept = Swept::default();
    for found in &look.found {
        let done = match &found.mark {
            None if found.leftover.level < Level::Unknown => continue,
            None => Err(io::Error::other(found.leftover.goes.clone())),
            Some(Mark::Network(index, item)) => network::remove(&look.seen.census.namespaces[*index], item),
            Some(Mark::Process(id)) => end(*id),
            Some(Mark::Pin(path)) => fs::remove_file(path).map(|()| true),
        };
        match done {
            Ok(true) => swept.removed.push(found.leftover.to_string()),
            Ok(false) => {}
            Err(error) => swept.stuck.push(format!("{}: {error}", found.leftover)),
        }
    }
    swept
}

fn end(id: ProcessId) -> io::Result<bool> {
    let ended = Kernel.end(id).map_err(|error| io::Error::other(chain(&error)))?;
    Ok(ended == Undone::Removed)
}

fn look_twice(runtime_dir: Option<&Path>, scope: Scope) -> Look {
    let first = look_once(runtime_dir, scope);
    if first.found.is_empty() {
        return first;
    }
    thread::sleep(AGAIN);
    let mut second = look_once(runtime_dir, scope);
    second.found.retain(|found| first.found.iter().any(|earlier| earlier.key == found.key));
    second
}

fn look_once(runtime_dir: Option<&Path>, scope: Scope) -> Look {
    let seen = see(runtime_dir, scope);
    let (mut found, in_use) = judge(&seen);
    if scope == Scope::Here {
        found.retain(|found| {
            matches!(found.mark, Some(Mark::Network(..))) || found.leftover.level == Level::Unknown
        });
    }
    Look { seen, found, in_use }
}

fn see(runtime_dir: Option<&Path>, scope: Scope) -> Seen {
    let mut seen = Seen::default();
    match census::take() {
        Ok(census) => seen.census = census,
        Err(error) => seen.unknown.push(format!("/proc: {error}")),
    }
    if scope == Scope::Here {
        seen.census.namespaces.retain(|namespace| namespace.label.is_empty());
        seen.census.processes.retain(|process| process.role != Role::Stranger);
    }
    // After the processes: who holds an object that was made since is not known.
    match inventory() {
        Ok(inventory) => seen.inventory = inventory,
        Err(error) => seen.unknown.push(format!("eBPF objects: {error}")),
    }
    for namespace in &seen.census.namespaces {
        let network = network::look(namespace);
        if let Err(error) = &network {
            seen.unknown.push(format!("network namespace {}: {error}", namespace.label));
        }
        seen.networks.push(network.ok());
    }
    if scope == Scope::Everywhere {
        seen.places = places::look(&seen.census.mounts);
    }
    read_journals(&mut seen, runtime_dir);
    seen.now_ns = boot_time_ns();
    seen
}

/// The journals of every daemon that runs, of the one that is asked about, and of an installed one.
fn read_journals(seen: &mut Seen, runtime_dir: Option<&Path>) {
    let keeper =
        |process: &Process| Some((process.runtime_dir.clone()?, process.runs().then_some(process.pid)));
    let mut folders: Vec<(PathBuf, Option<i32>)> = seen.census.processes.iter().filter_map(keeper).collect();
    // Those with a keeper first: the others may be the same.
    folders.sort_by_key(|(_, keeper)| keeper.is_none());
    let rest = [runtime_dir.unwrap_or(Path::new(RUNTIME_DIR)), Path::new(RUNTIME_DIR)];
    folders.extend(rest.map(|path| (path.to_owned(), None)));
    let mut done = Vec::new();
    for (folder, keeper) in folders {
        let folder = folder.join("journal");
        let Ok(meta) = fs::metadata(&folder) else { continue };
        let identity = (meta.dev(), meta.ino());
        if done.contains(&identity) {
            continue;
        }
        done.push(identity);
        match journal::look_into(&folder) {
            Ok(journals) => {
                for found in journals {
                    let present = still_there(&found, keeper, &mut seen.unknown);
                    seen.journals.push(JournalSeen { found, keeper, present });
                }
            }
            Err(error) => seen.unknown.push(format!("journal {}: {error}", folder.display())),
        }
    }
}

/// What is there of the steps of a journal, unless its fault goes on. What a journal of another boot says is void.
fn still_there(found: &journal::Found, keeper: Option<i32>, unknown: &mut Vec<String>) -> Vec<String> {
    let mut present = Vec::new();
    for step in found.steps.iter().filter(|_| (keeper.is_none() || found.ending) && found.of_this_boot) {
        match step.present(&Kernel) {
            Ok(true) => present.push(step.to_string()),
            Ok(false) => {}
            Err(error) => unknown.push(format!("{step}, in the journal {}: {error}", found.path.display())),
        }
    }
    present
}

impl Process {
    /// Whether it runs, or would if it had something to do. That a holder is in state D was seen twice.
    fn runs(&self) -> bool {
        let hung = self.dying || self.state == 'D' && self.role == Role::Holder;
        !hung && !matches!(self.state, 'T' | 't' | 'Z' | 'X')
    }

    fn id(&self) -> ProcessId {
        ProcessId { pid: self.pid, start_time: self.start_time }
    }
}
