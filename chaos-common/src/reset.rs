//! The reset that answers a TCP segment (RFC 9293, 3.10.7.1).

use crate::checksum;
use crate::rule::TCP;

/// TCP flags, low byte.
pub const FIN: u8 = 0x01;
/// Synchronise.
pub const SYN: u8 = 0x02;
/// Reset.
pub const RST: u8 = 0x04;
/// The acknowledgement number counts.
pub const ACK: u8 = 0x10;

/// Length of the header of the answer: no options.
pub const HEADER: usize = 20;
/// Where the checksum lies in a TCP header.
pub const CHECKSUM_AT: usize = 16;
/// TTL or hop limit of the answer.
pub const HOPS: u8 = 64;

/// What of a segment decides its answer. Host order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Flags, low byte.
    pub flags: u8,
    /// Bytes of data.
    pub data: u32,
}

impl Segment {
    /// The TCP header that refuses this segment, with a zero checksum, as five words that lie in memory as on the
    /// wire. `None` for a reset, which is never answered.
    #[inline(always)]
    pub const fn refusal(&self) -> Option<[u32; 5]> {
        if self.flags & RST != 0 {
            return None;
        }
        let (sequence, acknowledgement, flags) = if self.flags & ACK != 0 {
            // The peer takes it for in order exactly if it has got all that was acknowledged to it.
            (self.acknowledgement, 0, RST)
        } else {
            let controls = (self.flags & SYN != 0) as u32 + (self.flags & FIN != 0) as u32;
            (0, self.sequence.wrapping_add(self.data).wrapping_add(controls), RST | ACK)
        };
        let words_of_header = (HEADER / 4) as u32;
        Some([
            ((self.destination as u32) << 16 | self.source as u32).to_be(),
            sequence.to_be(),
            acknowledgement.to_be(),
            (words_of_header << 28 | (flags as u32) << 16).to_be(),
            0,
        ])
    }

    /// The header that has the caller send its SYN again almost at once: an acknowledgement of nothing (see
    /// `tcp_rcv_synsent_state_process` in net/ipv4/tcp_input.c). In the form of [`Segment::refusal`].
    #[inline(always)]
    pub const fn urge(&self) -> [u32; 5] {
        let words_of_header = (HEADER / 4) as u32;
        [
            ((self.destination as u32) << 16 | self.source as u32).to_be(),
            0,
            self.sequence.to_be(),
            (words_of_header << 28 | (ACK as u32) << 16).to_be(),
            0,
        ]
    }
}

/// Sum of the pseudo header of an answer, without the addresses (add those with [`checksum::add`]).
#[inline(always)]
pub const fn pseudo_header() -> u64 {
    checksum::add(checksum::add(0, (TCP as u32).to_be()), (HEADER as u32).to_be())
}

/// The checksum field of an answer. `partial`: the device completes the checksum and wants only the pseudo header's.
#[inline(always)]
pub fn checksum(pseudo: u64, header: &[u32; 5], partial: bool) -> u16 {
    if partial {
        return checksum::fold(pseudo);
    }
    !checksum::fold(header.iter().fold(pseudo, |sum, &word| checksum::add(sum, word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SYN_SEGMENT: Segment =
        Segment { source: 40000, destination: 80, sequence: 7, acknowledgement: 0, flags: SYN, data: 0 };

    fn wire(header: [u32; 5]) -> Vec<u8> {
        header.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_syn_is_refused_by_a_reset_that_acknowledges_it() {
        let answer = wire(SYN_SEGMENT.refusal().unwrap());
        assert_eq!(answer[..4], [0, 80, 0x9c, 0x40], "ports change places");
        assert_eq!(answer[4..8], [0; 4]);
        assert_eq!(answer[8..12], [0, 0, 0, 8]);
        assert_eq!(answer[12..14], [0x50, RST | ACK]);
    }

    #[test]
    fn a_syn_is_urged_by_an_acknowledgement_of_nothing() {
        let answer = wire(SYN_SEGMENT.urge());
        assert_eq!(answer[..4], [0, 80, 0x9c, 0x40], "ports change places");
        assert_eq!(answer[8..14], [0, 0, 0, 7, 0x50, ACK]);
    }

    #[test]
    fn a_reset_is_not_answered() {
        for flags in [RST, RST | ACK, RST | SYN] {
            assert_eq!(Segment { flags, ..SYN_SEGMENT }.refusal(), None);
        }
    }

    #[test]
    fn the_sequence_number_wraps() {
        let segment = Segment { sequence: u32::MAX, data: 1, flags: SYN | FIN, ..SYN_SEGMENT };
        assert_eq!(u32::from_be(segment.refusal().unwrap()[2]), 2);
    }

    proptest! {
        #[test]
        fn an_acknowledging_segment_is_refused_where_its_sender_expects_it(
            sequence: u32, acknowledgement: u32, flags: u8, data in 0u32..65536,
        ) {
            let flags = (flags | ACK) & !RST;
            let segment = Segment { sequence, acknowledgement, flags, data, ..SYN_SEGMENT };
            let answer = wire(segment.refusal().unwrap());
            prop_assert_eq!(&answer[4..8], &acknowledgement.to_be_bytes()[..]);
            prop_assert_eq!(answer[13], RST);
        }

        #[test]
        fn a_finished_answer_sums_to_all_ones(
            peer: [u8; 4], node: [u8; 4], sequence: u32, data in 0u32..2000,
        ) {
            let mut header = Segment { sequence, data, ..SYN_SEGMENT }.refusal().unwrap();
            let pseudo = [peer, node].iter()
                .fold(pseudo_header(), |sum, word| checksum::add(sum, u32::from_ne_bytes(*word)));
            let field = checksum(pseudo, &header, false).to_ne_bytes();
            header[4] = u32::from_ne_bytes([field[0], field[1], 0, 0]);
            let sum = header.iter().fold(pseudo, |sum, &word| checksum::add(sum, word));
            prop_assert_eq!(checksum::fold(sum), 0xffff);
        }
    }
}
