//! Tests of whole searches against systems of which the truth is known.

use proptest::prelude::*;

use super::*;
use crate::Budget;
use crate::samples::{budget, complete, delay, faults, pair, shows, spec, value};
use crate::{Harsher, NoData, Parameter, Place, Scale, Space, Spent};

/// The margin of a system that breaks off at a delay.
fn cliff(space: &Space, candidate: &Candidate, at: f64) -> f64 {
    if value(space, candidate, 0) >= at { 5.0 } else { -0.5 }
}

/// A number for each step, the same in every process.
fn noise(step: usize) -> f64 {
    ((step as f64 * 12.9898).sin() * 43_758.545).fract() * 0.06
}

#[test]
fn bisection_finds_where_a_parameter_begins_to_fail() {
    for at in [2.0, 17.0, 130.0, 640.0, 990.0] {
        let space = delay();
        let mut search = Search::new(spec(delay())).unwrap();
        complete(&mut search, |candidate| cliff(&space, candidate, at));
        let best = search.best().unwrap();
        let found = value(&space, &best.candidate, 0);
        assert_eq!(search.state(), State::Finished(Finish::Found), "{at}");
        assert!(found >= at && found <= at * 1.06, "{found} for {at}");
        assert!(best.confirmed && best.runs == (3, 3) && best.fails.0 > 0.4, "{best:?}");
        let (low, high) = best.begins.unwrap();
        assert!(value(&space, &low, 0) <= at * 1.03 && value(&space, &high, 0) >= at, "{at}");
        assert!(search.history().len() <= 16, "{} runs for {at}", search.history().len());
    }
}

#[test]
fn a_search_comes_from_below() {
    let space = delay();
    let mut search = Search::new(spec(delay())).unwrap();
    complete(&mut search, |candidate| cliff(&space, candidate, 900.0));
    let mut held = 0.0;
    for step in search.history() {
        let magnitude = space.magnitude(&step.candidate);
        assert!(magnitude <= held + 0.26, "{magnitude} after {held}: {}", step.reason);
        if step.outcome.as_ref().unwrap().margin().unwrap() > 0.0 {
            break;
        }
        held = f64::max(held, magnitude);
    }
}

#[test]
fn what_nothing_breaks_is_said_to_hold() {
    for space in [delay(), faults(4), pair()] {
        let mut search = Search::new(spec(space)).unwrap();
        search.spec.budget.runs = 400;
        complete(&mut search, |_| -0.4);
        assert_eq!(search.state(), State::Finished(Finish::NothingFails));
        assert_eq!(search.best(), None);
    }
}

#[test]
fn a_failure_that_needs_two_of_four_faults_is_found_with_these_two() {
    let space = faults(4);
    let mut search = Search::new(spec(faults(4))).unwrap();
    let margin =
        |candidate: &Candidate| value(&space, candidate, 1) * value(&space, candidate, 3) / 1600.0 - 1.0;
    complete(&mut search, margin);
    let best = search.best().unwrap();
    assert_eq!(best.candidate.kinds(), [1, 3], "{:#?}", search.history());
    assert!((0.0..0.15).contains(&margin(&best.candidate)), "{}", margin(&best.candidate));
}

#[test]
fn a_parameter_that_does_not_matter_is_left_at_its_mildest() {
    let mut space = delay();
    let share = faults(1).kinds[0].parameters[0].clone();
    space.kinds[0].parameters.push(share);
    let mut search = Search::new(spec(space.clone())).unwrap();
    complete(&mut search, |candidate| cliff(&space, candidate, 100.0));
    let best = search.best().unwrap();
    assert_eq!(best.candidate.rung(Place::Parameter { kind: 0, parameter: 1 }), Some(0));
    assert!((100.0..106.0).contains(&value(&space, &best.candidate, 0)));
}

