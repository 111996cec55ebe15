//! The search of a document: what of it may be varied, for which objective, and at what cost. Then the document of each candidate,
//! and what a run of that has shown. Which candidate is next is the business of `chaos-search`.

pub mod candidate;
pub mod observe;
pub mod plan;
pub mod words;

pub use plan::Plan;
