//! What a search knows, as data for a plot, and the plots: SVG and text for a terminal.

mod svg;
mod text;

use serde::{Deserialize, Serialize};

use crate::candidate::Place;
use crate::known::{Known, Point};
use crate::search::{Best, Search};
use crate::space::{Ladder, Value};

pub use svg::{escaped, svg};
pub use text::text;

/// The most panels of a picture.
pub const MOST_PANELS: usize = 8;

/// One direction of a panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The fault and its parameter, with the unit.
    pub name: String,
    /// What stands at its mild end and at its harsh end.
    pub ends: (String, String),
    /// How many rungs it has.
    pub rungs: u32,
}

/// A candidate that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dot {
    /// Its rung on each axis of the panel.
    pub at: Vec<u32>,
    /// The mean margin of its runs.
    pub margin: f64,
    /// How many runs have shown something.
    pub runs: usize,
    /// Whether it is the best answer so far.
    pub best: bool,
}

/// One plot: margin over one axis, or which of two axes' candidates failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// One or two.
    pub axes: Vec<Axis>,
    /// What was run, of what has this panel's parameters.
    pub dots: Vec<Dot>,
    /// Between which rungs of each axis the failures begin on the ray that was followed, with 90 %.
    pub begins: Option<(Vec<u32>, Vec<u32>)>,
}

/// What a search knows: a panel if one or two parameters are varied, and otherwise one for each, onto which everything is projected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// What it shows, in a sentence.
    pub title: String,
    /// The plots.
    pub panels: Vec<Panel>,
    /// How many parameters have no panel for want of room.
    pub left_out: usize,
}

impl Search {
    /// What is known, as data for a plot.
    pub fn picture(&self) -> Picture {
        let space = &self.spec().space;
        let everything = space.mildest(&(0..space.kinds.len()).collect::<Vec<_>>());
        let varied: Vec<Place> = space.choices(&everything).into_iter().map(|(place, _)| place).collect();
        let groups: Vec<&[Place]> = match varied.len() {
            1 | 2 => vec![&varied[..]],
            _ => varied.chunks(1).take(MOST_PANELS).collect(),
        };
        let (known, best) = (self.known(), self.best());
        let title = match &best {
            Some(best) => {
                format!("Fails by {:.1} % at {}", best.margin * 100.0, space.setting(&best.candidate))
            }
            None => format!("Nothing has failed in {} runs", self.history().len()),
        };
        Picture {
            title,
            left_out: varied.len() - groups.iter().map(|group| group.len()).sum::<usize>(),
            panels: groups.into_iter().map(|places| self.panel(places, &known, best.as_ref())).collect(),
        }
    }

    fn panel(&self, places: &[Place], known: &Known<'_>, best: Option<&Best>) -> Panel {
        let at = |candidate: &crate::Candidate| {
            places.iter().map(|place| candidate.rung(*place)).collect::<Option<Vec<u32>>>()
        };
        let dot = |point: &Point| {
            Some(Dot {
                at: at(&point.candidate)?,
                margin: point.mean(),
                runs: point.margins.len(),
                best: best.is_some_and(|best| best.candidate == point.candidate),
            })
        };
        let begins = best.and_then(|best| best.begins.as_ref());
        Panel {
            axes: places.iter().filter_map(|place| self.axis(*place)).collect(),
            dots: known.points.iter().filter(|point| !point.margins.is_empty()).filter_map(dot).collect(),
            begins: begins.and_then(|(low, high)| Some((at(low)?, at(high)?))),
        }
    }

    fn axis(&self, place: Place) -> Option<Axis> {
        let space = &self.spec().space;
        let ladder = space.ladder(place)?;
        let name = match place {
            Place::Parameter { kind, parameter } => {
                let kind = space.kinds.get(kind)?;
                let parameter = kind.parameters.get(parameter)?;
                let unit =
                    if parameter.unit.is_empty() { String::new() } else { format!(" [{}]", parameter.unit) };
                format!("{} {}{unit}", kind.name, parameter.name)
            }
            Place::Gap { kind } => format!("{} after [s]", space.kinds.get(kind)?.name),
            Place::Duration => "duration [s]".to_owned(),
        };
        Some(Axis { name, ends: (label(ladder, 0), label(ladder, ladder.top())), rungs: ladder.len() as u32 })
    }
}

fn label(ladder: &Ladder, rung: u32) -> String {
    match ladder.value(rung) {
        Value::Number(number) => crate::candidate::short(number),
        Value::Word(word) => word,
    }
}

/// Where a rung lies between the ends of its axis, from 0 to 1.
fn share(axis: &Axis, rung: u32) -> f64 {
    if axis.rungs < 2 { 0.0 } else { f64::from(rung.min(axis.rungs - 1)) / f64::from(axis.rungs - 1) }
}

/// Where a margin is drawn, from 0 to 1: the objective at a half, and what is far from it pressed together.
fn height(margin: f64) -> f64 {
    0.5 + 0.5 * margin / (1.0 + margin.abs())
}

#[cfg(test)]
mod tests;
