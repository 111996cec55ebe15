//! Which system calls change something: the points at which a sweep strikes.

use std::fmt;

use nix::errno::Errno;
use nix::libc;

/// What a sweep does at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// The process that makes the call dies by SIGKILL, and the call is not made.
    Kill,
    /// Every process of the daemon dies, and the call is not made.
    KillEverything,
    /// The call is not made, and fails with this errno.
    Fail(i32),
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill => f.write_str("dies"),
            Self::KillEverything => f.write_str("dies with everything"),
            Self::Fail(errno) => write!(f, "gets {:?}", Errno::from_raw(*errno)),
        }
    }
}

/// The name of a system call that changes something outside its own memory; `None` for every other.
pub(super) fn name(number: i64) -> Option<&'static str> {
    Some(match number {
        libc::SYS_bind => "bind",
        libc::SYS_bpf => "bpf",
        libc::SYS_capset => "capset",
        libc::SYS_clock_adjtime => "clock_adjtime",
        libc::SYS_clone => "clone",
        libc::SYS_clone3 => "clone3",
        libc::SYS_close => "close",
        libc::SYS_connect => "connect",
        libc::SYS_dup2 | libc::SYS_dup3 => "dup",
        libc::SYS_epoll_ctl => "epoll_ctl",
        libc::SYS_execve => "execve",
        libc::SYS_fallocate => "fallocate",
        libc::SYS_fchmod | libc::SYS_chmod | libc::SYS_fchmodat => "chmod",
        libc::SYS_fchown | libc::SYS_chown | libc::SYS_fchownat => "chown",
        libc::SYS_fcntl => "fcntl",
        libc::SYS_fdatasync => "fdatasync",
        libc::SYS_fork | libc::SYS_vfork => "fork",
        libc::SYS_fsync => "fsync",
        libc::SYS_ftruncate => "ftruncate",
        libc::SYS_kill | libc::SYS_tgkill => "kill",
        libc::SYS_listen => "listen",
        libc::SYS_madvise => "madvise",
        libc::SYS_memfd_create => "memfd_create",
        libc::SYS_mkdir | libc::SYS_mkdirat => "mkdir",
        libc::SYS_mmap => "mmap",
        libc::SYS_mount => "mount",
        libc::SYS_munmap => "munmap",
        libc::SYS_open | libc::SYS_openat => "open",
        libc::SYS_pidfd_getfd => "pidfd_getfd",
        libc::SYS_pidfd_open => "pidfd_open",
        libc::SYS_pidfd_send_signal => "pidfd_send_signal",
        libc::SYS_prctl => "prctl",
        libc::SYS_prlimit64 => "prlimit",
        libc::SYS_ptrace => "ptrace",
        libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2 => "pwrite",
        libc::SYS_rename | libc::SYS_renameat | libc::SYS_renameat2 => "rename",
        libc::SYS_sched_setaffinity => "sched_setaffinity",
        libc::SYS_sendmsg => "sendmsg",
        libc::SYS_sendto => "sendto",
        libc::SYS_setns => "setns",
        libc::SYS_socket => "socket",
        libc::SYS_socketpair => "socketpair",
        libc::SYS_timer_create => "timer_create",
        libc::SYS_timer_settime => "timer_settime",
        libc::SYS_timer_delete => "timer_delete",
        libc::SYS_unlink | libc::SYS_unlinkat => "unlink",
        libc::SYS_unshare => "unshare",
        libc::SYS_write | libc::SYS_writev => "write",
        _ => return None,
    })
}

/// The system call whose entry a thread is at, when it is one that `strike` is meant for.
pub(super) fn selected(pid: i32, number: i64, arguments: &[u64], strike: Strike) -> Option<&'static str> {
    let name = name(number)?;
    let first = arguments.first().copied().unwrap_or_default();
    let taken = match (name, strike) {
        // The log.
        ("write", _) if first == 2 => false,
        // Of all that is done with descriptors, only locks are for others to see.
        ("fcntl", _) => arguments.get(1) == Some(&u64::from(libc::F_OFD_SETLK.unsigned_abs())),
        // Memory of its own: only what is taken is a change to others.
        ("mmap", _) => is_populated(arguments),
        // Giving back never fails.
        ("munmap", Strike::Fail(_)) => false,
        // Asking what the limit is changes nothing.
        ("prlimit", _) => arguments.get(2).is_some_and(|new| *new != 0),
        // Of the runtime's own: what it cannot watch, it has started all the same.
        ("epoll_ctl", Strike::Fail(_)) => false,
        // Closing never fails so that a descriptor stays, and reading it is not a change.
        ("close", Strike::Fail(_)) => false,
        // Nothing goes with a descriptor of what has a name.
        ("close", _) => !has_name(pid, first),
        // Looking is not a change either; but whoever looks has to bear that it fails.
        ("open", Strike::Kill | Strike::KillEverything) => writes(number, arguments),
        // A wake-up between threads of one process: an eventfd has no reason to refuse.
        ("write", Strike::Fail(_)) => !is_eventfd(pid, first),
        _ => true,
    };
    taken.then_some(name)
}

/// Whether the kernel is to provide the pages at once (`MAP_POPULATE`, the fourth argument of mmap(2)).
fn is_populated(arguments: &[u64]) -> bool {
    arguments.get(3).is_some_and(|flags| flags & u64::from(libc::MAP_POPULATE.unsigned_abs()) != 0)
}

/// Whether a file is opened to be written or made (the second argument of open(2), the third of openat(2)).
fn writes(number: i64, arguments: &[u64]) -> bool {
    const MAKES_OR_WRITES: i32 = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT;
    let flags = arguments.get(if number == libc::SYS_openat { 2 } else { 1 }).copied().unwrap_or_default();
    flags & u64::from(MAKES_OR_WRITES.unsigned_abs()) != 0
}

/// Whether a descriptor is of a file that has a path.
fn has_name(pid: i32, fd: u64) -> bool {
    target(pid, fd).starts_with('/')
}

fn is_eventfd(pid: i32, fd: u64) -> bool {
    target(pid, fd).contains("eventfd")
}

/// What /proc calls the file of a descriptor.
fn target(pid: i32, fd: u64) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}"));
    link.map(|target| target.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_to_read_is_no_change_but_may_fail() {
        let opened = |flags: i32| [0, 0, u64::from(flags.unsigned_abs()), 0, 0, 0];
        let struck = |flags, strike| selected(1, libc::SYS_openat, &opened(flags), strike).is_some();
        for kill in [Strike::Kill, Strike::KillEverything] {
            assert!(!struck(libc::O_RDONLY | libc::O_CLOEXEC, kill));
            assert!(!struck(libc::O_RDONLY | libc::O_DIRECTORY, kill));
            assert!(struck(libc::O_WRONLY, kill) && struck(libc::O_RDWR | libc::O_TMPFILE, kill));
            assert!(struck(libc::O_RDONLY | libc::O_CREAT, kill));
        }
        assert!(struck(libc::O_RDONLY, Strike::Fail(libc::EIO)));
    }
}
