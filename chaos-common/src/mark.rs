//! How several faults on one device compose: each has a level, and a packet carries in eight bits of its mark the
//! level of the fault that has last sent it back to the device.
//!
//! A fault skips what carries its own level or a higher one (it has decided on that packet already) and takes
//! its own level off again, so that no mark of ours outlives the last fault. Without this a packet that returns
//! from a detour would be diverted for ever, and a probability would be rolled twice. Programs run in the order of
//! their levels. The other bits of the mark are not ours and are never changed.

/// The bits of the mark that hold a level. Firewalls and CNIs favour the low 16 bits and bit 31..28.
pub const MASK: u32 = 0x0ff0_0000;
const SHIFT: u32 = MASK.trailing_zeros();
/// The highest level; the lowest is 1, since 0 is a packet that no fault has sent back.
pub const MOST_LEVEL: u32 = MASK >> SHIFT;

/// The level that a packet carries, 0 for none.
#[inline(always)]
pub const fn level(mark: u32) -> u32 {
    (mark & MASK) >> SHIFT
}

/// Whether a fault of this level leaves the packet alone.
#[inline(always)]
pub const fn skips(mark: u32, own: u32) -> bool {
    level(mark) >= own
}

/// The mark with which a skipped packet goes on: without the level if that is the fault's own.
#[inline(always)]
pub const fn clear_if_own(mark: u32, own: u32) -> u32 {
    if level(mark) == own { mark & !MASK } else { mark }
}

/// The mark of a packet that a fault of this level sends back to the device.
#[inline(always)]
pub const fn stamp(mark: u32, own: u32) -> u32 {
    (mark & !MASK) | ((own << SHIFT) & MASK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_stamped_packet_is_skipped_once_and_then_carries_no_level(mark: u32, own in 1..=MOST_LEVEL) {
            let stamped = stamp(mark, own);
            prop_assert!(skips(stamped, own));
            let onward = clear_if_own(stamped, own);
            prop_assert_eq!(level(onward), 0);
            prop_assert_eq!(onward & !MASK, mark & !MASK);
        }

        #[test]
        fn lower_faults_skip_what_a_higher_one_sent_and_higher_ones_take_it(mark: u32, own in 1..MOST_LEVEL) {
            let stamped = stamp(mark, own);
            for other in 1..own {
                prop_assert!(skips(stamped, other));
                prop_assert_eq!(clear_if_own(stamped, other), stamped);
            }
            prop_assert!(!skips(stamped, own + 1));
        }

        // What the devices do: every fault of a chain either passes a packet on or sends it round and back to
        // the start of the chain.
        #[test]
        fn every_fault_of_a_chain_sees_a_packet_exactly_once(count in 1u32..20, user: u32) {
            let mut mark = user & !MASK;
            let mut seen = vec![0u32; count as usize + 1];
            'device: for _ in 0..=count {
                for own in 1..=count {
                    if skips(mark, own) {
                        mark = clear_if_own(mark, own);
                        continue;
                    }
                    seen[own as usize] += 1;
                    mark = stamp(mark, own);
                    continue 'device;
                }
                break;
            }
            prop_assert!(seen[1..].iter().all(|&times| times == 1), "{seen:?}");
            prop_assert_eq!(mark, user & !MASK);
        }
    }
}
