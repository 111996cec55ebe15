//! From processes to what their packets, calls and resources can be told by: a network namespace that is theirs alone, or a control group that is.
//! What others share with them is refused by name, because those would be hit as well.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Entrance, Service, cgroup, not_found, process};
use crate::host::{Identity, NetNs, ProcessId, Running, Spared};
use crate::request::{ApiError, ErrorCode};
use crate::spec::{CgroupSelector, ProcessSelector, Whose};

/// Where the packets of processes are found.
#[derive(Debug)]
pub struct Scope {
    /// How the network namespace is found; `None` is the daemon's own.
    pub netns_name: Option<String>,
    /// The network namespace, pinned.
    pub netns: NetNs,
    /// Their control group; `None` when all of the namespace is theirs.
    pub service: Option<Service>,
}

/// What tells a namespace from another while somebody is in both.
type Inode = (u64, u64);

/// Processes that are meant, among all.
struct Meant {
    all: Vec<Running>,
    hit: Vec<Running>,
    /// Those that are hit, and what they have started.
    family: BTreeSet<ProcessId>,
    ours: Option<Inode>,
}

/// Finds the network namespace of processes; and their control group, unless all of the namespace is theirs. `home` is the
/// namespace of the daemon.
///
/// # Errors
/// As [`process::resolve`] and [`Entrance::open`], and [`ErrorCode::InvalidParameter`] with whom they share what they are in.
pub fn of_packets(
    selector: &ProcessSelector,
    home: &NetNs,
    entrance: &Entrance,
    spared: &Spared,
) -> Result<Scope, ApiError> {
    let meant = Meant::find(selector, entrance.identity(), spared)?;
    let (first, inode) = meant.namespace(selector)?;
    let name = format!("/proc/{}/ns/net", first.id.pid);
    let gone =
        |error: &dyn std::fmt::Display| not_found(format!("target: process {}: {error}", first.id.pid));
    let at_home = home.number().map_err(|error| gone(&error))? == inode;
    let netns = match at_home {
        true => home.try_clone().map_err(|error| gone(&error))?,
        false => entrance.open(&name)?,
    };
    // Whoever has the number now, the file was opened before this is asked.
    if ProcessId::of(first.id.pid).ok() != Some(first.id) {
        return Err(gone(&"ended while it was looked up"));
    }
    let shared = at_home || meant.stranger(|other| inode_of(other.id.pid) == Some(inode)).is_some();
    let service = match shared {
        true => Some(cgroup::resolve_service(&meant.group(selector)?, spared)?),
        false => None,
    };
    Ok(Scope { netns_name: (!at_home).then_some(name), netns, service })
}

/// The control group of whoever is named: that group itself, or the one that is the processes' alone. `identity` is the caller's.
///
/// # Errors
/// As [`of_packets`], of processes.
pub fn group(whose: &Whose, identity: &Identity, spared: &Spared) -> Result<CgroupSelector, ApiError> {
    match whose {
        Whose::Cgroup(group) => Ok(group.clone()),
        Whose::Processes(selector) => Meant::find(selector, identity, spared)?.group(selector),
    }
}

impl Meant {
    fn find(selector: &ProcessSelector, identity: &Identity, spared: &Spared) -> Result<Self, ApiError> {
        let all = Running::all().map_err(|error| {
            ApiError::new(ErrorCode::InjectionFailed, format!("look at the processes of this host: {error}"))
        })?;
        let selection = process::resolve(selector, identity, all.clone(), spared)?;
        let mut meant = Self { all, hit: selection.hit, family: BTreeSet::new(), ours: spared.program };
        meant.family = meant.hit.iter().map(|process| process.id).collect();
        // Each round takes in one more generation.
        while meant.take_in_children() {}
        Ok(meant)
    }

    fn take_in_children(&mut self) -> bool {
        let parents: BTreeSet<i32> = self.family.iter().map(|id| id.pid).collect();
        let before = self.family.len();
        self.family.extend(self.all.iter().filter(|each| parents.contains(&each.parent)).map(|each| each.id));
        self.family.len() > before
    }