#[test]
fn a_failure_within_a_window_of_time_is_found() {
    let mut space = delay();
    space.kinds[0].parameters.push(Parameter {
        name: "offset".into(),
        unit: "s".into(),
        ladder: crate::samples::range(0.0, 59.0, Scale::Linear, Some(1.0), Harsher::Unknown),
    });
    let mut search = Search::new(spec(space.clone())).unwrap();
    complete(&mut search, |candidate| {
        let offset = candidate.rung(Place::Parameter { kind: 0, parameter: 1 }).unwrap();
        if (40..50).contains(&offset) { cliff(&space, candidate, 300.0) } else { -0.9 }
    });
    let best = search.best().unwrap();
    assert!((300.0..320.0).contains(&value(&space, &best.candidate, 0)), "{best:?}");
}

#[test]
fn an_order_of_two_faults_that_fails_is_found_with_its_gap() {
    let space = pair();
    let mut search = Search::new(spec(pair())).unwrap();
    complete(&mut search, |candidate| {
        let late = candidate.rung(Place::Gap { kind: 1 }).is_some_and(|gap| (5..15).contains(&gap));
        if late && value(&space, candidate, 1) >= 50.0 { 3.0 } else { -0.5 }
    });
    let best = search.best().unwrap();
    let gap = best.candidate.rung(Place::Gap { kind: 1 });
    assert!(gap.is_some_and(|gap| (5..15).contains(&gap)), "{best:?}");
    assert!((50.0..54.0).contains(&value(&space, &best.candidate, 1)), "{best:?}");
}

#[test]
fn five_faults_become_the_two_that_matter() {
    let space = faults(5);
    let from = space.mildest(&[0, 1, 2, 3, 4]);
    let from = (0..5).fold(from, |all, kind| all.with(Place::Parameter { kind, parameter: 0 }, 99));
    let mut spec = spec(faults(5));
    spec.method = Method::Minimise { from: from.clone(), margin: 4.0 };
    let mut search = Search::new(spec).unwrap();
    let margin = |candidate: &Candidate| {
        if value(&space, candidate, 0) >= 40.0 && value(&space, candidate, 3) >= 40.0 { 2.0 } else { -0.3 }
    };
    complete(&mut search, margin);
    assert_eq!(search.state(), State::Finished(Finish::Found));
    let best = search.best().unwrap().candidate;
    assert_eq!(best.kinds(), [0, 3]);
    assert!((40.0..43.0).contains(&value(&space, &best, 0)), "{}", space.setting(&best));
}

#[test]
fn a_verdict_that_takes_a_fault_for_needed_is_asked_for_twice() {
    let space = faults(3);
    let from = space.mildest(&[0, 1, 2]);
    let mut spec = spec(space);
    spec.method = Method::Minimise { from, margin: 4.0 };
    let mut search = Search::new(spec).unwrap();
    // Only the first is needed, and the first run of it alone is lucky.
    let mut lucky = true;
    complete(&mut search, |candidate| {
        let fails = candidate.kinds().contains(&0);
        let holds_once = candidate.kinds() == [0] && std::mem::take(&mut lucky);
        if fails && !holds_once { 1.0 } else { -0.5 }
    });
    assert_eq!(search.best().unwrap().candidate.kinds(), [0], "{:#?}", search.history());
}

#[test]
fn a_run_that_shows_nothing_is_made_again_and_one_that_was_refused_is_not() {
    for (why, times) in [(NoData::Unverified, 3), (NoData::Interrupted, 3), (NoData::Refused, 1)] {
        let mut search = Search::new(spec(delay())).unwrap();
        let first = search.ask().unwrap();
        let mut asked = 0;
        while search.ask().as_ref() == Some(&first) {
            asked += 1;
            search.tell_outcome(Outcome { seen: Err(why), seconds: 1.0 }).unwrap();
        }
        assert_eq!(asked, times, "{why:?}");
        let other = search.ask().expect("another candidate instead");
        assert!(search.spec.space.is_within(&other, &first), "{other:?}");
    }
}

#[test]
fn a_search_of_which_no_run_shows_anything_ends() {
    for space in [delay(), faults(2)] {
        let mut search = Search::new(spec(space)).unwrap();
        while search.ask().is_some() {
            search.tell_outcome(Outcome { seen: Err(NoData::Refused), seconds: 1.0 }).unwrap();
        }
        let ends = [Finish::NoData, Finish::Budget(Spent::Runs)];
        assert!(
            matches!(search.state(), State::Finished(end) if ends.contains(&end)),
            "{:?}",
            search.state()
        );
    }
}

