//! What may be tried: kinds of faults, the ladders of their parameters, and how they may be combined.

use serde::{Deserialize, Serialize};

use crate::candidate::{Candidate, Chosen, Place};
use crate::error::Invalid;
use crate::exact;

/// The most rungs that a ladder may have.
pub const MOST_RUNGS: usize = 2000;
/// The most kinds of faults in a space, and the most parameters of one.
pub const MOST_KINDS: usize = 16;

/// The most combinations of faults that a space may have.
pub const MOST_COMBINATIONS: usize = 1000;

/// How the rungs of a range lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// One step more each.
    #[default]
    Linear,
    /// One factor more each.
    Logarithmic,
}

/// Which values of a parameter hurt more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Harsher {
    /// Larger ones, such as of a delay; of a set, those that stand later.
    Larger,
    /// Smaller ones, such as of a bandwidth; of a set, those that stand earlier.
    Smaller,
    /// Nobody knows, such as of an offset in time.
    Unknown,
}

/// The values that a parameter may have, as a document says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// All from one number to another that lie on the rungs.
    Range {
        /// The smallest value.
        from: f64,
        /// The largest value, which is on the ladder whatever the step.
        to: f64,
        /// How the rungs lie.
        #[serde(default)]
        scale: Scale,
        /// From rung to rung: a difference, or a factor above 1 on a logarithmic scale. Unless it is said, a 400th of the
        /// range, or 1.02.
        #[serde(default)]
        step: Option<f64>,
        /// Whether only whole numbers are meant.
        #[serde(default)]
        whole: bool,
    },
    /// Some words, in the order of [`Harsher`].
    Set(Vec<String>),
}

/// What a [`Ladder`] is read from and written as.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LadderWords {
    /// The values.
    pub values: Values,
    /// Which of them hurt more.
    pub harsher: Harsher,
}

/// One value of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Of a range.
    Number(f64),
    /// Of a set.
    Word(String),
}

/// The values of a parameter from the mildest to the harshest. A rung is the number of one, from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "LadderWords", into = "LadderWords")]
pub struct Ladder {
    words: LadderWords,
    /// Of a range: the number on each rung.
    numbers: Vec<f64>,
}

impl TryFrom<LadderWords> for Ladder {
    type Error = Invalid;

    fn try_from(mut words: LadderWords) -> Result<Ladder, Invalid> {
        if let Values::Range { from, to, step, .. } = &mut words.values {
            (*from, *to, *step) = (exact(*from), exact(*to), step.map(exact));
        }
        let mut numbers = match &words.values {
            Values::Set(set) if set.is_empty() || set.len() > MOST_RUNGS => {
                return Err(Invalid::new("a set", format!("has {} values", set.len()), "1 to 2000"));
            }
            Values::Set(_) => Vec::new(),
            Values::Range { from, to, scale, step, whole } => rungs(*from, *to, *scale, *step, *whole)?,
        };
        if words.harsher == Harsher::Smaller {
            numbers.reverse();
        }
        Ok(Ladder { words, numbers })
    }
}

impl From<Ladder> for LadderWords {
    fn from(ladder: Ladder) -> LadderWords {
        ladder.words
    }
}

fn rungs(from: f64, to: f64, scale: Scale, step: Option<f64>, whole: bool) -> Result<Vec<f64>, Invalid> {
    let wrong = |what: String, must: &str| Err(Invalid::new("a range", what, must));
    if !(from.is_finite() && to.is_finite() && from <= to) {
        return wrong(format!("goes from {from} to {to}"), "upwards, in finite numbers");
    }
    let ratio = scale == Scale::Logarithmic;
    if ratio && from <= 0.0 {
        return wrong(format!("begins at {from} on a logarithmic scale"), "above 0");
    }
    let step = step.unwrap_or(if ratio { 1.02 } else { (to - from) / 400.0 });
    let steps = if to == from {
        0.0
    } else if ratio {
        (to / from).ln() / step.ln()
    } else {
        (to - from) / step
    };
    if !(steps.is_finite() && steps >= 0.0 && steps < (MOST_RUNGS - 1) as f64) {
        return wrong(format!("has {steps:.0} steps of {step}"), "0 to 1998 of them");
    }
    let mut numbers: Vec<f64> = (0..=(steps + 1e-9) as usize)
        .map(|rung| if ratio { from * step.powi(rung as i32) } else { from + step * rung as f64 })
        .map(|number| exact(if whole { number.round() } else { number }).clamp(from, to))
        .collect();
    numbers.push(to);
    numbers.dedup_by(|next, before| *next - *before <= (to - from) * 1e-9);
    // What was left out for being too near the end is the end.
    if let Some(last) = numbers.last_mut() {
        *last = to;
    }
    Ok(numbers)
}

impl Ladder {
    /// How many rungs there are, at least 1.
    pub fn len(&self) -> usize {
        match &self.words.values {
            Values::Set(set) => set.len(),
            Values::Range { .. } => self.numbers.len(),
        }
    }

