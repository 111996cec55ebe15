//! Stages of the blast radius: a document says in which shares of the matching targets it may be run, each of which has to
//! be held before the next one is due. Pure: what has run goes in, what may run comes out.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activity::{Activity, Deed};
use super::verdict::Verdict;
use crate::request::fields::Fields;
use crate::spec::{Share, SpecError};

/// The stages when a document names none, in percent; and those that a document which names its own may not leave out.
pub const STAGES: [u8; 4] = [10, 25, 50, 100];
/// The most stages of one document.
const MOST_STAGES: usize = 10;

/// What share of the matching targets is affected, in whole percent from 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Stage(u8);

impl Stage {
    /// A stage from a number found at `field`.
    ///
    /// # Errors
    /// When it is not a whole number from 1 to 100.
    pub fn new(field: &str, percent: f64) -> Result<Self, SpecError> {
        let whole = (1..=100_u8).find(|whole| (f64::from(*whole) - percent).abs() < f64::EPSILON);
        whole.map(Self).ok_or_else(|| {
            SpecError::new(field, format!("{percent} is no stage: give a whole percentage from 1 to 100"))
        })
    }

    /// In percent.
    pub fn percent(self) -> u8 {
        self.0
    }

    /// The same of a whole.
    pub(super) fn share(self) -> Result<Share, SpecError> {
        Share::new(f64::from(self.0) / 100.0)
    }
}

impl TryFrom<u8> for Stage {
    type Error = SpecError;

    fn try_from(percent: u8) -> Result<Self, SpecError> {
        Self::new("stage", f64::from(percent))
    }
}

impl From<Stage> for u8 {
    fn from(stage: Stage) -> Self {
        stage.0
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {} %", self.0)
    }
}

/// The stages of a document: rising, at least one, and with 10, 25, 50 and 100 % among them, up to the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlastRadius {
    stages: Vec<Stage>,
}

/// A run at a stage that has ended: its verdict.
pub type Step = (Stage, Verdict);

/// Why a run may have its stage. That somebody has approved of a stage that is not due is the injector's to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is the first one.
    First,
    /// The one before was held, as were all before that one.
    Earned {
        /// The one before.
        by: Stage,
    },
}

/// A stage that may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// Which one.
    pub stage: Stage,
    /// Why.
    pub admission: Admission,
}

/// Why a stage may not be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is none of the document's.
    #[error("{0} is none of the document's")]
    Unknown(Stage),
    /// One before it comes first.
    #[error("{wanted} is not due: {due} comes first, and {}", match last {
        None => "has not been run to its end with this document".to_owned(),
        Some(verdict) => format!("its latest run {}", verdict.name()),
    })]
    NotDue {
        /// The one that was asked for.
        wanted: Stage,
        /// The one that may be run.
        due: Stage,
        /// How the latest run of that one ended.
        last: Option<Verdict>,
    },
}

impl BlastRadius {
    /// Understands what a document says, which stands at `at`.
    pub(super) fn read(at: &str, value: Value) -> Result<Self, SpecError> {
        let mut fields = Fields::of(at, value)?;
        let path = fields.at("stages");
        let given = fields.array("stages")?;
        fields.finish()?;
        let Some(given) = given else { return Ok(Self { stages: STAGES.map(Stage).to_vec() }) };
        if given.is_empty() || given.len() > MOST_STAGES {
            return Err(SpecError::new(
                path,
                format!("give 1 to {MOST_STAGES} stages, such as [10, 25, 50, 100]"),
            ));
        }
        let stage = |(index, value): (usize, &Value)| {
            let place = format!("{path}[{index}]");
            let percent = value.as_f64();
            let percent = percent
                .ok_or_else(|| SpecError::new(&place, format!("a percentage is needed here, not {value}")))?;
            Stage::new(&place, percent)
        };
        let stages: Vec<_> = given.iter().enumerate().map(stage).collect::<Result<_, _>>()?;
        if !stages.is_sorted_by(|before, after| before < after) {
            return Err(SpecError::new(path, "each stage has to be larger than the one before"));
        }
        match left_out(&stages).as_slice() {
            [] => Ok(Self { stages }),
            left_out => {
                let problem = format!("a stage may be added, and none skipped: add {}", listed(left_out));
                Err(SpecError::new(path, problem))
            }
        }
    }

