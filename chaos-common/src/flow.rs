//! Which connection a packet is of, as a number that is the same for every packet of it, in both directions and on every node.

use crate::packet::Packet;

/// An address, as two halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(u64, u64);

impl Address {
    /// Of IPv4, as it lies in the packet.
    #[inline(always)]
    pub const fn of_v4(address: u32) -> Self {
        Self(0, address as u64)
    }

    /// Of IPv6, as it lies in the packet.
    #[inline(always)]
    pub const fn of_v6(address: [u32; 4]) -> Self {
        let [a, b, c, d] = address;
        Self((a as u64) << 32 | b as u64, (c as u64) << 32 | d as u64)
    }
}

/// Mixes every bit into every other: the end of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// 2014).
#[inline(always)]
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[inline(always)]
const fn end(Address(high, low): Address, port: u16) -> u64 {
    mix(mix(high ^ 0x9e37_79b9_7f4a_7c15) ^ mix(low.wrapping_add((port as u64) << 40)))
}

/// The number of the connection that a packet is of, by its protocol, addresses and ports. Of what has no ports, and of a datagram in
/// pieces, it is by protocol and addresses. Which end is which does not matter: so both directions have it, and both sides of a
/// loopback.
#[inline(always)]
pub const fn hash(seed: u64, packet: &Packet, source: Address, destination: Address) -> u32 {
    let whole = packet.has_ports && packet.fragment == 0;
    let (from, to) = if whole { (packet.source, packet.destination) } else { (0, 0) };
    let ends = end(source, from).wrapping_add(end(destination, to));
    (mix(ends ^ mix(seed.wrapping_add(packet.protocol as u64))) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rule::{TCP, UDP, hits, threshold};

    fn segment(source: u16, destination: u16) -> Packet {
        Packet { protocol: TCP, has_ports: true, source, destination, ..Packet::default() }
    }

    /// How many of the connections from so many ports are of the share.
    fn chosen(share: f64, seed: u64, ports: impl Iterator<Item = u16>) -> usize {
        let (client, server) =
            (Address::of_v4(0x0a00_0001_u32.to_be()), Address::of_v4(0x0a00_0002_u32.to_be()));
        let is_in = |port: &u16| hits(threshold(share), hash(seed, &segment(*port, 443), client, server));
        ports.filter(is_in).count()
    }

    #[test]
    fn a_share_of_the_connections_is_that_share_of_them() {
        for seed in [0, 1, 7, u64::MAX] {
            for share in [0.01, 0.1, 0.25, 0.5, 0.9] {
                let found = chosen(share, seed, 1024..=u16::MAX);
                // Five standard deviations of as many throws of a die.
                let count = f64::from(u16::MAX) - 1023.0;
                let least = count * share - 5.0 * (count * share * (1.0 - share)).sqrt();
                let most = count * share + 5.0 * (count * share * (1.0 - share)).sqrt();
                #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
                let found = found as f64;
                assert!((least..=most).contains(&found), "{share} of {count} by seed {seed}: {found}");
            }
            assert_eq!((chosen(0.0, seed, 1..=9999), chosen(1.0, seed, 1..=9999)), (0, 9999));
        }
    }

    #[test]
    fn another_seed_chooses_others_and_a_larger_share_has_a_smaller_one_in_it() {
        let server = Address::of_v6([1, 2, 3, 4]);
        let client = Address::of_v6([5, 6, 7, 8]);
        let hash_of = |seed, port| hash(seed, &segment(port, 53), client, server);
        let both = (1..10_000).filter(|port| {
            hits(threshold(0.5), hash_of(1, *port)) && hits(threshold(0.5), hash_of(2, *port))
        });
        assert!((2200..2800).contains(&both.count()));
        assert!((1..10_000).all(|port| !hits(threshold(0.2), hash_of(3, port)) || hits(threshold(0.6), hash_of(3, port))));
    }

    proptest! {
        #[test]
        fn both_directions_are_one_connection(seed: u64, a: [u32; 4], b: [u32; 4], from: u16, to: u16) {
            let (one, other) = (Address::of_v6(a), Address::of_v6(b));
            prop_assert_eq!(
                hash(seed, &segment(from, to), one, other),
                hash(seed, &segment(to, from), other, one)
            );
        }

        #[test]
        fn every_piece_of_a_datagram_is_of_one_connection(seed: u64, a: u32, b: u32, from: u16, to: u16, piece in 1_u16..) {
            let (one, other) = (Address::of_v4(a), Address::of_v4(b));
            let first = Packet { protocol: UDP, fragment: piece, ..segment(from, to) };
            let later = Packet { protocol: UDP, fragment: piece, ..Packet::default() };
            prop_assert_eq!(hash(seed, &first, one, other), hash(seed, &later, one, other));
        }
    }
}
