//! What this kernel can do, found out by doing it in a private namespace that ends with the probe. Asking is not
//! enough: modules load on demand, and whether they do shows only when one is needed.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;

use super::marks::{FILTER_HANDLE, NETEM_HANDLE, far_name, filter_pref, near_name};
use super::netem::Netem;
use super::{Netlink, NetlinkError};
use crate::host::netns::NetNs;
use crate::spec::Direction;

/// The answers, one for each thing the kernel may lack. An error of another kind than
/// [`NetlinkError::MissingModule`] means that the question could not be asked.
#[derive(Debug)]
pub struct Support {
    /// Pairs of virtual Ethernet devices.
    pub veth: Result<(), NetlinkError>,
    /// Filter hooks with programs on them; needed only before Linux 6.6, which attaches programs without.
    pub filters: Result<(), NetlinkError>,
    /// Delays.
    pub netem: Result<(), NetlinkError>,
}

impl Support {
    /// Names of the kernel modules that are missing.
    pub fn missing_modules(&self) -> Vec<&'static str> {
        [&self.veth, &self.filters, &self.netem]
            .into_iter()
            .filter_map(|answer| match answer {
                Err(NetlinkError::MissingModule { module, .. }) => Some(*module),
                _ => None,
            })
            .collect()
    }
}

/// Finds out, on a thread of its own, and leaves nothing behind. Blocks for some milliseconds; the first time
/// longer, while modules load.
///
/// # Errors
/// When no namespace can be made: without CAP_SYS_ADMIN nothing can be tried.
pub fn probe() -> Result<Support, NetlinkError> {
    apart(in_private_namespace)
}

/// Finds out, likewise, whether there are rates that can be changed: few faults need them.
///
/// # Errors
/// [`NetlinkError::MissingModule`] when there are none; as [`probe`].
pub fn probe_htb() -> Result<(), NetlinkError> {
    apart(async || {
        NetNs::unshare().map_err(NetlinkError::NetNs)?;
        // Every namespace has a loopback device, number 1.
        Netlink::open()?.put_htb("try htb", 1).await
    })
}

fn apart<T: Send>(tried: impl AsyncFnOnce() -> Result<T, NetlinkError> + Send) -> Result<T, NetlinkError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("probe".to_owned())
            .spawn_scoped(scope, || {
                // Built before the namespace is left: see `NetNs::unshare`.
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(NetlinkError::Open)?;
                runtime.block_on(tried())
            })
            .map_err(NetlinkError::Open)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

async fn in_private_namespace() -> Result<Support, NetlinkError> {
    NetNs::unshare().map_err(NetlinkError::NetNs)?;
    let netlink = Netlink::open()?;
    let pair = netlink.create_veth_pair(&near_name(0), &netlink, &far_name(0)).await;
    // Every namespace has a loopback device, number 1, so that the other answers do not hang on this one.
    let (veth, device) = match pair {
        Ok(pair) => (Ok(()), pair.near.ifindex),
        Err(error) => (Err(error), 1),
    };
    let netem = Netem::delay(Duration::from_millis(1), Duration::ZERO, 1);
    Ok(Support {
        veth,
        filters: filters(&netlink, device).await,
        netem: netlink.put_netem("try netem".to_owned(), device, NETEM_HANDLE, &netem).await,
    })
}

/// Offers a descriptor that is no program: a kernel with `cls_bpf` objects to the descriptor, not to the filter.
async fn filters(netlink: &Netlink, device: u32) -> Result<(), NetlinkError> {
    // Without the hook the kernel would object to that with the same number.
    netlink.add_clsact(device).await?;
    let pref = filter_pref(1).unwrap_or_default();
    let no_program = netlink.netns().as_fd();
    match netlink.add_bpf_filter(device, Direction::Egress, pref, FILTER_HANDLE, no_program, "probe").await {
        Err(error) if matches!(error.errno(), Some(Errno::EINVAL | Errno::EBADF)) => Ok(()),
        other => other,
    }
}
