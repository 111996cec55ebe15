//! What a caller may want to do, as far as roles tell one from another.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a caller wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Look at what is active, registered, or has run.
    Look,
    /// End faults and runs; forget registrations; pause and delete schedules.
    End,
    /// A dry run, and a look at what can be aimed at.
    Plan,
    /// Take a sample.
    Probe,
    /// Register a fault or an experiment.
    Register,
    /// Inject a fault.
    Inject,
    /// Begin a run of an experiment.
    Run,
    /// Have an experiment run by itself.
    Schedule,
    /// Approve of what others want to do.
    Approve,
}

impl Act {
    /// Every act.
    pub const ALL: [Self; 9] = [
        Self::Look,
        Self::End,
        Self::Plan,
        Self::Probe,
        Self::Register,
        Self::Inject,
        Self::Run,
        Self::Schedule,
        Self::Approve,
    ];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::End => "end",
            Self::Plan => "plan",
            Self::Probe => "probe",
            Self::Register => "register",
            Self::Inject => "inject",
            Self::Run => "run",
            Self::Schedule => "schedule",
            Self::Approve => "approve",
        }
    }
}

impl fmt::Display for Act {
    /// After "may not".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Look => "look",
            Self::End => "stop anything",
            Self::Plan => "plan",
            Self::Probe => "probe",
            Self::Register => "register anything",
            Self::Inject => "inject",
            Self::Run => "run an experiment",
            Self::Schedule => "schedule an experiment",
            Self::Approve => "approve of anything",
        })
    }
}