#[test]
fn a_lone_run_that_lies_does_not_decide() {
    let space = delay();
    for lie in 0..6 {
        let mut search = Search::new(spec(delay())).unwrap();
        let mut step = 0;
        complete(&mut search, |candidate| {
            step += 1;
            let margin = cliff(&space, candidate, 200.0);
            if step == lie + 1 { -margin } else { margin }
        });
        let found = value(&space, &search.best().unwrap().candidate, 0);
        assert!((200.0..212.0).contains(&found), "{found} with lie {lie}: {:#?}", search.history());
    }
}

#[test]
fn a_lone_run_that_lies_does_not_keep_two_faults_from_being_found() {
    let space = faults(3);
    for lie in 0..20 {
        let mut search = Search::new(spec(faults(3))).unwrap();
        let mut step = 0;
        complete(&mut search, |candidate| {
            step += 1;
            let fails = value(&space, candidate, 0) >= 30.0 && value(&space, candidate, 2) >= 30.0;
            if fails != (step == lie + 1) { 2.0 } else { -0.5 }
        });
        let best = search.best().unwrap();
        let found = value(&space, &best.candidate, 0);
        assert_eq!(best.candidate.kinds(), [0, 2], "{lie}: {:#?}", search.history());
        assert!((30.0..33.0).contains(&found), "{found} with lie {lie}: {:#?}", search.history());
    }
}

#[test]
fn where_more_violation_is_predicted_than_may_be_a_search_stops() {
    let space = delay();
    let mut spec = spec(delay());
    spec.max_violation = 0.3;
    let mut search = Search::new(spec).unwrap();
    complete(&mut search, |candidate| value(&space, candidate, 0) / 100.0 - 1.0);
    let worst = |step: &Step| step.outcome.as_ref().unwrap().margin().unwrap();
    assert!(search.history().iter().all(|step| step.predicted <= 0.3));
    assert!(
        search.history().iter().map(worst).fold(0.0, f64::max) <= 0.5,
        "the system is as smooth as was said"
    );
    assert!(
        search.best().is_some_and(|best| (1.0..1.1).contains(&(value(&space, &best.candidate, 0) / 100.0)))
    );
}

#[test]
fn before_any_run_the_system_is_taken_to_leave_nothing() {
    let mut search = Search::new(Spec { max_violation: 0.5, ..spec(delay()) }).unwrap();
    let step = search.next_trial().unwrap().step.clone();
    let magnitude = search.spec.space.magnitude(&step.candidate);
    assert!((step.predicted - 8.0 * magnitude).abs() < 1e-6 && step.predicted <= 0.5, "{step:?}");
}

#[test]
fn what_is_pending_is_asked_for_again_and_told_once() {
    let mut search = Search::new(spec(delay())).unwrap();
    assert!(search.tell_outcome(shows(0.0)).is_err());
    let first = search.ask().unwrap();
    assert_eq!((search.state(), search.ask().as_ref()), (State::Pending, Some(&first)));
    let mut again: Search = serde_json::from_str(&serde_json::to_string(&search).unwrap()).unwrap();
    assert_eq!(again.ask(), Some(first.clone()));
    assert_eq!(again.cost().runs, 1, "what was asked for counts");
    let other = first.with(Place::Parameter { kind: 0, parameter: 0 }, 100);
    assert!(again.tell(&other, shows(0.0)).is_err());
    again.tell(&first, shows(-0.5)).unwrap();
    assert!(again.tell(&first, shows(-0.5)).is_err());
    again.stop();
    assert_eq!((again.ask(), again.state()), (None, State::Finished(Finish::Stopped)));
}

#[test]
fn a_run_is_begun_only_if_it_ends_in_time_after_the_recovery_and_if_it_takes_as_long_as_others() {
    // After a first run that took so long: whether a second one of 30 s is begun within so many seconds.
    for (took, seconds, begun) in
        [(31.0, 72.0, true), (31.0, 71.5, false), (60.0, 130.0, true), (60.0, 129.5, false)]
    {
        let mut search = Search::new(spec(delay())).unwrap();
        search.spec.budget.seconds = seconds;
        search.ask().unwrap();
        search.tell_outcome(Outcome { seconds: took, ..shows(-0.5) }).unwrap();
        let wait = search.next_trial().map(|trial| trial.wait_seconds);
        assert_eq!(wait, begun.then_some(10.0), "{took} s of {seconds} s");
    }
}

