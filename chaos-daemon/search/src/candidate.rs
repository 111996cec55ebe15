//! One experiment that could be run: which faults, on which rungs, one after the other or at once, and for how long.

use serde::{Deserialize, Serialize};

use crate::space::{Space, Value};

/// A fault of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// Its place in [`Space::kinds`].
    pub kind: usize,
    /// The rung of each of its parameters.
    pub rungs: Vec<u32>,
    /// The rung of [`Space::gap`] after which it begins; at once without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
}

/// One experiment that could be run. It has rungs and no values, so that two are the same or they are not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Its faults, in the order of their kinds.
    pub faults: Vec<Chosen>,
    /// The rung of [`Space::duration`].
    pub duration: u32,
}

/// Where a candidate has a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A parameter of a fault.
    Parameter {
        /// In [`Space::kinds`].
        kind: usize,
        /// In the kind's parameters.
        parameter: usize,
    },
    /// How much later than the first a fault begins.
    Gap {
        /// In [`Space::kinds`].
        kind: usize,
    },
    /// How long the candidate lasts.
    Duration,
}

impl Candidate {
    /// Every place that it has a rung at.
    pub fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for chosen in &self.faults {
            let kind = chosen.kind;
            places.extend((0..chosen.rungs.len()).map(|parameter| Place::Parameter { kind, parameter }));
            places.extend(chosen.after.map(|_| Place::Gap { kind }));
        }
        places.push(Place::Duration);
        places
    }

    /// The rung at a place.
    pub fn rung(&self, place: Place) -> Option<u32> {
        let chosen = |kind| self.faults.iter().find(|chosen| chosen.kind == kind);
        match place {
            Place::Parameter { kind, parameter } => chosen(kind)?.rungs.get(parameter).copied(),
            Place::Gap { kind } => chosen(kind)?.after,
            Place::Duration => Some(self.duration),
        }
    }

    /// The same with another rung at a place; a fault that begins at once gets a gap.
    pub fn with(&self, place: Place, rung: u32) -> Candidate {
        let mut changed = self.clone();
        changed.set(place, rung);
        changed
    }

    /// Puts another rung at a place.
    pub(crate) fn set(&mut self, place: Place, rung: u32) {
        let chosen = match place {
            Place::Duration => return self.duration = rung,
            Place::Parameter { kind, .. } | Place::Gap { kind } => {
                self.faults.iter_mut().find(|chosen| chosen.kind == kind)
            }
        };
        match (chosen, place) {
            (Some(chosen), Place::Gap { .. }) => chosen.after = Some(rung),
            (Some(chosen), Place::Parameter { parameter, .. }) => {
                if let Some(at) = chosen.rungs.get_mut(parameter) {
                    *at = rung;
                }
            }
            _ => {}
        }
    }

    /// Only those of its faults that are of these kinds; one that is alone begins at once.
    pub fn only(&self, kinds: &[usize]) -> Candidate {
        let mut less = self.clone();
        less.faults.retain(|chosen| kinds.contains(&chosen.kind));
        if let [alone] = &mut less.faults[..] {
            alone.after = None;
        }
        less
    }

    /// The kinds of its faults.
    pub fn kinds(&self) -> Vec<usize> {
        self.faults.iter().map(|chosen| chosen.kind).collect()
    }
}

/// A fault of a candidate in words and values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultSetting {
    /// What the document calls the fault.
    pub fault: String,
    /// Each parameter that is varied: its name, its value and its unit.
    pub parameters: Vec<(String, Value, String)>,
    /// How many seconds after the first fault it begins.
    pub after_seconds: f64,
}

/// A candidate in words and values, for whoever makes an experiment of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The faults.
    pub faults: Vec<FaultSetting>,
    /// How many seconds each of them lasts.
    pub duration_seconds: f64,
}

impl Space {
    /// The values of a candidate.
    pub fn setting(&self, candidate: &Candidate) -> Setting {
        let fault = |chosen: &Chosen| {
            let kind = self.kinds.get(chosen.kind)?;
            let parameters = kind.parameters.iter().zip(&chosen.rungs);
            Some(FaultSetting {
                fault: kind.name.clone(),
                parameters: parameters
                    .map(|(of, rung)| (of.name.clone(), of.ladder.value(*rung), of.unit.clone()))
                    .collect(),
                after_seconds: match (&self.gap, chosen.after) {
                    (Some(gap), Some(after)) => gap.number(after),
                    _ => 0.0,
                },
            })
        };
        Setting {
            faults: candidate.faults.iter().filter_map(fault).collect(),
            duration_seconds: self.duration.number(candidate.duration),
        }
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { ", " }, fault.fault)?;
            for (name, value, unit) in &fault.parameters {
                match value {
                    Value::Number(number) => write!(f, " {name} {}{unit}", short(*number))?,
                    Value::Word(word) => write!(f, " {name} {word}")?,
                }
            }
            if fault.after_seconds > 0.0 {
                write!(f, " after {}s", short(fault.after_seconds))?;
            }
        }
        write!(f, ", for {}s", short(self.duration_seconds))
    }
}

/// A number with four digits that count.
pub(crate) fn short(number: f64) -> String {
    let digits =
        if number == 0.0 { 0 } else { (3 - number.abs().log10().floor() as i32).clamp(0, 9) as usize };
    let text = format!("{number:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
