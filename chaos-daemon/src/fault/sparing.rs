//! Whom a request has to spare: who asks, what the policy opens, and without which units this host does not come up.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::host::{Open, Protected, Spared};
use crate::kernel::node::talk;
use crate::kernel::systemd;
use crate::request::{ApiError, Caller, ErrorCode};

/// For how long an answer of the service manager is believed.
const FRESH: Duration = Duration::from_mins(1);
/// For how long it is not asked again when it has given none.
const AGAIN: Duration = Duration::from_secs(10);
/// How long its answer is waited for. Whoever waits longer goes by the last one.
const PATIENCE: Duration = Duration::from_secs(5);

/// What it answered last.
static NEEDED: Answers = Answers::new();

/// Whom a request by `caller` has to spare where this is open. Blocks, for [`PATIENCE`] at most.
pub fn spared(caller: Caller, open: &Open) -> Spared {
    Spared::of(caller, open, NEEDED.get(ask, PATIENCE))
}

/// Units without which this host does not come up; where there is no service manager, none is known, and the table of names has to do.
fn ask() -> Option<BTreeSet<String>> {
    if systemd::absent().is_some() {
        return Some(BTreeSet::new());
    }
    match talk(async |systemd| systemd.needed_to_boot().await) {
        Ok(units) => Some(units),
        Err(error) => {
            tracing::warn!(%error, "cannot ask which units this host needs to come up: those that it named last count, and names");
            None
        }
    }
}

/// The answers to a question that may never be answered. One thread asks at a time, and nobody waits for it longer than he wants to.
struct Answers {
    state: Mutex<State>,
    answered: Condvar,
}

struct State {
    known: BTreeSet<String>,
    /// From when on it is asked again.
    due: Option<Instant>,
    is_asked: bool,
}

impl Answers {
    const fn new() -> Self {
        let state = State { known: BTreeSet::new(), due: None, is_asked: false };
        Self { state: Mutex::new(state), answered: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was answered last, asked again if that is no longer fresh.
    fn get(
        &'static self,
        ask: impl FnOnce() -> Option<BTreeSet<String>> + Send + 'static,
        patience: Duration,
    ) -> BTreeSet<String> {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        if state.due.is_some_and(|due| Instant::now() < due) {
            return state.known.clone();
        }
        if !state.is_asked {
            state.is_asked = thread::Builder::new().spawn(move || self.take_in(ask())).is_ok();
        }
        while state.is_asked {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                tracing::warn!(
                    "the service manager does not say which units this host needs to come up: those that it named last count, and names"
                );
                // Nobody else waits for an answer that is as late.
                state.due = Some(Instant::now() + AGAIN);
                break;
            };
            state = self.answered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.known.clone()
    }

    fn take_in(&self, answer: Option<BTreeSet<String>>) {
        let mut state = self.lock();
        state.due = Some(Instant::now() + if answer.is_some() { FRESH } else { AGAIN });
        state.known = answer.unwrap_or_else(|| std::mem::take(&mut state.known));
        state.is_asked = false;
        self.answered.notify_all();
    }
}

/// Refuses what is protected: `what` is that, and the reason comes behind it.
///
/// # Errors
/// [`ErrorCode::TargetProtected`], with the rule and the line of the policy that opens it.
pub(super) fn refuse(what: &str, protected: Option<Protected>) -> Result<(), ApiError> {
    match protected {
        None => Ok(()),
        Some(protected) => {
            let text = format!("{what} is protected: {protected}");
            Err(ApiError::new(ErrorCode::TargetProtected, text).hint(protected.remedy()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::waits::HANG;

    fn answers() -> &'static Answers {
        Box::leak(Box::new(Answers::new()))
    }

    fn units(name: &str) -> BTreeSet<String> {
        [name.to_owned()].into()
    }

    #[test]
    fn who_is_not_answered_goes_by_what_was_said_last_and_waits_no_longer_than_told() {
        let (say, hear) = channel::<()>();
        let answers = answers();
        let waited = Instant::now();
        let mute = move || {
            hear.recv().unwrap();
            Some(units("late.service"))
        };
        assert_eq!(answers.get(mute, Duration::from_millis(50)), BTreeSet::new());
        // Nobody else asks meanwhile, or waits.
        assert_eq!(answers.get(|| panic!("asked twice"), HANG), BTreeSet::new());
        assert!(waited.elapsed() < HANG);
        say.send(()).unwrap();
        crate::waits::wait_for(|| answers.get(|| None, HANG) == units("late.service"));
    }

    #[test]
    fn an_answer_is_kept_while_it_is_fresh_and_when_there_is_none_later() {
        let answers = answers();
        assert_eq!(answers.get(|| Some(units("a.service")), HANG), units("a.service"));
        assert_eq!(answers.get(|| panic!("it is fresh"), HANG), units("a.service"));
        answers.lock().due = None;
        assert_eq!(answers.get(|| None, HANG), units("a.service"));
        answers.lock().due = None;
        assert_eq!(answers.get(|| Some(units("b.service")), HANG), units("b.service"));
    }
}