#[test]
fn after_a_jump_so_much_of_it_is_predicted_as_is_passed_of_the_way() {
    let space = delay();
    let mut search = Search::new(Spec { max_violation: 1.0, steepness: 1.0, ..spec(delay()) }).unwrap();
    complete(&mut search, |candidate| cliff(&space, candidate, 100.0));
    let margin = |step: &Step| step.outcome.as_ref().unwrap().margin().unwrap();
    let place = Place::Parameter { kind: 0, parameter: 0 };
    let rung = |step: &Step| f64::from(step.candidate.rung(place).unwrap());
    let jump = search.history().iter().position(|step| margin(step) > 0.0).unwrap();
    let (before, failed) = (&search.history()[jump - 1], &search.history()[jump]);
    let next = &search.history()[jump + 1];
    let way = (rung(next) - rung(before)) / (rung(failed) - rung(before));
    // From -0.5 to 5: 1 is predicted 27 % of the way up.
    assert!((0.2..0.28).contains(&way), "{way}: {next:?}");
    assert!((next.predicted - (5.5 * way - 0.5)).abs() < 0.05, "{way}: {next:?}");
}

#[test]
fn a_system_that_becomes_worse_bit_by_bit_is_not_driven_far_beyond_its_objective() {
    for at in [33.0, 35.0, 190.0, 200.0] {
        let space = delay();
        let mut search = Search::new(spec(delay())).unwrap();
        let mut worst = 0.0f64;
        complete(&mut search, |candidate| {
            let margin = value(&space, candidate, 0) / at - 1.0;
            worst = worst.max(margin);
            margin
        });
        assert!(worst < 1.0, "{worst} for {at}: {:#?}", search.history());
    }
}

#[test]
fn a_violation_within_the_noise_is_run_again_before_it_counts() {
    let mut search = Search::new(spec(faults(2))).unwrap();
    let first = search.ask().unwrap();
    search.tell_outcome(shows(0.03)).unwrap();
    assert_eq!(search.ask(), Some(first.clone()));
    search.tell_outcome(shows(-0.04)).unwrap();
    assert_eq!(search.ask(), Some(first.clone()));
    search.tell_outcome(shows(-0.04)).unwrap();
    assert!(search.ask().is_some_and(|next| search.spec.space.is_within(&first, &next) && next != first));
}

#[test]
fn what_is_larger_than_may_be_is_not_run_to_minimise_it() {
    let space = faults(5);
    let from = space.mildest(&[0, 1, 2, 3, 4]);
    let from = (0..5).fold(from, |all, kind| all.with(Place::Parameter { kind, parameter: 0 }, 99));
    let mut search =
        Search::new(Spec { method: Method::Minimise { from, margin: 4.0 }, ..spec(faults(5)) }).unwrap();
    search.spec.budget.magnitude = 2.0;
    complete(&mut search, |candidate| if value(&space, candidate, 2) >= 40.0 { 2.0 } else { -0.3 });
    assert!(
        search.history().iter().all(|step| space.magnitude(&step.candidate) <= 2.0),
        "{:#?}",
        search.history()
    );
}

#[test]
fn steps_that_are_none_of_a_search_are_refused() {
    let mut search = Search::new(spec(delay())).unwrap();
    search.ask();
    let text = serde_json::to_string(&search).unwrap();
    assert!(serde_json::from_str::<Search>(&text).is_ok());
    for (from, to) in
        [("\"rungs\":[", "\"rungs\":[9,"), ("\"kind\":0", "\"kind\":5"), ("\"runs\":80", "\"runs\":0")]
    {
        assert!(text.contains(from));
        assert!(serde_json::from_str::<Search>(&text.replace(from, to)).is_err(), "{to}");
    }
    search.tell_outcome(shows(-0.5)).unwrap();
    search.ask();
    search.steps[0].outcome = None;
    let text = serde_json::to_string(&search).unwrap();
    assert!(serde_json::from_str::<Search>(&text).is_err(), "only the last step may be pending");
}

