//! When a probe of the steady state is sampled, and how often.

use std::time::Duration;

use super::role::{Role, Stage};

/// How often a probe is sampled, and tried again, when nobody says; as Chaos Toolkit's strategy "continuously".
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// When a probe is sampled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Before the method: start of test.
    Sot,
    /// After all faults were removed: end of test.
    Eot,
    /// Before, and after.
    #[default]
    Edge,
    /// Before, after, and again and again while the method goes on.
    Continuous,
    /// Again and again while a fault is active.
    OnChaos,
    /// Again and again while the method goes on: what Litmus does not have, and Chaos Toolkit does.
    During,
}

/// The strategies of Chaos Toolkit, and the mode that each gives to every probe of which nothing else is said.
pub(super) const STRATEGIES: [(&str, Mode); 5] = [
    ("default", Mode::Edge),
    ("before-method-only", Mode::Sot),
    ("after-method-only", Mode::Eot),
    ("during-method-only", Mode::During),
    ("continuously", Mode::Continuous),
];

impl Mode {
    /// Whether a probe of this mode is sampled then.
    pub fn is_due(self, stage: Stage) -> bool {
        match stage {
            Stage::Before => matches!(self, Self::Sot | Self::Edge | Self::Continuous),
            Stage::During => matches!(self, Self::Continuous | Self::OnChaos | Self::During),
            Stage::After => matches!(self, Self::Eot | Self::Edge | Self::Continuous),
        }
    }
}

/// How a probe is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// When.
    pub mode: Mode,
    /// How often while the method goes on, and how long after a try that was not met there is another.
    pub interval: Duration,
    /// How often it is tried again before a sample counts as not met.
    pub retries: u32,
    /// How long it waits before the first sample of before, during and after.
    pub initial_delay: Duration,
    /// Whether the run ends when it is not met while the method goes on.
    pub stop_on_failure: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            interval: INTERVAL,
            retries: 0,
            initial_delay: Duration::ZERO,
            stop_on_failure: false,
        }
    }
}

impl Sampling {
    /// Whether a sample is due for this, then. Who looks for recovery looks at what has to be met at the end.
    pub fn is_due(self, role: Role, stage: Stage) -> bool {
        self.mode.is_due(if role == Role::Recovery { Stage::After } else { stage })
    }
}
