//! Spaces and systems for tests.

use crate::{
    Budget, Candidate, Direction, Harsher, Kind, Ladder, LadderWords, Observation, Outcome, Parameter, Place,
    Scale, Search, Space, Spec, Values,
};

pub(crate) fn ladder(values: Values, harsher: Harsher) -> Ladder {
    Ladder::try_from(LadderWords { values, harsher }).unwrap()
}

pub(crate) fn range(from: f64, to: f64, scale: Scale, step: Option<f64>, harsher: Harsher) -> Ladder {
    ladder(Values::Range { from, to, scale, step, whole: false }, harsher)
}

fn percent(name: &str) -> Parameter {
    Parameter {
        name: name.into(),
        unit: "%".into(),
        ladder: range(1.0, 100.0, Scale::Linear, Some(1.0), Harsher::Larger),
    }
}

/// So many faults, `a`, `b` and so on, of which one parameter goes from 1 to 100 %.
pub(crate) fn faults(many: usize) -> Space {
    let kind = |at: usize| Kind {
        name: char::from(b'a' + at as u8).to_string(),
        parameters: vec![percent("share")],
    };
    let kinds = (0..many).map(kind).collect();
    let duration = range(30.0, 30.0, Scale::Linear, None, Harsher::Larger);
    Space { kinds, most: many, gap: None, duration }
}

/// Two faults, of which one may begin up to 60 s after the other.
pub(crate) fn pair() -> Space {
    Space { gap: Some(range(0.0, 60.0, Scale::Linear, Some(2.0), Harsher::Unknown)), ..faults(2) }
}

/// One fault, one parameter, from 1 to 1000 ms.
pub(crate) fn delay() -> Space {
    let mut space = faults(1);
    space.kinds[0].parameters[0] = Parameter {
        name: "delay".into(),
        unit: "ms".into(),
        ladder: range(1.0, 1000.0, Scale::Logarithmic, None, Harsher::Larger),
    };
    space
}

pub(crate) fn budget() -> Budget {
    Budget {
        runs: 80,
        seconds: 1e5,
        magnitude: 16.0,
        violation: 1e5,
        overhead_seconds: 1.0,
        recovery_seconds: 10.0,
        stage_percent: 10,
    }
}

pub(crate) fn spec(space: Space) -> Spec {
    Spec::new(space, budget(), 20.0, 1)
}

/// The value of the first parameter of a kind; 0 where that is absent.
pub(crate) fn value(space: &Space, candidate: &Candidate, kind: usize) -> f64 {
    let place = Place::Parameter { kind, parameter: 0 };
    match (space.ladder(place), candidate.rung(place)) {
        (Some(ladder), Some(rung)) => ladder.number(rung),
        _ => 0.0,
    }
}

/// A run of 31 s that has shown a margin.
pub(crate) fn shows(margin: f64) -> Outcome {
    let value = 1.0 + margin;
    let gate =
        Observation { gate: "g".into(), value, threshold: 1.0, direction: Direction::AtMost, whole: None };
    Outcome { seen: Ok(vec![gate]), seconds: 31.0 }
}

/// Asks and tells until the search has ended.
pub(crate) fn complete(search: &mut Search, mut margin: impl FnMut(&Candidate) -> f64) {
    while let Some(trial) = search.next_trial() {
        let outcome = shows(margin(&trial.step.candidate));
        search.tell_outcome(outcome).unwrap();
    }
}
