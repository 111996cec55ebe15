//! Two network namespaces joined by a cable: `eth0` on either side, addresses for IPv4 and IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use std::time::Duration;

use crate::error::{Error, Result};
use crate::netns::NetNs;
use crate::process::wait_until;

/// The interface on either side.
pub const INTERFACE: &str = "eth0";

const CARRIER: Duration = Duration::from_secs(5);

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
        near.ip(&["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", far.name()])?;
        for (namespace, v4, v6) in
            [(&near, "10.77.0.1/24", "fd77::1/64"), (&far, "10.77.0.2/24", "fd77::2/64")]
        {
            namespace.ip(&["address", "add", v4, "dev", INTERFACE])?;
            // Without duplicate address detection, which would keep the address unusable for a second.
            namespace.ip(&["address", "add", v6, "dev", INTERFACE, "nodad"])?;
            namespace.ip(&["link", "set", INTERFACE, "up"])?;
        }
        for namespace in [&near, &far] {
            wait_carrier(namespace)?;
        }
        Ok(Self { near, far })
    }
}

/// Packets vanish without a trace until the kernel has noticed, in its own time, that the carrier is there.
fn wait_carrier(namespace: &NetNs) -> Result<()> {
    let up = || {
        let show = ["-o", "link", "show", "dev", INTERFACE];
        namespace.ip(&show).is_ok_and(|text| text.contains("state UP"))
    };
    if wait_until(CARRIER, up) {
        return Ok(());
    }
    Err(Error::Late { what: format!("carrier of {INTERFACE} in {}", namespace.name()), after: CARRIER })
}
