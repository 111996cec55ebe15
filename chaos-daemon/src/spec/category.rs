//! What faults are about, to find one by. The words are those that shipped experiments have as tags.

use serde::Serialize;

/// What a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// What is sent between hosts and services.
    Network,
    /// What there is only so much of.
    Resources,
    /// Calls and questions that are answered wrongly.
    Errors,
    /// Processes and services.
    Process,
    /// The host as a whole.
    Host,
}

impl Category {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Resources => "resources",
            Self::Errors => "errors",
            Self::Process => "process",
            Self::Host => "host",
        }
    }
}