#[test]
fn the_interval_of_a_share_is_wilsons() {
    assert_eq!(wilson(0, 0), (0.0, 1.0));
    let (low, high) = wilson(3, 3);
    assert!((low - 0.438).abs() < 0.001 && high == 1.0, "{low} {high}");
    let (low, high) = wilson(5, 10);
    assert!((low - 0.237).abs() < 0.001 && (high - 0.763).abs() < 0.001, "{low} {high}");
}

/// A search of some space for a system with a boundary and noise, told by its number of steps so far.
fn some_spec(which: u8, at: f64) -> (Spec, impl Fn(&Candidate, usize) -> f64) {
    let space = match which {
        0 => delay(),
        1 => faults(3),
        _ => pair(),
    };
    let of = space.clone();
    let margin = move |candidate: &Candidate, step: usize| {
        let scale = if which == 0 { 1000.0 } else { 200.0 };
        let sum: f64 = (0..of.kinds.len()).map(|kind| value(&of, candidate, kind)).sum();
        sum / (scale * at) - 1.0 + noise(step)
    };
    (spec(space), margin)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_search_that_is_read_again_goes_on_as_if_nothing_had_been(which in 0u8..3, at in 0.05f64..1.2, seed: u64) {
        let (mut spec, margin) = some_spec(which, at);
        spec.seed = seed;
        let mut through = Search::new(spec.clone()).unwrap();
        let mut step = 0;
        complete(&mut through, |candidate| { step += 1; margin(candidate, step) });
        let mut broken = Search::new(spec).unwrap();
        let mut step = 0;
        loop {
            broken = serde_json::from_str(&serde_json::to_string(&broken).unwrap()).unwrap();
            let Some(candidate) = broken.ask() else { break };
            broken = serde_json::from_str(&serde_json::to_string(&broken).unwrap()).unwrap();
            step += 1;
            broken.tell(&candidate, shows(margin(&candidate, step))).unwrap();
        }
        prop_assert_eq!(through, broken);
    }

    #[test]
    fn no_candidate_is_run_for_ever(which in 0u8..3, at in 0.05f64..1.2, most in 0.1f64..20.0, shift in 0usize..1000) {
        let (mut spec, margin) = some_spec(which, at);
        spec.max_violation = most;
        let mut search = Search::new(spec).unwrap();
        let mut step = shift;
        complete(&mut search, |candidate| { step += 1; margin(candidate, step) });
        for step in search.history() {
            let runs = search.history().iter().filter(|other| other.candidate == step.candidate).count();
            prop_assert!(runs <= 5, "{runs} runs of {:?}: {}", step.candidate, step.reason);
        }
    }

    #[test]
    fn no_budget_is_ever_exceeded(
        which in 0u8..3, at in 0.05f64..1.2, runs in 0u32..30, seconds in 0.0f64..1500.0, magnitude in 0.0f64..2.0,
        violation in 0.0f64..5.0, most in 0.01f64..3.0
    ) {
        let (mut spec, margin) = some_spec(which, at);
        spec.budget = Budget { runs, seconds, magnitude, violation, ..budget() };
        spec.max_violation = most;
        let mut search = Search::new(spec).unwrap();
        let mut step = 0;
        complete(&mut search, |candidate| { step += 1; margin(candidate, step) });
        let cost = search.cost();
        prop_assert!(cost.runs <= runs && search.history().len() as u32 == cost.runs);
        prop_assert!(cost.seconds <= seconds, "{} of {seconds}", cost.seconds);
        let predicted: f64 = search.history().iter().map(|step| step.predicted.max(0.0)).sum();
        prop_assert!(predicted <= violation + 1e-6, "{predicted} of {violation}");
        for step in search.history() {
            prop_assert!(search.spec.space.magnitude(&step.candidate) <= magnitude + 1e-6);
            prop_assert!(step.predicted <= search.spec.max_violation + 1e-6);
        }
    }
}
