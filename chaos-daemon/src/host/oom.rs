//! What the kernel's OOM killer goes by in a control group with a limit: how much is left, and whom it would choose.
//!
//! Reference: Linux `mm/oom_kill.c` (`oom_badness`), `Documentation/admin-guide/cgroup-v2.rst` (`memory.events`).

use std::fs;
use std::path::Path;

use procfs::process::Process;

use super::supply::{memory_room, number};

/// A score of an adjustment that means: never.
const NEVER: i64 = -1000;

/// The books of a control group's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Books {
    /// The bytes beyond which the kernel kills (`memory.max`); `None` when it does not.
    pub most: Option<u64>,
    /// The bytes beyond which the kernel slows everybody down (`memory.high`).
    pub high: Option<u64>,
    /// Bytes in use, but for those that the kernel takes back first.
    pub used: u64,
    /// The bytes that may still be taken before a group above it is near its limit; `None` when none is limited.
    pub above: Option<u64>,
    /// Whether its memory can be swapped out.
    pub swaps: bool,
    /// Whether the kernel kills all of it together (`memory.oom.group`).
    pub together: bool,
    /// How many processes the kernel has killed in it so far.
    pub kills: u64,
}

impl Books {
    /// Reads them; what a group has no file for is unlimited.
    pub fn read(group: &Path) -> Self {
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let idle = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
        let used = number(&group.join("memory.current")).unwrap_or(0);
        let kept = |group: &Path| number(&group.join("memory.swap.max")) == Some(0);
        Self {
            most: number(&group.join("memory.max")),
            high: group.ancestors().filter_map(|group| number(&group.join("memory.high"))).min(),
            used: used.saturating_sub(idle.unwrap_or(0)),
            above: group.parent().and_then(memory_room),
            swaps: has_swap() && !group.ancestors().any(kept),
            together: number(&group.join("memory.oom.group")) == Some(1),
            kills: kills(group).unwrap_or(0),
        }
    }
}

/// How many processes the kernel has killed for want of memory in a group or below it; `None` when the group has gone.
pub fn kills(group: &Path) -> Option<u64> {
    killed(&fs::read_to_string(group.join("memory.events")).ok()?)
}

/// The same, of what `memory.events` says.
pub fn killed(events: &str) -> Option<u64> {
    events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
}

/// The first line of `/proc/swaps` is a heading.
fn has_swap() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

/// What the kernel weighs of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// Bytes that its end would free: resident, swapped out, and page tables.
    pub bytes: u64,
    /// `oom_score_adj` (proc(5)), in thousandths of the limit.
    pub adjustment: i64,
}

impl Weight {
    /// Of a process; `None` when it has gone.
    pub fn of(pid: i32) -> Option<Self> {
        let process = Process::new(pid).ok()?;
        let status = process.status().ok()?;
        let kibibytes = [status.vmrss, status.vmswap, status.vmpte].into_iter().flatten().sum::<u64>();
        Some(Self { bytes: kibibytes << 10, adjustment: process.oom_score_adj().ok()?.into() })
    }

    /// How likely the kernel is to choose it where `limit` bytes are all there is: the process with the most is killed. `None`
    /// when it never is.
    pub fn points(self, limit: u64) -> Option<i64> {
        let adjusted = i64::try_from(limit / 1000).unwrap_or(i64::MAX).saturating_mul(self.adjustment);
        let bytes = i64::try_from(self.bytes).unwrap_or(i64::MAX);
        (self.adjustment != NEVER).then(|| bytes.saturating_add(adjusted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kills_of_a_group_are_not_those_of_whole_groups() {
        assert_eq!(killed("low 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n"), Some(2));
        assert_eq!(killed(""), None);
    }

    #[test]
    fn what_is_large_or_offers_itself_is_killed_first_and_some_are_never() {
        let points = |bytes, adjustment| Weight { bytes, adjustment }.points(100_000);
        assert!(points(2000, 0) > points(1000, 0));
        assert!(points(1000, 100) > points(9000, 0));
        assert_eq!(points(1000, -1000), None);
        assert!(Weight::of(std::process::id().cast_signed()).unwrap().bytes > 0);
    }

    #[test]
    fn a_group_without_files_has_no_limit() {
        let group = tempfile::tempdir().unwrap();
        let books = Books::read(group.path());
        assert_eq!((books.most, books.high, books.above, books.together), (None, None, None, false));
        fs::write(group.path().join("memory.max"), "4096\n").unwrap();
        fs::write(group.path().join("memory.oom.group"), "1\n").unwrap();
        let books = Books::read(group.path());
        assert_eq!((books.most, books.together), (Some(4096), true));
    }
}
