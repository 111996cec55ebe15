//! The lease: a fault acts only before its deadline, which its holder keeps pushing forward.

/// Whether a fault with this deadline may act now. Both in nanoseconds of CLOCK_BOOTTIME, which suspend does not
/// stop; a deadline of 0 is disarmed.
#[inline(always)]
pub const fn live(deadline_ns: u64, now_ns: u64) -> bool {
    now_ns < deadline_ns
}

#[cfg(test)]
mod tests {
    use super::live;
    use proptest::prelude::*;

    #[test]
    fn a_disarmed_fault_never_acts() {
        assert!(!live(0, 0));
        assert!(!live(0, u64::MAX));
    }

    proptest! {
        #[test]
        fn a_fault_acts_up_to_its_deadline_and_not_from_it_on(deadline in 1u64.., later in 0u64..1 << 40) {
            prop_assert!(live(deadline, deadline - 1));
            prop_assert!(!live(deadline, deadline.saturating_add(later)));
        }
    }
}
