//! Tests of a run's life, with events in every order.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const INJECT: Step = Step { deed: Deed::Inject, background: false, before: false, after: false };
const PROBE: Step = Step { deed: Deed::Probe, ..INJECT };

/// As without a strategy.
const EDGES: Stages = Stages { before: true, during: false, after: true };

/// Plays `events` to their end, or to the run's.
fn play(steps: Vec<Step>, events: Vec<Event>) -> (Vec<Effect>, Option<Outcome>) {
    play_asked(EDGES, steps, events)
}

/// The same where the steady state is to be verified when it is `asked` for.
fn play_asked(asked: Stages, steps: Vec<Step>, events: Vec<Event>) -> (Vec<Effect>, Option<Outcome>) {
    let (mut machine, mut effects) = Machine::start(steps, asked);
    for event in events {
        let new = machine.step(event);
        effects.extend(new.clone());
        if let Some(Effect::Finish(outcome)) = new.last() {
            return (effects, Some(outcome.clone()));
        }
    }
    (effects, None)
}

fn refused(index: usize, code: ErrorCode) -> Event {
    Event::Injected(index, Err(ApiError::new(code, "no")))
}

fn abort() -> Event {
    Event::Abort(Verdict::Aborted, "stopped before its time".to_owned())
}

const MET: Event = Event::Sampled(Ok(()));

#[test]
fn a_run_that_goes_well_injects_lasts_removes_and_looks_again() {
    let events = vec![MET, Event::Injected(0, Ok(())), Event::Lasted, Event::Removed(0, Ok(())), MET];
    let (effects, outcome) = play(vec![INJECT], events);
    let expected = [
        Effect::Sample,
        Effect::Observe,
        Effect::Inject(0),
        Effect::Last(vec![0]),
        Effect::Cancel,
        Effect::Remove(0),
        Effect::Sample,
    ];
    assert_eq!(effects[..7], expected);
    assert!(outcome.unwrap().success());
}

#[test]
fn a_run_whose_fault_acted_on_nothing_shows_nothing_and_what_the_system_was_like_is_told_all_the_same() {
    let unmet = || Event::Sampled(Err("p95".into()));
    for (after, verdict, failure, error) in [
        (MET, Verdict::Unverified, FailureMode::FaultIdle, "unverified: it met nobody"),
        (
            unmet(),
            Verdict::Deviated,
            FailureMode::NotSteadyAfter,
            "steady state not met after the action: p95; it met nobody",
        ),
    ] {
        let idle = Event::Idle(0, "it met nobody".into());
        let met_after = after == MET;
        let events =
            vec![MET, Event::Injected(0, Ok(())), Event::Lasted, idle, Event::Removed(0, Ok(())), after];
        let outcome = play(vec![INJECT], events).1.unwrap();
        assert!(
            outcome.steady_before && outcome.steady_after == met_after && !outcome.success(),
            "{outcome:?}"
        );
        assert_eq!((outcome.verdict, outcome.failure), (verdict, Some(failure)));
        assert_eq!(outcome.error.as_deref(), Some(error));
    }
}

#[test]
fn of_a_fault_that_had_no_time_to_act_it_is_not_said_that_it_met_nobody() {
    let idle = Event::Idle(0, "it met nobody".into());
    let events = vec![MET, Event::Injected(0, Ok(())), abort(), idle, Event::Removed(0, Ok(())), MET];
    let outcome = play(vec![INJECT], events).1.unwrap();
    assert_eq!(
        (outcome.verdict, outcome.error.as_deref()),
        (Verdict::Aborted, Some("stopped before its time"))
    );
}

#[test]
fn nothing_is_injected_when_the_steady_state_is_not_met_before() {
    let (effects, outcome) = play(vec![INJECT], vec![Event::Sampled(Err("health: refused".into()))]);
    assert_eq!(effects.len(), 2);
    let outcome = outcome.unwrap();
    assert!(!outcome.success() && !outcome.steady_before);
    assert_eq!(outcome.error.unwrap(), "steady state not met before the action: health: refused");
}

