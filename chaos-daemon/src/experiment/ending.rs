//! What is told of a run: while it goes on, and when it has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::machine::Outcome;
use super::recovery::Recovery;
use super::role::Stages;
use crate::request::Evidence;

/// What can be told of a run while it goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the steady state was met before the method.
    pub steady_before: bool,
    /// When it was verified.
    pub verified: Stages,
    /// Packets, or calls, that the faults have acted on.
    pub affected: u64,
    /// From the question whose answer breached a gate to the last answer that a fault is removed.
    pub reaction: Option<Duration>,
    /// The numbers of the activities that go on, or whose faults do.
    pub going_on: Vec<usize>,
}

/// What became of a fault that the injector was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fate {
    /// Whether it was injected.
    pub injected: bool,
    /// Whether it was seen to act.
    pub effective: bool,
    /// Whether it is removed, and residue was looked for and none found.
    pub removed_clean: bool,
    /// What it had met, taken or done when it was looked at last.
    pub evidence: Option<Evidence>,
}

/// How a run has ended.
#[derive(Debug)]
pub struct Ending {
    /// The last word on it, and why.
    pub outcome: Outcome,
    /// What it has shown of recovery and alerts, if there is anything to tell.
    pub recovery: Option<Recovery>,
    /// What became of its faults, by activity; of those whose turn came.
    pub fates: BTreeMap<usize, Fate>,
}
