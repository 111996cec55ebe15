//! Finding a network namespace again by what it is, when its name does not lead there: deleted under `/run/netns` while a
//! process, a descriptor or a mount elsewhere still keeps it; or when nobody is to go where the name leads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::slice;

use super::mounts::{MountNamespace, MountNamespaces, is_out_of_sight, is_too_long};
use super::netns::{NetNs, NetNsError, NetNsIdentity};
use crate::request::chain;

/// Looks for the namespace wherever procfs shows one. `None`: nobody is in it any more, no descriptor that we may see
/// refers to it, and it is mounted in no mount namespace of our user namespace that somebody is in. What is left of it then, if
/// a forgotten socket or a mount in a user namespace keeps it at all, nobody is in.
///
/// # Errors
/// When procfs cannot be read, or something cannot be looked at that may be the namespace: then that may be there.
pub fn find(id: NetNsIdentity) -> io::Result<Option<NetNs>> {
    // What has come or gone in the course of the first look is not in the way of a second one.
    look(id).or_else(|_| look(id))
}

fn look(id: NetNsIdentity) -> io::Result<Option<NetNs>> {
    let own = MountNamespace::own()?;
    let mut search = Search::new(id);
    let mut others = MountNamespaces::default();
    let mut found = search.mounted(slice::from_ref(&own), &own);
    if found.is_none() {
        found = search.shown(&mut others)?;
    }
    if found.is_none() {
        found = search.mounted(&others.into_vec(), &own);
    }
    match (found, search.trouble) {
        (Some(Found::It(netns)), _) => Ok(Some(netns)),
        (Some(Found::Successor), _) | (None, None) => Ok(None),
        (None, Some(trouble)) => Err(trouble),
    }
}

/// What decides a search.
#[derive(Debug)]
enum Found {
    /// The namespace.
    It(NetNs),
    /// Another one that has its inode, which is so only once it has gone.
    Successor,
}

#[derive(Debug)]
struct Search {
    id: NetNsIdentity,
    /// What procfs calls it.
    link: String,
    /// The first that may be it and could not be looked at.
    trouble: Option<io::Error>,
}

impl Search {
    fn new(id: NetNsIdentity) -> Self {
        Self { id, link: format!("net:[{}]", id.inode), trouble: None }
    }

    fn note(&mut self, trouble: io::Error) {
        if self.trouble.is_none() {
            self.trouble = Some(trouble);
        }
    }

    /// Looks where it is mounted. As long as it is, it is there: what leads elsewhere is trouble.
    fn mounted(&mut self, namespaces: &[MountNamespace], own: &MountNamespace) -> Option<Found> {
        for namespace in namespaces {
            let points: Vec<PathBuf> =
                namespace.networks().filter(|(link, _)| *link == self.link).map(|(_, point)| point).collect();
            for point in points {
                match self.at(namespace, &point, own) {
                    Ok(found) => return Some(found),
                    Err(problem) => self.note(io::Error::other(format!(
                        "it is mounted on {} in the mount namespace of process {}: {problem}",
                        point.display(),
                        namespace.pid
                    ))),
                }
            }
        }
        None
    }