    /// Somebody else for whom this holds. Threads of the kernel and processes of the daemon are nobody.
    fn stranger(&self, holds: impl Fn(&Running) -> bool) -> Option<&Running> {
        let is_nobody =
            |other: &Running| other.of_kernel || other.program.is_some() && other.program == self.ours;
        let mut others =
            self.all.iter().filter(|other| !is_nobody(other) && !self.family.contains(&other.id));
        others.find(|other| holds(other))
    }

    /// The one network namespace of all that are hit, and the first of them.
    fn namespace(&self, selector: &ProcessSelector) -> Result<(&Running, Inode), ApiError> {
        let mut seen: Option<(&Running, Inode)> = None;
        for process in &self.hit {
            // Who has ended meanwhile is in none.
            let Some(inode) = inode_of(process.id.pid) else { continue };
            match seen {
                Some((first, known)) if known != inode => {
                    let problem = format!(
                        "{} and {} are in different network namespaces",
                        words(first),
                        words(process)
                    );
                    return Err(ambiguous(selector, &problem));
                }
                _ => seen = seen.or(Some((process, inode))),
            }
        }
        seen.ok_or_else(|| not_found(format!("target: whoever matched {selector} has ended")))
    }

    /// The innermost control group that all who are hit are in, if nobody else is in it or below it.
    fn group(&self, selector: &ProcessSelector) -> Result<CgroupSelector, ApiError> {
        let mut paths = self.hit.iter().filter_map(|process| process.cgroup.as_deref());
        let first = paths.next().map(Path::to_owned).unwrap_or_default();
        let group = paths.fold(first, |common, path| shared(&common, path));
        if group.as_os_str().is_empty() {
            return Err(ambiguous(selector, "no control group but the root has all of them"));
        }
        let inside = |other: &Running| other.cgroup.as_ref().is_some_and(|path| path.starts_with(&group));
        match self.stranger(inside) {
            None => Ok(CgroupSelector::Path(group.display().to_string())),
            Some(other) => {
                let problem = format!("{} is in cgroup {}, too", words(other), group.display());
                Err(ambiguous(selector, &problem))
            }
        }
    }
}

fn inode_of(pid: i32) -> Option<Inode> {
    fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|file| (file.dev(), file.ino()))
}

/// What two paths have in common, from the root on.
fn shared(one: &Path, other: &Path) -> PathBuf {
    one.components().zip(other.components()).take_while(|(a, b)| a == b).map(|(part, _)| part).collect()
}

fn words(process: &Running) -> String {
    format!("process {} ({})", process.id.pid, process.name)
}

fn ambiguous(selector: &ProcessSelector, problem: &str) -> ApiError {
    let message = format!("target: {selector} cannot be told from others: {problem}");
    ApiError::new(ErrorCode::InvalidParameter, message)
        .hint("name the whole service by unit or cgroup, or run what is meant in a cgroup of its own")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::protected::own_program;

    #[test]
    fn what_groups_share_is_what_they_are_both_below() {
        for (one, other, both) in
            [("a/b/c", "a/b/d", "a/b"), ("a/b", "a/b/d", "a/b"), ("a/bc", "a/b", "a"), ("a", "b", "")]
        {
            assert_eq!(shared(Path::new(one), Path::new(other)), Path::new(both));
        }
    }

    #[test]
    fn a_process_whose_group_others_are_in_is_refused_by_their_name() {
        let me = ProcessSelector {
            pid: Some(std::process::id().cast_signed()),
            cgroup: None,
            exe: None,
            command: None,
            below: None,
            container: None,
            share: crate::spec::Share::ALL,
            seed: 0,
        };
        let spared = Spared { program: own_program(), ..Spared::default() };
        // This process runs the program of the daemon, as far as this process can know: it is never a target.
        let refused = group(&Whose::Processes(me), &Identity::ROOT, &spared).unwrap_err();
        assert_eq!(refused.code, ErrorCode::TargetProtected, "{refused}");
    }
}
