//! The rule of one fault: which packets it selects, how likely it acts, and where it sends them.

use crate::packet::{Packet, Version, Way};

/// The rule selects nothing until this is set. The loader sets it last, so that no packet meets half a rule.
pub const ENABLED: u32 = 1 << 0;
/// Every peer is selected, and no peer map is looked at.
pub const EVERY_PEER: u32 = 1 << 1;
/// [`crate::name::HOSTS_V4`] is not empty.
pub const HOSTS_V4: u32 = 1 << 2;
/// [`crate::name::HOSTS_V6`] is not empty.
pub const HOSTS_V6: u32 = 1 << 3;
/// [`crate::name::NETS_V4`] is not empty.
pub const NETS_V4: u32 = 1 << 4;
/// [`crate::name::NETS_V6`] is not empty.
pub const NETS_V6: u32 = 1 << 5;
/// [`crate::name::PROTECTED_V4`] is not empty.
pub const PROTECTED_V4: u32 = 1 << 6;
/// [`crate::name::PROTECTED_V6`] is not empty.
pub const PROTECTED_V6: u32 = 1 << 7;
/// [`crate::name::PROTECTED_PORTS`] is not empty.
pub const PROTECTED_PORTS: u32 = 1 << 8;
/// Packets come back from the detour on the ingress side of the device.
pub const RETURN_INGRESS: u32 = 1 << 9;
/// [`PacketRule::ports`] are the ends of the list [`EITHER`], which has gaps.
pub const LISTED_EITHER: u32 = 1 << 10;
/// [`PacketRule::local_ports`] are the ends of the list [`LOCAL`].
pub const LISTED_LOCAL: u32 = 1 << 11;
/// [`PacketRule::remote_ports`] are the ends of the list [`REMOTE`].
pub const LISTED_REMOTE: u32 = 1 << 12;
/// Packets with a port of the list [`EXCEPT`] on either end are not selected.
pub const EXCEPT_PORTS: u32 = 1 << 13;
/// Only a share of the connections is selected: see [`PacketRule::connections`].
pub const SOME_CONNECTIONS: u32 = 1 << 14;
/// Only TCP segments that open a connection: those with a SYN.
pub const OPENING: u32 = 1 << 15;
/// Only TCP segments of connections that are open: those without a SYN.
pub const OPEN: u32 = 1 << 16;
/// The peers are all but some: over the loopback, where none is named, they are nobody.
pub const ALL_BUT: u32 = 1 << 17;

/// The list of ports on either end, in [`crate::name::PORTS`].
pub const EITHER: u32 = 0;
/// The list of ports on this node's end.
pub const LOCAL: u32 = 1;
/// The list of ports on the peer's end.
pub const REMOTE: u32 = 2;
/// The list of ports that no packet has on either end.
pub const EXCEPT: u32 = 3;
/// How many lists there are.
pub const PORT_LISTS: u32 = 4;
/// Length of a list in bytes: a bit for each port, the lowest of a byte first.
pub const PORT_LIST: usize = (u16::MAX as usize + 1) / 8;

/// The flags that describe what the maps hold: the loader's, not the caller's.
pub const LOADER_FLAGS: u32 =
    ENABLED | HOSTS_V4 | HOSTS_V6 | NETS_V4 | NETS_V6 | PROTECTED_V4 | PROTECTED_V6 | PROTECTED_PORTS;

/// The value of [`PacketRule::probability`] at which every packet is hit.
pub const ALWAYS: u32 = u32::MAX;

/// IP protocol numbers (IANA).
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// The SYN flag in [`Packet::kind`] of a TCP segment (RFC 9293 3.1).
const SYN: u8 = 0x02;
/// UDP.
pub const UDP: u8 = 17;
/// ICMPv6.
pub const ICMP_V6: u8 = 58;

/// Ports from the first to the last, both among them, in host order. The default is any port, and none at all.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// The highest; 0 is any.
    pub last: u16,
}

impl PortRange {
    /// This port alone.
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    #[inline(always)]
    const fn is_any(self) -> bool {
        self.last == 0
    }

    #[inline(always)]
    const fn has(self, port: u16) -> bool {
        self.is_any() || (self.first <= port && port <= self.last)
    }
}

/// The lists of ports, wherever they are.
pub trait PortLists {
    /// Whether the list of this number has this port.
    fn has(&self, list: u32, port: u16) -> bool;
}

