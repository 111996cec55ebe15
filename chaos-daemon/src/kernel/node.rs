//! The node as everything that undoes finds it: the kernel of this process, or a fake.

use std::fs::File;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;

use super::clock;
use super::netlink::{Netlink, NetlinkError};
use super::process::{END_LIMIT, ProcessId};
use super::systemd::{Systemd, SystemdError};
use crate::host::netns::NetNs;
use crate::host::{Cgroup, CgroupRef};

/// What an undo found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// It was there, and is gone.
    Removed,
    /// It was not there.
    Absent,
    /// It was not there, or others still use it and it stays.
    Kept,
    /// Somebody else has changed it since: it is theirs, and stays.
    Changed {
        /// As it is now.
        now: String,
    },
}

/// The node as a step finds it: the [`Kernel`], or in tests a fake, each of whose operations can be made to fail.
pub trait Node: Sync {
    /// A connection into a network namespace.
    ///
    /// # Errors
    /// As [`Netlink::open_in`].
    fn connect(&self, netns: NetNs) -> Result<Netlink, NetlinkError>;

    /// Ends a process, if it is still the same.
    ///
    /// # Errors
    /// When it may still be there.
    fn end(&self, id: ProcessId) -> Result<Undone, StepError>;

    /// Whether a process is there, the same still.
    ///
    /// # Errors
    /// When that cannot be known.
    fn runs(&self, id: ProcessId) -> Result<bool, StepError>;

    /// Opens a control group; `None` when it has gone, and with it everything that was set in it.
    ///
    /// # Errors
    /// When it cannot be opened for another reason.
    fn cgroup(&self, cgroup: &CgroupRef) -> io::Result<Option<impl OpenGroup>>;

    /// Wall clock minus boot clock, in nanoseconds.
    ///
    /// # Errors
    /// When a clock cannot be read.
    fn clock_distance_ns(&self) -> io::Result<i64>;

    /// Steps the wall clock by so many nanoseconds.
    ///
    /// # Errors
    /// When it is refused.
    fn step_clock(&self, offset_ns: i64) -> io::Result<()>;

    /// A connection to the service manager, for use in a runtime.
    ///
    /// # Errors
    /// When nobody listens.
    fn systemd(&self) -> impl Future<Output = Result<Systemd, SystemdError>>;

    /// A moment, to tell how long something has been waited for.
    fn now(&self) -> Instant;

    /// Lets so much time go by.
    fn sleep(&self, time: Duration);
}

/// The kernel that this process runs on.
#[derive(Debug, Clone, Copy)]
pub struct Kernel;

impl Node for Kernel {
    fn connect(&self, netns: NetNs) -> Result<Netlink, NetlinkError> {
        Netlink::open_in(netns)
    }

    fn end(&self, id: ProcessId) -> Result<Undone, StepError> {
        end(id)
    }

    fn runs(&self, id: ProcessId) -> Result<bool, StepError> {
        Ok(id.open().map_err(|source| StepError::End { pid: id.pid, source })?.is_some())
    }

    fn cgroup(&self, cgroup: &CgroupRef) -> io::Result<Option<impl OpenGroup>> {
        cgroup.open()
    }

    fn clock_distance_ns(&self) -> io::Result<i64> {
        clock::distance_ns()
    }

    fn step_clock(&self, offset_ns: i64) -> io::Result<()> {
        clock::step(offset_ns)
    }

    fn systemd(&self) -> impl Future<Output = Result<Systemd, SystemdError>> {
        Systemd::connect()
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// Why a step could not be undone or looked at.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Where the namespace is by now, or whether it is at all, cannot be told.
    #[error("find network namespace {name} again")]
    Search {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No runtime to talk to the kernel in.
    #[error("start a runtime for netlink")]
    Runtime(#[source] std::io::Error),
    /// No thread to talk to the kernel on.
    #[error("start a thread for netlink")]
    Spawn(#[source] std::io::Error),
    /// The thread that talks to the kernel.
    #[error("the thread that talks to the kernel panicked")]
    Thread,
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The holder cannot be ended.
    #[error("end holder {pid}")]
    End {
        /// Its number.
        pid: i32,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The kernel refused to show or change a setting.
    #[error("{operation} {what}")]
    Setting {
        /// What was tried.
        operation: &'static str,
        /// On what.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A setting is not what it has to be.
    #[error("{what}: expected {expected}, found {found}")]
    Changed {
        /// Which.
        what: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
}

/// The files of an open control group, which stays this one even when its path is given to another.
pub trait OpenGroup {
    /// Reads one, without the line's end.
    ///
    /// # Errors
    /// `NotFound` when the group has no such file, because its controller is not enabled or the group is gone.
    fn read(&self, file: &str) -> io::Result<String>;

    /// Writes one.
    ///
    /// # Errors
    /// As the kernel says: `ENOENT` or `ENODEV` when it is gone.
    fn write(&self, file: &str, text: &str) -> io::Result<()>;
}

impl OpenGroup for Cgroup {
    fn read(&self, file: &str) -> io::Result<String> {
        Self::read(self, file)
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        // One write: a kernel file takes a value whole or not at all.
        File::from(self.file(file, libc::O_WRONLY)?).write_all(text.as_bytes())
    }
}

/// Runs `act` with a connection to the service manager, on a thread of its own: the caller may be inside a runtime already. Blocks.
///
/// # Errors
/// When nobody listens, or as `act` does.
pub fn talk<T: Send>(
    act: impl AsyncFnOnce(&Systemd) -> Result<T, SystemdError> + Send,
) -> Result<T, SystemdError> {
    talk_on(&Kernel, act)
}

/// As [`talk`], on any node.
///
/// # Errors
/// As [`talk`].
pub fn talk_on<T: Send>(
    node: &impl Node,
    act: impl AsyncFnOnce(&Systemd) -> Result<T, SystemdError> + Send,
) -> Result<T, SystemdError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(SystemdError::Runtime)?.block_on(async { act(&node.systemd().await?).await })
        });
        thread.map_err(SystemdError::Runtime)?.join().unwrap_or(Err(SystemdError::Thread))
    })
}

fn end(id: ProcessId) -> Result<Undone, StepError> {
    let failed = |source| StepError::End { pid: id.pid, source };
    let Some(process) = id.open().map_err(failed)? else { return Ok(Undone::Absent) };
    process.signal(libc::SIGKILL).map_err(failed)?;
    if process.wait(END_LIMIT).map_err(failed)? {
        Ok(Undone::Removed)
    } else {
        Err(failed(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "killed, and has not ended: it hangs in the kernel, and until that lets it go it keeps what it has taken",
        )))
    }
}
