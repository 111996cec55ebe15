//! Sockets: what a program at a security hook sees of one, and where the kernel keeps it.

use crate::packet::{Packet, Version};
use crate::rule::{TCP, UDP};

/// `AF_INET`, include/linux/socket.h.
const INET: u16 = 2;
/// `AF_INET6`, likewise.
const INET6: u16 = 10;
/// `IPPROTO_MPTCP`, include/uapi/linux/in.h: TCP, as far as its callers know.
const MPTCP: u16 = 262;

/// The one entry of [`crate::name::SOCKET`]. All offsets in bytes, read from the kernel's BTF, because they differ between
/// kernels.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketLayout {
    /// `sk` in `struct socket`.
    pub socket_sock: u32,
    /// `skc_family` in `struct sock`.
    pub family: u32,
    /// `sk_protocol` in `struct sock`.
    pub protocol: u32,
    /// `skc_num` in `struct sock`.
    pub local_port: u32,
    /// `skc_dport` in `struct sock`.
    pub remote_port: u32,
    /// `skc_daddr` in `struct sock`.
    pub remote_v4: u32,
    /// `skc_v6_daddr` in `struct sock`.
    pub remote_v6: u32,
    /// `msg_name` in `struct msghdr`.
    pub message_name: u32,
}

/// An address as a caller gives it: what `struct sockaddr_in` and `struct sockaddr_in6` (include/uapi/linux/in.h, in6.h) begin
/// with.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Name {
    /// Address family.
    pub family: u16,
    /// Port, in network order.
    pub port: u16,
    /// The address, if it is one of IPv4.
    pub v4: u32,
    /// The address, if it is one of IPv6.
    pub v6: [u32; 4],
}

/// A socket at the moment of a call, as the kernel keeps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Socket {
    /// Address family.
    pub family: u16,
    /// Protocol.
    pub protocol: u16,
    /// The port that it is bound to, or is about to be, in host order; 0 is none.
    pub local_port: u16,
    /// The port that it is connected to, or sends to, in network order; 0 is none.
    pub remote_port: u16,
}

/// Where a socket is connected to, or sends to: an address of IPv6 as it lies in one, or one of IPv4 in those clothes. All zero
/// but for the clothes is nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer([u32; 4]);

const _: () = assert!(size_of::<SocketLayout>() == 32 && align_of::<SocketLayout>() == 4);
const _: () = assert!(size_of::<Name>() == 24);

#[cfg(feature = "user")]
// SAFETY: integers in C layout, and the size says that there is no padding between them.
unsafe impl aya::Pod for SocketLayout {}

impl Peer {
    /// The third word of an address of IPv4 in the clothes of IPv6 (RFC 4291 2.5.5.2).
    const MAPPED: u32 = 0xffff_u32.to_be();

    /// An address of IPv4.
    #[inline(always)]
    pub const fn of_v4(address: u32) -> Self {
        Self([0, 0, Self::MAPPED, address])
    }

    /// An address of IPv6, which may be one of IPv4.
    #[inline(always)]
    pub const fn of_v6(address: [u32; 4]) -> Self {
        Self(address)
    }

    /// The address, if it is one of IPv4.
    #[inline(always)]
    pub const fn v4(&self) -> Option<u32> {
        let Self([a, b, c, address]) = *self;
        if a == 0 && b == 0 && c == Self::MAPPED { Some(address) } else { None }
    }

    /// The address as it is, whatever it is.
    #[inline(always)]
    pub const fn v6(&self) -> [u32; 4] {
        self.0
    }

    /// Whether it is an address of the loopback.
    #[inline(always)]
    pub const fn is_this_host(&self) -> bool {
        match self.v4() {
            Some(address) => u32::from_be(address) >> 24 == 127,
            None => self.0[0] == 0 && self.0[1] == 0 && self.0[2] == 0 && self.0[3] == 1_u32.to_be(),
        }
    }
}

impl Name {
    /// The address. That of a socket of IPv6 may be one of IPv4.
    #[inline(always)]
    pub const fn peer(&self) -> Peer {
        if self.family == INET6 { Peer::of_v6(self.v6) } else { Peer::of_v4(self.v4) }
    }
}

