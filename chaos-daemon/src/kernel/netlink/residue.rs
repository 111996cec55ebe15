//! What is left of faults in a namespace, found by our marks alone: no journal is needed, and nothing that is
//! not ours is ever listed. A fault that is alive is listed too; the caller knows which are.

use std::fmt;

use super::Netlink;
use super::clsact::Filter;
use super::error::NetlinkError;
use super::marks::{self, End};
use super::qdisc::Qdisc;
use crate::spec::Direction;

/// One thing of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Residue {
    /// An end of a veth pair. Its netem, if it has one, goes with it.
    Device {
        /// Its number.
        ifindex: u32,
        /// Its name.
        name: String,
        /// The fault it belongs to.
        fault: u32,
        /// Which end it is.
        end: End,
    },
    /// A stub on a clsact hook: inert once its fault is over.
    Filter {
        /// The device's number.
        ifindex: u32,
        /// The device's name.
        device: String,
        /// On which hook.
        direction: Direction,
        /// Its preference.
        pref: u16,
        /// Its number within the preference.
        handle: u32,
        /// Its name.
        name: String,
        /// The program it runs.
        program: Option<u32>,
    },
}

impl fmt::Display for Residue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { name, fault, .. } => write!(f, "device {name} of fault {fault:08x}"),
            Self::Filter { device, direction, pref, name, .. } => {
                write!(f, "filter {name} pref {pref} on {device} {}", direction.name())
            }
        }
    }
}

impl Netlink {
    /// Everything in the namespace that has a mark of ours.
    ///
    /// # Errors
    /// When any part cannot be read: then what is left is unknown.
    pub async fn residue(&self) -> Result<Vec<Residue>, NetlinkError> {
        let mut found = Vec::new();
        let devices = self.links().await?;
        let qdiscs = self.all_qdiscs().await?;
        for device in &devices {
            if let Some((fault, end)) = marks::recognise_device(&device.name) {
                found.push(Residue::Device {
                    ifindex: device.ifindex,
                    name: device.name.clone(),
                    fault,
                    end,
                });
            }
            let hooked = |qdisc: &Qdisc| qdisc.ifindex == device.ifindex && qdisc.parent == Qdisc::CLSACT;
            if !qdiscs.iter().any(hooked) {
                continue;
            }
            for direction in Direction::BOTH {
                let filters = self.list_filters(device.ifindex, *direction).await?;
                found.extend(
                    filters
                        .into_iter()
                        .filter_map(|filter| our_filter(device.ifindex, &device.name, *direction, filter)),
                );
            }
        }
        Ok(found)
    }

    /// Removes one of them, if it is still what it was. `false` when it is not there any more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn remove(&self, item: &Residue) -> Result<bool, NetlinkError> {
        match item {
            Residue::Device { ifindex, name, .. } => self.delete_link(*ifindex, name).await,
            Residue::Filter { ifindex, direction, pref, handle, name, .. } => {
                self.delete_bpf_filter(*ifindex, *direction, *pref, *handle, name).await
            }
        }
    }
}

fn our_filter(ifindex: u32, device: &str, direction: Direction, filter: Filter) -> Option<Residue> {
    if !filter.is_ours() {
        return None;
    }
    Some(Residue::Filter {
        ifindex,
        device: device.to_owned(),
        direction,
        pref: filter.pref,
        handle: filter.handle,
        program: filter.prog_id,
        name: filter.bpf_name?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_can_read_what_is_left() {
        let device =
            Residue::Device { ifindex: 9, name: marks::near_name(0xbeef), fault: 0xbeef, end: End::Near };
        assert_eq!(device.to_string(), "device chaos0000beefn of fault 0000beef");
        let filter = Filter {
            pref: 30_001,
            handle: 1,
            kind: "bpf".to_owned(),
            bpf_name: Some("chaos_stub".to_owned()),
            prog_id: Some(7),
        };
        let residue = our_filter(2, "eth0", Direction::Egress, filter.clone()).unwrap();
        assert_eq!(residue.to_string(), "filter chaos_stub pref 30001 on eth0 egress");
        let foreign = Filter { bpf_name: Some("cilium".to_owned()), ..filter };
        assert_eq!(our_filter(2, "eth0", Direction::Egress, foreign), None);
    }
}
