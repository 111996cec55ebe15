//! A step of a search: what was asked for and what came of it, what is next, and why there is nothing more.

use serde::{Deserialize, Serialize};

use crate::budget::Spent;
use crate::candidate::Candidate;
use crate::objective::Outcome;

/// One candidate that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What was asked for.
    pub candidate: Candidate,
    /// Why, in a sentence.
    pub reason: String,
    /// The margin that was expected.
    pub predicted: f64,
    /// What came of it; nothing while it is pending.
    pub outcome: Option<Outcome>,
}

/// Why a search has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The mildest failure is known as precisely as was asked for, or as noise lets it be.
    Found,
    /// Nothing fails up to the harshest. Of what is not ordered, such as an offset, 24 choices at most were tried,
    /// spread evenly; fewer where there are very many combinations of faults.
    NothingFails,
    /// Of whatever would tell more, more violation is predicted than is allowed.
    TooHarsh,
    /// No run has shown anything.
    NoData,
    /// The budget is spent.
    Budget(Spent),
    /// Somebody has stopped it.
    Stopped,
}

/// What a way to search says.
pub(crate) enum Next {
    /// This has to be run, for this reason.
    Try(Candidate, String),
    /// There is nothing more to run.
    Done(Finish),
}
