//! Telling a `chaosctl mcp-proxy` what becomes of its calls: on its page ([`crate::spec::mcp::page`]), under locks that the kernel
//! takes away with the process that has them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::process::ProcessId;
use crate::host::proxy::lock_of;
use crate::spec::mcp::page::{self, CLAIM, FORCE, LENGTH, LINK, NUMBER, ORDER, Order, TALLY, TERM};

/// How often it is read what the proxy is just writing.
const LOOKS: usize = 20;

/// The page of a proxy. `None` when the process is no proxy, or has ended.
///
/// # Errors
/// When its descriptor cannot be had, or not be opened.
pub fn find(id: ProcessId) -> io::Result<Option<File>> {
    let Some(process) = id.open()? else { return Ok(None) };
    let Some(theirs) = process.descriptor(NUMBER)? else { return Ok(None) };
    let path = format!("/proc/self/fd/{}", theirs.as_raw_fd());
    if fs::read_link(&path)? != Path::new(LINK) {
        return Ok(None);
    }
    // What was taken is still the proxy's, and so a lock on it would be. What is opened is this process's own.
    let page = OpenOptions::new().read(true).write(true).open(path)?;
    // Anybody can give a file this name.
    Ok((page.metadata()?.len() == LENGTH).then_some(page))
}

/// A proxy that one fault has for itself. It is let go of when the value is dropped.
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
        match fcntl(&page, FcntlArg::F_OFD_SETLK(&lock_of(CLAIM))) {
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
        fcntl(&self.page, FcntlArg::F_OFD_SETLK(&lock_of(FORCE)))?;
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
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;
    use crate::host::boot_time_ns;
    use crate::host::proxy::{in_force, is_claimed};
    use crate::spec::mcp::McpParams;
    use crate::spec::mcp::page::{LENGTH, NAME};

    /// A page as a proxy has it, and as a fault opens it.
    fn page() -> (File, impl Fn(u64) -> io::Result<Proxy>) {
        let page = File::from(memfd_create(NAME, MFdFlags::MFD_CLOEXEC).unwrap());
        page.set_len(LENGTH).unwrap();
        let path = format!("/proc/self/fd/{}", page.as_raw_fd());
        let claim =
            move |fault| Proxy::of(OpenOptions::new().read(true).write(true).open(&path).unwrap(), 71, fault);
        (page, claim)
    }

    fn order() -> Vec<u8> {
        let spoiling = McpParams { fail: Some(1.0), ..McpParams::default() }.spoiling().unwrap();
        bytes(&Order { spoiling, seed: 7 }).unwrap()
    }

    #[test]
    fn who_has_no_page_is_no_proxy() {
        let parent = ProcessId::of(nix::unistd::getppid().as_raw()).unwrap();
        let stranger = ProcessId { start_time: parent.start_time + 1, ..parent };
        assert!(find(stranger).unwrap().is_none());
    }

    #[test]
    fn a_fault_is_in_force_from_its_order_until_its_deadline_or_its_death() {
        let (page, claim) = page();
        let soon = || boot_time_ns() + 60_000_000_000;
        let fault = claim(5).unwrap();
        assert!(is_claimed(&page).unwrap() && in_force(&page).unwrap().is_none());
        fault.order(&order(), soon()).unwrap();
        assert_eq!((in_force(&page).unwrap(), fault.tally().unwrap()), (Some(5), (0, 0)));
        page.write_all_at(&page::seal(&[5, 3, 2]), TALLY).unwrap();
        assert_eq!(fault.tally().unwrap(), (3, 2));
        let refused = claim(6).unwrap_err();
        assert!(refused.to_string().contains("another fault has proxy"), "{refused}");
        fault.renew(boot_time_ns()).unwrap();
        assert_eq!(in_force(&page).unwrap(), None);
        fault.renew(soon()).unwrap();
        assert_eq!(in_force(&page).unwrap(), Some(5));
        // The term is still there, and nobody keeps it: as after SIGKILL.
        drop(fault);
        assert!(!is_claimed(&page).unwrap() && in_force(&page).unwrap().is_none());
        let next = claim(6).unwrap();
        assert_eq!((in_force(&page).unwrap(), next.tally().unwrap()), (None, (0, 0)));
    }
}
