//! Experiments: the document that describes one, the state machine of a run, and the driver that carries it out.

pub mod document;
pub mod driver;
pub mod machine;

pub use document::{Experiment, Grammar, Native};
pub use driver::{Progress, drive};
pub use machine::Outcome;
