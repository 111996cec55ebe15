//! What of ours is in file systems: pins, control groups, mounts, files without a name. Known by their names.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::host::MountNamespace;
use crate::host::mounts::Mount;
use crate::kernel::bpf::inventory::{Pinned, pinned};
use crate::kernel::netlink::marks;

/// A tree with more folders than this is not walked to its end.
const MOST_FOLDERS: usize = 200_000;

/// A control group of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cgroup {
    pub(super) path: PathBuf,
    /// How many processes are in it.
    pub(super) processes: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) pins: Vec<(PathBuf, Pinned)>,
    pub(super) cgroups: Vec<Cgroup>,
    pub(super) mounts: Vec<PathBuf>,
    pub(super) unknown: Vec<String>,
}

/// Looks into the mount namespaces.
pub(super) fn look(namespaces: &[MountNamespace]) -> Places {
    let mut places = Places::default();
    // A file system is often mounted in many namespaces.
    let mut seen = BTreeSet::new();
    for namespace in namespaces {
        for Mount { point, kind, .. } in namespace.each() {
            if point.components().any(|part| is_our_file(&part.as_os_str().to_string_lossy())) {
                places.mounts.push(point.clone());
            }
            if !matches!(kind, "bpf" | "cgroup" | "cgroup2") {
                continue;
            }
            let path = namespace.reach(&point);
            // It may have gone, or something else be mounted over it.
            let Ok(meta) = fs::metadata(&path) else { continue };
            if seen.insert(meta.dev()) {
                let walked = if kind == "bpf" { places.note_pins(&path) } else { places.note_cgroups(&path) };
                if let Err(error) = walked {
                    places.unknown.push(format!("{}: {error}", path.display()));
                }
            }
        }
    }
    places.mounts.sort();
    places.mounts.dedup();
    places
}

impl Places {
    fn note_pins(&mut self, root: &Path) -> io::Result<()> {
        walk(root, |path, is_folder| {
            // What is listed but no object, such as the maps.debug that every bpffs has, refuses to be opened as one.
            if !is_folder && let Ok(Some(pin)) = pinned(path) {
                self.pins.push((path.to_owned(), pin));
            }
        })
    }

    fn note_cgroups(&mut self, root: &Path) -> io::Result<()> {
        walk(root, |path, is_folder| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if is_folder && marks::recognise_folder(&name).is_some() {
                let processes = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
                self.cgroups.push(Cgroup { path: path.to_owned(), processes: processes.lines().count() });
            }
        })
    }
}

/// Whether a file or folder has our mark; a memfd has it behind the kernel's own.
pub(super) fn is_our_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    marks::recognise_folder(name.strip_prefix("memfd:").unwrap_or(name)).is_some()
}

/// Calls `note` for everything below `root`, within its file system.
fn walk(root: &Path, mut note: impl FnMut(&Path, bool)) -> io::Result<()> {
    let mut folders = vec![root.to_owned()];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        count += 1;
        if count > MOST_FOLDERS {
            return Err(io::Error::other(format!("more than {MOST_FOLDERS} folders")));
        }
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Control groups come and go.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries.flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            note(&entry.path(), is_folder);
            if is_folder {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_name_is_known_by_the_name_it_had() {
        for ours in ["/memfd:chaos0000beef", "/dev/shm/chaos0000beef-fill", "chaos0000beef"] {
            assert!(is_our_file(ours), "{ours}");
        }
        for other in ["/memfd:pulse", "/tmp/#1234", "/var/log/chaos-daemon", "/chaos0000beef/x"] {
            assert!(!is_our_file(other), "{other}");
        }
    }
}
