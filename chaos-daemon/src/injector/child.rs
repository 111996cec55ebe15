//! Starting and ending children of the injector, so that none is ever forgotten, and none ever waited for without end.
//!
//! Collecting one is done aside. The kernel takes apart what `/proc` shows of it meanwhile, and tries again and again until whoever
//! was just reading there has let go (`d_invalidate` in fs/dcache.c). Where processors are scarce that may last for longer than a
//! lease, and no heartbeat would be sent.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, pipe2};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::timeout;

use crate::host::inherited::close_at_exec;
use crate::kernel::process::{END_LIMIT, end_child, pidfd_open};
use crate::sabotage::{self, Guard};

/// The descriptor under which a child finds its socket.
pub const CHILD_FD: i32 = 3;

/// Starts `command`'s process, which dies with this thread, finds `fds` at [`CHILD_FD`] and above, and knows nothing of the
/// service manager. Must be called on the main thread: the parent-death signal is bound to the thread that starts the child
/// (prctl(2)).
///
/// # Errors
/// When it cannot be started, or cannot be watched; then there is no such process any more.
pub fn start_child(mut command: Command, fds: Vec<OwnedFd>) -> io::Result<Child> {
    let (told, tell) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    // Before the descriptors, which may take the place of this one.
    tell_number(&mut command, tell);
    die_with_parent(&mut command, fds);
    // tokio forgets one that has started and that it cannot watch then: no memory, or too many watches of the kernel.
    command.spawn().inspect_err(|_| end_forgotten(told))
}

/// Kills a child, and does not wait for its end.
pub fn kill(child: &mut Child, what: &str) {
    if let Err(error) = child.start_kill() {
        tracing::warn!(pid = child.id(), %error, "cannot kill the {what}");
    }
}

/// How a child has ended that is still to be collected; `None` while it runs.
///
/// # Errors
/// When it has been collected.
pub fn status(child: &Child) -> io::Result<Option<ExitStatus>> {
    let pid = child.id().ok_or(io::ErrorKind::NotFound)?.cast_signed();
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    // As wait(2) says it.
    Ok(match waitid(Id::Pid(Pid::from_raw(pid)), look)? {
        WaitStatus::Exited(_, code) => Some(ExitStatus::from_raw(code << 8)),
        WaitStatus::Signaled(_, signal, _) => Some(ExitStatus::from_raw(signal as i32)),
        _ => None,
    })
}

/// Waits until a child has ended, and does not collect it. Must be called within a runtime.
///
/// # Errors
/// When it cannot be watched.
pub async fn ended(child: &mut Child) -> io::Result<ExitStatus> {
    match watch(child) {
        Ok(watch) => drop(watch.readable().await?),
        // No more descriptors. There is one for this already, with which it is collected at once.
        Err(_) => return child.wait().await,
    }
    match status(child)? {
        Some(status) => Ok(status),
        None => child.wait().await,
    }
}

fn watch(child: &Child) -> io::Result<AsyncFd<OwnedFd>> {
    let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
    let pidfd = pidfd_open(pid.cast_signed())?;
    // SAFETY: the descriptor is its own, and is open for as long as it is watched.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE)? })
}

/// Waits until a child that was killed is gone, but not for one that hangs in the kernel: that is collected whenever it ends.
/// Must be called within a `LocalSet`.
pub async fn collect(mut child: Child, what: &str) {
    let pid = child.id();
    let gone = spawn_local(async move {
        let ended = ended(&mut child).await;
        let collected = spawn_blocking(move || child.try_wait()).await;
        if let (Err(error), _) | (_, Ok(Err(error))) = (ended, collected) {
            tracing::warn!(pid, %error, "cannot collect a child");
        }
    });
    // It goes on when nobody waits for it any more.
    if timeout(END_LIMIT, gone).await.is_err() {
        tracing::error!(pid, "the {what} was killed, and has not ended: it hangs in the kernel");
    }
}

