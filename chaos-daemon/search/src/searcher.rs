//! What every way to search has in common.

use crate::candidate::Candidate;
use crate::error::Unexpected;
use crate::objective::Outcome;

/// What decides which experiment to run next.
pub trait Searcher {
    /// The candidate to run next; the same again until its outcome is told. Nothing if the search has ended.
    fn ask(&mut self) -> Option<Candidate>;

    /// Takes the outcome of the candidate that was asked for last.
    fn tell(&mut self, candidate: &Candidate, outcome: Outcome) -> Result<(), Unexpected>;
}
