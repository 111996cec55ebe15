//! The life of one run as a pure function: what happened goes in, what to do next comes out.
//!
//! ```text
//! Before ─ met ─> Injecting ─ active ─> Holding ─ over, stopped, gone ─> Removing ─> After ─> finished
//!    └ not met ──────────────────────────────────────────────────────────────────────────────────┘
//! ```

use crate::request::{ApiError, ErrorCode};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The steady state was sampled; the text says what was not met.
    Sampled(Result<(), String>),
    /// The injector answered.
    Injected(Result<(), ApiError>),
    /// The fault was kept as long as asked.
    Held,
    /// Somebody stopped the run.
    Stopped,
    /// The fault ended before its time; the text says why.
    Gone(String),
    /// The fault was removed; the text names residue.
    Removed(Result<(), String>),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Sample the steady state.
    Sample,
    /// Inject the fault.
    Inject,
    /// Keep it.
    Hold,
    /// Remove it.
    Remove,
    /// Nothing: the run is over.
    Finish(Outcome),
}

/// How a run went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the steady state was met before the fault.
    pub steady_before: bool,
    /// Whether it was met after.
    pub steady_after: bool,
    /// What went wrong, rollback last, after a semicolon.
    pub error: Option<String>,
}

impl Outcome {
    /// Whether the system kept its steady state, and the run went as described.
    pub fn success(&self) -> bool {
        self.steady_before && self.steady_after && self.error.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Injecting,
    Holding,
    Removing,
    After,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Machine {
    state: State,
    steady_before: bool,
    error: Option<String>,
    rollback: Option<String>,
}

impl Machine {
    /// A run that has not begun, and the first thing to do.
    pub fn start() -> (Self, Effect) {
        (Self { state: State::Before, steady_before: false, error: None, rollback: None }, Effect::Sample)
    }

    /// Whether the steady state was met before the fault.
    pub fn steady_before(&self) -> bool {
        self.steady_before
    }

    /// Takes in what happened. An event that does not belong to the state ends the run by way of removal, so that no
    /// mistake of the driver can leave a fault behind.
    pub fn step(&mut self, event: Event) -> Effect {
        match (self.state, event) {
            (State::Before, Event::Sampled(Ok(()))) => {
                self.steady_before = true;
                self.go(State::Injecting, Effect::Inject)
            }
            (State::Before, Event::Sampled(Err(unmet))) => {
                self.error = Some(format!("steady state not met before the action: {unmet}"));
                self.finish(false)
            }
            (State::Injecting, Event::Injected(Ok(()))) => self.go(State::Holding, Effect::Hold),
            (State::Injecting, Event::Injected(Err(error))) => {
                // Refused means unchanged: to remove now could hit a fault of the same name that is another's. Only
                // without an answer the fault may be there.
                let uncertain = error.code == ErrorCode::Unavailable;
                self.error = Some(format!("injecting failed: {error}"));
                match uncertain {
                    true => self.go(State::Removing, Effect::Remove),
                    false => self.go(State::After, Effect::Sample),
                }
            }
            (State::Holding, Event::Held) => self.go(State::Removing, Effect::Remove),
            (State::Holding, Event::Stopped) => {
                self.error = Some("stopped before its time".to_owned());
                self.go(State::Removing, Effect::Remove)
            }
            (State::Holding, Event::Gone(why)) => {
                self.error = Some(format!("the fault ended before its time: {why}"));
                self.go(State::Removing, Effect::Remove)
            }
            (State::Removing, Event::Removed(removed)) => {
                self.rollback = removed.err();
                self.go(State::After, Effect::Sample)
            }
            (State::After, Event::Sampled(sampled)) => {
                let steady_after = sampled.is_ok();
                if let Err(unmet) = sampled {
                    self.error.get_or_insert(format!("steady state not met after the action: {unmet}"));
                }
                self.finish(steady_after)
            }
            (state, event) => {
                self.error = Some(format!("the run lost its way: {event:?} while {state:?}"));
                self.go(State::Removing, Effect::Remove)
            }
        }
    }

    fn go(&mut self, state: State, effect: Effect) -> Effect {
        self.state = state;
        effect
    }

    fn finish(&mut self, steady_after: bool) -> Effect {
        let error = match (self.error.take(), self.rollback.take()) {
            (error, None) => error,
            (error, Some(rollback)) => {
                let error = error.unwrap_or_else(|| "the action was carried out".to_owned());
                Some(format!("{error}; rollback failed: {rollback}"))
            }
        };
        Effect::Finish(Outcome { steady_before: self.steady_before, steady_after, error })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn play(events: Vec<Event>) -> (Vec<Effect>, Option<Outcome>) {
        let (mut machine, first) = Machine::start();
        let mut effects = vec![first];
        for event in events {
            let effect = machine.step(event);
            effects.push(effect.clone());
            if let Effect::Finish(outcome) = effect {
                return (effects, Some(outcome));
            }
        }
        (effects, None)
    }

    fn refused(code: ErrorCode) -> Event {
        Event::Injected(Err(ApiError::new(code, "no")))
    }

    #[test]
    fn a_run_that_goes_well_injects_holds_removes_and_looks_again() {
        let (effects, outcome) = play(vec![
            Event::Sampled(Ok(())),
            Event::Injected(Ok(())),
            Event::Held,
            Event::Removed(Ok(())),
            Event::Sampled(Ok(())),
        ]);
        assert_eq!(
            effects[..5],
            [Effect::Sample, Effect::Inject, Effect::Hold, Effect::Remove, Effect::Sample]
        );
        assert!(outcome.unwrap().success());
    }

    #[test]
    fn nothing_is_injected_when_the_steady_state_is_not_met_before() {
        let (effects, outcome) = play(vec![Event::Sampled(Err("health: refused".into()))]);
        assert_eq!(effects.len(), 2);
        let outcome = outcome.unwrap();
        assert!(!outcome.success() && !outcome.steady_before);
        assert_eq!(outcome.error.unwrap(), "steady state not met before the action: health: refused");
    }

    #[test]
    fn a_failing_rollback_is_told_after_a_semicolon_whatever_else_happened() {
        for (over, steady, text) in [
            (Event::Held, Ok(()), "the action was carried out; rollback failed: veth left"),
            (Event::Stopped, Ok(()), "stopped before its time; rollback failed: veth left"),
            (
                Event::Held,
                Err("p95".to_owned()),
                "steady state not met after the action: p95; rollback failed: veth left",
            ),
        ] {
            let (_, outcome) = play(vec![
                Event::Sampled(Ok(())),
                Event::Injected(Ok(())),
                over,
                Event::Removed(Err("veth left".into())),
                Event::Sampled(steady),
            ]);
            let outcome = outcome.unwrap();
            assert_eq!(outcome.error.as_deref(), Some(text));
            assert!(!outcome.success());
        }
    }

    #[test]
    fn a_refused_injection_removes_nothing_but_an_unanswered_one_does() {
        let (effects, _) = play(vec![Event::Sampled(Ok(())), refused(ErrorCode::FaultActive)]);
        assert_eq!(effects[2], Effect::Sample);
        let (effects, _) = play(vec![Event::Sampled(Ok(())), refused(ErrorCode::Unavailable)]);
        assert_eq!(effects[2], Effect::Remove);
    }

    proptest! {
        /// Whatever the driver reports, in whatever order, a fault that became active is removed before the run
        /// finishes.
        #[test]
        fn an_active_fault_is_always_removed(order in prop::collection::vec(0..8usize, 0..40)) {
            let (mut machine, _) = Machine::start();
            let mut active = false;
            for pick in order {
                let event = match pick {
                    0 => Event::Sampled(Ok(())),
                    1 => Event::Sampled(Err("x".into())),
                    2 => Event::Injected(Ok(())),
                    3 => refused(ErrorCode::InjectionFailed),
                    4 => Event::Held,
                    5 => Event::Stopped,
                    6 => Event::Gone("x".into()),
                    _ => Event::Removed(Ok(())),
                };
                active |= event == Event::Injected(Ok(()));
                let removing = matches!(event, Event::Removed(_));
                match machine.step(event) {
                    Effect::Finish(_) => {
                        prop_assert!(!active, "finished with an active fault");
                        return Ok(());
                    }
                    Effect::Sample if removing => active = false,
                    _ => {}
                }
            }
        }
    }
}
