//! Reading a packet: IPv4 and IPv6 headers up to the ports, through a byte reader, so that the same code runs on
//! the kernel's packet memory and on a slice in a test.

use crate::LINK_HEADER;
use crate::rule::{ICMP, ICMP_V6, TCP, UDP};

/// Which way a packet goes, seen from this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Leaving through the device.
    Egress,
    /// Arriving at the device.
    Ingress,
}

impl Way {
    /// The other one.
    #[inline(always)]
    pub const fn back(self) -> Self {
        match self {
            Self::Egress => Self::Ingress,
            Self::Ingress => Self::Egress,
        }
    }
}

/// IP version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

/// Reads a packet from the start of its link header. `None` is beyond what can be read.
pub trait Bytes {
    /// One byte.
    fn u8(&self, at: usize) -> Option<u8>;
    /// Two bytes as they lie in memory.
    fn raw16(&self, at: usize) -> Option<u16>;
    /// Four bytes as they lie in memory.
    fn raw32(&self, at: usize) -> Option<u32>;
}

/// What the rules need to know of a packet.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packet {
    /// IP version.
    pub version: Version,
    /// The transport's protocol number, behind all extension headers that were read.
    pub protocol: u8,
    /// Not 0 in every piece of a datagram, first or later. A number, since the verifier would follow a `bool`
    /// both ways through all that comes after.
    pub fragment: u16,
    /// The ports below are the packet's.
    pub has_ports: bool,
    /// Source port, host order.
    pub source: u16,
    /// Destination port, host order.
    pub destination: u16,
    /// First byte of the transport header: the type of an ICMP message. 0 in later fragments.
    pub kind: u8,
    /// Where the transport header starts, from the start of the link header.
    pub transport: usize,
}

/// Why a packet was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// The headers go beyond the readable bytes.
    Short,
}

/// Most extension headers that are followed. Behind more, the next extension counts as the transport.
pub const MOST_EXTENSIONS: usize = 4;
/// Length of the IPv6 header.
pub const V6_HEADER: usize = 40;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

impl Packet {
    /// Reads the headers. `version` is what the link layer says the packet is.
    #[inline(always)]
    pub fn read(bytes: &impl Bytes, version: Version) -> Result<Self, Unread> {
        let first = bytes.u8(LINK_HEADER).ok_or(Unread::Short)?;
        match (version, first >> 4) {
            (Version::V4, 4) => Self::read_v4(bytes, first),
            (Version::V6, 6) => Self::read_v6(bytes),
            _ => Err(Unread::NotIp),
        }
    }

    #[inline(always)]
    fn read_v4(bytes: &impl Bytes, first: u8) -> Result<Self, Unread> {
        let length = ((first & 0xf) as usize) * 4;
        if length < 20 {
            return Err(Unread::NotIp);
        }
        let fragment = u16::from_be(bytes.raw16(LINK_HEADER + 6).ok_or(Unread::Short)?);
        let protocol = bytes.u8(LINK_HEADER + 9).ok_or(Unread::Short)?;
        let packet = Self {
            version: Version::V4,
            protocol,
            // More-fragments flag, or an offset.
            fragment: fragment & 0x3fff,
            transport: LINK_HEADER + length,
            ..Self::default()
        };
        packet.read_transport(bytes, fragment & 0x1fff != 0)
    }

    #[inline(always)]
    fn read_v6(bytes: &impl Bytes) -> Result<Self, Unread> {
        let mut protocol = bytes.u8(LINK_HEADER + 6).ok_or(Unread::Short)?;
        let mut at = LINK_HEADER + V6_HEADER;
        let mut fragment = 0;
        for _ in 0..MOST_EXTENSIONS {
            match protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => {
                    protocol = bytes.u8(at).ok_or(Unread::Short)?;
                    let units = bytes.u8(at + 1).ok_or(Unread::Short)?;
                    at += (units as usize + 1) * 8;
                }
                FRAGMENT => {
                    protocol = bytes.u8(at).ok_or(Unread::Short)?;
                    let offset = u16::from_be(bytes.raw16(at + 2).ok_or(Unread::Short)?);
                    // An "atomic" fragment (no offset, no more) is a whole packet.
                    fragment |= offset & 0xfff9;
                    at += 8;
                    if offset & 0xfff8 != 0 {
                        // What follows in a later piece is data, not headers.
                        let version = Version::V6;
                        return Ok(Self { version, protocol, fragment, transport: at, ..Self::default() });
                    }
                }
                _ => break,
            }
        }
        let packet = Self { version: Version::V6, protocol, fragment, transport: at, ..Self::default() };
        packet.read_transport(bytes, false)
    }

    #[inline(always)]
    fn read_transport(mut self, bytes: &impl Bytes, later: bool) -> Result<Self, Unread> {
        if later {
            return Ok(self);
        }
        match self.protocol {
            TCP | UDP => {
                let ports = u32::from_be(bytes.raw32(self.transport).ok_or(Unread::Short)?);
                self.source = (ports >> 16) as u16;
                self.destination = ports as u16;
                self.has_ports = true;
            }
            ICMP | ICMP_V6 => self.kind = bytes.u8(self.transport).ok_or(Unread::Short)?,
            _ => {}
        }
        Ok(self)
    }

    /// The ports of this node's end and of the peer's.
    #[inline(always)]
    pub const fn ports(&self, way: Way) -> (u16, u16) {
        match way {
            Way::Egress => (self.source, self.destination),
            Way::Ingress => (self.destination, self.source),
        }
    }

    /// Packets by which the link itself lives. No fault touches them: an address that cannot be resolved or a
    /// lease that cannot be renewed would outlast the fault. ARP is no IP and is never looked at.
    #[inline(always)]
    pub const fn is_link_life(&self) -> bool {
        match (self.version, self.protocol) {
            // Multicast listener, router, neighbour, redirect; listener report version 2 (RFC 2710, 3810, 4861).
            (Version::V6, ICMP_V6) => matches!(self.kind, 130..=137 | 143),
            (Version::V4, UDP) => self.has_ports && (dhcp_v4(self.source) || dhcp_v4(self.destination)),
            (Version::V6, UDP) => self.has_ports && (dhcp_v6(self.source) || dhcp_v6(self.destination)),
            _ => false,
        }
    }
}

/// Where the peer's address starts, from the start of the link header.
#[inline(always)]
pub const fn peer_at(version: Version, way: Way) -> usize {
    LINK_HEADER
        + match (version, way) {
            (Version::V4, Way::Egress) => 16,
            (Version::V4, Way::Ingress) => 12,
            (Version::V6, Way::Egress) => 24,
            (Version::V6, Way::Ingress) => 8,
        }
}

const fn dhcp_v4(port: u16) -> bool {
    matches!(port, 67 | 68)
}

const fn dhcp_v6(port: u16) -> bool {
    matches!(port, 546 | 547)
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
