//! What of ours is in one network namespace: devices and filters by their marks, and what runs on its tcx hooks.

use std::io;

use super::census::Namespace;
use crate::kernel::bpf::inventory::{Attached, attached};
use crate::kernel::netlink::residue::Residue;
use crate::kernel::netlink::{Netlink, NetlinkError};

/// A program on a tcx hook, ours or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hook {
    pub(super) device: String,
    pub(super) attached: Attached,
}

/// What is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Network {
    /// What people call the namespace; empty for the one that the looking process is in.
    pub(super) label: String,
    pub(super) marked: Vec<Residue>,
    pub(super) hooks: Vec<Hook>,
}

/// Looks. Blocks.
///
/// # Errors
/// When any part cannot be read: what is there is unknown then.
pub(super) fn look(namespace: &Namespace) -> Result<Network, io::Error> {
    let work = || {
        let (marked, devices) = run(async |netlink| Ok((netlink.residue().await?, netlink.links().await?)))?;
        let mut hooks = Vec::new();
        for device in devices {
            let on = attached(device.ifindex)?;
            hooks.extend(on.into_iter().map(|attached| Hook { device: device.name.clone(), attached }));
        }
        Ok((marked, hooks))
    };
    let (marked, hooks) = namespace.netns.inside(work).map_err(io::Error::other)?;
    Ok(Network { label: namespace.label.clone(), marked, hooks })
}

/// Removes something from a namespace, if it is still there. Blocks.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn remove(namespace: &Namespace, item: &Residue) -> io::Result<bool> {
    let work = || run(async |netlink| netlink.remove(item).await);
    namespace.netns.inside(work).map_err(io::Error::other)
}

/// Runs `act` with a connection into the calling thread's namespace.
fn run<T>(act: impl AsyncFnOnce(&Netlink) -> Result<T, NetlinkError>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { act(&Netlink::open()?).await }).map_err(io::Error::other)
}