#[test]
fn nothing_is_done_when_a_fault_of_the_method_would_be_refused_and_the_steady_state_is_told_as_it_was() {
    let late = Event::Refused(ErrorCode::TargetNotFound, "\"cut\": no interface".into());
    let only_after = Stages { before: false, ..EDGES };
    for (asked, sampled, steady) in [
        (EDGES, MET, true),
        (EDGES, Event::Sampled(Err("p95".into())), false),
        (only_after, Event::Unsampled, false),
    ] {
        let (effects, outcome) = play_asked(asked, vec![INJECT, INJECT], vec![late.clone(), sampled]);
        let outcome = outcome.unwrap();
        assert!(matches!(effects.as_slice(), [Effect::Sample, Effect::Finish(_)]), "{effects:?}");
        assert_eq!((outcome.verdict, outcome.failure), (Verdict::Refused, Some(FailureMode::TargetVanished)));
        assert_eq!((outcome.steady_before, outcome.verified.before), (steady, asked.before), "{outcome:?}");
        let error = outcome.error.unwrap();
        assert!(error.starts_with("refused before anything was done: \"cut\": no interface"), "{error}");
    }
    // Once the method goes on, the injector's own answer counts.
    let (effects, _) = play(vec![INJECT], vec![MET, late]);
    assert_eq!(effects, [Effect::Sample, Effect::Observe, Effect::Inject(0)]);
}

#[test]
fn activities_follow_each_other_and_those_in_the_background_go_on_beside_them() {
    let steps = vec![
        Step { background: true, before: true, ..INJECT },
        Step { before: true, after: true, ..PROBE },
        Step { deed: Deed::Remove(0), ..INJECT },
        Step { after: true, ..INJECT },
    ];
    let (mut machine, _) = Machine::start(steps, EDGES);
    let mut told = Vec::new();
    let wait = |index, pause| vec![Effect::Wait(index, pause)];
    for (event, effects) in [
        (MET, vec![Effect::Observe, Effect::Wait(0, Pause::Before), Effect::Wait(1, Pause::Before)]),
        (Event::Waited(1, Pause::Before), vec![Effect::Probe(1)]),
        (Event::Waited(0, Pause::Before), vec![Effect::Inject(0)]),
        (Event::Probed(1), wait(1, Pause::After)),
        (Event::Injected(0, Ok(())), vec![]),
        (Event::Deviated("p95".into()), vec![]),
        (Event::Waited(1, Pause::After), vec![Effect::Remove(0)]),
        (Event::Removed(0, Ok(())), vec![Effect::Inject(3)]),
        (Event::Injected(3, Ok(())), wait(3, Pause::After)),
        (Event::Deviated("p95 again".into()), vec![]),
        // A fault with a pause after it has had its time then.
        (Event::Waited(3, Pause::After), vec![Effect::Cancel, Effect::Remove(3)]),
        (Event::Removed(3, Ok(())), vec![Effect::Sample]),
    ] {
        assert_eq!(machine.step(event.clone()), effects, "{event:?}");
        told.push(machine.going_on());
    }
    let expected =
        [&[0, 1][..], &[0, 1], &[0, 1], &[0, 1], &[0, 1], &[0, 1], &[0, 2], &[3], &[3], &[3], &[3], &[]];
    assert_eq!(told, expected);
    let Effect::Finish(outcome) = machine.step(MET).remove(0) else { panic!("no end") };
    assert_eq!(outcome.error.unwrap(), "steady state not met during the action: p95");
}

#[test]
fn a_recovery_that_came_too_late_is_a_deviation_and_says_so_first() {
    let until = vec![MET, Event::Injected(0, Ok(())), Event::Late("early".into()), Event::Lasted];
    let after = |sampled| {
        let mut events = until.clone();
        events.extend([Event::Removed(0, Ok(())), Event::Late("late".into()), Event::Sampled(sampled)]);
        play(vec![INJECT], events).1.unwrap()
    };
    let outcome = after(Ok(()));
    assert!(outcome.verdict == Verdict::Deviated && outcome.steady_after && !outcome.success());
    assert_eq!(outcome.error.unwrap(), "late");
    let unmet = after(Err("port".into()));
    assert_eq!(unmet.error.unwrap(), "late; steady state not met after the action: port");
}

