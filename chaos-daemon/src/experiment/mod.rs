//! Experiments: the document that describes one, the state machine of a run, and the driver that carries it out.

pub mod activity;
pub mod ahead;
pub mod alert;
mod arguments;
pub mod beside;
pub mod blind;
pub mod convert;
pub mod document;
pub mod driver;
mod durations;
pub mod ending;
pub mod entry;
pub mod failure;
mod futile;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed;
pub mod gate;
pub mod guardrails;
mod happened;
pub mod host_limits;
pub mod hub;
pub mod impact;
pub mod machine;
pub mod native;
pub mod portable;
pub mod problems;
pub mod recovery;
mod reference;
pub mod role;
pub mod sampling;
mod sampling_rule;
pub mod schema;
pub mod search;
pub mod severity;
pub mod source;
pub mod stage;
pub mod staged;
pub mod timeline;
pub mod tolerance;
pub mod variables;
pub mod verdict;
pub mod verification;

pub use document::Experiment;
pub use driver::{Means, drive};
pub use ending::{Ending, Fate, Progress};
pub use failure::FailureMode;
pub use impact::Impact;
pub use machine::Outcome;
pub use native::Native;
pub use recovery::Recovery;
pub use stage::Stage;
pub use timeline::{Recorder, Timeline};
pub use verdict::Verdict;

/// The extension that is ours.
pub const EXTENSION: &str = "chaos-daemon";
