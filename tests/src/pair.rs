//! Two network namespaces joined by a cable: `eth0` on either side, addresses for IPv4 and IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::Result;
use crate::netns::NetNs;
use crate::process::wait_for;

/// The interface on either side.
pub const INTERFACE: &str = "eth0";

/// Two namespaces and the veth between them. Faults go on the `near` side; the `far` side is the peer.
#[derive(Debug)]
pub struct Pair {
    /// Where the fault goes: 10.77.0.1, fd77::1.
    pub near: NetNs,
    /// The peer: 10.77.0.2, fd77::2.
    pub far: NetNs,
}

impl Pair {
    /// IPv4 address of the near side.
    pub const NEAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
    /// IPv4 address of the far side.
    pub const FAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
    /// IPv6 address of the near side.
    pub const NEAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1));
    /// IPv6 address of the far side.
    pub const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2));

    /// Makes both namespaces and the cable.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new() -> Result<Self> {
        let (near, far) = (NetNs::new()?, NetNs::new()?);
        // Without duplicate address detection, which would keep the addresses unusable for a second.
        near.ip_batch(&format!(
            "link add {INTERFACE} type veth peer name {INTERFACE} netns {}\n\
             address add 10.77.0.1/24 dev {INTERFACE}\n\
             address add fd77::1/64 dev {INTERFACE} nodad\n\
             link set {INTERFACE} up\n",
            far.name()
        ))?;
        far.ip_batch(&format!(
            "address add 10.77.0.2/24 dev {INTERFACE}\n\
             address add fd77::2/64 dev {INTERFACE} nodad\n\
             link set {INTERFACE} up\n"
        ))?;
        let pair = Self { near, far };
        pair.wait_up()?;
        Ok(pair)
    }

    /// Waits until packets get through.
    ///
    /// # Errors
    /// When they do not.
    pub fn wait_up(&self) -> Result<()> {
        [&self.near, &self.far].into_iter().try_for_each(wait_carrier)
    }
}

/// Packets vanish without a trace until the kernel has noticed, in its own time, that the carrier is there.
fn wait_carrier(namespace: &NetNs) -> Result<()> {
    let up = || {
        let show = ["-o", "link", "show", "dev", INTERFACE];
        namespace.ip(&show).is_ok_and(|text| text.contains("state UP"))
    };
    wait_for(&format!("carrier of {INTERFACE} in {}", namespace.name()), up)?;
    // It says so (`linkwatch_do_dev`) a moment before it lets packets pass, and holds until then the lock that this takes.
    namespace.ip(&["link", "set", "dev", INTERFACE, "up"])?;
    Ok(())
}