#[test]
fn faults_are_removed_in_the_reverse_order() {
    let events = vec![MET, Event::Injected(0, Ok(())), Event::Injected(1, Ok(())), abort()];
    let (effects, _) = play(vec![Step { background: true, ..INJECT }, INJECT], events);
    assert_eq!(effects[effects.len() - 3..], [Effect::Cancel, Effect::Remove(1), Effect::Remove(0)]);
}

#[test]
fn a_run_that_is_stopped_while_it_injects_removes_what_comes() {
    for (answer, then) in [
        (Event::Injected(0, Ok(())), Effect::Remove(0)),
        (refused(0, ErrorCode::Unavailable), Effect::Remove(0)),
        (refused(0, ErrorCode::FaultActive), Effect::Sample),
    ] {
        let (effects, _) = play(vec![INJECT], vec![MET, abort(), answer]);
        assert_eq!(effects[3..], [Effect::Cancel, then]);
    }
}

#[test]
fn a_failing_rollback_comes_last_after_a_semicolon_and_hides_nothing() {
    for (over, steady, text) in [
        (Event::Lasted, Ok(()), "the action was carried out; rollback failed: veth left"),
        (abort(), Ok(()), "stopped before its time; rollback failed: veth left"),
        (
            Event::Gone(0, "killed".into()),
            Err("p95".to_owned()),
            "the fault ended before its time: killed; steady state not met after the action: p95; rollback failed: \
             veth left",
        ),
    ] {
        let events = vec![
            MET,
            Event::Injected(0, Ok(())),
            over,
            Event::Removed(0, Err("veth left".into())),
            Event::Sampled(steady),
        ];
        let outcome = play(vec![INJECT], events).1.unwrap();
        assert_eq!(
            (outcome.error.as_deref(), outcome.left.as_slice()),
            (Some(text), ["veth left".to_owned()].as_slice())
        );
        assert!(!outcome.success());
    }
}

#[test]
fn a_fault_that_is_gone_when_it_is_to_be_removed_fails_a_run_that_nothing_else_has_ended() {
    let early = "the fault ended before its time: its holder died";
    let gone = || Event::Gone(0, "its holder died".into());
    for (over, verdict, text) in [
        (Event::Lasted, Verdict::Failed, early),
        (abort(), Verdict::Aborted, "stopped before its time"),
        (Event::Abort(Verdict::Tripped, "gate".to_owned()), Verdict::Tripped, "gate"),
    ] {
        let events =
            vec![MET, Event::Injected(0, Ok(())), over, gone(), Event::Removed(0, Ok(())), gone(), MET];
        let outcome = play(vec![INJECT], events).1.unwrap();
        assert_eq!((outcome.verdict, outcome.error.as_deref()), (verdict, Some(text)));
    }
}

#[test]
fn a_fault_that_an_action_finds_gone_ends_the_method_there() {
    let steps =
        vec![INJECT, Step { background: true, ..INJECT }, Step { deed: Deed::Remove(0), ..INJECT }, PROBE];
    let (mut machine, _) = Machine::start(steps, EDGES);
    for (event, effects) in [
        (MET, vec![Effect::Observe, Effect::Inject(0)]),
        (Event::Injected(0, Ok(())), vec![Effect::Inject(1), Effect::Remove(0)]),
        (Event::Injected(1, Ok(())), vec![]),
        (Event::Gone(0, "its holder died".into()), vec![Effect::Cancel, Effect::Remove(1)]),
        (Event::Removed(0, Ok(())), vec![]),
        (Event::Removed(1, Ok(())), vec![Effect::Sample]),
    ] {
        assert_eq!(machine.step(event.clone()), effects, "{event:?}");
    }
    let Effect::Finish(outcome) = machine.step(MET).remove(0) else { panic!("no end") };
    assert_eq!((outcome.verdict, outcome.failure), (Verdict::Failed, Some(FailureMode::FaultEndedEarly)));
}

