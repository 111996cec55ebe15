//! The page on which a fault tells a `chaosctl mcp-proxy` what becomes of its calls ([`crate::spec::mcp::page`]): what is locked of
//! it, and until when that is good.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::boot_time_ns;
use crate::spec::mcp::page::{self, CLAIM, FORCE, TERM};

/// How often it is read what somebody is just writing.
const LOOKS: usize = 20;

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
