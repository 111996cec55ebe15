//! The places for connections: so many in all, few for one user, some kept for root, and some for who wants to stop or look.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::budget::Tally;
use crate::spec::Owner;

/// The most connections at once. One counts until all that was asked for on it has ended.
pub const MOST_CONNECTIONS: u32 = 256;
/// The most of one user, or of one vsock context, but for root, unless the operator says otherwise.
pub const MOST_OF_ONE: u32 = 32;
/// How many of them are for root alone.
pub const KEPT_FOR_ROOT: usize = 16;
/// Beyond these, and as many again for root: connections that stop and look, where there is no place for more.
pub const MOST_NARROW: usize = 4;
/// The most such of one user.
const NARROW_OF_ONE: usize = 1;

/// From when on a connection gives way to another: nothing is under way, and nothing was said for so long.
pub const IDLE: Duration = Duration::from_secs(300);
/// The same of one that stops and looks.
const IDLE_NARROW: Duration = Duration::from_secs(5);
/// How long one may take that stops and looks.
const NARROW: Duration = Duration::from_secs(60);

/// Who has which place. Clones share them.
#[derive(Debug, Clone)]
pub struct Places(Arc<Mutex<Taken>>);

#[derive(Debug)]
struct Taken {
    /// The most of one user.
    share: usize,
    given: u64,
    all: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    owner: Owner,
    is_narrow: bool,
    tally: Arc<Tally>,
}

/// A place of a connection. Dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    places: Places,
    number: u64,
    /// What ends the connection after a while.
    limit: Option<JoinHandle<()>>,
}

/// What becomes of who connects.
#[derive(Debug)]
pub enum Admission {
    /// It has a place.
    Whole(Place),
    /// It has one to stop and look, and this is why not another.
    Narrow(Place, Full),
    /// There is none.
    Refused(Full),
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// One user has as many as one may.
    Share(Owner, usize),
    /// All are taken, or all that are not for root alone.
    All,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = "or have left calls that go on";
        match self {
            Self::Share(owner, most) => {
                write!(
                    f,
                    "{most} connections of {owner} are open, {calls}, which is the most of one user: close one"
                )
            }
            Self::All => write!(
                f,
                "{MOST_CONNECTIONS} connections are open, {calls}, or kept for root, which is the most at once: close one, \
                 or wait for one to be idle for {} minutes",
                IDLE.as_secs() / 60
            ),
        }
    }
}

