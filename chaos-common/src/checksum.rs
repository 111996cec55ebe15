//! The Internet checksum (RFC 1071). It does not depend on byte order, so sums run over words as they lie in memory.

/// Adds four bytes, as they lie in memory, to a sum.
#[inline(always)]
pub const fn add(sum: u64, raw: u32) -> u64 {
    sum + raw as u64
}

/// Folds a sum to 16 bits, not complemented: what the kernel leaves in the checksum field of a packet whose
/// checksum the device completes (CHECKSUM_PARTIAL), if the sum is that of the pseudo header.
#[inline(always)]
pub const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// A word whose last two bytes in memory are this checksum.
#[inline(always)]
pub const fn with(word: u32, checksum: u16) -> u32 {
    let [first, second, ..] = word.to_ne_bytes();
    let [third, fourth] = checksum.to_ne_bytes();
    u32::from_ne_bytes([first, second, third, fourth])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 word by word.
    fn textbook(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([word[0], word[1]]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    proptest! {
        #[test]
        fn sums_agree_with_the_textbook(bytes in proptest::collection::vec(any::<[u8; 4]>(), 1..400)) {
            let sum = bytes.iter().fold(0, |sum, word| add(sum, u32::from_ne_bytes(*word)));
            let flat: Vec<u8> = bytes.concat();
            let (ours, theirs) = (u16::from_be(fold(sum)), textbook(&flat));
            // 0 and 0xffff are the same number in ones' complement.
            prop_assert_eq!(ours % 0xffff, theirs % 0xffff);
        }
    }
}
