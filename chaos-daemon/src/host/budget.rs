//! How much of a processor a look at this host may take, and whether anybody still wants it. It is told to the thread that looks, so
//! that whatever looks at many things can ask between two of them, however deep down it is. A thread that was told nothing may take
//! all it wants. Processor time is the same on a busy host as on an idle one: there a look takes longer, and is no costlier.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::request::{ApiError, ErrorCode};

thread_local! {
    static TOLD: RefCell<Option<Told>> = const { RefCell::new(None) };
}

/// What one look may take. Clones are of the same look.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Of processor time.
    limit: Option<Duration>,
    /// What looks that are over have taken of it, in nanoseconds.
    taken: Arc<AtomicU64>,
    given_up: Arc<AtomicBool>,
}

/// Why a look does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// It has taken so much of a processor.
    #[error("a look at this host may take {0:?} of a processor, and this one takes more")]
    Costly(Duration),
    /// Who has asked for it has left.
    #[error("nobody waits for it any more")]
    Unwanted,
}

/// A thread's budget, and what came of the first question that was answered by no.
struct Told {
    budget: Budget,
    /// The processor time of the thread when its look began.
    since: Duration,
    spent: Option<Spent>,
}

impl Told {
    /// The processor time that its look has taken until now.
    fn taken(&self) -> Duration {
        processor_time().saturating_sub(self.since)
    }
}

impl Budget {
    /// So much of a processor; without a limit, until nobody wants it any more.
    pub fn new(limit: Option<Duration>) -> Self {
        Self { limit, taken: Arc::default(), given_up: Arc::default() }
    }

    /// Whoever looks by this budget stops when it asks next.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Whether a look that has taken so much until now may go on.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, now: Duration) -> Result<(), Spent> {
        if self.given_up.load(Ordering::Relaxed) {
            return Err(Spent::Unwanted);
        }
        let before = Duration::from_nanos(self.taken.load(Ordering::Relaxed));
        match self.limit {
            Some(limit) if before + now >= limit => Err(Spent::Costly(limit)),
            _ => Ok(()),
        }
    }

    /// Does it on this thread within the budget. When it stopped for that, and says so by an error, the error is about the budget.
    ///
    /// # Errors
    /// Those of `look`, and [`ErrorCode::LimitReached`].
    pub fn within<T>(&self, look: impl FnOnce() -> Result<T, ApiError>) -> Result<T, ApiError> {
        // Taken back in any case: the thread might go on.
        struct Forget;
        impl Drop for Forget {
            fn drop(&mut self) {
                if let Some(told) = TOLD.take() {
                    let nanos = u64::try_from(told.taken().as_nanos()).unwrap_or(u64::MAX);
                    told.budget.taken.fetch_add(nanos, Ordering::Relaxed);
                }
            }
        }
        let _forget = Forget;
        TOLD.set(Some(Told { budget: self.clone(), since: processor_time(), spent: None }));
        let looked = self.check(Duration::ZERO).map_err(ApiError::from).and_then(|()| look());
        let spent = TOLD.with_borrow(|told| told.as_ref().and_then(|told| told.spent));
        looked.map_err(|error| spent.map_or(error, ApiError::from))
    }
}

/// Whether the look that this thread is at may go on: to be asked before each of many things.
///
/// # Errors
/// Why not.
pub fn check() -> Result<(), Spent> {
    TOLD.with_borrow_mut(|told| {
        let Some(told) = told else { return Ok(()) };
        let checked = told.budget.check(told.taken());
        checked.inspect_err(|why| told.spent = Some(*why))
    })
}

/// What the calling thread has had of processors (`CLOCK_THREAD_CPUTIME_ID` of clock_gettime(2)).
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl From<Spent> for io::Error {
    fn from(spent: Spent) -> Self {
        Self::other(spent)
    }
}

impl From<Spent> for ApiError {
    fn from(spent: Spent) -> Self {
        let error = Self::new(ErrorCode::LimitReached, spent.to_string());
        match spent {
            Spent::Costly(_) => {
                error.hint("give a simpler expression, or name unit, cgroup or exe beside it")
            }
            Spent::Unwanted => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_told_nothing_has_all_the_time() {
        assert_eq!(check(), Ok(()));
        let unbounded = Budget::new(None).within(|| Ok(check()));
        assert_eq!(unbounded.unwrap(), Ok(()));
    }

    /// Works until it has had so much of a processor.
    fn work(time: Duration) {
        let begun = processor_time();
        while processor_time() - begun < time {}
    }

    #[test]
    fn whoever_looks_learns_that_it_is_costly_or_unwanted_and_the_next_look_of_the_thread_does_not() {
        const LIMIT: Duration = Duration::from_millis(50);
        for (limit, expected) in [(Some(LIMIT), "may take 50ms of a processor"), (None, "nobody waits")] {
            let budget = Budget::new(limit);
            let refused = budget.within(|| {
                assert_eq!(check(), Ok(()));
                match limit {
                    Some(limit) => work(limit),
                    None => budget.give_up(),
                }
                // As somebody far down would, who knows of no budgets.
                check().map_err(|why| ApiError::new(ErrorCode::InjectionFailed, format!("read: {why}")))
            });
            let refused = refused.unwrap_err();
            assert_eq!(refused.code, ErrorCode::LimitReached, "{refused}");
            assert!(refused.message.contains(expected), "{refused}");
            assert_eq!(check(), Ok(()));
        }
    }

    #[test]
    fn two_looks_share_a_budget_and_time_in_which_neither_has_a_processor_costs_nothing() {
        let budget = Budget::new(Some(Duration::from_millis(60)));
        let look = |work: &dyn Fn()| {
            budget.within(|| {
                work();
                Ok(check()?)
            })
        };
        look(&|| work(Duration::from_millis(40))).unwrap();
        look(&|| std::thread::sleep(Duration::from_millis(100))).unwrap();
        look(&|| work(Duration::from_millis(20))).unwrap_err();
    }

    #[test]
    fn an_error_of_another_kind_stays_what_it_is() {
        let refused = Budget::new(Some(Duration::from_secs(60)))
            .within(|| Err::<(), _>(ApiError::new(ErrorCode::TargetNotFound, "no such process")));
        assert_eq!(refused.unwrap_err().code, ErrorCode::TargetNotFound);
    }

    #[test]
    fn what_is_over_before_it_begins_is_not_begun() {
        let budget = Budget::new(None);
        budget.give_up();
        let refused = budget.within(|| -> Result<(), ApiError> { panic!("begun") });
        assert_eq!(refused.unwrap_err().code, ErrorCode::LimitReached);
    }
}
