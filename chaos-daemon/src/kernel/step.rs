//! The kernel objects that can outlive a holder, each as a value that the journal keeps, and their undo.
//!
//! A step knows how to find its object, to say whether it is still there, and to remove it: compare-and-delete,
//! so that only our own is ever removed, and "was never made" is a success.

use std::fmt;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use serde::{Deserialize, Serialize};

use super::netlink::marks::{self, FILTER_HANDLE, FILTER_PREFIX};
use super::netlink::{Netlink, NetlinkError, Qdisc};
use super::process::{END_LIMIT, ProcessId};
use super::setting::{OpenGroup, Setting, clock};
use super::systemd::{Systemd, SystemdError};
use crate::host::CgroupRef;
use crate::host::nameless;
use crate::host::netns::{NetNs, NetNsError, NetNsIdentity};
use crate::spec::{Direction, netns};

/// A network namespace as the journal writes it: how to find it again, and how to know that it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetNsRef {
    /// Name or path, as the caller gave it; `None` is the daemon's own.
    pub name: Option<String>,
    /// Identity.
    pub id: NetNsIdentity,
}

/// One kernel object of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The holder itself. Undo: end it.
    Holder(ProcessId),
    /// The near end of a veth pair, which takes its queue and its far end along. Undo: delete it.
    NearEnd {
        /// Where it is.
        netns: NetNsRef,
        /// Identity of the loop, from which its name is made.
        id: u32,
    },
    /// The clsact qdisc of a device, the hook for stubs. Undo: delete it once no filter is on it.
    Clsact {
        /// Where the device is.
        netns: NetNsRef,
        /// The device.
        ifindex: u32,
    },
    /// A stub filter. Undo: delete it, if it is ours.
    Stub {
        /// Where the device is.
        netns: NetNsRef,
        /// The device.
        ifindex: u32,
        /// The hook.
        direction: Direction,
        /// The fault's level, from which the filter's preference is made.
        level: u8,
    },
    /// A setting of the node that a supervised fault changes. Undo: set it back, if it is still as we set it.
    Setting(Setting),
}

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

impl NetNsRef {
    /// The reference of an open namespace.
    ///
    /// # Errors
    /// When its identity cannot be read.
    pub fn new(name: Option<String>, netns: &NetNs) -> Result<Self, NetNsError> {
        Ok(Self { name, id: netns.identity()? })
    }

    /// Opens the namespace again, by its name or wherever else it is. `None` when it has gone, and with it everything
    /// that was in it, or counts as gone ([`nameless::find`]). Where others than root and the kernel say what a name leads
    /// to, nobody goes: the way may never end.
    fn open(&self) -> Result<Option<NetNs>, StepError> {
        let named = match &self.name {
            None => NetNs::current().ok(),
            Some(name) if netns::is_trusted(name) => NetNs::open(name).ok(),
            Some(_) => None,
        };
        match named {
            Some(opened) if opened.identity().is_ok_and(|id| id == self.id) => Ok(Some(opened)),
            // Another one has the name now, or none, or it leads nowhere.
            _ => self.find(),
        }
    }

    fn find(&self) -> Result<Option<NetNs>, StepError> {
        nameless::find(self.id).map_err(|source| StepError::Search { name: self.words(), source })
    }

    fn words(&self) -> String {
        self.name.clone().unwrap_or_else(|| "of the daemon".to_owned())
    }
}

impl Step {
    /// Removes the object, if it is there and ours.
    ///
    /// # Errors
    /// When it may still be there.
    pub fn undo(&self, node: &impl Node) -> Result<Undone, StepError> {
        match self {
            Self::Holder(id) => node.end(*id),
            Self::NearEnd { netns, id } => within(node, netns, Undone::Absent, async |netlink| {
                let name = marks::near_name(*id);
                match netlink.link(&name).await? {
                    None => Ok(Undone::Absent),
                    Some(device) => Ok(removed(netlink.delete_link(device.ifindex, &name).await?)),
                }
            }),
            Self::Clsact { netns, ifindex } => within(node, netns, Undone::Absent, async |netlink| {
                Ok(if netlink.delete_clsact(*ifindex).await? { Undone::Removed } else { Undone::Kept })
            }),
            Self::Stub { netns, ifindex, direction, level } => {
                within(node, netns, Undone::Absent, async |netlink| {
                    let Some(pref) = marks::filter_pref(*level) else { return Ok(Undone::Absent) };
                    let deleted =
                        netlink.delete_bpf_filter(*ifindex, *direction, pref, FILTER_HANDLE, FILTER_PREFIX);
                    Ok(removed(deleted.await?))
                })
            }
            Self::Setting(setting) => setting.undo(node),
        }
    }

