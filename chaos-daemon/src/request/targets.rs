//! Which processes a fault would hit, as callers see it before they inject.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the warning of a plan begins that cannot say who would be hit.
pub const UNKNOWN_TARGETS: &str = "who would be hit is not known";

/// The processes that a selector matches, and which of them would be hit. At most [`TargetsReport::MOST_LISTED`] of each
/// kind are listed; the numbers are of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetsReport {
    /// How many processes match and may be a target.
    pub matching: usize,
    /// How many of them would be hit.
    pub hit: usize,
    /// What share of the matching ones that is, as a fraction.
    pub share: f64,
    /// The seed that has chosen them.
    pub seed: u64,
    /// Those that match and may be a target, the ones that would be hit first.
    pub processes: Vec<TargetProcess>,
    /// How many match and are left out.
    pub protected: usize,
    /// Those that match and are left out.
    pub left_out: Vec<LeftOut>,
    /// The control groups of all that would be hit, by their paths; for whoever decides, and told to nobody.
    #[serde(skip)]
    pub groups: BTreeSet<String>,
}

/// A process that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetProcess {
    /// Number.
    pub pid: i32,
    /// When it started, in clock ticks since boot: with the number an identity.
    pub start_time: u64,
    /// Name.
    pub name: String,
    /// Path of its program; empty when it has none.
    pub exe: String,
    /// Its control group below the mount of cgroup v2.
    pub cgroup: String,
    /// Its systemd unit; empty when it is in none.
    pub unit: String,
    /// Whether it would be hit.
    pub hit: bool,
}

/// A process that matches and is never a target, or not now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// Number.
    pub pid: i32,
    /// Name.
    pub name: String,
    /// Why.
    pub why: String,
}

impl TargetsReport {
    /// How many processes are listed at most.
    pub const MOST_LISTED: usize = 100;
}

impl fmt::Display for TargetsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { matching, hit, share, seed, processes, protected, left_out, groups: _ } = self;
        writeln!(f, "{hit} of {matching} matching processes ({:.0} %, seed {seed})", share * 100.0)?;
        for process in processes {
            let TargetProcess { pid, start_time, name, exe, cgroup, unit, hit } = process;
            let mark = if *hit { "hit " } else { "    " };
            let place = if unit.is_empty() { format!("cgroup /{cgroup}") } else { format!("unit {unit}") };
            writeln!(f, "  {mark} {pid:>8}  {name:<15}  {exe}  started at tick {start_time}, {place}")?;
        }
        let unlisted = matching.saturating_sub(processes.len());
        if unlisted > 0 {
            writeln!(f, "  … and {unlisted} more")?;
        }
        for LeftOut { pid, name, why } in left_out {
            writeln!(f, "  left out {pid} ({name}): {why}")?;
        }
        match protected.saturating_sub(left_out.len()) {
            0 => Ok(()),
            more => writeln!(f, "  … and {more} more left out"),
        }
    }
}
