//! A value of a control group: a limit, or whether it is frozen.
//!
//! Reference: Linux `Documentation/admin-guide/cgroup-v2.rst`.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::libc;
use serde::{Deserialize, Serialize};

use crate::host::CgroupRef;
use crate::kernel::node::{Node, OpenGroup, StepError, Undone};

/// How long the processes of a group may take to stand still: one that is in the kernel stops on its way out.
const FREEZE_LIMIT: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Which value of a control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Knob {
    /// `cpu.max`: microseconds per period, and the period.
    CpuMax,
    /// `memory.high`: bytes.
    MemoryHigh,
    /// `pids.max`: a number.
    PidsMax,
    /// The line of one device in `io.max`.
    IoMax {
        /// Device number as `MAJOR:MINOR`.
        device: String,
    },
    /// `cgroup.freeze`: 0 or 1.
    Freeze,
}

/// One value of one control group, before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSetting {
    /// Whose.
    pub cgroup: CgroupRef,
    /// Which.
    pub knob: Knob,
    /// As the kernel printed it before.
    pub old: String,
    /// As the kernel prints what we write.
    pub new: String,
}

/// What there is of a setting in a value.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// What has to be written to take back what is ours; empty when nothing is.
    ours: String,
    /// Whether somebody else has changed what we had changed.
    is_changed: bool,
}

impl Knob {
    /// The file of a control group that has it.
    pub fn file(&self) -> &'static str {
        match self {
            Self::CpuMax => "cpu.max",
            Self::MemoryHigh => "memory.high",
            Self::PidsMax => "pids.max",
            Self::IoMax { .. } => "io.max",
            Self::Freeze => "cgroup.freeze",
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// `NotFound` when the group has no such file.
    pub fn read(&self, cgroup: &impl OpenGroup) -> io::Result<String> {
        let text = cgroup.read(self.file())?;
        Ok(match self {
            Self::IoMax { device } => io_line(&text, device),
            _ => text,
        })
    }

    /// How often the kernel has held a process of the group, which is at `path`, back by this value; `None` where it does not
    /// count that, as of `io.max`.
    fn held_back(&self, cgroup: &impl OpenGroup, path: &Path) -> io::Result<Option<u64>> {
        let count = |file, name| match cgroup.read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(numbered(&read?, name)),
        };
        match self {
            Self::CpuMax => count("cpu.stat", "nr_throttled "),
            // Without what groups below have met by limits of their own.
            Self::MemoryHigh => count("memory.events.local", "high "),
            // Before Linux 6.11 the kernel counts in the group that was to get another process (pids_can_fork(),
            // kernel/cgroup/pids.c), from then on in the one whose limit it was.
            Self::PidsMax => match count("pids.events.local", "max ")? {
                Some(count) => Ok(Some(count)),
                None => Ok(Some(refused_forks(path))),
            },
            Self::IoMax { .. } | Self::Freeze => Ok(None),
        }
    }

    fn write(&self, cgroup: &impl OpenGroup, value: &str) -> io::Result<()> {
        let text = match self {
            Self::IoMax { device } => format!("{device} {value}"),
            _ => value.to_owned(),
        };
        cgroup.write(self.file(), &text)
    }
}

/// What `io.max` says of a device; one that is not limited has no line.
fn io_line(text: &str, device: &str) -> String {
    let prefix = format!("{device} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or("rbps=max wbps=max riops=max wiops=max").to_owned()
}

/// The number after a name, in a file with one such pair a line.
fn numbered(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// What `pids.events` says of the group at `path` and of those below it. One that has just gone has nothing to say.
fn refused_forks(path: &Path) -> u64 {
    let events = fs::read_to_string(path.join("pids.events")).unwrap_or_default();
    let here = numbered(&events, "max ").unwrap_or_default();
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    here + groups.map(|group| refused_forks(&group.path())).sum::<u64>()
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IoMax { device } => write!(f, "io.max of device {device}"),
            _ => f.write_str(self.file()),
        }
    }
}

