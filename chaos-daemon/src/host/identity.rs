//! As whom something is opened that a caller has named: as the caller, so that the kernel refuses what it would refuse him.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use caps::CapSet;
use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl::{set_dumpable, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, setegid, seteuid, setgroups};
use procfs::process::Process;
use serde::{Deserialize, Serialize};

use crate::request::Caller;

/// User and group that own nothing.
const NOBODY: u32 = 65534;

/// A user, a group, and the supplementary groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Identity {
    /// That of the daemon: for root, and for what the policy names.
    pub const ROOT: Self = Self { uid: 0, gid: 0, groups: Vec::new() };

    /// That of a caller. One on a vsock has no user here, and is nobody.
    ///
    /// The supplementary groups are those of the process that has connected, if it is there yet and all of it is this user's and this
    /// group's: what such a process can, the caller can, who may trace it (ptrace(2)). Otherwise there are none, which is less.
    pub fn of(caller: Caller) -> Self {
        match caller {
            Caller::Unix { uid: 0, .. } => Self::ROOT,
            Caller::Unix { uid, gid, pid } => Self { uid, gid, groups: groups_of(uid, gid, pid) },
            Caller::Vsock { .. } => Self { uid: NOBODY, gid: NOBODY, groups: Vec::new() },
        }
    }

    /// Whether it is the daemon's own.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Does `work` on a thread whose effective user and groups are these, and that has no capability and ends with it: of a user
    /// namespace the kernel asks whose it is, and not who looks at files. The real and the saved user stay root's, so that the caller
    /// cannot signal the thread.
    /// For root it is done as it is. This process cannot be traced by anybody but root afterwards (prctl(2), `PR_SET_DUMPABLE`).
    ///
    /// # Errors
    /// When the identity cannot be taken on, for which CAP_SETUID and CAP_SETGID are needed, or `work` fails.
    pub fn act<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        if self.is_root() {
            return work();
        }
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("caller".to_owned()).spawn_scoped(scope, || {
                self.take_on()?;
                work()
            })?;
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Has the calling thread alone be so.
    fn take_on(&self) -> io::Result<()> {
        // The functions of the C library that change users and groups change those of every thread (nptl(7)).
        // SAFETY: the kernel reads so many numbers from the list, which outlives the call.
        let set = unsafe { libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()) };
        Errno::result(set)?;
        let same = libc::uid_t::MAX;
        // SAFETY: system calls without pointers.
        let set = unsafe { libc::syscall(libc::SYS_setresgid, same, self.gid, same) };
        Errno::result(set)?;
        // SAFETY: likewise.
        let set = unsafe { libc::syscall(libc::SYS_setresuid, same, self.uid, same) };
        Errno::result(set)?;
        caps::clear(None, CapSet::Effective).map_err(io::Error::other)?;
        caps::clear(None, CapSet::Permitted).map_err(io::Error::other)
    }

    /// Has this process look at files, and connect, so from here on: `SO_PEERCRED` tells the caller. The real and the saved user stay
    /// root's, so that the caller can neither signal nor trace it (kill(2), ptrace(2)). Nothing for root. To be called on the first
    /// thread, whose parent-death signal the change takes back (prctl(2)): here it is set again.
    ///
    /// # Errors
    /// Without CAP_SETUID and CAP_SETGID.
    pub fn assume(&self) -> io::Result<()> {
        if self.is_root() {
            return Ok(());
        }
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups)?;
        setegid(Gid::from_raw(self.gid))?;
        seteuid(Uid::from_raw(self.uid))?;
        set_dumpable(false)?;
        // Whoever is without a parent by now hears of it by its socket.
        Ok(set_pdeathsig(Signal::SIGKILL)?)
    }
}

/// The supplementary groups of a process, if it is this user's and this group's.
fn groups_of(uid: u32, gid: u32, pid: i32) -> Vec<u32> {
    let Ok(status) = Process::new(pid).and_then(|process| process.status()) else { return Vec::new() };
    let users = [status.ruid, status.euid, status.suid, status.fuid];
    let groups = [status.rgid, status.egid, status.sgid, status.fgid];
    // Root's is the folder of one that nobody else may trace (proc(5)).
    let owner = fs::metadata(Path::new("/proc").join(pid.to_string())).map(|folder| folder.uid());
    match users == [uid; 4] && groups == [gid; 4] && owner.is_ok_and(|owner| owner == uid) {
        true => status.groups,
        false => Vec::new(),
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