/// The one entry of [`crate::name::RULE`]. All ports in host order; all conditions must hold.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketRule {
    /// IP protocol number; 0 is any, and [`ICMP`] selects ICMPv6 on IPv6.
    pub protocol: u16,
    /// Zero. Keeps what follows aligned.
    pub reserved: u16,
    /// Ports on either end. A packet without ports has none that matches.
    pub ports: PortRange,
    /// Ports on this node's end.
    pub local_ports: PortRange,
    /// Ports on the peer's end.
    pub remote_ports: PortRange,
    /// A packet is hit when a random `u32` is below this; [`ALWAYS`] hits every one.
    pub probability: u32,
    /// [`EVERY_PEER`] and [`RETURN_INGRESS`] are the caller's, the others the loader's.
    pub flags: u32,
    /// Level of the fault on its device, 1 to [`crate::mark::MOST_LEVEL`]; see [`crate::mark`].
    pub level: u32,
    /// Interface index of the near end of the detour.
    pub divert_to: u32,
    /// Interface index to which packets return from the detour.
    pub return_to: u32,
    /// How many groups are above [`PacketRule::cgroup`].
    pub cgroup_level: u32,
    /// What packets are answered with, where the program has a choice: see [`crate::unreachable`].
    pub answer: u32,
    /// Slot of [`crate::name::JUMP`] with the egress program; that of the ingress program follows. Zero, which the verifier must
    /// not know: a jump to a slot that it knows is patched into the stub, and taken back one slot after the other, with a wait
    /// for RCU each (`prog_array_map_poke_run` in kernel/bpf/arraymap.c). One of a slot it does not know ends at once.
    pub first_slot: u32,
    /// Id of the control group (v2) in which, or below which, the packet's socket was made; 0 is any, and no socket too.
    /// A packet that arrives has no socket yet, so that this selects none.
    pub cgroup: u64,
    /// Chooses the connections.
    pub seed: u64,
    /// With [`SOME_CONNECTIONS`]: a connection is selected when its [`crate::flow::hash`] is below this; [`ALWAYS`] selects every one.
    pub connections: u32,
    /// Zero. Keeps the size a multiple of 8.
    pub reserved_too: u32,
}

const _: () = assert!(size_of::<PacketRule>() == 72 && align_of::<PacketRule>() == 8);

#[cfg(feature = "user")]
// SAFETY: integers in C layout, and the size says that there is no padding between them.
unsafe impl aya::Pod for PacketRule {}

impl PacketRule {
    /// Whether any of these flags is set.
    #[inline(always)]
    pub const fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether protocol and ports select this packet. The peer is looked up after this, since it costs more.
    #[inline(always)]
    pub fn selects(&self, packet: &Packet, way: Way, lists: &impl PortLists) -> bool {
        self.has(ENABLED)
            && self.selects_protocol(packet)
            && self.selects_state(packet)
            && self.selects_ports(packet, way, lists)
    }

    /// Whether the state of the connection selects it, as far as a segment tells it.
    #[inline(always)]
    fn selects_state(&self, packet: &Packet) -> bool {
        if !self.has(OPENING | OPEN) {
            return true;
        }
        packet.protocol == TCP && packet.has_ports && self.has(OPENING) == (packet.kind & SYN != 0)
    }

    #[inline(always)]
    fn selects_protocol(&self, packet: &Packet) -> bool {
        if self.protocol == ICMP as u16 {
            let icmp = if matches!(packet.version, Version::V4) { ICMP } else { ICMP_V6 };
            return packet.protocol == icmp;
        }
        self.protocol == 0 || self.protocol == packet.protocol as u16
    }

    #[inline(always)]
    fn selects_ports(&self, packet: &Packet, way: Way, lists: &impl PortLists) -> bool {
        let any = self.ports.is_any() && self.local_ports.is_any() && self.remote_ports.is_any();
        if any && !self.has(EXCEPT_PORTS) {
            return true;
        }
        if !packet.has_ports {
            // A later piece of a datagram may be of a port that is excepted.
            return any && packet.protocol != TCP && packet.protocol != UDP;
        }
        let (local, remote) = packet.ports(way);
        let listed = |flag, list, port| !self.has(flag) || lists.has(list, port);
        let either = |port| self.ports.has(port) && listed(LISTED_EITHER, EITHER, port);
        (either(local) || either(remote))
            && self.local_ports.has(local)
            && listed(LISTED_LOCAL, LOCAL, local)
            && self.remote_ports.has(remote)
            && listed(LISTED_REMOTE, REMOTE, remote)
            && !(self.has(EXCEPT_PORTS) && (lists.has(EXCEPT, local) || lists.has(EXCEPT, remote)))
    }
}

