//! Processes by identity: a pidfd and a start time, never a bare number that the kernel may have given away.

use std::fs;
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

/// How long an ended process may take to go.
pub const END_LIMIT: Duration = Duration::from_secs(5);
/// SIGKILL among the signals that are pending (proc(5), `SigPnd` and `ShdPnd`). It stays there until the thread is gone.
const KILLED: u64 = 1 << (libc::SIGKILL - 1);

/// A process of which a thread at least has not ended, held by a pidfd (pidfd_open(2)).
#[derive(Debug)]
pub struct Process {
    pidfd: OwnedFd,
    /// Whether it was stopped (state `T` or `t` of proc(5)) when it was opened.
    pub stopped: bool,
    /// Whether its first thread had ended when it was opened, or was killed: nothing of it is done any more by that thread, but a
    /// system call in which one of its threads hangs, and until that is over it keeps its memory, its files and its locks.
    pub dying: bool,
}

impl ProcessId {
    /// Opens the process, if it is still the same and has not ended. One has when all its threads have: a first thread that is a
    /// zombie says nothing of the others, which may hang in the kernel for as long as they like.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than that there is no such process.
    pub fn open(self) -> io::Result<Option<Process>> {
        let pidfd = match pidfd_open(self.pid) {
            Ok(pidfd) => pidfd,
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Read after the pidfd is open: if the start time matches now, the pidfd is of this very process.
        let stat = match procfs::process::Process::new(self.pid).and_then(|process| process.stat()) {
            Ok(stat) => stat,
            Err(procfs::ProcError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        };
        let dying = matches!(stat.state, 'Z' | 'X') || is_killed(self.pid);
        let process = Process { pidfd, stopped: matches!(stat.state, 'T' | 't'), dying };
        // The pidfd tells when the last thread has ended (`pidfd_poll` in the kernel), and not before.
        let gone = stat.starttime != self.start_time || dying && process.wait(Duration::ZERO)?;
        Ok((!gone).then_some(process))
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
        // OPENS: whoever runs the process | nobody: the open file is taken as it is | with the mode that its owner has; what is
        // done with it is said where it is taken (`held`)
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

/// Whether SIGKILL is on its way to the first thread of a process, which then does nothing more but to end.
fn is_killed(pid: i32) -> bool {
    let status = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = |line: &str| {
        let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    };
    String::from_utf8_lossy(&status).lines().filter_map(pending).any(|signals| signals & KILLED != 0)
}

/// Whether pidfd_open(2) says that no process has this number. The kernel keeps the number of one that has been collected while
/// its session or process group has others in it, and calls it invalid then, or not found (`pidfd_prepare` in kernel/fork.c).
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL | libc::ENOENT))
}

/// A descriptor of a process, which can be read from when the last thread of it has ended (pidfd_open(2)).
///
/// # Errors
/// When there is no such process, or no descriptor left.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain system call without pointers; the result is a new fd or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just given us this fd, and nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::waits::{HANG, wait_for};

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

    /// A child whose first thread makes this and ends, while another waits to be killed.
    pub(crate) fn child_without_its_first_thread<T>(first: impl FnOnce() -> T) -> ProcessId {
        // SAFETY: the child makes a thread and system calls, and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: a system call without pointers. Whatever becomes of the test, the child ends.
            unsafe { libc::alarm(600) };
            let _kept = first();
            let waits = std::thread::Builder::new().spawn(|| {
                loop {
                    std::thread::park();
                }
            });
            // SAFETY: ends this thread, or without the other one the process.
            unsafe {
                match waits {
                    Ok(_) => libc::syscall(libc::SYS_exit, 0),
                    Err(_) => libc::syscall(libc::SYS_exit_group, 1),
                }
            };
        }
        let id = ProcessId::of(pid).unwrap();
        let state = || procfs::process::Process::new(pid).unwrap().stat().unwrap().state;
        wait_for(|| state() == 'Z');
        id
    }

    #[test]
    fn a_process_of_which_only_the_first_thread_has_ended_has_not() {
        let id = child_without_its_first_thread(|| ());
        let process = id.open().unwrap().expect("taken for ended");
        assert!(process.dying && !process.stopped);
        assert!(!process.wait(Duration::from_millis(20)).unwrap());
        process.signal(libc::SIGKILL).unwrap();
        assert!(process.wait(HANG).unwrap());
        assert!(id.open().unwrap().is_none(), "nobody has collected it, and it has ended");
        end_child(id.pid).unwrap();
        assert!(id.open().unwrap().is_none());
    }

    #[test]
    fn a_process_that_goes_on_or_is_stopped_is_not_dying() {
        let me = ProcessId::of(std::process::id().cast_signed()).unwrap();
        assert!(!me.open().unwrap().unwrap().dying);
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap().id().cast_signed();
        let id = ProcessId::of(child).unwrap();
        id.open().unwrap().unwrap().signal(libc::SIGSTOP).unwrap();
        wait_for(|| id.open().unwrap().unwrap().stopped);
        let stopped = id.open().unwrap().unwrap();
        assert!(stopped.stopped && !stopped.dying);
        end_child(child).unwrap();
    }

    #[test]
    fn a_killed_child_is_seen_to_end_and_cannot_be_opened_again() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let id = ProcessId::of(child.id().cast_signed()).unwrap();
        let process = id.open().unwrap().unwrap();
        process.signal(libc::SIGKILL).unwrap();
        assert!(process.wait(HANG).unwrap());
        child.wait().unwrap();
        assert!(id.open().unwrap().is_none());
        process.signal(libc::SIGKILL).unwrap();
    }

    #[test]
    fn a_child_is_ended_and_collected_and_a_stranger_is_left_alone() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        end_child(child.id().cast_signed()).unwrap();
        assert!(child.wait().is_err(), "it was not collected");
        let parent = nix::unistd::getppid().as_raw();
        end_child(parent).unwrap();
        assert!(ProcessId::of(parent).is_ok());
    }
}