impl Socket {
    /// Whether its peer has an address of IPv6, which may be one of IPv4 in other clothes.
    #[inline(always)]
    pub const fn is_v6(&self) -> bool {
        self.family == INET6
    }

    /// Whether what it sends goes where it is connected to, whatever address comes with it: TCP does not look at that.
    #[inline(always)]
    pub const fn keeps_its_peer(&self) -> bool {
        self.is_tcp() && self.remote_port != 0
    }

    #[inline(always)]
    const fn is_tcp(&self) -> bool {
        self.protocol == TCP as u16 || self.protocol == MPTCP
    }

    /// What the rules have to know of it, as if it were a packet that leaves; `None` of a socket that is neither of IPv4 nor of
    /// IPv6.
    #[inline(always)]
    pub fn packet(&self) -> Option<Packet> {
        let version = match self.family {
            INET => Version::V4,
            INET6 => Version::V6,
            _ => return None,
        };
        let protocol = if self.is_tcp() { TCP } else { self.protocol as u8 };
        Some(Packet {
            version,
            protocol,
            has_ports: protocol == TCP || protocol == UDP,
            source: self.local_port,
            destination: u16::from_be(self.remote_port),
            ..Packet::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn words(address: Ipv6Addr) -> [u32; 4] {
        let bytes = address.octets();
        [0, 4, 8, 12].map(|at| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
    }

    fn v4(address: Ipv4Addr) -> u32 {
        u32::from_ne_bytes(address.octets())
    }

    #[test]
    fn only_sockets_of_ip_are_met() {
        let of = |family| Socket { family, protocol: 6, ..Socket::default() }.packet();
        assert_eq!(of(2).map(|packet| packet.version), Some(Version::V4));
        assert_eq!(of(10).map(|packet| packet.version), Some(Version::V6));
        // AF_UNSPEC, AF_UNIX, AF_NETLINK, AF_PACKET, AF_VSOCK.
        assert!([0, 1, 16, 17, 40].into_iter().all(|family| of(family).is_none()));
    }

    #[test]
    fn tcp_by_several_ways_is_tcp_and_ports_are_those_of_tcp_and_udp() {
        let of = |protocol| {
            let socket = Socket { family: 2, protocol, local_port: 80, remote_port: 443_u16.to_be() };
            let packet = socket.packet().unwrap();
            (packet.protocol, packet.has_ports, packet.source, packet.destination)
        };
        assert_eq!((of(6), of(262)), ((TCP, true, 80, 443), (TCP, true, 80, 443)));
        assert_eq!((of(17), of(1)), ((UDP, true, 80, 443), (1, false, 80, 443)));
    }

    #[test]
    fn a_connection_keeps_its_peer_and_nothing_else_does() {
        let keeps = |protocol, remote_port| {
            Socket { family: 2, protocol, remote_port, ..Socket::default() }.keeps_its_peer()
        };
        assert!(keeps(6, 443) && keeps(262, 443));
        // A first message may open a connection (TCP Fast Open), and a connected datagram socket may send to others.
        assert!(!keeps(6, 0) && !keeps(262, 0) && !keeps(17, 443));
    }

    #[test]
    fn an_address_is_that_of_its_family_whatever_it_is_wrapped_in() {
        let address = Ipv4Addr::new(10, 0, 0, 7);
        let plain = Name { family: 2, v4: v4(address), ..Name::default() };
        let mapped = Name { family: 10, v6: words(address.to_ipv6_mapped()), ..Name::default() };
        assert_eq!((plain.peer().v4(), mapped.peer().v4()), (Some(v4(address)), Some(v4(address))));
        let other = words("2001:db8::7".parse().unwrap());
        let peer = Name { family: 10, v6: other, ..Name::default() }.peer();
        assert_eq!((peer.v4(), peer.v6()), (None, other));
    }

    #[test]
    fn this_host_is_its_loopback() {
        let is = |address: &str| match address.parse().unwrap() {
            core::net::IpAddr::V4(address) => Peer::of_v4(v4(address)).is_this_host(),
            core::net::IpAddr::V6(address) => Peer::of_v6(words(address)).is_this_host(),
        };
        assert!(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].into_iter().all(is));
        assert!(!["0.0.0.0", "10.0.0.1", "::", "::2", "::ffff:10.0.0.1"].into_iter().any(is));
    }
}
