//! Which way packets go: the route that the kernel takes to an address, policy rules included, as for a packet of root without a mark.
//!
//! Reference: rtnetlink(7) (`RTM_GETROUTE`), Linux `net/ipv4/route.c` (`inet_rtm_getroute`), `net/ipv6/route.c` (`inet6_rtm_getroute`).

use std::net::IpAddr;

use netlink_packet_core::DecodeError;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use nix::errno::Errno;

use super::Netlink;
use super::error::NetlinkError;
use super::wire::Attributes;

/// Length of `struct rtmsg`, and where its type is.
const HEADER: usize = 12;
const TYPE: usize = 7;
/// `RTN_MULTICAST` (linux/rtnetlink.h): the types behind it let nothing pass.
const LAST_TYPE_OF_A_WAY: u8 = 5;
const RTA_OIF: u16 = 4;
/// What the kernel says where there is no route, or one that only refuses (`fib_props` in net/ipv4/fib_semantics.c), or no IPv6.
const NO_WAY: [Errno; 6] = [
    Errno::ENETUNREACH,
    Errno::EHOSTUNREACH,
    Errno::EACCES,
    Errno::EINVAL,
    Errno::EAFNOSUPPORT,
    Errno::EOPNOTSUPP,
];

impl Netlink {
    /// The name of the device by which packets to an address leave; `None` when there is no way. Of one of this host's own it is the
    /// loopback.
    ///
    /// # Errors
    /// When the kernel refuses, or its answer cannot be read.
    pub async fn way_to(&self, to: IpAddr) -> Result<Option<String>, NetlinkError> {
        let mut message = RouteMessage::default();
        (message.header.address_family, message.header.destination_prefix_length) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        message.attributes.push(RouteAttribute::Destination(to.into()));
        let operation = format!("look up the route to {to}");
        let answers = match self.request(&operation, Message::GetRoute(message), 0).await {
            Err(error) if error.errno().is_some_and(|errno| NO_WAY.contains(&errno)) => return Ok(None),
            answers => answers?,
        };
        let found = answers.first().map(|bytes| device_of(bytes)).transpose();
        let found = found.map_err(|source| NetlinkError::Unreadable { operation, source })?;
        match found.flatten() {
            Some(index) => Ok(self.link_by_index(index).await?.map(|device| device.name)),
            None => Ok(None),
        }
    }
}

/// The number of the device in a route; `None` when nothing passes by it.
fn device_of(bytes: &[u8]) -> Result<Option<u32>, DecodeError> {
    let attributes = Attributes::behind(bytes, HEADER)?;
    match bytes[TYPE] {
        0..=LAST_TYPE_OF_A_WAY => attributes.u32(RTA_OIF),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_has_its_device_unless_nothing_passes_by_it() {
        let route = |kind: u8| {
            let mut bytes = vec![0; HEADER];
            bytes[TYPE] = kind;
            bytes.extend([8, 0, 4, 0]);
            bytes.extend(7_u32.to_ne_bytes());
            bytes
        };
        assert_eq!(device_of(&route(1)).unwrap(), Some(7));
        assert_eq!(device_of(&route(2)).unwrap(), Some(7));
        assert_eq!(device_of(&route(7)).unwrap(), None);
        assert_eq!(device_of(&[0; HEADER]).unwrap(), None);
        assert!(device_of(&[0; HEADER - 1]).is_err());
        assert!(device_of(&route(1)[..HEADER + 6]).is_err());
    }

    #[tokio::test]
    async fn this_host_is_reached_by_its_loopback() {
        let netlink = Netlink::open().unwrap();
        assert_eq!(netlink.way_to([127, 0, 0, 1].into()).await.unwrap().as_deref(), Some("lo"));
    }
}