    /// Never: a ladder has a rung.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// What stands on a rung; on the last one for all above.
    pub fn value(&self, rung: u32) -> Value {
        let rung = (rung as usize).min(self.len() - 1);
        match &self.words.values {
            Values::Set(set) => {
                let last = set.len() - 1;
                let at = if self.words.harsher == Harsher::Smaller { last - rung } else { rung };
                Value::Word(set[at].clone())
            }
            Values::Range { .. } => Value::Number(self.numbers[rung]),
        }
    }

    /// The number on a rung; of a word, its place.
    pub fn number(&self, rung: u32) -> f64 {
        match self.value(rung) {
            Value::Number(number) => number,
            Value::Word(_) => f64::from(rung),
        }
    }

    /// The harshest rung.
    pub fn top(&self) -> u32 {
        self.len() as u32 - 1
    }

    /// Whether a higher rung is known to be harsher.
    pub fn is_ordered(&self) -> bool {
        self.words.harsher != Harsher::Unknown
    }

    /// Whether the rungs lie on a logarithmic scale.
    pub fn is_logarithmic(&self) -> bool {
        matches!(self.words.values, Values::Range { scale: Scale::Logarithmic, .. })
    }

    /// Where a rung lies between nothing at all (0) and the harshest (1).
    pub fn position(&self, rung: u32) -> f64 {
        f64::from(rung + 1) / self.len() as f64
    }
}

/// A parameter of a fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// As the fault calls it.
    pub name: String,
    /// What its numbers count, such as `ms`; may be empty.
    #[serde(default)]
    pub unit: String,
    /// What it may be.
    pub ladder: Ladder,
}

/// A fault that may be part of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// What the document calls this fault.
    pub name: String,
    /// What may be varied of it; none if it is there or not.
    #[serde(default)]
    pub parameters: Vec<Parameter>,
}

/// Everything that a search may try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// The faults.
    pub kinds: Vec<Kind>,
    /// How many of them may be active in one candidate.
    pub most: usize,
    /// How many seconds after one fault another may begin. Without it, faults of one candidate all begin at once.
    #[serde(default)]
    pub gap: Option<Ladder>,
    /// How many seconds a candidate may last.
    pub duration: Ladder,
}

impl Space {
    /// Whether a search can be made of it.
    pub fn check(&self) -> Result<(), Invalid> {
        let kinds = self.kinds.len();
        if !(1..=MOST_KINDS).contains(&kinds) {
            return Err(Invalid::new("a space", format!("has {kinds} faults"), "1 to 16"));
        }
        if !(1..=kinds).contains(&self.most) {
            return Err(Invalid::new("most", format!("is {}", self.most), &format!("1 to {kinds}")));
        }
        for (at, kind) in self.kinds.iter().enumerate() {
            if kind.parameters.len() > MOST_KINDS {
                let many = format!("has {} parameters", kind.parameters.len());
                return Err(Invalid::new(&kind.name, many, "16 at most"));
            }
            if self.kinds[..at].iter().any(|other| other.name == kind.name) {
                return Err(Invalid::new(&kind.name, "is there twice".into(), "a name of its own"));
            }
        }
        let combinations = self.combinations().len();
        if combinations > MOST_COMBINATIONS {
            let many = format!("has {combinations} combinations of faults");
            return Err(Invalid::new("a space", many, "1000 at most: fewer faults, or a smaller `most`"));
        }
        let seconds =
            |ladder: &Ladder| !ladder.numbers.is_empty() && ladder.numbers.iter().all(|s| *s >= 0.0);
        if !(seconds(&self.duration) && self.duration.words.harsher == Harsher::Larger) {
            let must = "a range of seconds of which larger is harsher";
            return Err(Invalid::new("duration", "cannot be used".into(), must));
        }
        if !self.gap.as_ref().is_none_or(seconds) {
            return Err(Invalid::new("gap", "cannot be used".into(), "a range of seconds"));
        }
        Ok(())
    }

    /// Every combination of faults at its mildest: all that begin at once, the largest first, then where there is a gap each pair
    /// one after the other.
    pub(crate) fn combinations(&self) -> Vec<Candidate> {
        let kinds = self.kinds.len() as u32;
        let mut sets: Vec<u32> =
            (1..1u32 << kinds).filter(|set| set.count_ones() as usize <= self.most).collect();
        sets.sort_by_key(|set| std::cmp::Reverse(set.count_ones()));
        let members =
            |set: u32| (0..kinds).filter(move |kind| set & (1 << kind) != 0).map(|kind| kind as usize);
        let at_once = |set: &u32| self.mildest(&members(*set).collect::<Vec<_>>());
        let pairs = sets.iter().filter(|set| self.gap.is_some() && set.count_ones() == 2);
        let in_turn =
            pairs.flat_map(|set| members(*set).map(|later| at_once(set).with(Place::Gap { kind: later }, 0)));
        sets.iter().map(at_once).chain(in_turn).collect()
    }

    /// The ladder at a place.
    pub fn ladder(&self, place: Place) -> Option<&Ladder> {
        match place {
            Place::Parameter { kind, parameter } => {
                Some(&self.kinds.get(kind)?.parameters.get(parameter)?.ladder)
            }
            Place::Gap { .. } => self.gap.as_ref(),
            Place::Duration => Some(&self.duration),
        }
    }

