//! How long a look at this host may take, and whether anybody still wants it. It is told to the thread that looks, so that whatever
//! looks at many things can ask between two of them, however deep down it is. A thread that was told nothing has all the time.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::request::{ApiError, ErrorCode};

thread_local! {
    static TOLD: RefCell<Option<Told>> = const { RefCell::new(None) };
}

/// What one look may take. Clones are of the same look.
#[derive(Debug, Clone)]
pub struct Budget {
    /// When it is over, and how long it was.
    until: Option<(Instant, Duration)>,
    given_up: Arc<AtomicBool>,
}

/// Why a look does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// It has taken so long.
    #[error("a look at this host may take {0:?}, and this one takes longer")]
    Late(Duration),
    /// Who has asked for it has left.
    #[error("nobody waits for it any more")]
    Unwanted,
}

/// A thread's budget, and what came of the first question that was answered by no.
struct Told {
    budget: Budget,
    spent: Option<Spent>,
}

impl Budget {
    /// So long from now on; without a limit, until nobody wants it any more.
    pub fn new(limit: Option<Duration>) -> Self {
        Self { until: limit.map(|limit| (Instant::now() + limit, limit)), given_up: Arc::default() }
    }

    /// Whoever looks by this budget stops when it asks next.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Whether the look may go on.
    ///
    /// # Errors
    /// Why not.
    fn check(&self) -> Result<(), Spent> {
        if self.given_up.load(Ordering::Relaxed) {
            return Err(Spent::Unwanted);
        }
        match self.until {
            Some((until, limit)) if Instant::now() >= until => Err(Spent::Late(limit)),
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
                TOLD.take();
            }
        }
        let _forget = Forget;
        TOLD.set(Some(Told { budget: self.clone(), spent: None }));
        let looked = self.check().map_err(ApiError::from).and_then(|()| look());
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
        let Some(Told { budget, spent }) = told else { return Ok(()) };
        budget.check().inspect_err(|why| *spent = Some(*why))
    })
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
            Spent::Late(_) => error.hint("give a simpler expression, or name unit, cgroup or exe beside it"),
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

    #[test]
    fn whoever_looks_learns_that_it_is_late_or_unwanted_and_the_next_look_of_the_thread_does_not() {
        for (limit, leaves, expected) in
            [(Some(Duration::ZERO), false, "may take 0ns"), (None, true, "nobody waits")]
        {
            let budget = Budget::new(limit.map(|_: Duration| Duration::from_secs(60)));
            let late = Budget { until: limit.map(|limit| (Instant::now(), limit)), ..budget.clone() };
            let refused = budget.within(|| {
                assert_eq!(check(), Ok(()));
                TOLD.with_borrow_mut(|told| told.as_mut().unwrap().budget = late);
                if leaves {
                    budget.give_up();
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