impl CgroupSetting {
    /// See [`super::Setting::apply`].
    pub(super) fn apply(&self, node: &impl Node) -> Result<(), StepError> {
        let gone = || self.failed("find", io::ErrorKind::NotFound.into());
        let cgroup = self.open(node)?.ok_or_else(gone)?;
        let now = self.knob.read(&cgroup).map_err(|error| self.failed("read", error))?;
        if now != self.old {
            return Err(StepError::Changed { what: self.subject(), expected: self.old.clone(), found: now });
        }
        self.knob.write(&cgroup, &self.new).map_err(|error| self.failed("write", error))?;
        let now = self.knob.read(&cgroup).map_err(|error| self.failed("read back", error))?;
        if now != self.new {
            return Err(StepError::Changed { what: self.subject(), expected: self.new.clone(), found: now });
        }
        if self.knob == Knob::Freeze { self.wait_frozen(node, &cgroup, true) } else { Ok(()) }
    }

    /// See [`super::Setting::undo`].
    pub(super) fn undo(&self, node: &impl Node) -> Result<Undone, StepError> {
        let Some((cgroup, now)) = self.look(node)? else { return Ok(Undone::Absent) };
        let Found { ours, is_changed } = self.compare(&now);
        if ours.is_empty() {
            return Ok(if is_changed { Undone::Changed { now } } else { Undone::Absent });
        }
        match self.knob.write(&cgroup, &ours) {
            // It was removed just now.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT)) => {
                return Ok(Undone::Absent);
            }
            written => written.map_err(|error| self.failed("restore", error))?,
        }
        if self.knob == Knob::Freeze {
            self.wait_frozen(node, &cgroup, false)?;
        }
        match self.look(node)? {
            Some((_, now)) if is_changed && self.compare(&now).ours.is_empty() => Ok(Undone::Changed { now }),
            _ => Ok(Undone::Removed),
        }
    }

    /// See [`super::Setting::present`].
    pub(super) fn present(&self, node: &impl Node) -> Result<bool, StepError> {
        Ok(self.look(node)?.is_some_and(|(_, now)| !self.compare(&now).ours.is_empty()))
    }

    /// See [`super::Setting::held_back`]. Of a group that has gone there is nothing to count.
    pub(super) fn held_back(&self, node: &impl Node) -> Result<Option<u64>, StepError> {
        let Some(cgroup) = self.open(node)? else { return Ok(None) };
        self.knob
            .held_back(&cgroup, &self.cgroup.path)
            .map_err(|error| self.failed("read the count of", error))
    }

    /// What there is of us in the value `now`, part by part. Of a part that we have left as it was there is nothing.
    fn compare(&self, now: &str) -> Found {
        let parts = self.parts(&self.old).zip(self.parts(&self.new)).zip(self.parts(now));
        let mut found = Found::default();
        let mut ours = Vec::new();
        for ((old, new), now) in parts.filter(|((old, new), _)| old != new) {
            match now {
                _ if now == new => ours.push(old),
                _ => found.is_changed |= now != old,
            }
        }
        found.ours = ours.join(" ");
        found
    }

    /// What of a value can be set each for itself: the rates in a line of `io.max`, which the kernel always prints in one order
    /// (`tg_prfill_limit` in block/blk-throttle.c); any other value as a whole.
    fn parts<'a>(&self, value: &'a str) -> impl Iterator<Item = &'a str> {
        let several = matches!(self.knob, Knob::IoMax { .. });
        value.split(move |letter| several && letter == ' ')
    }

    /// The group and the value it has; `None` when the group has gone, or its controller has been taken from it, and the
    /// value with either.
    fn look(&self, node: &impl Node) -> Result<Option<(impl OpenGroup, String)>, StepError> {
        let Some(cgroup) = self.open(node)? else { return Ok(None) };
        match self.knob.read(&cgroup) {
            Ok(now) => Ok(Some((cgroup, now))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read", error)),
        }
    }

    fn open(&self, node: &impl Node) -> Result<Option<impl OpenGroup>, StepError> {
        node.cgroup(&self.cgroup).map_err(|error| self.failed("find", error))
    }

    /// Waits for what `cgroup.events` says: the switch is thrown at once, the processes follow. One above that is frozen
    /// keeps this one frozen, which is not ours to end.
    fn wait_frozen(&self, node: &impl Node, cgroup: &impl OpenGroup, wanted: bool) -> Result<(), StepError> {
        let line = if wanted { "frozen 1" } else { "frozen 0" };
        let end = node.now() + FREEZE_LIMIT;
        loop {
            let events =
                cgroup.read("cgroup.events").map_err(|error| self.failed("read the state of", error))?;
            if events.lines().any(|each| each == line) || !wanted {
                return Ok(());
            }
            if node.now() >= end {
                return Err(self.failed("wait for", io::ErrorKind::TimedOut.into()));
            }
            node.sleep(LOOK_AGAIN);
        }
    }

    fn subject(&self) -> String {
        format!("{} of cgroup {}", self.knob, self.cgroup.path.display())
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> StepError {
        StepError::Setting { operation, what: self.subject(), source }
    }
}

impl fmt::Display for CgroupSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} (was {})", self.subject(), self.new, self.old)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::node::Kernel;

    #[test]
    fn a_device_without_a_line_is_not_limited() {
        let text = "8:0 rbps=1024 wbps=max riops=max wiops=max\n8:16 rbps=max wbps=7 riops=max wiops=max";
        assert_eq!(io_line(text, "8:16"), "rbps=max wbps=7 riops=max wiops=max");
        assert_eq!(io_line(text, "8:1"), "rbps=max wbps=max riops=max wiops=max");
        assert_eq!(io_line("", "8:0"), "rbps=max wbps=max riops=max wiops=max");
    }

    /// A directory that behaves like a control group as far as values go.
    fn setting(folder: &std::path::Path) -> CgroupSetting {
        std::fs::write(folder.join("pids.max"), "max\n").unwrap();
        let cgroup = CgroupRef::find(folder).unwrap().unwrap();
        CgroupSetting { cgroup, knob: Knob::PidsMax, old: "max".into(), new: "5\n".trim().into() }
    }

    #[test]
    fn what_somebody_else_has_set_since_is_kept_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let setting = setting(folder.path());
        assert_eq!(setting.undo(&Kernel).unwrap(), Undone::Absent);
        std::fs::write(folder.path().join("pids.max"), "7\n").unwrap();
        assert_eq!(setting.undo(&Kernel).unwrap(), Undone::Changed { now: "7".into() });
        assert_eq!(std::fs::read_to_string(folder.path().join("pids.max")).unwrap(), "7\n");
        assert!(matches!(setting.apply(&Kernel), Err(StepError::Changed { .. })));
    }

    const NAMES: [&str; 4] = ["rbps", "wbps", "riops", "wiops"];

    /// A limit of two of the rates of a device.
    fn rates(folder: &std::path::Path) -> CgroupSetting {
        let (old, new) = ("rbps=9 wbps=max riops=max wiops=max", "rbps=9 wbps=5 riops=7 wiops=max");
        let knob = Knob::IoMax { device: "8:0".into() };
        CgroupSetting { knob, old: old.into(), new: new.into(), ..setting(folder) }
    }

    #[test]
    fn of_a_line_of_rates_those_that_nobody_else_has_set_are_taken_back_and_the_others_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (setting, file) = (rates(folder.path()), folder.path().join("io.max"));
        for (now, ours, is_changed) in [
            ("rbps=9 wbps=5 riops=7 wiops=max", "wbps=max riops=max", false),
            ("rbps=9 wbps=6 riops=7 wiops=max", "riops=max", true),
            // What was never ours is nobody's business.
            ("rbps=1 wbps=5 riops=max wiops=3", "wbps=max", false),
            ("rbps=1 wbps=max riops=max wiops=max", "", false),
            ("rbps=9 wbps=6 riops=8 wiops=max", "", true),
            ("rbps=9 wbps=max riops=max wiops=max", "", false),
        ] {
            assert_eq!(setting.compare(now), Found { ours: ours.into(), is_changed }, "{now}");
            std::fs::write(&file, format!("8:0 {now}\n")).unwrap();
            assert_eq!(setting.present(&Kernel).unwrap(), !ours.is_empty(), "{now}");
            let undone = setting.undo(&Kernel).unwrap();
            assert_eq!(matches!(undone, Undone::Changed { .. }), is_changed, "{now}: {undone:?}");
            assert_eq!(undone == Undone::Removed, !ours.is_empty() && !is_changed, "{now}: {undone:?}");
            let written = if ours.is_empty() { now } else { ours };
            assert!(std::fs::read_to_string(&file).unwrap().starts_with(&format!("8:0 {written}")), "{now}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_back_leaves_nothing_of_ours_and_changes_nothing_else(
            old in prop::array::uniform4(0u8..3), new in prop::array::uniform4(0u8..3), now in prop::array::uniform4(0u8..3),
        ) {
            let line = |rates: [u8; 4]| {
                NAMES.iter().zip(rates).map(|(name, rate)| format!("{name}={rate}")).collect::<Vec<_>>().join(" ")
            };
            let folder = tempfile::tempdir().unwrap();
            let setting = CgroupSetting { old: line(old), new: line(new), ..rates(folder.path()) };
            let ours = setting.compare(&line(now)).ours;
            for (number, name) in NAMES.iter().enumerate() {
                let written = ours.split(' ').find_map(|word| word.strip_prefix(&format!("{name}=")));
                let is_ours = old[number] != new[number] && now[number] == new[number];
                let before = old[number].to_string();
                prop_assert_eq!(written, is_ours.then_some(before.as_str()));
            }
        }
    }

    #[test]
    fn what_the_kernel_counts_is_read_where_this_kernel_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
        let counted =
            |knob: Knob| CgroupSetting { knob, ..setting(folder.path()) }.held_back(&Kernel).unwrap();
        let disk = || Knob::IoMax { device: "8:0".into() };
        assert_eq!([Knob::CpuMax, Knob::MemoryHigh, disk(), Knob::Freeze].map(counted), [None; 4]);
        write("cpu.stat", "usage_usec 9\nnr_periods 3\nnr_throttled 2\nthrottled_usec 7\n");
        write("memory.events.local", "low 0\nhigh 5\nmax 1\n");
        assert_eq!([Knob::CpuMax, Knob::MemoryHigh].map(counted), [Some(2), Some(5)]);
        // Below, as before Linux 6.11; and then by itself.
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        write("pids.events", "max 1\n");
        write("a/b/pids.events", "max 3\n");
        assert_eq!(counted(Knob::PidsMax), Some(4));
        write("pids.events.local", "max 7\n");
        assert_eq!(counted(Knob::PidsMax), Some(7));
        folder.close().unwrap();
    }

    #[test]
    fn a_limit_that_was_there_already_stays_and_is_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let setting = CgroupSetting { new: "max".into(), ..setting(folder.path()) };
        setting.apply(&Kernel).unwrap();
        assert_eq!(setting.undo(&Kernel).unwrap(), Undone::Absent);
        assert!(!setting.present(&Kernel).unwrap());
    }

    #[test]
    fn a_group_that_is_gone_took_its_values_along() {
        let folder = tempfile::tempdir().unwrap();
        let setting = setting(folder.path());
        std::fs::remove_file(folder.path().join("pids.max")).unwrap();
        assert_eq!(setting.undo(&Kernel).unwrap(), Undone::Absent);
        assert!(!setting.present(&Kernel).unwrap());
        folder.close().unwrap();
        assert_eq!(setting.undo(&Kernel).unwrap(), Undone::Absent);
        assert!(matches!(setting.apply(&Kernel), Err(StepError::Setting { operation: "find", .. })));
    }
}
