//! A directory that a fault takes something of: known by device and inode, with what is left in its file system.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::libc;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs, statfs};
use nix::sys::statvfs::{Statvfs, fstatvfs, statvfs};
use nix::unistd::{AccessFlags, faccessat, geteuid};
use serde::{Deserialize, Serialize};

use super::place::PlaceRef;

/// A directory, pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryRef {
    /// As it was named.
    pub path: PathBuf,
    /// The number of its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// What a file system has, and what of it is left for users without privileges (statvfs(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes that are used, by whomever.
    pub used: u64,
    /// Bytes left.
    pub available: u64,
    /// Inodes in all; 0 where their number is not fixed.
    pub inodes: u64,
    /// Inodes left.
    pub available_inodes: u64,
    /// Whether it is kept in memory.
    pub in_memory: bool,
}

impl DirectoryRef {
    /// The directory at this path, links followed ([`super::place::reach`]); `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn find(path: &Path) -> io::Result<Option<Self>> {
        Ok(PlaceRef::find(path)?.and_then(Self::of))
    }

    /// The same without any link on the way.
    ///
    /// # Errors
    /// When it cannot be looked at, or there is a link on the way.
    pub fn find_without_links(path: &Path) -> io::Result<Option<Self>> {
        Ok(PlaceRef::find_without_links(path)?.and_then(Self::of))
    }

    fn of(place: PlaceRef) -> Option<Self> {
        let PlaceRef { path, device, inode, is_folder } = place;
        is_folder.then_some(Self { path, device, inode })
    }

    /// Whether whoever looks may make a file in it: asked of the kernel (faccessat(2)), and not tried.
    ///
    /// # Errors
    /// Why not, and what would be right.
    pub fn check_writable(&self) -> io::Result<()> {
        let open = self.open()?;
        let rights = AccessFlags::W_OK | AccessFlags::X_OK;
        faccessat(&open, ".", rights, AtFlags::AT_EACCESS).map_err(|errno| {
            let (path, error) = (self.path.display(), io::Error::from(errno));
            io::Error::new(error.kind(), format!("make a file in {path}: {error}{}", remedy(&error)))
        })
    }

    /// Takes hold of it as a mere place, if it is still the same: neither to read nor to write, which needs rights to it.
    ///
    /// # Errors
    /// When it cannot be reached, or another is in its place.
    pub fn open(&self) -> io::Result<File> {
        let Self { path, device, inode } = self.clone();
        PlaceRef { path, device, inode, is_folder: true }.open()
    }
}

/// What would be right for whoever may not make a file in a directory, to be put behind the error.
pub fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES) if geteuid().is_root() => {
            ": it is not root's, and any directory of the same file system that is will do"
        }
        Some(libc::EACCES) => {
            ": the caller may not write there; name a directory of the same file system where the caller may, or have the \
             operator name it in `fault_paths` of the daemon's policy file"
        }
        Some(libc::EROFS) => ": it is read-only, for the daemon: its unit needs ReadWritePaths= for it",
        _ => "",
    }
}

impl Space {
    /// What the file system of an open file has left.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let in_memory = fstatfs(&file)?.filesystem_type() == TMPFS_MAGIC;
        Ok(Self::found(&fstatvfs(&file)?, in_memory))
    }

    /// What the file system at `path` has left. No file is opened.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn at(path: &Path) -> io::Result<Self> {
        let in_memory = statfs(path)?.filesystem_type() == TMPFS_MAGIC;
        Ok(Self::found(&statvfs(path)?, in_memory))
    }

    fn found(found: &Statvfs, in_memory: bool) -> Self {
        let block = found.fragment_size();
        let (all, free) = (found.blocks(), found.blocks_free());
        Self {
            bytes: all.saturating_mul(block),
            used: all.saturating_sub(free).saturating_mul(block),
            available: found.blocks_available().saturating_mul(block),
            inodes: found.files(),
            available_inodes: found.files_available(),
            in_memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_made_anew_under_the_same_path_is_another() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::create_dir(&path).unwrap();
        let found = DirectoryRef::find(&path).unwrap().unwrap();
        let space = Space::of(found.open().unwrap()).unwrap();
        assert_eq!(Space::at(&path).unwrap().bytes, space.bytes);
        assert!(space.available <= space.bytes && space.bytes > 0, "{space:?}");
        fs::create_dir(root.path().join("b")).unwrap();
        fs::rename(root.path().join("b"), &path).unwrap();
        assert!(found.open().is_err());
        fs::write(root.path().join("file"), "").unwrap();
        assert_eq!(DirectoryRef::find(&root.path().join("file")).unwrap(), None);
        assert_eq!(DirectoryRef::find(&root.path().join("none")).unwrap(), None);
    }
}
