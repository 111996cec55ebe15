//! How often something begins, and how long ago it ended: what the policy asks of the time between runs. It is known since the daemon
//! has started, and of the owner of a fault or run, whoever has asked for it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::policy::limits::{HOUR, Lately, Recent};
use crate::spec::Owner;

/// Of so many owners it is known when their last fault has ended.
const MOST_OWNERS: usize = 1000;
/// So many beginnings are known: more than any bound of the policy.
const MOST_BEGUN: usize = 20_000;

/// What has begun and ended.
#[derive(Debug, Default)]
pub(super) struct Pace {
    begun: RefCell<VecDeque<(Instant, Owner)>>,
    ended: RefCell<BTreeMap<Owner, Instant>>,
}

impl Pace {
    /// Notes that a run or a single fault begins.
    pub(super) fn begin(&self, owner: Owner, now: Instant) {
        let mut begun = self.begun.borrow_mut();
        begun.retain(|(at, _)| now.duration_since(*at) < HOUR);
        begun.push_back((now, owner));
        if begun.len() > MOST_BEGUN {
            begun.pop_front();
        }
    }

    /// Notes that a fault has ended.
    pub(super) fn end(&self, owner: Owner, now: Instant) {
        let mut ended = self.ended.borrow_mut();
        ended.insert(owner, now);
        if ended.len() > MOST_OWNERS
            && let Some(first) = ended.iter().min_by_key(|(_, at)| **at).map(|(owner, _)| *owner)
        {
            ended.remove(&first);
        }
    }

    /// What was lately, for somebody, where so many faults of that owner are active, and so many of all.
    pub(super) fn recent(&self, owner: Owner, (own, all): (usize, usize), now: Instant) -> Recent {
        let (begun, ended) = (self.begun.borrow(), self.ended.borrow());
        let since = |at: &Instant| -> Duration { now.saturating_duration_since(*at) };
        let count = |of: &dyn Fn(Owner) -> bool| {
            begun.iter().filter(|(at, owner)| since(at) < HOUR && of(*owner)).count() as u64
        };
        Recent {
            own: Lately {
                begun: count(&|other| other == owner),
                active: own as u64,
                since_end: ended.get(&owner).map(since),
            },
            all: Lately {
                begun: count(&|_| true),
                active: all as u64,
                since_end: ended.values().max().map(since),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = Owner::User(1001);
    const TWO: Owner = Owner::User(1002);

    #[test]
    fn what_has_begun_counts_for_an_hour_and_the_last_end_for_its_owner_and_for_all() {
        let (pace, start) = (Pace::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        pace.begin(ONE, at(0));
        pace.begin(ONE, at(60));
        pace.begin(TWO, at(60));
        pace.end(ONE, at(90));
        pace.end(TWO, at(100));
        let seen = |owner, seconds| {
            let Recent { own, all } = pace.recent(owner, (1, 3), at(seconds));
            let since = |lately: Lately| lately.since_end.map(|since| since.as_secs());
            (own.begun, all.begun, since(own), since(all), own.active, all.active)
        };
        assert_eq!(seen(ONE, 110), (2, 3, Some(20), Some(10), 1, 3));
        assert_eq!(seen(TWO, 110), (1, 3, Some(10), Some(10), 1, 3));
        assert_eq!(seen(Owner::ROOT, 110), (0, 3, None, Some(10), 1, 3));
        assert_eq!(seen(ONE, 3600).0, 1);
        assert_eq!(seen(ONE, 3661).1, 0);
    }

    #[test]
    fn however_many_owners_there_are_not_all_are_remembered() {
        let (pace, start) = (Pace::default(), Instant::now());
        for owner in 0..1010_u32 {
            pace.end(Owner::User(owner), start + Duration::from_secs(owner.into()));
        }
        assert_eq!(pace.ended.borrow().len(), MOST_OWNERS);
        assert!(!pace.ended.borrow().contains_key(&Owner::User(0)));
    }
}