    /// Whether a candidate is of this space.
    pub fn holds(&self, candidate: &Candidate) -> bool {
        let faults = &candidate.faults;
        let sorted = faults.windows(2).all(|pair| pair[0].kind < pair[1].kind);
        let fits = |chosen: &Chosen| {
            self.kinds.get(chosen.kind).is_some_and(|kind| kind.parameters.len() == chosen.rungs.len())
        };
        let on_it = |place| match (self.ladder(place), candidate.rung(place)) {
            (Some(ladder), Some(rung)) => rung <= ladder.top(),
            _ => false,
        };
        !faults.is_empty()
            && faults.len() <= self.kinds.len()
            && sorted
            && faults.iter().all(fits)
            && candidate.places().into_iter().all(on_it)
    }

    /// The places of a candidate where there is a choice.
    pub fn choices(&self, candidate: &Candidate) -> Vec<(Place, &Ladder)> {
        let ladder = |place| Some((place, self.ladder(place).filter(|ladder| ladder.len() > 1)?));
        candidate.places().into_iter().filter_map(ladder).collect()
    }

    /// Each of these kinds at its mildest, at once, for the shortest time.
    pub fn mildest(&self, kinds: &[usize]) -> Candidate {
        let chosen = |kind: &usize| Chosen {
            kind: *kind,
            rungs: vec![0; self.kinds.get(*kind).map_or(0, |kind| kind.parameters.len())],
            after: None,
        };
        Candidate { faults: kinds.iter().map(chosen).collect(), duration: 0 }
    }

    /// How much of a fault one choice is: the mean of where its ordered parameters stand, from 0 (absent) to 1 (the harshest).
    fn weight(&self, chosen: &Chosen) -> f64 {
        let parameters = self.kinds.get(chosen.kind).map_or(&[][..], |kind| &kind.parameters[..]);
        let positions: Vec<f64> = parameters
            .iter()
            .zip(&chosen.rungs)
            .filter(|(parameter, _)| parameter.ladder.is_ordered())
            .map(|(parameter, rung)| parameter.ladder.position(*rung))
            .collect();
        if positions.is_empty() { 1.0 } else { positions.iter().sum::<f64>() / positions.len() as f64 }
    }

    /// How much a candidate is: 1 for each fault at its harshest, less for milder ones.
    pub fn magnitude(&self, candidate: &Candidate) -> f64 {
        candidate.faults.iter().map(|chosen| self.weight(chosen)).sum()
    }

    /// How many seconds a candidate takes from its first fault to the end of its last.
    pub fn seconds(&self, candidate: &Candidate) -> f64 {
        let gap = |chosen: &Chosen| Some(self.gap.as_ref()?.number(chosen.after?));
        let last = candidate.faults.iter().filter_map(gap).fold(0.0, f64::max);
        last + self.duration.number(candidate.duration)
    }

    /// Whether `mild` is `harsh` with less: fewer faults, lower rungs where higher is harsher, and the same elsewhere.
    ///
    /// What a search takes for granted is that then it does no more harm.
    pub fn is_within(&self, mild: &Candidate, harsh: &Candidate) -> bool {
        let alone = mild.faults.len() == 1;
        mild.duration <= harsh.duration
            && mild.faults.iter().all(|less| {
                let Some(more) = harsh.faults.iter().find(|more| more.kind == less.kind) else {
                    return false;
                };
                (alone || less.after == more.after)
                    && self.kinds.get(less.kind).is_some_and(|kind| {
                        kind.parameters.iter().zip(less.rungs.iter().zip(&more.rungs)).all(
                            |(parameter, (less, more))| {
                                less == more || (parameter.ladder.is_ordered() && less < more)
                            },
                        )
                    })
            })
    }

    /// How far it is from one candidate, or from no fault at all, up to a harsher one.
    ///
    /// Each fault counts by the parameter that moves most, as a share of its range, and the duration counts as a fault does.
    pub fn distance(&self, from: Option<&Candidate>, to: &Candidate) -> f64 {
        let before = |kind| from.and_then(|from| from.faults.iter().find(|chosen| chosen.kind == kind));
        let moved = |chosen: &Chosen| {
            let less = before(chosen.kind);
            let parameters = self.kinds.get(chosen.kind).map_or(&[][..], |kind| &kind.parameters[..]);
            let ordered =
                parameters.iter().enumerate().filter(|(_, parameter)| parameter.ladder.is_ordered());
            let most = ordered.map(|(at, parameter)| {
                let position =
                    |of: &Chosen| of.rungs.get(at).map_or(0.0, |rung| parameter.ladder.position(*rung));
                position(chosen) - less.map_or(0.0, position)
            });
            most.reduce(f64::max).unwrap_or(if less.is_some() { 0.0 } else { 1.0 }).max(0.0)
        };
        let longer = if self.duration.len() == 1 {
            0.0
        } else {
            let low = from.map_or(0.0, |from| self.duration.position(from.duration));
            (self.duration.position(to.duration) - low).max(0.0)
        };
        to.faults.iter().map(moved).sum::<f64>() + longer
    }
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
