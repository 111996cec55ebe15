//! What a packet is that was looked at, by its first bytes: what a fault knows it by, and what hides that from the fault.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use chaos_common::rule::{TCP, UDP};
use chaos_common::{Bytes, LINK_HEADER, Packet, Version, Way};

use crate::kernel::bpf::sample::Frame;
use crate::spec::Direction;

const IP_V4: u16 = 0x0800;
const IP_V6: u16 = 0x86dd;
/// 802.1Q, 802.1ad, and what came before that (linux/if_ether.h).
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// An Ethernet frame within GRE or Geneve (`ETH_P_TEB`).
const BRIDGED: u16 = 0x6558;
/// Length of an Ethernet header without tags.
const LINK: usize = 14;
/// How many tags are looked behind.
const MOST_TAGS: usize = 3;

/// A packet that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) way: Way,
    /// Index of the device that it was on.
    pub(super) interface: u32,
    pub(super) what: What,
}

/// What it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// By this the link lives: no fault is about it.
    Life,
    /// Something else than IP, of this type.
    NotIp(u16),
    /// Behind tags of these types that hide it.
    Tagged(Vec<u16>, Option<Ip>),
    /// As a fault sees it; and what is in it, of a tunnel that can be read.
    Plain(Ip, Option<(&'static str, Ip)>),
    /// Too short to be read.
    Unread,
}

/// Addresses and transport of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ip {
    pub(super) packet: Packet,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// Whether it begins a connection of TCP.
    pub(super) begins: bool,
}

impl Ip {
    /// Address and port of this node's end, and of the peer's.
    pub(super) fn ends(&self, way: Way) -> [(IpAddr, u16); 2] {
        let (local, remote) = self.packet.ports(way);
        match way {
            Way::Egress => [(self.source, local), (self.destination, remote)],
            Way::Ingress => [(self.destination, local), (self.source, remote)],
        }
    }
}

/// The bytes from an IP header on, as if a link's header were before it.
struct From<'a>(&'a [u8]);

impl From<'_> {
    fn at<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let at = at.checked_sub(LINK_HEADER)?;
        self.0.get(at..at + N)?.try_into().ok()
    }
}

impl Bytes for From<'_> {
    fn u8(&self, at: usize) -> Option<u8> {
        self.at(at).map(|[byte]| byte)
    }

    fn raw16(&self, at: usize) -> Option<u16> {
        self.at(at).map(u16::from_ne_bytes)
    }

    fn raw32(&self, at: usize) -> Option<u32> {
        self.at(at).map(u32::from_ne_bytes)
    }
}

/// Reads a packet that was looked at.
pub(super) fn read(frame: &Frame) -> Sight {
    let way = match frame.direction {
        Direction::Egress => Way::Egress,
        Direction::Ingress => Way::Ingress,
    };
    Sight { way, interface: frame.interface, what: what(frame) }
}

fn what(frame: &Frame) -> What {
    let header = if frame.linked { LINK } else { 0 };
    let Some(behind) = frame.bytes.get(header..) else { return What::Unread };
    if let Some(version) = version(frame.protocol) {
        return match ip(behind, version) {
            None => What::Unread,
            Some(ip) if ip.packet.is_link_life() => What::Life,
            Some(ip) => What::Plain(ip, tunnel(behind, &ip.packet)),
        };
    }
    if !TAGS.contains(&frame.protocol) {
        return What::NotIp(frame.protocol);
    }
    // Behind each tag there are two bytes of its own, and the type of what follows.
    let (mut tags, mut kind, mut rest) =
        (frame.tag.into_iter().collect::<Vec<_>>(), frame.protocol, Some(behind));
    while let (true, Some(bytes)) = (TAGS.contains(&kind) && tags.len() < MOST_TAGS, rest) {
        tags.push(kind);
        kind = number16(bytes, 2).unwrap_or_default();
        rest = bytes.get(4..);
    }
    let within = rest.zip(version(kind)).and_then(|(bytes, version)| ip(bytes, version));
    match within {
        Some(ip) if ip.packet.is_link_life() => What::Life,
        within => What::Tagged(tags, within),
    }
}

fn version(protocol: u16) -> Option<Version> {
    match protocol {
        IP_V4 => Some(Version::V4),
        IP_V6 => Some(Version::V6),
        _ => None,
    }
}

fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// What begins with an IP header.
fn ip(bytes: &[u8], version: Version) -> Option<Ip> {
    /// Of the flags of TCP, SYN and ACK.
    const SYN_ACK: u8 = 0x12;
    const SYN: u8 = 0x02;
    let packet = Packet::read(&From(bytes), version).ok()?;
    let v4 = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?).into());
    let v6 = |at: usize| {
        let address = Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?);
        Some(IpAddr::from(address).to_canonical())
    };
    let (source, destination) = match version {
        Version::V4 => (v4(12)?, v4(16)?),
        Version::V6 => (v6(8)?, v6(24)?),
    };
    let flags = bytes.get(packet.transport - LINK_HEADER + 13).copied().unwrap_or_default();
    let begins = packet.protocol == TCP && packet.has_ports && flags & SYN_ACK == SYN;
    Some(Ip { packet, source, destination, begins })
}

/// An Ethernet frame in a tunnel.
fn bridged(bytes: &[u8]) -> Option<Ip> {
    let kind = number16(bytes, LINK - 2)?;
    ip(bytes.get(LINK..)?, version(kind)?)
}

/// The tunnel that a packet is of, and what is in it.
fn tunnel(bytes: &[u8], outer: &Packet) -> Option<(&'static str, Ip)> {
    /// IPv4 and IPv6 within IP, GRE (RFC 2003, 2473, 2784).
    const IPIP: u8 = 4;
    const SIT: u8 = 41;
    const GRE: u8 = 47;
    let within = bytes.get(outer.transport - LINK_HEADER..)?;
    match (outer.protocol, outer.destination) {
        (IPIP, _) => Some(("IP in IP", ip(within, Version::V4)?)),
        (SIT, _) => Some(("IPv6 in IP", ip(within, Version::V6)?)),
        (GRE, _) => {
            // Checksum, key and number are there where a flag says so, four bytes each.
            let flags = number16(within, 0)?;
            let more = [0x8000, 0x2000, 0x1000].iter().filter(|flag| flags & **flag != 0).count();
            let payload = within.get(4 + 4 * more..)?;
            let found = match number16(within, 2)? {
                BRIDGED => bridged(payload),
                kind => version(kind).and_then(|version| ip(payload, version)),
            };
            Some(("GRE", found?))
        }
        // RFC 7348, and Linux's own number before that.
        (UDP, 4789 | 8472) => Some(("VXLAN", bridged(within.get(16..)?)?)),
        (UDP, 6081) => {
            let options = usize::from(within.get(8)? & 0x3f) * 4;
            Some(("Geneve", bridged(within.get(16 + options..)?)?))
        }
        _ => None,
    }
}

/// A type of the link layer, for people.
pub(super) fn type_words(kind: u16) -> String {
    let name = match kind {
        0x0806 => "ARP",
        0x8847 | 0x8848 => "MPLS",
        0x8863 | 0x8864 => "PPPoE",
        0x88cc => "LLDP",
        0x8100 => "802.1Q",
        0x88a8 => "802.1ad",
        _ => return format!("type {kind:#06x}"),
    };
    format!("{name} ({kind:#06x})")
}
