//! What binds a fault to its end.

use serde::{Deserialize, Serialize};

/// What binds a fault to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LifetimeClass {
    /// The kernel ends it when our process dies, or at the deadline.
    Kernel,
    /// A guard has to end it.
    Supervised,
    /// It cannot be taken back.
    Irreversible,
}

impl LifetimeClass {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Supervised => "supervised",
            Self::Irreversible => "irreversible",
        }
    }

    /// Who sees to the end of such a fault when the daemon cannot, for people.
    pub fn undone_by(self) -> &'static str {
        match self {
            Self::Kernel => "the kernel: it goes with the process that holds it",
            Self::Supervised => "chaos-daemon guard, then recovery at the next start",
            Self::Irreversible => "nobody: it cannot be taken back",
        }
    }
}