/// Whether a packet with this random number is hit.
#[inline(always)]
pub const fn hits(probability: u32, random: u32) -> bool {
    probability == ALWAYS || random < probability
}

/// The threshold for a share of packets between 0 and 1; what lies outside is clamped.
pub fn threshold(share: f64) -> u32 {
    // The cast saturates, and 1.0 gives exactly ALWAYS.
    (share * f64::from(u32::MAX)) as u32
}

/// Key of [`crate::name::PROTECTED_PORTS`].
#[inline(always)]
pub const fn port_key(protocol: u8, port: u16) -> u32 {
    (protocol as u32) << 16 | port as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(version: Version, protocol: u8, source: u16, destination: u16) -> Packet {
        let has_ports = protocol == TCP || protocol == UDP;
        Packet { version, protocol, has_ports, source, destination, ..Packet::default() }
    }

    fn enabled() -> PacketRule {
        PacketRule { flags: ENABLED, ..PacketRule::default() }
    }

    /// Lists as they are meant.
    #[derive(Debug, Default)]
    struct Lists([Vec<PortRange>; PORT_LISTS as usize]);

    impl PortLists for Lists {
        fn has(&self, list: u32, port: u16) -> bool {
            self.0[list as usize].iter().any(|range| (range.first..=range.last).contains(&port))
        }
    }

    #[test]
    fn a_rule_selects_nothing_until_it_is_enabled() {
        let packet = packet(Version::V4, TCP, 1, 2);
        assert!(!PacketRule::default().selects(&packet, Way::Egress, &Lists::default()));
        assert!(enabled().selects(&packet, Way::Egress, &Lists::default()));
    }

    #[test]
    fn icmp_selects_the_icmp_of_each_version_and_only_that() {
        let rule = PacketRule { protocol: ICMP as u16, ..enabled() };
        assert!(rule.selects(&packet(Version::V4, ICMP, 0, 0), Way::Egress, &Lists::default()));
        assert!(rule.selects(&packet(Version::V6, ICMP_V6, 0, 0), Way::Egress, &Lists::default()));
        assert!(!rule.selects(&packet(Version::V4, ICMP_V6, 0, 0), Way::Egress, &Lists::default()));
        assert!(!rule.selects(&packet(Version::V6, ICMP, 0, 0), Way::Egress, &Lists::default()));
    }

    #[test]
    fn a_packet_without_ports_meets_no_port_condition() {
        let icmp = packet(Version::V4, ICMP, 0, 0);
        assert!(enabled().selects(&icmp, Way::Ingress, &Lists::default()));
        assert!(!PacketRule { ports: PortRange::one(80), ..enabled() }.selects(
            &icmp,
            Way::Ingress,
            &Lists::default()
        ));
    }

    #[test]
    fn all_but_a_port_is_every_other_packet_also_of_protocols_without_ports() {
        let rule = PacketRule { flags: ENABLED | EXCEPT_PORTS, ..PacketRule::default() };
        let lists = Lists([vec![], vec![], vec![], vec![PortRange::one(22)]]);
        let selects = |packet: &Packet| rule.selects(packet, Way::Egress, &lists);
        assert!(selects(&packet(Version::V4, ICMP, 0, 0)) && selects(&packet(Version::V4, TCP, 80, 443)));
        assert!(!selects(&packet(Version::V4, TCP, 22, 443)) && !selects(&packet(Version::V4, TCP, 443, 22)));
        let later_piece = Packet { has_ports: false, ..packet(Version::V4, UDP, 0, 0) };
        assert!(!selects(&later_piece), "it may be of the port");
    }

    #[test]
    fn connections_that_open_and_those_that_are_open_are_told_by_the_syn() {
        const ACK: u8 = 0x10;
        let rule = |flag| PacketRule { flags: ENABLED | flag, ..PacketRule::default() };
        let segment = |kind| Packet { kind, ..packet(Version::V6, TCP, 1, 2) };
        for (kind, opens) in [(SYN, true), (SYN | ACK, true), (ACK, false), (0x04, false), (0x11, false)] {
            for way in [Way::Egress, Way::Ingress] {
                let selects = |flag| rule(flag).selects(&segment(kind), way, &Lists::default());
                assert_eq!((selects(OPENING), selects(OPEN)), (opens, !opens), "{kind:#x}");
            }
        }
        for flag in [OPENING, OPEN] {
            let datagram = Packet { kind: SYN, ..packet(Version::V4, UDP, 1, 2) };
            assert!(!rule(flag).selects(&datagram, Way::Egress, &Lists::default()));
        }
    }

    #[test]
    fn thresholds_span_never_to_always() {
        assert_eq!(threshold(0.0), 0);
        assert_eq!(threshold(1.0), ALWAYS);
        assert_eq!(threshold(-3.0), 0);
        assert_eq!(threshold(f64::NAN), 0);
        assert!(threshold(0.999_999_999) < ALWAYS);
    }

    proptest! {
        #[test]
        fn local_and_remote_change_places_with_the_direction(source: u16, destination: u16) {
            let packet = packet(Version::V6, UDP, source, destination);
            let (one, other) = (PortRange::one(source), PortRange::one(destination));
            let rule = PacketRule { local_ports: one, remote_ports: other, ..enabled() };
            prop_assert!(rule.selects(&packet, Way::Egress, &Lists::default()));
            let turned = PacketRule { local_ports: other, remote_ports: one, ..enabled() };
            prop_assert!(turned.selects(&packet, Way::Ingress, &Lists::default()));
        }

        #[test]
        fn either_port_matches_both_ends_and_no_other(source: u16, destination: u16, port in 1u16..) {
            let packet = packet(Version::V4, TCP, source, destination);
            let rule = PacketRule { ports: PortRange::one(port), ..enabled() };
            for way in [Way::Egress, Way::Ingress] {
                prop_assert_eq!(rule.selects(&packet, way, &Lists::default()), port == source || port == destination);
            }
        }

        #[test]
        fn a_list_selects_what_one_of_its_ranges_has_and_no_exception(
            ranges in prop::collection::vec((1..60_000_u16, 0..300_u16), 1..8),
            except in prop::collection::vec((1..60_000_u16, 0..300_u16), 0..3),
            near in 0..8_usize,
            offset in 0..400_u16,
            other: u16,
            list in 0..3_u32,
        ) {
            let range = |&(first, more): &(u16, u16)| PortRange { first, last: first + more };
            let (ranges, except): (Vec<_>, Vec<_>) =
                (ranges.iter().map(range).collect(), except.iter().map(range).collect());
            let hull = PortRange {
                first: ranges.iter().map(|range| range.first).min().unwrap(),
                last: ranges.iter().map(|range| range.last).max().unwrap(),
            };
            let port = ranges[near % ranges.len()].first.saturating_add(offset).saturating_sub(100);
            let mut rule = PacketRule { flags: ENABLED | EXCEPT_PORTS, ..PacketRule::default() };
            let (flag, range) = match list {
                EITHER => (LISTED_EITHER, &mut rule.ports),
                LOCAL => (LISTED_LOCAL, &mut rule.local_ports),
                _ => (LISTED_REMOTE, &mut rule.remote_ports),
            };
            *range = hull;
            rule.flags |= flag;
            let mut lists = Lists::default();
            lists.0[list as usize].clone_from(&ranges);
            lists.0[EXCEPT as usize].clone_from(&except);
            let has = |ranges: &[PortRange], port| ranges.iter().any(|range| range.has(port));
            let packet = packet(Version::V4, TCP, port, other);
            let wanted = match list {
                EITHER => has(&ranges, port) || has(&ranges, other),
                LOCAL => has(&ranges, port),
                _ => has(&ranges, other),
            };
            let wanted = wanted && !has(&except, port) && !has(&except, other);
            prop_assert_eq!(rule.selects(&packet, Way::Egress, &lists), wanted);
        }

        #[test]
        fn a_range_has_its_ends_and_what_is_between(first in 1u16.., more: u16, port: u16) {
            let range = PortRange { first, last: first.saturating_add(more) };
            prop_assert_eq!(range.has(port), (range.first..=range.last).contains(&port));
            prop_assert!(PortRange::default().has(port));
        }

        #[test]
        fn a_random_number_hits_below_the_threshold(probability: u32, random: u32) {
            prop_assert_eq!(hits(probability, random), random < probability || probability == ALWAYS);
            prop_assert!(hits(ALWAYS, random));
            prop_assert!(!hits(0, random));
        }

        #[test]
        fn port_keys_are_distinct(one: (u8, u16), other: (u8, u16)) {
            prop_assert_eq!(port_key(one.0, one.1) == port_key(other.0, other.1), one == other);
        }
    }
}
