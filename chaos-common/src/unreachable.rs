//! The ICMP message that says that a packet cannot reach its destination (RFC 792, RFC 4443).

use crate::checksum;
use crate::packet::{Packet, V6_HEADER, Version};
use crate::rule::{ICMP, ICMP_V6, TCP, UDP};

/// Length of an IPv4 header without options. A packet with some gets no answer.
pub const V4_HEADER: usize = 20;
/// Length of the header of the message.
pub const ICMP_HEADER: usize = 8;
/// TTL or hop limit of the answer.
const HOPS: u32 = 64;
/// Type of an ICMP and an ICMPv6 message.
const UNREACHABLE: (u32, u32) = (3, 1);

/// Why a packet does not arrive: the code of the ICMP message, and behind it the one of ICMPv6.
pub const HOST: u32 = codes(1, 3);
/// As [`HOST`].
pub const NETWORK: u32 = codes(0, 0);
/// As [`HOST`].
pub const PORT: u32 = codes(3, 4);
/// As [`HOST`].
pub const ADMIN_PROHIBITED: u32 = codes(13, 1);

const fn codes(v4: u32, v6: u32) -> u32 {
    v4 | v6 << 8
}

/// How much of the transport is quoted. The standards ask for 8 bytes. All of the checksum field is quoted, since the
/// device may still have to complete it.
#[inline(always)]
pub const fn quoted(protocol: u8) -> usize {
    if protocol == TCP { 20 } else { 8 }
}

/// Where the checksum lies in the transport header, if the device may be left to complete it.
#[inline(always)]
pub const fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        _ => None,
    }
}

/// Whether a packet may get an answer: an error does not (RFC 1122, 3.2.2; RFC 4443, 2.4).
#[inline(always)]
pub const fn deserves(packet: &Packet) -> bool {
    match packet.protocol {
        ICMP => !matches!(packet.kind, 3 | 4 | 5 | 11 | 12),
        ICMP_V6 => packet.kind >= 128,
        _ => true,
    }
}

/// How much longer a packet of this version gets in front.
#[inline(always)]
pub const fn grown(version: Version) -> usize {
    match version {
        Version::V4 => V4_HEADER + ICMP_HEADER,
        Version::V6 => V6_HEADER + ICMP_HEADER,
    }
}

/// The IPv4 and ICMP headers of the answer, as they lie in memory. `quote` is the sum of all that is quoted, `quoted` its
/// length. It is said in the name of whom the packet was sent to.
#[inline(always)]
pub fn v4(answer: u32, source: u32, destination: u32, quote: u64, quoted: usize) -> [u32; 7] {
    let length = (V4_HEADER + ICMP_HEADER + quoted) as u32;
    let mut words = [
        // Internet control, as the kernel's own.
        (0x45c0_0000 | length).to_be(),
        0x4000_u32.to_be(),
        (HOPS << 24 | (ICMP as u32) << 16).to_be(),
        destination,
        source,
        (UNREACHABLE.0 << 24 | (answer & 0xff) << 16).to_be(),
        0,
    ];
    let header = sum(0, &words[..5]);
    words[2] = checksum::with(words[2], !checksum::fold(header));
    words[5] = checksum::with(words[5], !checksum::fold(checksum::add(quote, words[5])));
    words
}

/// The IPv6 and ICMPv6 headers of the answer; see [`v4`].
#[inline(always)]
pub fn v6(answer: u32, source: [u32; 4], destination: [u32; 4], quote: u64, quoted: usize) -> [u32; 12] {
    let length = (ICMP_HEADER + quoted) as u32;
    let kind = (UNREACHABLE.1 << 24 | (answer >> 8 & 0xff) << 16).to_be();
    let [s0, s1, s2, s3] = source;
    let [d0, d1, d2, d3] = destination;
    let next = (length << 16 | (ICMP_V6 as u32) << 8 | HOPS).to_be();
    let mut words = [0x6000_0000_u32.to_be(), next, d0, d1, d2, d3, s0, s1, s2, s3, kind, 0];
    let pseudo = checksum::add(checksum::add(quote, length.to_be()), u32::from(ICMP_V6).to_be());
    words[10] = checksum::with(kind, !checksum::fold(sum(pseudo, &words[2..11])));
    words
}

#[inline(always)]
fn sum(start: u64, words: &[u32]) -> u64 {
    words.iter().fold(start, |sum, &word| checksum::add(sum, word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wire(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn errors_are_not_answered_and_questions_are() {
        let deserves = |protocol, kind| deserves(&Packet { protocol, kind, ..Packet::default() });
        for kind in [3, 5, 11, 12] {
            assert!(!deserves(ICMP, kind));
        }
        assert!(deserves(ICMP, 8) && deserves(ICMP_V6, 128) && deserves(TCP, 3));
        assert!(!deserves(ICMP_V6, 1));
    }

    #[test]
    fn each_version_says_it_with_its_own_code() {
        let v4_code = |answer| wire(&v4(answer, 1, 2, 0, 28))[21];
        let v6_code = |answer| wire(&v6(answer, [1; 4], [2; 4], 0, 48))[41];
        let all = [HOST, NETWORK, PORT, ADMIN_PROHIBITED];
        assert_eq!(all.map(v4_code), [1, 0, 3, 13]);
        assert_eq!(all.map(v6_code), [3, 0, 4, 1]);
    }

    proptest! {
        #[test]
        fn the_answer_of_either_version_has_right_lengths_and_sums(
            peer: [u32; 4], node: [u32; 4], quote in proptest::collection::vec(any::<u32>(), 7..17),
        ) {
            let (quoted, quote_sum) = (quote.len() * 4, sum(0, &quote));
            let words = v4(HOST, node[0], peer[0], quote_sum, quoted);
            prop_assert_eq!(checksum::fold(sum(0, &words[..5])), 0xffff);
            prop_assert_eq!(checksum::fold(sum(quote_sum, &words[5..])), 0xffff);
            let bytes = wire(&words);
            prop_assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 28 + quoted);
            prop_assert_eq!((words[3], words[4]), (peer[0], node[0]), "it goes back");

            let words = v6(PORT, node, peer, quote_sum, quoted);
            let length = (8 + quoted) as u32;
            let pseudo = sum(quote_sum, &[length.to_be(), u32::from(ICMP_V6).to_be()]);
            prop_assert_eq!(checksum::fold(sum(pseudo, &words[2..])), 0xffff);
            prop_assert_eq!(&words[2..6], &peer[..]);
        }
    }
}
