//! The kernel objects that can outlive a holder, each as a value that the journal keeps, and their undo.
//!
//! A step knows how to find its object, to say whether it is still there, and to remove it: compare-and-delete,
//! so that only our own is ever removed, and "was never made" is a success.

use std::fmt;
use std::net::IpAddr;
use std::thread;

use serde::{Deserialize, Serialize};

use super::netlink::marks::{self, FILTER_HANDLE, FILTER_PREFIX};
use super::netlink::{Device, Netlink, NetlinkError, Qdisc};
use super::node::{Kernel, Node, StepError, Undone};
use super::process::ProcessId;
use super::setting::Setting;
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

/// Whether a device has the qdisc that stubs hang on.
///
/// # Errors
/// When that cannot be known.
pub fn filter_hooks(
    netns: &NetNsRef,
    ifindex: u32,
    directions: &[Direction],
) -> Result<FilterHooks, StepError> {
    within(&Kernel, netns, FilterHooks::default(), async |netlink| {
        let qdiscs = netlink.qdiscs(ifindex).await?;
        let mut hooks = FilterHooks {
            clsact: qdiscs.iter().any(|qdisc| qdisc.parent == Qdisc::CLSACT),
            ahead: Vec::new(),
        };
        if hooks.clsact {
            for direction in directions {
                // For a warning alone: what cannot be listed is not warned of.
                let filters = netlink.list_filters(ifindex, *direction).await.unwrap_or_default();
                let ahead = filters.iter().filter(|filter| filter.pref <= marks::PREF_BASE);
                hooks.ahead.extend(ahead.map(|filter| filter.words(*direction)));
            }
        }
        // Of a table of many rules each is one.
        hooks.ahead.dedup();
        if let Some(more) = hooks.ahead.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
            hooks.ahead.truncate(MOST_NAMED);
            hooks.ahead.push(format!("{more} more"));
        }
        Ok(hooks)
    })
}

/// The names of the devices by which packets to these addresses leave, in a network namespace; `None` where there is no way. Blocks.
///
/// # Errors
/// When that cannot be known.
pub fn ways(netns: NetNs, to: &[IpAddr]) -> Result<Vec<Option<String>>, StepError> {
    inside(&Kernel, netns, async |netlink| {
        let mut ways = Vec::with_capacity(to.len());
        for address in to {
            ways.push(netlink.way_to(*address).await?);
        }
        Ok(ways)
    })
}

/// Some devices of a network namespace, by their names, as they are now; those that are there. Blocks.
///
/// # Errors
/// When that cannot be known.
pub fn devices(netns: NetNs, names: &[String]) -> Result<Vec<Device>, StepError> {
    inside(&Kernel, netns, async |netlink| {
        let mut devices = Vec::new();
        for name in names {
            devices.extend(netlink.link(name).await?);
        }
        Ok(devices)
    })
}

/// How many filters of others are named.
const MOST_NAMED: usize = 5;

/// What is at the filter hooks of a device.
#[derive(Debug, Default)]
pub struct FilterHooks {
    /// Whether it has a clsact qdisc.
    pub clsact: bool,
    /// The filters of others that run before ours, for people.
    pub ahead: Vec<String>,
}

/// Runs `act` with a connection into `netns`; `gone` is the answer when the namespace is gone. Blocks.
pub(super) fn within<T: Send>(
    node: &impl Node,
    netns: &NetNsRef,
    gone: T,
    act: impl AsyncFnOnce(&Netlink) -> Result<T, NetlinkError> + Send,
) -> Result<T, StepError> {
    let Some(opened) = netns.open()? else { return Ok(gone) };
    inside(node, opened, act)
}

/// Runs `act` with a connection into a namespace that is open. Blocks.
fn inside<T: Send>(
    node: &impl Node,
    opened: NetNs,
    act: impl AsyncFnOnce(&Netlink) -> Result<T, NetlinkError> + Send,
) -> Result<T, StepError> {
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
