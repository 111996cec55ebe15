//! The page on which a fault tells a `chaosctl mcp-proxy` what becomes of its calls ([`crate::spec::mcp::page`]): how it is made and
//! known, what is locked of it, and until when that is good.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::boot_time_ns;
use crate::spec::mcp::page::{self, CLAIM, FORCE, LENGTH, LINK, NAME, TERM};

/// What is sealed of a page: its length, and the seals themselves, so that it stays one that can be written.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);

/// How often it is read what somebody is just writing.
const LOOKS: usize = 20;

/// A new page.
///
/// # Errors
/// When the kernel refuses.
pub fn create() -> io::Result<File> {
    let page = File::from(memfd_create(NAME, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
    page.set_len(LENGTH)?;
    fcntl(&page, FcntlArg::F_ADD_SEALS(SEALS))?;
    Ok(page)
}

/// Whether an open file of somebody else's is a page, which he has opened for reading and writing himself.
///
/// Nothing is believed that he could have written: anybody can give a file any name, and have procfs show it. A file that was not
/// made by memfd_create(2) to be sealed has no seal but `F_SEAL_SEAL`, or none at all (fcntl(2), `shmem_get_inode` in mm/shmem.c).
/// No file system of his is asked: fcntl(2) is answered by the kernel itself, and so is fstat(2) of a memfd.
///
/// # Errors
/// When the kernel does not tell.
pub fn is_page(taken: &File) -> io::Result<bool> {
    let flags = fcntl(taken, FcntlArg::F_GETFL)?;
    if flags & (OFlag::O_ACCMODE | OFlag::O_PATH).bits() != OFlag::O_RDWR.bits() {
        return Ok(false);
    }
    let Ok(seals) = fcntl(taken, FcntlArg::F_GET_SEALS) else { return Ok(false) };
    // That it cannot be made executable either (`vm.memfd_noexec`) is no concern of ours.
    if seals & !libc::F_SEAL_EXEC != SEALS.bits() {
        return Ok(false);
    }
    let found = taken.metadata()?;
    // OPENS: whoever runs the process | nobody: the link is read, not followed | its text is only believed of a memfd that was
    // made to be sealed, whose name nobody can change
    let link = fs::read_link(format!("/proc/self/fd/{}", taken.as_raw_fd()))?;
    Ok(found.is_file() && found.len() == LENGTH && found.nlink() == 0 && link == Path::new(LINK))
}

/// Whether a fault has the page.
///
/// # Errors
/// When the kernel does not tell.
pub fn is_claimed(page: &File) -> io::Result<bool> {
    is_locked(page, CLAIM)
}

/// Which fault is in force, if one is: its process has a lock, and its term is not over.
///
/// # Errors
/// When the page cannot be read, or is being written all the time.
pub fn in_force(page: &File) -> io::Result<Option<u64>> {
    let mut bytes = [0; page::sealed(2)];
    for _ in 0..LOOKS {
        page.read_exact_at(&mut bytes, TERM)?;
        // The lock is looked at after the term: whoever has it now has not had it for longer than what was read.
        if !is_locked(page, FORCE)? {
            return Ok(None);
        }
        if let Some([deadline, fault]) = page::unseal(&bytes) {
            return Ok((boot_time_ns() < deadline).then_some(fault));
        }
    }
    Err(io::Error::from(io::ErrorKind::WouldBlock))
}

/// A lock on one byte of a file, in the words of fcntl(2).
#[expect(
    clippy::cast_possible_truncation,
    reason = "constants of the kernel's interface, which are that short"
)]
pub fn lock_of(byte: i64) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

fn is_locked(page: impl AsFd, byte: i64) -> io::Result<bool> {
    let mut lock = lock_of(byte);
    fcntl(page, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}
