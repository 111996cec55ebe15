//! A guard that has gone: the faults that need one end, since nobody else would end them.

use std::rc::Rc;

use tokio::time::{MissedTickBehavior, interval};

use super::state::Injector;
use super::watch::BEAT;

/// How many looks in a row have to miss the guard: after a suspension of the host nobody has beaten for a while.
const MISSES: u32 = 2;

/// Looks that missed the guard, in a row.
#[derive(Debug, Default)]
struct Misses(u32);

impl Misses {
    /// One more look at it, which may have missed it: whether that is enough to take it for lost.
    fn is_lost(&mut self, missed: bool) -> bool {
        self.0 = if missed { self.0 + 1 } else { 0 };
        self.0 >= MISSES
    }
}

/// Ends every supervised fault when its guard has gone: it would have nobody to end it. What is seen of the guard is what is told of
/// it, as long as there is such a fault.
pub(super) async fn watch_guard(injector: Rc<Injector>) {
    let mut due = interval(BEAT);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut misses = Misses::default();
    loop {
        due.tick().await;
        let missed = match injector.has_supervised() {
            true => injector.look_at_guard().await.err(),
            false => None,
        };
        let guarded = injector.supervised();
        let missed = missed.filter(|_| !guarded.is_empty());
        let is_lost = misses.is_lost(missed.is_some());
        let Some(problem) = missed.filter(|_| is_lost) else { continue };
        for name in guarded {
            tracing::error!(%name, problem, "a supervised fault has lost its guard; ending it");
            let (injector, reason) = (Rc::clone(&injector), format!("its guard was lost: {problem}"));
            tokio::task::spawn_local(async move { injector.end(&name, &reason).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_lost_after_two_misses_in_a_row_and_not_by_two_with_a_sight_of_it_between() {
        let mut misses = Misses::default();
        assert_eq!(
            [true, false, true, true, true].map(|missed| misses.is_lost(missed)),
            [false, false, false, true, true]
        );
        assert!(!misses.is_lost(false) && !misses.is_lost(true));
    }
}
