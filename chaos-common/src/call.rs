//! Calls: what a process of a control group asks the kernel for, and what it is told instead.

/// The largest number that the kernel takes for an error (`MAX_ERRNO`, include/linux/err.h).
pub const MOST_ERRNO: u32 = 4095;

/// The one entry of [`crate::name::CALL`]: what becomes of the calls that the [`crate::PacketRule`] or [`crate::FileRule`]
/// selects.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallRule {
    /// So many calls that match are let pass before the first one fails.
    pub after: u64,
    /// So many calls fail at most; 0 is no limit.
    pub times: u64,
    /// The errno that a call fails with, as a positive number.
    pub errno: u32,
    /// The signal (signal(7)) that the caller is sent beside it; 0 is none.
    pub signal: u32,
}

const _: () = assert!(size_of::<CallRule>() == 24 && align_of::<CallRule>() == 8);

#[cfg(feature = "user")]
// SAFETY: integers in C layout, and the size says that there is no padding between them.
unsafe impl aya::Pod for CallRule {}

impl CallRule {
    /// Whether the call with this number, counted from 0, is let pass for being early.
    #[inline(always)]
    pub const fn spares(&self, number: u64) -> bool {
        number < self.after
    }

    /// Whether the call is let pass because so many, with this number, have failed before it.
    #[inline(always)]
    pub const fn exhausted(&self, failed: u64) -> bool {
        self.times != 0 && failed >= self.times
    }

    /// What the call returns: never what the kernel would take for something else than an error, which is also what
    /// the verifier wants to see.
    #[inline(always)]
    pub const fn verdict(&self) -> i32 {
        let errno = if self.errno == 0 || self.errno > MOST_ERRNO { 1 } else { self.errno };
        -(errno as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_verdict_is_always_an_error(errno: u32) {
            let verdict = CallRule { errno, ..CallRule::default() }.verdict();
            prop_assert!((-4095..=-1).contains(&verdict));
        }

        #[test]
        fn as_many_calls_as_asked_for_pass(after in 0u64..1000) {
            let rule = CallRule { after, ..CallRule::default() };
            prop_assert_eq!((0..2000).filter(|number| rule.spares(*number)).count() as u64, after);
        }
    }

    #[test]
    fn no_more_calls_fail_than_may() {
        let fail = |times| {
            (0..100).filter(|failed| !CallRule { times, ..CallRule::default() }.exhausted(*failed)).count()
        };
        assert_eq!((fail(0), fail(1), fail(7)), (100, 1, 7));
    }

    #[test]
    fn an_errno_is_what_the_call_returns() {
        assert_eq!(CallRule { errno: 111, ..CallRule::default() }.verdict(), -111);
    }
}
