//! What a sample is taken for, and when in a run.

use serde::{Deserialize, Serialize};

/// What a sample was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The steady state.
    SteadyState,
    /// A gate.
    Gate,
    /// The record, as an activity of the method.
    Method,
    /// To see when a system is gone and when it is back, after an action that makes an outage: not being met is no surprise.
    Recovery,
    /// An alert that the document expects, or that must not fire.
    Alert,
}

/// When in a run a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Before the method.
    Before,
    /// While it went on, or its faults did.
    During,
    /// After all faults were removed.
    After,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 3] = [Self::Before, Self::During, Self::After];
}

/// At which stages of a run the steady state is to be verified, or was. In JSON a list of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Stage>", into = "Vec<Stage>")]
pub struct Stages {
    /// Before the method.
    pub before: bool,
    /// While it went on, or its faults did.
    pub during: bool,
    /// After all faults were removed.
    pub after: bool,
}

impl Stages {
    /// Those at which `is` is true.
    pub fn of(is: impl Fn(Stage) -> bool) -> Self {
        Self { before: is(Stage::Before), during: is(Stage::During), after: is(Stage::After) }
    }

    /// Whether `stage` is one of them.
    pub fn has(self, stage: Stage) -> bool {
        match stage {
            Stage::Before => self.before,
            Stage::During => self.during,
            Stage::After => self.after,
        }
    }
}

impl From<Vec<Stage>> for Stages {
    fn from(stages: Vec<Stage>) -> Self {
        Self::of(|stage| stages.contains(&stage))
    }
}

impl From<Stages> for Vec<Stage> {
    fn from(stages: Stages) -> Self {
        Stage::ALL.into_iter().filter(|stage| stages.has(*stage)).collect()
    }
}