    /// Refuses what cannot be done in stages: an activity whose fault affects all or nothing, or says itself how many.
    pub(super) fn check(method: &[Activity]) -> Result<(), SpecError> {
        for (index, activity) in method.iter().enumerate() {
            if let Deed::Inject { fault, .. } = &activity.deed {
                fault.held_to(Share::ALL).map_err(|error| {
                    let problem = format!("{:?} has no place beside blast_radius: {error}", activity.name);
                    SpecError::new(format!("method[{index}].provider.arguments"), problem)
                })?;
            }
        }
        Ok(())
    }

    /// The stages, each larger than the one before.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Which stage may be run after `history`, the oldest run first: `wanted`, or without it the first that was not held yet;
    /// when all were, the last one again.
    ///
    /// A stage counts as held if it was in the latest of its runs that says something about the system: one that was refused,
    /// stopped, interrupted, unverified or that failed does not. No stage is due before all smaller ones are held.
    ///
    /// # Errors
    /// When `wanted` is none of these, or a smaller one has to come first.
    pub fn due(&self, history: &[Step], wanted: Option<Stage>) -> Result<Admitted, Refusal> {
        if let Some(unknown) = wanted.filter(|wanted| !self.stages.contains(wanted)) {
            return Err(Refusal::Unknown(unknown));
        }
        let mut before = None;
        for &stage in &self.stages {
            let held = latest(history, stage, tells) == Some(Verdict::Held);
            let last = Some(stage) == self.stages.last().copied();
            if wanted == Some(stage) || (wanted.is_none() && (!held || last)) {
                let admission = before.map_or(Admission::First, |by| Admission::Earned { by });
                return Ok(Admitted { stage, admission });
            }
            if !held {
                let wanted = wanted.unwrap_or(stage);
                return Err(Refusal::NotDue { wanted, due: stage, last: latest(history, stage, |_| true) });
            }
            before = Some(stage);
        }
        // Not reached: every document has a stage, and a wanted one is among them.
        Err(Refusal::Unknown(wanted.unwrap_or(Stage(100))))
    }

    /// Whether every stage was held.
    pub(super) fn is_done(&self, history: &[Step]) -> bool {
        self.stages.iter().all(|stage| latest(history, *stage, tells) == Some(Verdict::Held))
    }
}

/// Which of [`STAGES`] a list goes beyond without having them.
fn left_out(stages: &[Stage]) -> Vec<Stage> {
    let is_skipped = |rung: &Stage| stages.last() > Some(rung) && !stages.contains(rung);
    STAGES.into_iter().map(Stage).filter(is_skipped).collect()
}

/// In words: `10, 25 and 50`.
fn listed(stages: &[Stage]) -> String {
    let words: Vec<_> = stages.iter().map(|stage| stage.percent().to_string()).collect();
    match words.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// What the list of stages is, for the schema.
pub(super) fn schema() -> Value {
    serde_json::json!({
        "type": "array", "minItems": 1, "maxItems": MOST_STAGES, "default": STAGES,
        "items": {"type": "integer", "minimum": 1, "maximum": 100},
        "description": "Percent of the matching processes, packets or calls; each larger than the one before, with 10, 25, 50 and \
                        100 among them up to the last.",
    })
}

/// Whether a run with this verdict says something about the system.
fn tells(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Held | Verdict::Deviated | Verdict::Tripped => true,
        Verdict::Refused
        | Verdict::Failed
        | Verdict::Aborted
        | Verdict::Interrupted
        | Verdict::Unverified => false,
    }
}

fn latest(history: &[Step], stage: Stage, counts: impl Fn(Verdict) -> bool) -> Option<Verdict> {
    let of_stage = history.iter().rev().find(|(at, verdict)| *at == stage && counts(*verdict));
    of_stage.map(|(_, verdict)| *verdict)
}

#[cfg(test)]
#[path = "stage_tests.rs"]
mod tests;
