//! Processes by identity: a pidfd and a start time, never a bare number that the kernel may have given away.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;

pub use crate::host::ProcessId;

/// A live process, held by a pidfd (pidfd_open(2)).
#[derive(Debug)]
pub struct Process {
    pidfd: OwnedFd,
    /// Whether it was stopped (state `T` or `t` of proc(5)) when it was opened.
    pub stopped: bool,
}

impl ProcessId {
    /// Opens the process, if it is still the same and has not ended.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than that there is no such process.
    pub fn open(self) -> io::Result<Option<Process>> {
        let pidfd = match pidfd_open(self.pid) {
            Ok(pidfd) => pidfd,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Read after the pidfd is open: if the start time matches now, the pidfd is of this very process.
        let stat = match procfs::process::Process::new(self.pid).and_then(|process| process.stat()) {
            Ok(stat) => stat,
            Err(procfs::ProcError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        };
        if stat.starttime != self.start_time || matches!(stat.state, 'Z' | 'X') {
            return Ok(None);
        }
        Ok(Some(Process { pidfd, stopped: matches!(stat.state, 'T' | 't') }))
    }
}

impl Process {
    /// Sends `signal` (pidfd_send_signal(2)); a process that has just ended is fine.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn signal(&self, signal: libc::c_int) -> io::Result<()> {
        // SAFETY: plain system call on an fd we own; a null siginfo means the same as kill(2).
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.pidfd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        match result {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// One of its descriptors, as one of this process (pidfd_getfd(2), Linux 5.6); `None` when it has none of this number, or has
    /// ended.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn descriptor(&self, number: i32) -> io::Result<Option<OwnedFd>> {
        // SAFETY: plain system call without pointers; the result is a new fd or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.pidfd.as_raw_fd(), number, 0) };
        match i32::try_from(fd) {
            // SAFETY: the kernel has just given us this fd, and nobody else knows it.
            Ok(fd) if fd >= 0 => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => match io::Error::last_os_error() {
                error if matches!(error.raw_os_error(), Some(libc::EBADF | libc::ESRCH)) => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Waits until it has ended, at most `limit`. False when the time is over.
    ///
    /// # Errors
    /// When poll(2) fails.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, timeout)? > 0)
    }
}

/// Kills a child of this process, alive or dead, and collects it; nothing when `pid` is not one, or has been collected. Until
/// then the number is its own.
///
/// # Errors
/// When the kernel refuses.
pub fn end_child(pid: i32) -> io::Result<()> {
    let pid = Pid::from_raw(pid);
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(pid), look) {
        Err(Errno::ECHILD) => return Ok(()),
        looked => looked?,
    };
    kill(pid, Signal::SIGKILL)?;
    waitpid(pid, None)?;
    Ok(())
}

/// Why descriptors of other processes cannot be taken; `None` when they can.
pub fn no_descriptors() -> Option<String> {
    let me = ProcessId::of(std::process::id().cast_signed()).map_err(io::Error::other);
    // Nobody has this one: the kernel says so, unless it does not even look.
    let tried = me.and_then(ProcessId::open).and_then(|me| me.map_or(Ok(None), |me| me.descriptor(i32::MAX)));
    tried.err().map(|error| format!("the system call is refused: {error}"))
}

fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain system call without pointers; the result is a new fd or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just given us this fd, and nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_the_same_number_but_another_start_is_a_stranger() {
        let me = ProcessId::of(std::process::id().cast_signed()).unwrap();
        assert!(me.open().unwrap().is_some());
        assert!(ProcessId { start_time: me.start_time + 1, ..me }.open().unwrap().is_none());
    }

    #[test]
    fn a_descriptor_of_another_process_is_the_same_file() {
        let me = ProcessId::of(std::process::id().cast_signed()).unwrap().open().unwrap().unwrap();
        let file = tempfile::tempfile().unwrap();
        let theirs = me.descriptor(file.as_raw_fd()).unwrap().unwrap();
        let name = |fd: i32| std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        assert_eq!(name(theirs.as_raw_fd()), name(file.as_raw_fd()));
        assert!(me.descriptor(i32::MAX).unwrap().is_none());
    }

    #[test]
    fn a_killed_child_is_seen_to_end_and_cannot_be_opened_again() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let id = ProcessId::of(child.id().cast_signed()).unwrap();
        let process = id.open().unwrap().unwrap();
        process.signal(libc::SIGKILL).unwrap();
        assert!(process.wait(Duration::from_secs(5)).unwrap());
        child.wait().unwrap();
        assert!(id.open().unwrap().is_none());
        process.signal(libc::SIGKILL).unwrap();
    }

    #[test]
    fn a_child_is_ended_and_collected_and_a_stranger_is_left_alone() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        end_child(child.id().cast_signed()).unwrap();
        assert!(child.wait().is_err(), "it was not collected");
        let parent = nix::unistd::getppid().as_raw();
        end_child(parent).unwrap();
        assert!(ProcessId::of(parent).is_ok());
    }
}