    /// What is seen at a mount point, or why it is not seen there.
    fn at(&self, namespace: &MountNamespace, point: &Path, own: &MountNamespace) -> Result<Found, String> {
        if let Some(kind) = namespace.hazard(point, own) {
            return Err(format!("there is a file system on the way that may not answer ({kind})"));
        }
        match seen(&namespace.reach(point), self.id) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err("another one is mounted over it".to_owned()),
            Err(error) => Err(chain(&error)),
        }
    }

    /// Looks where threads are, and what processes have open. Takes in the mount namespaces that it meets.
    fn shown(&mut self, mounts: &mut MountNamespaces) -> io::Result<Option<Found>> {
        for process in fs::read_dir("/proc")?.flatten() {
            if !process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
                continue;
            }
            // Each thread has a namespace of its own.
            for thread in self.entries(&process.path().join("task")) {
                if let Err(error) = mounts.note(&thread) {
                    self.note(error);
                }
                if let Some(found) = self.linked(&thread.join("ns/net")) {
                    return Ok(Some(found));
                }
            }
            for descriptor in self.entries(&process.path().join("fd")) {
                if let Some(found) = self.linked(&descriptor) {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// What is in a directory of a process; nothing when the process has ended meanwhile or is not ours to see.
    fn entries(&mut self, directory: &Path) -> Vec<PathBuf> {
        let listed: io::Result<Vec<PathBuf>> = fs::read_dir(directory)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
        listed.unwrap_or_else(|error| {
            self.missed(error);
            Vec::new()
        })
    }

    /// What a link in procfs leads to, if that is the namespace as far as its text tells. A descriptor whose mount is gone shows
    /// as "/". Other files are not looked at: one may be on a file system that does not answer.
    fn linked(&mut self, path: &Path) -> Option<Found> {
        match fs::read_link(path) {
            Ok(to) if to.as_os_str() == self.link.as_str() || to.as_os_str() == "/" => {
                match seen(path, self.id) {
                    Ok(found) => return found,
                    Err(error) if error.has_gone() => {}
                    Err(error) => self.note(io::Error::other(chain(&error))),
                }
            }
            Ok(_) => {}
            // Of a file so far down: anybody may have one open.
            Err(error) if is_too_long(&error) => {}
            Err(error) => self.missed(error),
        }
        None
    }

    fn missed(&mut self, error: io::Error) {
        if !is_out_of_sight(&error) {
            self.note(error);
        }
    }
}

/// What is there; `None` is another namespace.
fn seen(path: &Path, id: NetNsIdentity) -> Result<Option<Found>, NetNsError> {
    let netns = NetNs::at(path)?;
    if netns.number()? != (id.dev, id.inode) {
        return Ok(None);
    }
    // Inodes are used again; the cookie is not.
    let is_it = netns.identity()? == id;
    Ok(Some(if is_it { Found::It(netns) } else { Found::Successor }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> NetNsIdentity {
        NetNs::current().unwrap().identity().unwrap()
    }

    /// This process as somebody else who has the namespace of this identity mounted there.
    fn mounted_at(id: NetNsIdentity, point: &str, kind: &str) -> MountNamespace {
        let mount = format!("9 8 0:4 net:[{}] {point} rw - nsfs nsfs rw", id.inode);
        let mounts = format!(
            "7 1 8:1 / / rw - ext4 /dev/sda1 rw\n8 7 0:1048575 / /proc rw - {kind} none rw\n{mount}\n"
        );
        MountNamespace { pid: std::process::id().cast_signed(), mounts }
    }

    #[test]
    fn the_namespace_of_this_process_is_found_without_a_name() {
        let found = find(here()).unwrap().unwrap();
        assert_eq!(found.identity().unwrap(), here());
    }

    #[test]
    fn a_namespace_whose_inode_another_one_has_by_now_has_gone() {
        let gone = NetNsIdentity { cookie: u64::MAX, ..here() };
        assert!(find(gone).unwrap().is_none());
    }

    #[test]
    fn a_namespace_that_is_mounted_where_somebody_else_is_is_found_by_the_root_of_that_one() {
        let (mut search, own) = (Search::new(here()), MountNamespace::own().unwrap());
        let theirs = mounted_at(here(), "/proc/self/ns/net", "proc");
        assert!(matches!(search.mounted(&[theirs], &own), Some(Found::It(_))), "{search:?}");
    }

    #[test]
    fn a_mount_of_it_that_cannot_be_looked_at_is_trouble_and_never_nothing() {
        let own = MountNamespace::own().unwrap();
        for (point, kind, why) in [
            ("/proc/self/ns/net", "fuse.slow", "may not answer (fuse.slow)"),
            ("/proc/self/ns/no-such-file", "proc", "No such file"),
            ("/proc/self/ns/uts", "proc", "is not a network namespace"),
        ] {
            let mut search = Search::new(here());
            let found = search.mounted(&[mounted_at(here(), point, kind)], &own);
            let trouble = search.trouble.map(|trouble| trouble.to_string()).unwrap_or_default();
            assert!(found.is_none() && trouble.contains(why), "{found:?}, {trouble}");
            assert!(trouble.contains(&format!("mounted on {point} in the mount namespace")), "{trouble}");
        }
        // Of another one a mount says nothing.
        let mut search = Search::new(NetNsIdentity { inode: 1, ..here() });
        assert!(search.mounted(&[mounted_at(here(), "/none", "proc")], &own).is_none());
        assert!(search.trouble.is_none(), "{search:?}");
    }
}