impl Places {
    /// All free, and so many for one user.
    pub fn new(share: u32) -> Self {
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        Self(Arc::new(Mutex::new(Taken { share, given: 0, all: Vec::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection of `owner`, of which `tally` knows how idle it is. Who is idle gives way.
    pub fn admit(&self, owner: Owner, tally: &Arc<Tally>) -> Admission {
        let mut taken = self.lock();
        let full = match taken.make_way(owner, false) {
            None => return Admission::Whole(self.place(&mut taken, owner, false, tally)),
            Some(full) => full,
        };
        if taken.make_way(owner, true).is_some() {
            return Admission::Refused(full);
        }
        let mut place = self.place(&mut taken, owner, true, tally);
        let tally = Arc::clone(tally);
        place.limit = Some(tokio::spawn(async move {
            tokio::time::sleep(NARROW).await;
            tally.leave();
        }));
        Admission::Narrow(place, full)
    }

    fn place(&self, taken: &mut Taken, owner: Owner, is_narrow: bool, tally: &Arc<Tally>) -> Place {
        taken.given += 1;
        let number = taken.given;
        taken.all.push(Entry { number, owner, is_narrow, tally: Arc::clone(tally) });
        Place { places: self.clone(), number, limit: None }
    }
}

impl Taken {
    /// Why there is no place for `owner`, after who is idle and in the way has gone.
    fn make_way(&mut self, owner: Owner, narrow: bool) -> Option<Full> {
        while let Some(full) = self.full(owner, narrow) {
            let roots =
                self.all.iter().filter(|entry| entry.is_narrow == narrow && entry.owner.is_root()).count();
            let in_the_way = self.all.iter().enumerate().filter(|(_, entry)| {
                entry.is_narrow == narrow
                    && (full == Full::All || entry.owner == owner)
                    // Those that are kept for root give way to root alone.
                    && (owner.is_root() || !entry.owner.is_root() || roots > KEPT_FOR_ROOT)
            });
            let longest = in_the_way.max_by_key(|(_, entry)| entry.tally.idle());
            let idle = if narrow { IDLE_NARROW } else { IDLE };
            match longest {
                Some((index, entry)) if entry.tally.idle() >= idle => {
                    tracing::info!(caller = %entry.owner, "closed: idle, and somebody else needs its place");
                    entry.tally.leave();
                    self.all.remove(index);
                }
                _ => return Some(full),
            }
        }
        None
    }

    fn full(&self, owner: Owner, narrow: bool) -> Option<Full> {
        let count = |is: &dyn Fn(&Entry) -> bool| {
            self.all.iter().filter(|entry| entry.is_narrow == narrow && is(entry)).count()
        };
        let (own, roots) = (count(&|entry| entry.owner == owner), count(&|entry| entry.owner.is_root()));
        let others = count(&|_| true) - roots;
        let most = MOST_CONNECTIONS as usize;
        let (share, is_full) = match (narrow, owner.is_root()) {
            (false, true) => (most, roots + others >= most),
            (false, false) => (self.share, roots.max(KEPT_FOR_ROOT) + others >= most),
            (true, true) => (MOST_NARROW, roots >= MOST_NARROW),
            (true, false) => (NARROW_OF_ONE, others >= MOST_NARROW),
        };
        if own >= share && !owner.is_root() {
            return Some(Full::Share(owner, share));
        }
        is_full.then_some(Full::All)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(limit) = &self.limit {
            limit.abort();
        }
        self.places.lock().all.retain(|entry| entry.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::budget::Budget;

    const ROOT: Owner = Owner::User(0);

    /// How many whole and narrow places these get, one after the other, who keep them.
    fn get(places: &Places, budget: &Budget, owner: Owner, tries: usize) -> (usize, usize, Vec<Admission>) {
        let all: Vec<_> = (0..tries).map(|_| places.admit(owner, &budget.tally())).collect();
        let whole = all.iter().filter(|one| matches!(one, Admission::Whole(_))).count();
        let narrow = all.iter().filter(|one| matches!(one, Admission::Narrow(..))).count();
        (whole, narrow, all)
    }

    #[tokio::test]
    async fn nobody_locks_others_out_and_root_always_has_places() {
        let (places, budget) = (Places::new(64), Budget::default());
        let mut kept = Vec::new();
        // Who tries 300 times, and gets how many, of which kind.
        for (owner, whole, narrow) in [
            (Owner::User(1001), 64, 1),
            (Owner::Context(1001), 64, 1),
            (Owner::User(1002), 64, 1),
            (Owner::User(1003), 48, 1),
            (Owner::User(1004), 0, 0),
            (ROOT, 16, 4),
        ] {
            let got = get(&places, &budget, owner, 300);
            assert_eq!((got.0, got.1), (whole, narrow), "{owner}");
            kept.push(got);
        }
        drop(kept);
        assert!(places.lock().all.is_empty());
        let got = get(&places, &budget, ROOT, 300);
        assert_eq!((got.0, got.1), (256, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_idle_gives_way_and_who_has_something_under_way_does_not() {
        let (places, budget) = (Places::new(4), Budget::default());
        let user = Owner::User(1001);
        let tallies: Vec<_> = (0..4).map(|_| budget.tally()).collect();
        let busy: Vec<_> = tallies.iter().skip(1).map(|tally| tally.hold(1)).collect();
        let kept: Vec<_> = tallies.iter().map(|tally| places.admit(user, tally)).collect();
        tokio::time::advance(IDLE - Duration::from_secs(1)).await;
        assert!(matches!(places.admit(user, &budget.tally()), Admission::Narrow(_, Full::Share(_, 4))));
        tokio::time::advance(Duration::from_secs(1)).await;
        let newcomer = places.admit(user, &budget.tally());
        assert!(matches!(newcomer, Admission::Whole(_)));
        tallies[0].left().await;
        assert!(tokio::time::timeout(Duration::from_secs(1), tallies[1].left()).await.is_err());
        assert!(!matches!(places.admit(user, &budget.tally()), Admission::Whole(_)));
        drop((busy, kept, newcomer));
        assert!(places.lock().all.is_empty());
    }
}
