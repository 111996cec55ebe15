//! Finds the failure that barely happens: decides which experiment to run next, and knows when to stop.
//!
//! Pure data and decisions. Whoever holds a [`Search`] asks it for a candidate, makes a run of that, and tells the outcome. What a
//! search knows is the list of its steps and nothing else: every decision follows from the specification and the steps before it. So
//! a search that is written down and read again goes on as if nothing had been.
//!
//! What it takes for granted is that *more is worse*: of one fault more, a higher rung of an ordered parameter, or a longer
//! time no gate becomes better ([`Space::is_within`]). Noise is expected; what matters is run again.

mod budget;
mod candidate;
mod error;
mod explore;
mod known;
mod minimise;
mod narrow;
mod objective;
pub mod picture;
mod ray;
#[cfg(test)]
mod samples;
mod search;
mod searcher;
mod space;
mod spec;
mod step;

pub use budget::{Budget, Cost, Spent};
pub use candidate::{Candidate, Chosen, FaultSetting, Place, Setting};
pub use error::{Invalid, Unexpected};
pub use objective::{Direction, NoData, Observation, Outcome, rank};
pub use search::{Best, Search, State, Trial};
pub use searcher::Searcher;
pub use space::{
    Harsher, Kind, Ladder, LadderWords, MOST_COMBINATIONS, MOST_KINDS, MOST_RUNGS, Parameter, Scale, Space,
    Value, Values,
};
pub use spec::{Method, Spec};
pub use step::{Finish, Step};

/// A number with the nine digits that count, between 1e-12 and 1e15 in size: what text keeps as it is, whoever reads it.
pub(crate) fn exact(number: f64) -> f64 {
    if number.is_nan() || number.abs() < 1e-12 {
        return if number.is_nan() { number } else { 0.0 };
    }
    format!("{:.8e}", number.clamp(-1e15, 1e15)).parse().unwrap_or(number)
}
