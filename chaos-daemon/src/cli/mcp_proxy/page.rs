//! The proxy's side of the page on which a fault tells it what becomes of its calls ([`crate::spec::mcp::page`]).

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{FcntlArg, fcntl};

use super::verdict::Verdict;
use crate::host::proxy::{create, in_force};
use crate::spec::mcp::Spoiling;
use crate::spec::mcp::page::{self, NUMBER, ORDER, ORDER_ROOM, Order, TALLY};

/// The page, for as long as the proxy runs.
#[derive(Debug)]
pub(super) struct Page {
    file: File,
    met: Mutex<Option<Met>>,
}

/// The fault that was met last, and how it went on.
#[derive(Debug)]
struct Met {
    fault: u64,
    order: Order,
    calls: u64,
    affected: u64,
}

/// What a fault has decided about a call. It is good for as long as the fault is in force.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decision {
    /// Which fault.
    pub(super) fault: u64,
    /// What it has decided.
    pub(super) verdict: Verdict,
}

impl Page {
    /// One that faults find.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { file: keep(&create()?)?, met: Mutex::new(None) })
    }

    /// What the fault that is in force decides about a call, if there is one that `concerns` says is about it.
    pub(super) fn decide(&self, concerns: impl Fn(&Spoiling) -> bool) -> Option<Decision> {
        let fault = in_force(&self.file).ok()??;
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if met.as_ref().is_none_or(|met| met.fault != fault) {
            *met = Some(Met { fault, order: self.order()?, calls: 0, affected: 0 });
        }
        let met = met.as_mut().filter(|met| concerns(&met.order.spoiling))?;
        met.calls += 1;
        let verdict = met.order.spoiling.verdict(met.order.seed, met.calls);
        met.affected += u64::from(verdict != Verdict::NOTHING);
        // What cannot be counted is not told, and happens all the same.
        let _ = self.file.write_all_at(&page::seal(&[fault, met.calls, met.affected]), TALLY);
        Some(Decision { fault, verdict })
    }

    /// Whether this fault is in force.
    pub(super) fn holds(&self, fault: u64) -> bool {
        in_force(&self.file).is_ok_and(|found| found == Some(fault))
    }

    fn order(&self) -> Option<Order> {
        let mut bytes = vec![0; ORDER_ROOM];
        self.file.read_exact_at(&mut bytes, ORDER).ok()?;
        Order::read(&bytes)
    }
}

/// Gives a descriptor the number by which it is found.
fn keep(page: &File) -> io::Result<File> {
    let number = fcntl(page, FcntlArg::F_DUPFD_CLOEXEC(NUMBER))?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    let kept = unsafe { OwnedFd::from_raw_fd(number) };
    match number == NUMBER {
        true => Ok(kept.into()),
        false => Err(io::Error::other(format!("descriptor {NUMBER} is another file's"))),
    }
}
