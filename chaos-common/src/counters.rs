//! What the programs count, per CPU.

/// Packets, by what became of them. `matched = protected + expired + affected + spared by the probability`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Selected by protocol, ports and peer.
    pub matched: u64,
    /// Acted on: dropped, answered, diverted.
    pub affected: u64,
    /// Selected, but exempt: the link's own life, a protected peer or port.
    pub protected: u64,
    /// Selected, but the lease was over.
    pub expired: u64,
}

const _: () = assert!(size_of::<Counters>() == 32);

impl core::ops::Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            matched: self.matched.wrapping_add(other.matched),
            affected: self.affected.wrapping_add(other.affected),
            protected: self.protected.wrapping_add(other.protected),
            expired: self.expired.wrapping_add(other.expired),
        }
    }
}

impl core::iter::Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), core::ops::Add::add)
    }
}

#[cfg(feature = "user")]
// SAFETY: four `u64` in C layout: no padding, and every bit pattern is a value.
unsafe impl aya::Pod for Counters {}
