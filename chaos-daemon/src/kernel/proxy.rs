//! Telling a `chaosctl mcp-proxy` what becomes of its calls: on its page ([`crate::spec::mcp::page`]), under locks that the kernel
//! takes away with the process that has them.
//!
//! The page is the proxy's own open file (pidfd_getfd(2)), and is never opened anew: so nothing is read or written here that the
//! proxy has not opened for reading and writing itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use procfs::process::Process as Shown;

use super::process::{Process, ProcessId};
use crate::host::proxy::{is_page, lock_of};
use crate::spec::mcp::page::{self, CLAIM, FORCE, NUMBER, ORDER, Order, TALLY, TERM};

/// How often it is read what the proxy is just writing.
const LOOKS: usize = 20;

/// The page of a proxy. `None` when the process is no proxy, or has ended.
///
/// # Errors
/// When its descriptor cannot be had.
pub fn find(id: ProcessId) -> io::Result<Option<File>> {
    let Some(process) = id.open()? else { return Ok(None) };
    let Some(page) = held(&process, NUMBER)? else { return Ok(None) };
    let user = match Shown::new(id.pid).and_then(|shown| shown.status()) {
        Ok(status) => status.fuid,
        Err(procfs::ProcError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(io::Error::other(error)),
    };
    // Until it has ended nobody else has its number, of whom this would be the user.
    let has_ended = process.wait(Duration::ZERO)?;
    Ok((!has_ended && page.metadata()?.uid() == user).then_some(page))
}

/// The page that a process has open under this number: its own, or that of a proxy that it tells. `None` when it is none.
///
/// # Errors
/// When its descriptor cannot be had.
pub fn held(process: &Process, number: i32) -> io::Result<Option<File>> {
    // OPENS: whoever runs the process | nobody: the open file is taken as it is, with the mode that its owner has | only a memfd
    // that was sealed, and that its owner has opened to be read and written, is (`is_page`)
    let Some(taken) = process.descriptor(number)?.map(File::from) else { return Ok(None) };
    Ok(is_page(&taken)?.then_some(taken))
}

/// A proxy that one fault has for itself, and the only such fault of this process. It is let go of when the value is dropped: this
/// process has no lock on a file any more of which it has closed any descriptor (fcntl(2)).
#[derive(Debug)]
pub struct Proxy {
    page: File,
    fault: u64,
}

impl Proxy {
    /// Claims a proxy; nothing is in force yet. `None` when it has ended.
    ///
    /// # Errors
    /// When it cannot be reached, or another fault has it.
    pub fn claim(id: ProcessId, fault: u64) -> io::Result<Option<Self>> {
        find(id)?.map(|page| Self::of(page, id.pid, fault)).transpose()
    }

    fn of(page: File, pid: i32, fault: u64) -> io::Result<Self> {
        // A lock of this process (fcntl(2), `F_SETLK`) and not of the open file, which is the proxy's as well.
        match fcntl(&page, FcntlArg::F_SETLK(&lock_of(CLAIM))) {
            Ok(_) => Ok(Self { page, fault }),
            Err(Errno::EAGAIN | Errno::EACCES) => Err(io::Error::other(format!(
                "another fault has proxy {pid} already, which takes one at a time"
            ))),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Tells it what becomes of calls, and when that ends; it is in force when this returns.
    ///
    /// # Errors
    /// When the page cannot be written, or is locked by somebody else.
    pub fn order(&self, order: &[u8], deadline_ns: u64) -> io::Result<()> {
        // What a fault has left there that has died must not come into force once more.
        self.renew(0)?;
        self.page.write_all_at(order, ORDER)?;
        self.renew(deadline_ns)?;
        fcntl(&self.page, FcntlArg::F_SETLK(&lock_of(FORCE)))?;
        Ok(())
    }

    /// Is in force until `deadline_ns` of boot time; 0 is not any more.
    ///
    /// # Errors
    /// When the page cannot be written.
    pub fn renew(&self, deadline_ns: u64) -> io::Result<()> {
        self.page.write_all_at(&page::seal(&[deadline_ns, self.fault]), TERM)
    }

    /// Calls that matched, and those that the fault has done something to.
    ///
    /// # Errors
    /// When the page cannot be read, or is being written all the time.
    pub fn tally(&self) -> io::Result<(u64, u64)> {
        let mut bytes = [0; page::sealed(3)];
        for _ in 0..LOOKS {
            self.page.read_exact_at(&mut bytes, TALLY)?;
            match page::unseal(&bytes) {
                Some([fault, calls, affected]) if fault == self.fault => return Ok((calls, affected)),
                // It is another fault's, or nobody's: no call has come yet.
                Some([..]) => return Ok((0, 0)),
                None if bytes.iter().all(|byte| *byte == 0) => return Ok((0, 0)),
                None => {}
            }
        }
        Err(io::Error::from(io::ErrorKind::WouldBlock))
    }
}

/// The bytes of an order.
///
/// # Errors
/// When it has no room on a page.
pub fn bytes(order: &Order) -> io::Result<Vec<u8>> {
    order
        .write()
        .ok_or_else(|| io::Error::other("the names of methods and tools have no room on a proxy's page"))
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