    /// Whether the object is on the node.
    ///
    /// # Errors
    /// When that cannot be known; unknown is never absent.
    pub fn present(&self, node: &impl Node) -> Result<bool, StepError> {
        match self {
            Self::Holder(id) => node.runs(*id),
            Self::NearEnd { netns, id } => within(node, netns, false, async |netlink| {
                Ok(netlink.link(&marks::near_name(*id)).await?.is_some())
            }),
            // Shared: others may use it, and its presence alone is nobody's residue.
            Self::Clsact { .. } => Ok(false),
            Self::Stub { netns, ifindex, direction, level } => within(node, netns, false, async |netlink| {
                let Some(pref) = marks::filter_pref(*level) else { return Ok(false) };
                let found = netlink.bpf_filter(*ifindex, *direction, pref, FILTER_HANDLE).await?;
                Ok(found.is_some_and(|filter| filter.is_ours()))
            }),
            Self::Setting(setting) => setting.present(node),
        }
    }

    /// What is done and how it is undone, for a plan.
    pub fn words(&self) -> String {
        match self {
            Self::Setting(setting) => {
                format!("set {setting}; undo: set back, if nobody else has changed it since")
            }
            step => format!("make {step}; undo: remove it, if it is ours"),
        }
    }

    /// Whether this outlives every process of ours, so that a guard has to undo it.
    pub fn is_supervised(&self) -> bool {
        matches!(self, Self::Setting(_))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words =
            |netns: &NetNsRef| netns.name.as_ref().map_or(String::new(), |name| format!(" in {name}"));
        match self {
            Self::Holder(id) => write!(f, "holder process {}", id.pid),
            Self::NearEnd { netns, id } => write!(f, "device {}{}", marks::near_name(*id), words(netns)),
            Self::Clsact { netns, ifindex } => write!(f, "clsact qdisc on device {ifindex}{}", words(netns)),
            Self::Stub { netns, ifindex, direction, level } => {
                write!(
                    f,
                    "filter {FILTER_PREFIX} level {level} on device {ifindex}{}, {direction:?}",
                    words(netns)
                )
            }
            Self::Setting(setting) => setting.fmt(f),
        }
    }
}

fn removed(deleted: bool) -> Undone {
    if deleted { Undone::Removed } else { Undone::Absent }
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

/// Whether a device has the qdisc that stubs hang on.
///
/// # Errors
/// When that cannot be known.
pub fn has_clsact(netns: &NetNsRef, ifindex: u32) -> Result<bool, StepError> {
    within(&Kernel, netns, false, async |netlink| {
        let qdiscs = netlink.qdiscs(ifindex).await?;
        Ok(qdiscs.iter().any(|qdisc| qdisc.parent == Qdisc::CLSACT))
    })
}

/// Runs `act` with a connection into `netns`; `gone` is the answer when the namespace is gone. Blocks.
pub(super) fn within<T: Send>(
    node: &impl Node,
    netns: &NetNsRef,
    gone: T,
    act: impl AsyncFnOnce(&Netlink) -> Result<T, NetlinkError> + Send,
) -> Result<T, StepError> {
    let Some(opened) = netns.open()? else { return Ok(gone) };
    // On a thread of its own: the caller may be inside a runtime already.
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .spawn_scoped(scope, || connect_and(node, opened, act))
            .map_err(StepError::Spawn)?;
        thread.join().unwrap_or(Err(StepError::Thread))
    })
}

fn connect_and<T>(
    node: &impl Node,
    netns: NetNs,
    act: impl AsyncFnOnce(&Netlink) -> Result<T, NetlinkError>,
) -> Result<T, StepError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StepError::Runtime)?;
    runtime.block_on(async {
        let netlink = node.connect(netns)?;
        Ok(act(&netlink).await?)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::waits::HANG;

    /// Records this process's namespace under a name, and expects it when it is opened again.
    fn assert_found_again(name: String) {
        let (tell, told) = mpsc::channel();
        // A pipe may be waited for.
        thread::spawn(move || {
            let recorded = NetNsRef::new(Some(name), &NetNs::current().unwrap()).unwrap();
            let opened = recorded.open().map_err(|error| crate::request::chain(&error));
            tell.send((opened.map(|netns| netns.map(|netns| netns.identity().unwrap())), recorded.id))
        });
        let (opened, id) = told.recv_timeout(HANG).unwrap();
        assert_eq!(opened, Ok(Some(id)));
    }

    #[test]
    fn a_namespace_whose_path_is_a_pipe_or_a_loop_by_now_is_found_by_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        symlink(at("loop"), at("loop")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        for name in ["pipe", "loop", "file", "file/ns", "none"] {
            assert_found_again(at(name).display().to_string());
        }
    }

    #[test]
    fn a_namespace_whose_name_fails_in_whatever_way_is_found_by_what_it_is() {
        // Too long for a name; another namespace or none of ours to see; nobody's.
        for name in ["n".repeat(5000), "/proc/1/ns/net".to_owned(), "/proc/2147483647/ns/net".to_owned()] {
            assert!(netns::is_trusted(&name));
            assert_found_again(name);
        }
    }

    #[test]
    fn a_namespace_that_has_gone_is_gone_whatever_its_name_leads_to() {
        let id = NetNs::current().unwrap().identity().unwrap();
        let gone = NetNsIdentity { cookie: u64::MAX, ..id };
        for name in [None, Some("none".to_owned()), Some("/tmp/none".to_owned())] {
            assert!(NetNsRef { name, id: gone }.open().unwrap().is_none());
        }
    }
}
