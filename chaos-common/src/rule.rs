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

/// The flags that describe what the maps hold: the loader's, not the caller's.
pub const LOADER_FLAGS: u32 =
    ENABLED | HOSTS_V4 | HOSTS_V6 | NETS_V4 | NETS_V6 | PROTECTED_V4 | PROTECTED_V6 | PROTECTED_PORTS;

/// The value of [`PacketRule::probability`] at which every packet is hit.
pub const ALWAYS: u32 = u32::MAX;

/// IP protocol numbers (IANA).
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
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
}

const _: () = assert!(size_of::<PacketRule>() == 56 && align_of::<PacketRule>() == 8);

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
    pub fn selects(&self, packet: &Packet, way: Way) -> bool {
        self.has(ENABLED) && self.selects_protocol(packet) && self.selects_ports(packet, way)
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
    fn selects_ports(&self, packet: &Packet, way: Way) -> bool {
        if self.ports.is_any() && self.local_ports.is_any() && self.remote_ports.is_any() {
            return true;
        }
        let (local, remote) = packet.ports(way);
        packet.has_ports
            && (self.ports.has(local) || self.ports.has(remote))
            && self.local_ports.has(local)
            && self.remote_ports.has(remote)
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

    #[test]
    fn a_rule_selects_nothing_until_it_is_enabled() {
        let packet = packet(Version::V4, TCP, 1, 2);
        assert!(!PacketRule::default().selects(&packet, Way::Egress));
        assert!(enabled().selects(&packet, Way::Egress));
    }

    #[test]
    fn icmp_selects_the_icmp_of_each_version_and_only_that() {
        let rule = PacketRule { protocol: ICMP as u16, ..enabled() };
        assert!(rule.selects(&packet(Version::V4, ICMP, 0, 0), Way::Egress));
        assert!(rule.selects(&packet(Version::V6, ICMP_V6, 0, 0), Way::Egress));
        assert!(!rule.selects(&packet(Version::V4, ICMP_V6, 0, 0), Way::Egress));
        assert!(!rule.selects(&packet(Version::V6, ICMP, 0, 0), Way::Egress));
    }

    #[test]
    fn a_packet_without_ports_meets_no_port_condition() {
        let icmp = packet(Version::V4, ICMP, 0, 0);
        assert!(enabled().selects(&icmp, Way::Ingress));
        assert!(!PacketRule { ports: PortRange::one(80), ..enabled() }.selects(&icmp, Way::Ingress));
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
            prop_assert!(rule.selects(&packet, Way::Egress));
            let turned = PacketRule { local_ports: other, remote_ports: one, ..enabled() };
            prop_assert!(turned.selects(&packet, Way::Ingress));
        }

        #[test]
        fn either_port_matches_both_ends_and_no_other(source: u16, destination: u16, port in 1u16..) {
            let packet = packet(Version::V4, TCP, source, destination);
            let rule = PacketRule { ports: PortRange::one(port), ..enabled() };
            for way in [Way::Egress, Way::Ingress] {
                prop_assert_eq!(rule.selects(&packet, way), port == source || port == destination);
            }
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