#[test]
fn a_refused_injection_removes_nothing_but_an_unanswered_one_does() {
    let then = |code| play(vec![INJECT], vec![MET, refused(0, code)]).0[3..].to_vec();
    assert_eq!(then(ErrorCode::FaultActive), [Effect::Cancel, Effect::Sample]);
    assert_eq!(then(ErrorCode::Unavailable), [Effect::Cancel, Effect::Remove(0)]);
}

#[test]
fn a_run_that_is_stopped_before_its_method_ends_at_once() {
    let (effects, outcome) = play(vec![INJECT], vec![abort()]);
    assert_eq!(effects.len(), 2);
    assert_eq!(outcome.unwrap().error.unwrap(), "stopped before its time");
}

#[test]
fn the_verdict_is_what_ended_the_run_and_only_then_how_the_system_was() {
    let unmet = || Event::Sampled(Err("p95".to_owned()));
    let trip = || Event::Abort(Verdict::Tripped, "gate".to_owned());
    let left = || Event::Removed(0, Err("veth left".into()));
    let removed = || Event::Removed(0, Ok(()));
    let found = || Event::Finding(FailureMode::AlertMissing, "P1: alert".into());
    let dip = || Event::Deviated("p95".into());
    let active = |then: Vec<Event>| [vec![MET, Event::Injected(0, Ok(()))], then].concat();
    for (events, verdict) in [
        (active(vec![Event::Lasted, removed(), MET]), Verdict::Held),
        (active(vec![Event::Lasted, removed(), unmet()]), Verdict::Deviated),
        (active(vec![dip(), Event::Lasted, removed(), MET]), Verdict::Deviated),
        (active(vec![Event::Lasted, removed(), found(), MET]), Verdict::Deviated),
        (active(vec![Event::Lasted, removed(), abort(), MET]), Verdict::Aborted),
        (active(vec![Event::Lasted, removed(), abort(), Event::Unsampled]), Verdict::Aborted),
        (active(vec![Event::Lasted, abort(), removed(), MET]), Verdict::Aborted),
        (active(vec![trip(), removed(), abort(), Event::Unsampled]), Verdict::Tripped),
        (active(vec![trip(), removed(), found(), MET]), Verdict::Tripped),
        (active(vec![Event::Lasted, left(), MET]), Verdict::Failed),
        (active(vec![Event::Lasted, left(), unmet()]), Verdict::Failed),
        (active(vec![Event::Gone(0, "killed".into()), removed(), MET]), Verdict::Failed),
        (active(vec![trip(), removed(), MET]), Verdict::Tripped),
        (active(vec![dip(), trip(), removed(), unmet()]), Verdict::Tripped),
        (active(vec![trip(), left(), MET]), Verdict::Tripped),
        (active(vec![abort(), removed(), MET]), Verdict::Aborted),
        (active(vec![abort(), trip(), removed(), unmet()]), Verdict::Aborted),
        (vec![MET, refused(0, ErrorCode::PolicyDenied), MET], Verdict::Failed),
        (vec![MET, abort(), refused(0, ErrorCode::FaultActive), MET], Verdict::Aborted),
        (vec![unmet()], Verdict::Refused),
        (vec![abort()], Verdict::Aborted),
    ] {
        let outcome = play(vec![INJECT], events.clone()).1.unwrap();
        assert_eq!(outcome.verdict, verdict, "{events:?}");
        assert_eq!(outcome.success(), verdict == Verdict::Held, "{events:?}");
        assert_eq!(outcome.success(), outcome.failure.is_none(), "{events:?}");
    }
}

