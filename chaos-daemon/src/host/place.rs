//! A file or folder whose calls fail: known by device and inode when it is named, and kept open by who watches it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::libc;
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::getuid;
use serde::{Deserialize, Serialize};

use super::program::{MOST_LINKS, parts};

/// A file or folder, pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRef {
    /// As it was named.
    pub path: PathBuf,
    /// The number of its file system, as stat(2) has it.
    pub device: u64,
    /// Its number there, likewise.
    pub inode: u64,
    /// Whether it is a folder.
    pub is_folder: bool,
}

impl PlaceRef {
    /// What is at this path, links followed, see [`reach`]; `None` when nothing is.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn find(path: &Path) -> io::Result<Option<Self>> {
        Self::at(path, reach(path))
    }

    /// The same without any link on the way, so that it leads nowhere else than it says.
    ///
    /// # Errors
    /// When it cannot be looked at, or there is a link on the way.
    pub fn find_without_links(path: &Path) -> io::Result<Option<Self>> {
        Self::at(path, without_links(path))
    }

    fn at(path: &Path, place: nix::Result<File>) -> io::Result<Option<Self>> {
        let found = match place {
            Ok(place) => place.metadata()?,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let (device, inode, is_folder) = (found.dev(), found.ino(), found.is_dir());
        Ok(Some(Self { path: path.to_owned(), device, inode, is_folder }))
    }

    /// Takes hold of it, if it is still the same: neither to read nor to write, which would need rights to it.
    ///
    /// # Errors
    /// When it cannot be reached, or another is in its place.
    pub fn open(&self) -> io::Result<File> {
        // OPENS: the caller; whoever may write to a folder on the way | the holder: the caller where it takes room, root where it
        // only watches | a mere place, and let go of unless it is the very file that was found as the caller
        let place = reach(&self.path)?;
        let found = place.metadata()?;
        match (found.dev(), found.ino()) == (self.device, self.inode) {
            true => Ok(place),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "something else is in its place")),
        }
    }
}

/// What an absolute path stands for, as a mere place, which needs no right to it but to all folders on the way. Links are followed, but
/// for those of procfs where somebody else looks: what they lead to the kernel shows to each process of itself, and so to a thread of this one
/// that looks as a caller ([`super::Identity::act`]).
///
/// # Errors
/// As open(2) has them; EACCES for a link of procfs.
pub fn reach(path: &Path) -> nix::Result<File> {
    // OPENS: the caller; whoever may write to a folder on the way | the caller (`Identity::act`, or a holder that is the caller)
    // | a mere place; the kernel asks at each step whether the caller may; no link of procfs is followed, which would be this
    // process's own
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let root = || open("/", flags, Mode::empty()).map(File::from);
    let (mut place, mut rest, mut links) = (root()?, parts(path), 0);
    while let Some(part) = rest.pop() {
        let next = File::from(openat(&place, part.as_os_str(), flags | OFlag::O_NOFOLLOW, Mode::empty())?);
        if !is_link(&next)? {
            place = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::ELOOP);
        }
        if fstatfs(&next)?.filesystem_type() == PROC_SUPER_MAGIC {
            if !looks_as_itself() {
                return Err(Errno::EACCES);
            }
            // Its text is not where it leads.
            place = File::from(openat(&place, part.as_os_str(), flags, Mode::empty())?);
            continue;
        }
        let target = PathBuf::from(readlinkat(&next, "")?);
        if target.is_absolute() {
            place = root()?;
        }
        rest.extend(parts(&target));
    }
    Ok(place)
}

/// The path without links that an absolute path leads to, see [`reach`].
///
/// # Errors
/// As [`reach`].
pub fn where_it_leads(path: &Path) -> io::Result<PathBuf> {
    // OPENS: the caller; whoever may write to a folder on the way | the caller (`Identity::act`) | the link is read, not followed, and
    // its text only compared with the programs that run
    let place = reach(path)?;
    fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// Of the flags of a mere place, and no link followed, open(2) says that they open a link itself.
fn is_link(place: &File) -> nix::Result<bool> {
    Ok(fstat(place)?.st_mode & libc::S_IFMT == libc::S_IFLNK)
}

/// Whether the calling thread looks at files as who it is, and not as a caller.
fn looks_as_itself() -> bool {
    // SAFETY: a system call without pointers; there is no such user to become, and it answers who it is (setfsuid(2)).
    let looks_as = unsafe { libc::setfsuid(u32::MAX) };
    looks_as.cast_unsigned() == getuid().as_raw()
}

/// What an absolute path stands for, as a mere place; ELOOP if there is a link on the way. Step by step: openat2(2) and its
/// `RESOLVE_NO_SYMLINKS` are not there under `RestrictSUIDSGID=` (systemd.exec(5)), which cannot see its flags.
///
/// # Errors
/// As open(2) has them.
pub fn without_links(path: &Path) -> nix::Result<File> {
    // OPENS: the policy | root | a mere place that the policy names, without any link on the way
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut place = File::from(open("/", flags, Mode::empty())?);
    for part in path.components().filter(|part| *part != Component::RootDir) {
        place = File::from(openat(&place, part.as_os_str(), flags, Mode::empty())?);
        if is_link(&place)? {
            return Err(Errno::ELOOP);
        }
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_made_anew_under_the_same_path_is_another() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, "").unwrap();
        let found = PlaceRef::find(&path).unwrap().unwrap();
        assert!(!found.is_folder && found.open().is_ok());
        // Both are there at once, so that they are two.
        fs::write(root.path().join("b"), "").unwrap();
        fs::rename(root.path().join("b"), &path).unwrap();
        assert!(found.open().is_err());
        let of = |path: &Path| PlaceRef::find(path).map(|found| found.map(|found| found.inode));
        symlink("a", root.path().join("link")).unwrap();
        symlink("./circle", root.path().join("circle")).unwrap();
        let again = of(&path).unwrap();
        assert_eq!(of(&root.path().join("link")).unwrap(), again);
        assert_eq!(
            of(&root.path().join("./../").join(root.path().file_name().unwrap()).join("a")).unwrap(),
            again
        );
        assert!(of(&root.path().join("circle")).is_err());
        // Who looks as itself may follow links of procfs.
        let held = File::open(&path).unwrap();
        let shown = format!("/proc/self/fd/{}", held.as_raw_fd());
        assert_eq!(of(Path::new(&shown)).unwrap(), again);
        assert!(PlaceRef::find_without_links(&root.path().join("link")).is_err());
        assert!(PlaceRef::find(root.path()).unwrap().unwrap().is_folder);
        assert_eq!(PlaceRef::find(&root.path().join("none")).unwrap(), None);
        assert_eq!(PlaceRef::find(&path.join("below-a-file")).unwrap(), None);
    }
}
