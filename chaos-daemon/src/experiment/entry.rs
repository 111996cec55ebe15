//! What a run writes down as it happens, so that it is known whatever becomes of the daemon.

use std::sync::mpsc::Sender;

use serde::{Deserialize, Serialize};

use super::ending::Fate;
use super::timeline::{Occurrence, Reading};

/// Something that is written down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// Something happened.
    Event(Occurrence),
    /// A sample was taken.
    Sample(Reading),
    /// What is known of a fault by now.
    Fault {
        /// Its name.
        name: String,
        /// What became of it so far.
        fate: Fate,
        /// When, in seconds since the run began.
        at_seconds: f64,
    },
    /// The run goes on.
    Beat {
        /// When, in seconds since the run began.
        at_seconds: f64,
    },
}

impl Entry {
    /// When it was, in seconds since the run began.
    pub fn at_seconds(&self) -> f64 {
        match self {
            Self::Event(Occurrence { at_seconds, .. })
            | Self::Sample(Reading { at_seconds, .. })
            | Self::Fault { at_seconds, .. }
            | Self::Beat { at_seconds } => *at_seconds,
        }
    }
}

/// Where entries go, for whoever writes them.
pub type Entries = Sender<Entry>;
