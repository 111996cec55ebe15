//! What a program does not inherit.

use std::io;

use nix::libc;

/// Has every descriptor of this process from `first` on closed when it starts a program (exec(2)). Not before: by one of them exec(2)
/// tells that it has failed. Async-signal-safe, so that it may be called between fork and exec.
///
/// Linux 5.11 does it in one call (close_range(2), `CLOSE_RANGE_CLOEXEC`). Before that each number below the limit of open files is
/// marked by itself (fcntl(2)).
///
/// # Errors
/// Those of the calls.
pub fn close_at_exec(first: u32) -> io::Result<()> {
    // SAFETY: plain system call without memory.
    if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EINVAL) => mark_each(first),
        error => Err(error),
    }
}

/// As before Linux 5.11.
fn mark_each(first: u32) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to `limit` alone, which outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let end = i32::try_from(limit.rlim_cur).unwrap_or(i32::MAX);
    for number in i32::try_from(first).unwrap_or(i32::MAX)..end {
        // SAFETY: plain system call without memory. It fails for a number that is not open.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use nix::fcntl::{FcntlArg, fcntl};

    use super::*;

    /// What `ls` sees of a descriptor that it would inherit.
    fn inherited(mark: fn(u32) -> io::Result<()>) -> bool {
        let file = fs::File::open("/dev/null").unwrap();
        // Not where the program opens its own. It is inherited, as the mark for exec is not copied.
        let number = fcntl(&file, FcntlArg::F_DUPFD(300)).unwrap();
        // SAFETY: it was just made, and nobody else has it.
        let _copy = unsafe { OwnedFd::from_raw_fd(number) };
        let mut command = Command::new("ls");
        command.arg("/proc/self/fd");
        // SAFETY: only async-signal-safe calls are made.
        unsafe { command.pre_exec(move || mark(3)) };
        let said = command.output().unwrap();
        assert!(said.status.success());
        String::from_utf8(said.stdout).unwrap().lines().any(|line| line == number.to_string())
    }

    #[test]
    fn a_program_inherits_no_descriptor_on_this_kernel_and_on_one_that_marks_each_by_itself() {
        assert!(inherited(|_| Ok(())));
        assert!(!inherited(close_at_exec));
        assert!(!inherited(mark_each));
    }
}