#[test]
fn a_stop_during_the_removal_or_after_it_is_said_once_however_often_it_comes() {
    let events = vec![MET, Event::Injected(0, Ok(())), Event::Unsampled, abort(), abort()];
    let events = [events, vec![Event::Removed(0, Ok(())), abort(), Event::Unsampled]].concat();
    let outcome = play(vec![INJECT], events).1.unwrap();
    assert_eq!(outcome.error.as_deref(), Some("stopped before its time"));
    assert!(outcome.steady_before && !outcome.steady_after);
}

/// What a run comes to: the verdict, the steady state before and after, and when it was verified.
type Seen = (Verdict, bool, bool, [bool; 3]);

fn seen(asked: [bool; 3], events: Vec<Event>) -> (Seen, Option<String>) {
    let [before, during, after] = asked;
    let outcome = play_asked(Stages { before, during, after }, vec![INJECT], events).1.unwrap();
    let Stages { before, during, after } = outcome.verified;
    let seen = (outcome.verdict, outcome.steady_before, outcome.steady_after, [before, during, after]);
    (seen, outcome.error)
}

/// A run that goes well but for what is said of the steady state.
fn run(before: Event, during: Vec<Event>, after: Event) -> Vec<Event> {
    let begun = vec![before, Event::Injected(0, Ok(()))];
    [begun, during, vec![Event::Lasted, Event::Removed(0, Ok(())), after]].concat()
}

const ONLY_BEFORE: [bool; 3] = [true, false, false];
const ONLY_DURING: [bool; 3] = [false, true, false];
const ONLY_AFTER: [bool; 3] = [false, false, true];
const CONTINUOUSLY: [bool; 3] = [true, true, true];

#[test]
fn a_verdict_claims_nothing_of_a_steady_state_that_was_not_to_be_verified() {
    use Event::{Observed, Unsampled};
    use Verdict::{Deviated, Held, Refused, Unverified};
    let unmet = || Event::Sampled(Err("p95".to_owned()));
    let dip = || vec![Observed, Event::Deviated("p95".into())];
    for (asked, events, wanted) in [
        (ONLY_BEFORE, run(MET, vec![], Unsampled), (Unverified, true, false, ONLY_BEFORE)),
        (ONLY_BEFORE, vec![unmet()], (Refused, false, false, ONLY_BEFORE)),
        (ONLY_AFTER, run(Unsampled, vec![], MET), (Held, false, true, ONLY_AFTER)),
        (ONLY_AFTER, run(Unsampled, vec![], unmet()), (Deviated, false, false, ONLY_AFTER)),
        (ONLY_DURING, run(Unsampled, vec![Observed], Unsampled), (Held, false, false, ONLY_DURING)),
        (ONLY_DURING, run(Unsampled, dip(), Unsampled), (Deviated, false, false, ONLY_DURING)),
        (ONLY_DURING, run(Unsampled, vec![], Unsampled), (Unverified, false, false, [false; 3])),
        (CONTINUOUSLY, run(MET, vec![Observed], MET), (Held, true, true, CONTINUOUSLY)),
        (CONTINUOUSLY, run(MET, dip(), MET), (Deviated, true, true, CONTINUOUSLY)),
        (CONTINUOUSLY, run(MET, vec![], MET), (Unverified, true, true, [true, false, true])),
        (CONTINUOUSLY, run(MET, vec![], unmet()), (Deviated, true, false, [true, false, true])),
    ] {
        assert_eq!(seen(asked, events.clone()).0, wanted, "{asked:?} {events:?}");
    }
}

#[test]
fn an_unverified_run_says_what_was_not_verified_and_whether_that_was_asked_for() {
    for (asked, after, expected) in [
        (CONTINUOUSLY, MET, "unverified: the steady state was not sampled while the method went on"),
        (
            ONLY_BEFORE,
            Event::Unsampled,
            "unverified: the steady state is to be verified neither during the method nor after",
        ),
    ] {
        let (_, error) = seen(asked, run(MET, vec![], after));
        assert_eq!(error.as_deref(), Some(expected));
    }
}

