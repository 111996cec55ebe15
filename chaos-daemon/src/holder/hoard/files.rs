//! Files without a name (open(2), `O_TMPFILE`): room in one of them, or many of them, empty.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::fcntl::{FallocateFlags, OFlag, fallocate, openat};
use nix::libc;
use nix::sys::stat::Mode;

use super::{Step, Store};
use crate::fault::memory;
use crate::host::directory::{DirectoryRef, Space, remedy};
use crate::host::supply;
use crate::request::evidence::{Room, Things};
use crate::request::{Evidence, Shortfall};

/// No step is longer, in bytes: in a file system in memory it takes some 30 ms.
const STEP: u64 = 64 << 20;
/// Of files, which take some microseconds each.
const FILES: u64 = 64;
/// Steps are whole blocks, so that it is not asked for less than a file system can give.
const BLOCK: u64 = 4096;

/// A file without a name in `directory`, which cannot get one. What is wrong is said with what would be right.
pub(super) fn nameless(directory: &DirectoryRef, flags: OFlag) -> io::Result<File> {
    let failed = |error: io::Error| {
        let path = directory.path.display();
        let why = match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL) => {
                ": its file system has no files without a name (O_TMPFILE)"
            }
            _ => remedy(&error),
        };
        io::Error::new(error.kind(), format!("open a file without a name in {path}: {error}{why}"))
    };
    directory.open().and_then(|open| nameless_in(&open, flags)).map_err(failed)
}

fn nameless_in(directory: &File, flags: OFlag) -> io::Result<File> {
    let flags = OFlag::O_TMPFILE | OFlag::O_EXCL | OFlag::O_RDWR | OFlag::O_CLOEXEC | flags;
    // OPENS: the caller; with `fault_paths` the policy | the caller; of `fault_paths` root without CAP_DAC_OVERRIDE | a new file
    // without a name, where the holder, who is the caller by now, may make one
    Ok(openat(directory, ".", flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
}

/// Gives an open file so many bytes more, from `offset` on.
pub(super) fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let signed = |number: u64| i64::try_from(number).map_err(io::Error::other);
    match fallocate(file, FallocateFlags::empty(), signed(offset)?, signed(bytes)?) {
        Ok(()) => Ok(()),
        Err(nix::errno::Errno::EOPNOTSUPP) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "allocate room: the file system cannot give room without writing (fallocate)",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Room of a file system.
#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    bytes: u64,
    leave: u64,
    allocated: u64,
}

impl Disk {
    /// Opens the file; takes no room.
    pub(super) fn open(directory: &DirectoryRef, bytes: u64, leave: u64) -> io::Result<Self> {
        Ok(Self { file: nameless(directory, OFlag::empty())?, bytes, leave, allocated: 0 })
    }

    /// What can be taken without touching the reserve, of the file system and of the memory that it may be in.
    fn room(&self) -> io::Result<u64> {
        let space = Space::of(&self.file)?;
        let room = space.available.saturating_sub(self.leave);
        if !space.in_memory {
            return Ok(room);
        }
        let host = supply::Memory::read()?;
        Ok(room.min(host.available.saturating_sub(memory::reserve(host.total))))
    }
}

impl Store for Disk {
    fn goal(&self) -> u64 {
        self.bytes
    }

    fn take(&mut self, wanted: u64) -> io::Result<Step> {
        let missing = wanted.saturating_sub(self.allocated);
        if missing == 0 {
            return Ok(Step::Enough);
        }
        let room = self.room()? / BLOCK * BLOCK;
        let step = missing.min(STEP).min(room);
        if step == 0 {
            return Ok(Step::Short(Shortfall::Reserve));
        }
        match allocate(&self.file, self.allocated, step) {
            Ok(()) => self.allocated += step,
            Err(error) if error.kind() == io::ErrorKind::StorageFull && self.allocated > 0 => {
                return Ok(Step::Short(Shortfall::Exhausted));
            }
            Err(error) => return Err(error),
        }
        Ok(if self.allocated < wanted { Step::More } else { Step::Enough })
    }

    fn give_back(&mut self) {
        if let Err(error) = self.file.set_len(0) {
            tracing::warn!(%error, "cannot give room back; it goes with the process");
        }
        self.allocated = 0;
    }

    fn held(&mut self) -> Evidence {
        // Blocks are of 512 bytes here, whatever the file system's are (stat(2)).
        let blocks = self.file.metadata().map_or(0, |found| found.blocks());
        Evidence::Room(Room { bytes_held: blocks * 512, shortfall: None })
    }
}

/// Inodes of a file system.
#[derive(Debug)]
pub(super) struct Inodes {
    directory: File,
    count: u64,
    leave: u64,
    files: Vec<File>,
}

impl Inodes {
    /// Opens the directory; takes none.
    pub(super) fn open(directory: &DirectoryRef, count: u64, leave: u64) -> io::Result<Self> {
        // One to see whether there can be any.
        drop(nameless(directory, OFlag::empty())?);
        Ok(Self { directory: directory.open()?, count, leave, files: Vec::new() })
    }
}

impl Store for Inodes {
    fn goal(&self) -> u64 {
        self.count
    }

    fn take(&mut self, wanted: u64) -> io::Result<Step> {
        let missing = wanted.saturating_sub(self.files.len() as u64);
        let room = Space::of(&self.directory)?.available_inodes.saturating_sub(self.leave);
        if missing > 0 && room == 0 {
            return Ok(Step::Short(Shortfall::Reserve));
        }
        for _ in 0..missing.min(FILES).min(room) {
            match nameless_in(&self.directory, OFlag::empty()) {
                Ok(file) => self.files.push(file),
                Err(_) if !self.files.is_empty() => return Ok(Step::Short(Shortfall::Exhausted)),
                Err(error) => return Err(error),
            }
        }
        Ok(if (self.files.len() as u64) < wanted { Step::More } else { Step::Enough })
    }

    fn give_back(&mut self) {
        self.files.clear();
    }

    fn held(&mut self) -> Evidence {
        Evidence::Things(Things { things_held: self.files.len() as u64, shortfall: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_held_by_a_file_that_nobody_finds() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DirectoryRef::find(folder.path()).unwrap().unwrap();
        let mut disk = Disk::open(&directory, 1 << 20, 0).unwrap();
        assert!(matches!(disk.take(1 << 20).unwrap(), Step::Enough));
        assert_eq!(disk.held().held(), 1 << 20);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        disk.give_back();
        assert_eq!(disk.held().held(), 0);
    }

    #[test]
    fn a_file_system_without_files_without_a_name_is_named() {
        let directory = DirectoryRef::find("/proc".as_ref()).unwrap().unwrap();
        let error = nameless(&directory, OFlag::empty()).unwrap_err().to_string();
        assert!(error.starts_with("open a file without a name in /proc: "), "{error}");
    }
}