fn tell_number(command: &mut Command, tell: OwnedFd) {
    // SAFETY: between fork and exec only async-signal-safe calls are made: getpid, write.
    unsafe {
        command.pre_exec(move || {
            let number = libc::getpid().to_ne_bytes();
            match libc::write(tell.as_raw_fd(), number.as_ptr().cast(), number.len()) {
                4 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}

fn end_forgotten(told: OwnedFd) {
    let mut number = [0; 4];
    // Nothing is told when there never was a process.
    if File::from(told).read_exact(&mut number).is_ok() {
        let pid = i32::from_ne_bytes(number);
        if let Err(error) = end_child(pid) {
            tracing::warn!(pid, %error, "cannot end a child that cannot be watched");
        }
    }
}

/// What of the environment a child gets: where programs and certificates are, language and time zone, how names are looked up
/// (resolv.conf(5), host.conf(5)), how it logs.
const KEPT: &[&str] = &[
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "LOCALDOMAIN",
    "RES_OPTIONS",
    "RESOLV_MULTI",
    "CHAOS_LOG",
    "RUST_BACKTRACE",
    #[cfg(feature = "fail-points")]
    crate::fail_point::VARIABLE,
    #[cfg(feature = "sabotage")]
    sabotage::VARIABLE,
    #[cfg(feature = "sabotage")]
    sabotage::PINS,
];

/// Has `command`'s process die with this thread, and inherit nothing but `fds`, at [`CHILD_FD`] and above, and what of the
/// environment is [`KEPT`].
fn die_with_parent(command: &mut Command, fds: Vec<OwnedFd>) {
    let kept = KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(kept);
    let parent = nix::unistd::getpid();
    let orphans = sabotage::without(Guard::DeathSignal);
    let places: Vec<i32> = (CHILD_FD..).take(fds.len()).collect();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl, getppid, fcntl, dup2, those of `close_at_exec`.
    unsafe {
        command.pre_exec(move || {
            if !orphans {
                nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
            }
            if nix::unistd::getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            // First out of the way, so that none is overwritten before it is in its place.
            let mut high = [-1; 8];
            for (slot, fd) in high.iter_mut().zip(&fds) {
                *slot = check(libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100))?;
            }
            for (from, place) in high.iter().zip(&places) {
                check(libc::dup2(*from, *place))?;
            }
            let others = CHILD_FD.unsigned_abs() + places.len() as u32;
            close_at_exec(others)
        });
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::thread;

    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::sys::signal::{Signal, kill as send};
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    use nix::unistd::Pid;
    use tokio::task::LocalSet;

    use super::*;
    use crate::host::refuse;
    use crate::waits::see;

    /// Whether the calling thread has a child, dead or alive.
    fn has_child() -> bool {
        let flags =
            WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT | WaitPidFlag::__WNOTHREAD;
        waitid(Id::All, flags) != Err(Errno::ECHILD)
    }

    fn sleeper() -> Command {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command
    }

    #[test]
    fn a_child_that_cannot_be_watched_is_ended_and_collected() {
        // What is refused to a thread ends with it.
        let on_a_thread = || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(async {
                let mut watched = start_child(sleeper(), Vec::new()).unwrap();
                assert!(has_child());
                watched.kill().await.unwrap();
                assert!(!has_child());
                // No more watches.
                refuse(libc::SYS_epoll_ctl, libc::ENOSPC);
                let refused = start_child(sleeper(), Vec::new()).unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC), "{refused}");
                assert!(!has_child(), "a child is left");
            });
        };
        thread::spawn(on_a_thread).join().unwrap();
    }

    #[test]
    fn a_child_that_does_not_end_is_not_waited_for_and_is_collected_when_it_has() {
        let on_a_thread = || {
            // The clock runs ahead while nothing happens.
            let mut tokio = tokio::runtime::Builder::new_current_thread();
            let tokio = tokio.enable_all().start_paused(true).build().unwrap();
            LocalSet::new().block_on(&tokio, async {
                let hung = start_child(sleeper(), Vec::new()).unwrap();
                let pid = Pid::from_raw(hung.id().unwrap().cast_signed());
                let since = tokio::time::Instant::now();
                collect(hung, "sleeper").await;
                assert!(since.elapsed() >= END_LIMIT && has_child());
                tokio::time::resume();
                send(pid, Signal::SIGKILL).unwrap();
                see(async || !has_child()).await;
            });
        };
        thread::spawn(on_a_thread).join().unwrap();
    }

    #[test]
    fn a_child_is_collected_aside_and_how_it_ended_is_told_before() {
        let on_a_thread = || {
            let mut tokio = tokio::runtime::Builder::new_current_thread();
            let tokio = tokio.enable_all().max_blocking_threads(1).build().unwrap();
            LocalSet::new().block_on(&tokio, async {
                // The thread aside is there before anything is refused to this one.
                spawn_blocking(|| ()).await.unwrap();
                let mut child = start_child(sleeper(), Vec::new()).unwrap();
                assert_eq!(status(&child).unwrap(), None);
                refuse(libc::SYS_wait4, libc::EDEADLK);
                kill(&mut child, "sleeper");
                for _ in 0..2 {
                    assert_eq!(ended(&mut child).await.unwrap().signal(), Some(libc::SIGKILL));
                    assert!(has_child(), "it was collected here");
                }
                collect(child, "sleeper").await;
                assert!(!has_child(), "nobody has collected it");
            });
        };
        thread::spawn(on_a_thread).join().unwrap();
    }

    #[test]
    fn how_a_child_ended_is_told_as_wait_tells_it() {
        let on_a_thread = || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(async {
                let mut command = Command::new("sh");
                command.args(["-c", "exit 3"]);
                let mut child = start_child(command, Vec::new()).unwrap();
                let told = ended(&mut child).await.unwrap();
                assert_eq!((told, told.code()), (child.wait().await.unwrap(), Some(3)));
                assert_eq!(status(&child).unwrap_err().kind(), io::ErrorKind::NotFound);
            });
        };
        thread::spawn(on_a_thread).join().unwrap();
    }

    #[test]
    fn a_child_has_no_descriptor_but_its_own_and_no_variable_but_those_that_are_kept() {
        let on_a_thread = || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(async {
                // As a launcher may have left one: it would go through exec(2).
                let left = File::open("/dev/null").unwrap();
                let left = fcntl(&left, FcntlArg::F_DUPFD(200)).unwrap();
                let (mut reader, writer) = std::io::pipe().unwrap();
                let mut command = Command::new("sh");
                command.args([
                    "-c",
                    "cat /proc/self/environ | tr '\\0' '\\n' | cut -d= -f1 >&3; ls /proc/$$/fd >&3",
                ]);
                let mut child = start_child(command, vec![writer.into()]).unwrap();
                assert!(child.wait().await.unwrap().success());
                let mut said = String::new();
                reader.read_to_string(&mut said).unwrap();
                let known: Vec<_> = KEPT.iter().copied().chain(["PWD", "OLDPWD", "SHLVL", "_"]).collect();
                let known = |word: &str| known.contains(&word) || word.parse::<i32>().is_ok_and(|fd| fd <= 3);
                // The shell itself may keep its script at 10 or above, never at 200.
                let others: Vec<_> =
                    said.lines().filter(|word| !known(word) && !word.starts_with('1')).collect();
                assert!(others.is_empty(), "{left}: {others:?} of {said}");
            });
        };
        thread::spawn(on_a_thread).join().unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_leaves_no_child() {
        let on_a_thread = || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(async {
                let refused = start_child(Command::new("/no/such/program"), Vec::new()).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::NotFound);
                assert!(!has_child());
            });
        };
        thread::spawn(on_a_thread).join().unwrap();
    }
}