#[test]
fn a_run_whose_steady_state_is_not_asked_for_before_is_refused_for_other_reasons_only() {
    let breached = || Event::Sampled(Err("gate slow".to_owned()));
    let (seen, error) = seen(ONLY_AFTER, vec![breached()]);
    assert_eq!(seen, (Verdict::Refused, false, false, [false; 3]));
    assert_eq!(error.unwrap(), "not ready before the action: gate slow");
    // Where it is asked for, a run does not begin without it.
    let (effects, outcome) = play(vec![INJECT], vec![Event::Unsampled]);
    assert_eq!((effects, outcome), (vec![Effect::Sample], None));
}

#[test]
fn an_answer_that_comes_after_the_method_still_counts_for_it() {
    let until = vec![Event::Unsampled, Event::Injected(0, Ok(())), Event::Lasted];
    let late = vec![Event::Observed, Event::Deviated("no answer".into())];
    for events in [
        [until.clone(), late.clone(), vec![Event::Removed(0, Ok(())), Event::Unsampled]].concat(),
        [until, vec![Event::Removed(0, Ok(()))], late, vec![Event::Unsampled]].concat(),
    ] {
        let (seen, error) = seen(ONLY_DURING, events);
        assert_eq!(seen, (Verdict::Deviated, false, false, ONLY_DURING));
        assert_eq!(error.unwrap(), "steady state not met during the action: no answer");
    }
}

#[test]
fn a_miss_that_ends_the_run_has_it_deviate_under_every_strategy_that_samples_the_method() {
    let end = || Event::Abort(Verdict::Deviated, "p95: ended by its stopOnFailure".to_owned());
    for (asked, before, after) in
        [(ONLY_DURING, Event::Unsampled, Event::Unsampled), (CONTINUOUSLY, MET, MET)]
    {
        let events = vec![before, Event::Injected(0, Ok(())), Event::Observed, end()];
        let ((verdict, .., verified), error) =
            seen(asked, [events, vec![Event::Removed(0, Ok(())), after]].concat());
        assert_eq!((verdict, verified), (Verdict::Deviated, asked));
        assert_eq!(error.unwrap(), "p95: ended by its stopOnFailure");
    }
}

fn any_stages() -> impl Strategy<Value = Stages> {
    any::<[bool; 3]>().prop_map(|[before, during, after]| Stages { before, during, after })
}

