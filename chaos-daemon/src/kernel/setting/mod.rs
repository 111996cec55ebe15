//! Settings of the node that outlive every process of ours: what a supervised fault changes. Each is a value that the
//! journal keeps, with its apply, its undo and a look derived from it.
//!
//! Undo compares and restores: only what is still as we set it is set back. What somebody else has changed since is theirs;
//! it stays, and is reported ([`Undone::Changed`]).

pub mod cgroup;
pub mod clock;
pub mod link;
pub mod service;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use cgroup::{CgroupSetting, Knob};
pub use clock::ClockSetting;
pub use link::LinkSetting;
pub use service::ServiceSetting;

use super::node::{Node, StepError, Undone};

/// One setting that a fault changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// A value of a control group.
    Cgroup(CgroupSetting),
    /// A network device that is down.
    Link(LinkSetting),
    /// A clock that is wrong.
    Clock(ClockSetting),
    /// A service that is stopped.
    Service(ServiceSetting),
}

impl Setting {
    /// Makes the change, and reads it back. The setting must be in the journal by now.
    ///
    /// # Errors
    /// When the kernel refuses, or the value is no longer the one that was journalled. Undo then finds what is left.
    pub fn apply(&self, node: &impl Node) -> Result<(), StepError> {
        match self {
            Self::Cgroup(setting) => setting.apply(node),
            Self::Link(setting) => setting.apply(node),
            Self::Clock(setting) => setting.apply(node),
            Self::Service(setting) => setting.apply(node),
        }
    }

    /// Takes the change back, if it was made and nobody has made another since.
    ///
    /// # Errors
    /// When it may still be there.
    pub fn undo(&self, node: &impl Node) -> Result<Undone, StepError> {
        match self {
            Self::Cgroup(setting) => setting.undo(node),
            Self::Link(setting) => setting.undo(node),
            Self::Clock(setting) => setting.undo(node),
            Self::Service(setting) => setting.undo(node),
        }
    }

    /// Whether the node is as we set it.
    ///
    /// # Errors
    /// When that cannot be known.
    pub fn present(&self, node: &impl Node) -> Result<bool, StepError> {
        match self {
            Self::Cgroup(setting) => setting.present(node),
            Self::Link(setting) => setting.present(node),
            Self::Clock(setting) => setting.present(node),
            Self::Service(setting) => setting.present(node),
        }
    }

    /// How often the kernel has held somebody back by it; `None` where the kernel does not count that.
    ///
    /// # Errors
    /// When the count cannot be read.
    pub fn held_back(&self, node: &impl Node) -> Result<Option<u64>, StepError> {
        match self {
            Self::Cgroup(setting) => setting.held_back(node),
            Self::Link(_) | Self::Clock(_) | Self::Service(_) => Ok(None),
        }
    }

    /// What two faults cannot hold at once, because the second would take the first's value for the node's own.
    pub fn place(&self) -> String {
        match self {
            Self::Cgroup(setting) => format!("{} of {}", setting.knob, setting.cgroup.path.display()),
            Self::Link(setting) => {
                format!("device {} of namespace {}", setting.ifindex, setting.netns.id.cookie)
            }
            Self::Clock(_) => "the clock".to_owned(),
            Self::Service(setting) => setting.unit.clone(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup(setting) => setting.fmt(f),
            Self::Link(setting) => setting.fmt(f),
            Self::Clock(setting) => setting.fmt(f),
            Self::Service(setting) => setting.fmt(f),
        }
    }
}
