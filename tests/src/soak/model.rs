//! What should be active, and what packets should meet; and the numbers that a seed stands for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Around its end, a fault may be there or not.
const DOUBT: Duration = Duration::from_millis(400);

/// A kind of fault of the soak, by what it does to an echo on port 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Neither UDP nor TCP gets through.
    Partition,
    /// UDP does not get through.
    Timeout,
    /// TCP is answered with a reset.
    Error,
    /// Packets are late.
    Latency,
    /// Nothing happens to packets.
    Cpu,
}

/// A fault that was injected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// What it does.
    pub(super) kind: Kind,
    /// When it ends by itself.
    pub(super) end: Instant,
}

/// What is known of something that may end by itself any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Yes,
    No,
    Unsure,
}

/// Every fault that should be active, by name.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) faults: BTreeMap<String, Entry>,
}

impl Model {
    /// Whether a fault is active now.
    pub(super) fn active(&self, name: &str) -> Known {
        self.faults.get(name).map_or(Known::No, Entry::active)
    }

    /// Whether any of these kinds is active now.
    pub(super) fn any(&self, kinds: &[Kind]) -> Known {
        let mut found = Known::No;
        for entry in self.faults.values().filter(|entry| kinds.contains(&entry.kind)) {
            match entry.active() {
                Known::Yes => return Known::Yes,
                Known::Unsure => found = Known::Unsure,
                Known::No => {}
            }
        }
        found
    }

    /// Forgets what has ended for certain.
    pub(super) fn tidy(&mut self) {
        self.faults.retain(|_, entry| entry.active() != Known::No);
    }
}

impl Entry {
    fn active(&self) -> Known {
        let now = Instant::now();
        if now + DOUBT < self.end {
            Known::Yes
        } else if now > self.end + DOUBT {
            Known::No
        } else {
            Known::Unsure
        }
    }
}

/// SplitMix64: the same numbers for the same seed, everywhere.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is at least 1.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let (mut one, mut two) = (Random(7), Random(7));
        let numbers: Vec<_> = (0..50).map(|_| one.below(1000)).collect();
        assert_eq!(numbers, (0..50).map(|_| two.below(1000)).collect::<Vec<_>>());
        assert_ne!(numbers, (0..50).map(|_| Random(8).below(1000)).collect::<Vec<_>>());
    }

    #[test]
    fn a_fault_near_its_end_is_neither_active_nor_not() {
        let entry = |after| Entry { kind: Kind::Partition, end: Instant::now() + after };
        let mut model = Model::default();
        model.faults.insert("a".into(), entry(Duration::from_millis(10)));
        assert_eq!(model.active("a"), Known::Unsure);
        assert_eq!(model.any(&[Kind::Partition]), Known::Unsure);
        model.faults.insert("b".into(), entry(Duration::from_secs(60)));
        assert_eq!(model.any(&[Kind::Partition, Kind::Timeout]), Known::Yes);
        assert_eq!(model.any(&[Kind::Cpu]), Known::No);
    }
}