fn any_step() -> impl Strategy<Value = Step> {
    let deed =
        prop_oneof![3 => Just(Deed::Inject), 1 => Just(Deed::Probe), 1 => (0..4usize).prop_map(Deed::Remove)];
    (deed, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(deed, background, before, after)| Step {
        deed,
        background,
        before,
        after,
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    let index = || 0..5usize;
    let pause = prop_oneof![Just(Pause::Before), Just(Pause::After)];
    prop_oneof![
        4 => prop_oneof![Just(Ok(())), Just(Err("x".to_owned()))].prop_map(Event::Sampled),
        4 => (index(), pause).prop_map(|(index, pause)| Event::Waited(index, pause)),
        6 => index().prop_map(|index| Event::Injected(index, Ok(()))),
        1 => Just(Event::Late("late".to_owned())),
        1 => Just(Event::Finding(FailureMode::AlertMissing, "alert".to_owned())),
        1 => Just(Event::Overdue("not recovered".to_owned())),
        1 => index().prop_map(|index| refused(index, ErrorCode::InjectionFailed)),
        1 => index().prop_map(|index| refused(index, ErrorCode::Unavailable)),
        3 => index().prop_map(Event::Probed),
        1 => Just(Event::Lasted),
        1 => Just(Event::Deviated("x".into())),
        1 => index().prop_map(|index| Event::Gone(index, "x".into())),
        1 => index().prop_map(|index| Event::Idle(index, "it met nobody".into())),
        1 => Just(abort()),
        2 => Just(Event::Unsampled),
        1 => Just(Event::Refused(ErrorCode::PolicyDenied, "x".to_owned())),
        1 => Just(Event::Observed),
        4 => index().prop_map(|index| Event::Removed(index, Ok(()))),
        1 => index().prop_map(|index| Event::Removed(index, Err("left".into()))),
    ]
}

/// The faults that may be active, by what the injector was asked and has answered; as strict as it can be known outside.
#[derive(Default)]
struct Ledger {
    asked: BTreeSet<usize>,
    active: BTreeSet<usize>,
    removing: BTreeSet<usize>,
}

impl Ledger {
    fn event(&mut self, event: &Event, steps: usize) {
        match event {
            Event::Injected(index, result) if *index < steps => {
                let uncertain =
                    result.as_ref().err().is_some_and(|error| error.code == ErrorCode::Unavailable);
                if result.is_ok() || (self.asked.contains(index) && uncertain) {
                    self.active.insert(*index);
                    self.removing.remove(index);
                }
                self.asked.remove(index);
            }
            Event::Removed(index, _) if self.removing.remove(index) => {
                self.active.remove(index);
            }
            _ => {}
        }
    }

    fn effects(&mut self, effects: &[Effect]) -> Option<Outcome> {
        for effect in effects {
            match effect {
                Effect::Inject(index) => drop(self.asked.insert(*index)),
                Effect::Remove(index) => drop(self.removing.insert(*index)),
                Effect::Finish(outcome) => return Some(outcome.clone()),
                _ => {}
            }
        }
        None
    }
}

/// Whether a run says nothing that it has not verified, and holds only if all that was asked was, and was met.
fn claims(outcome: &Outcome, asked: Stages) -> Result<(), TestCaseError> {
    let Outcome { steady_before, steady_after, verified, .. } = outcome;
    let within = |part: bool, whole: bool| !part || whole;
    prop_assert!(
        within(*steady_before, verified.before) && within(*steady_after, verified.after),
        "{outcome:?}"
    );
    for (verified, asked) in
        [(verified.before, asked.before), (verified.during, asked.during), (verified.after, asked.after)]
    {
        prop_assert!(within(verified, asked), "{outcome:?}");
    }
    if outcome.verdict == Verdict::Held {
        prop_assert_eq!(*verified, asked);
        prop_assert!((*steady_before, *steady_after) == (asked.before, asked.after), "{outcome:?}");
        prop_assert!(asked.during || asked.after, "nothing was verified after the faults came: {outcome:?}");
        prop_assert!(outcome.error.is_none() && outcome.left.is_empty(), "{outcome:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens, in whatever order, even what nobody asked for: a run does not finish while a fault of it may be
    /// active; and a run that is stopped ends as soon as everything is answered.
    #[test]
    fn every_run_that_injected_removes(
        steps in prop::collection::vec(any_step(), 0..4),
        asked in any_stages(),
        events in prop::collection::vec(any_event(), 0..60),
    ) {
        let count = steps.len();
        let (mut machine, _) = Machine::start(steps, asked);
        let mut ledger = Ledger::default();
        let ends = events.into_iter().chain([abort()]);
        for event in ends {
            ledger.event(&event, count);
            if let Some(outcome) = ledger.effects(&machine.step(event)) {
                prop_assert_eq!(outcome.success(), outcome.failure.is_none(), "{:?}", outcome);
                claims(&outcome, asked)?;
                prop_assert!(ledger.active.is_empty() && ledger.asked.is_empty(), "finished with a fault");
                return Ok(());
            }
        }
        // Stopped: now the injector answers everything, and the prober does.
        for _ in 0..3 * count + 2 {
            let answer = if let Some(index) = ledger.asked.first() {
                Event::Injected(*index, Ok(()))
            } else if let Some(index) = ledger.removing.first() {
                Event::Removed(*index, Ok(()))
            } else {
                MET
            };
            ledger.event(&answer, count);
            if let Some(outcome) = ledger.effects(&machine.step(answer)) {
                claims(&outcome, asked)?;
                prop_assert!(ledger.active.is_empty() && ledger.asked.is_empty(), "finished with a fault");
                return Ok(());
            }
        }
        prop_assert!(false, "does not end: {machine:?}");
    }
}
