//! How much of a resource is left, for the host and for a control group: what a fault that takes some must know, before and
//! while it takes.

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Pid;

use super::cgroup;

/// Memory of the host, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All of it (`MemTotal`).
    pub total: u64,
    /// What can be taken without swapping (`MemAvailable`, proc(5)).
    pub available: u64,
}

/// The first and the last of the ports from which the kernel chooses for connections, in the network namespace of this thread (ip(7)).
///
/// # Errors
/// When procfs cannot be read.
pub fn connection_ports() -> io::Result<(u16, u16)> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let mut ports = text.split_whitespace().map(str::parse);
    match (ports.next(), ports.next()) {
        (Some(Ok(first)), Some(Ok(last))) => Ok((first, last)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("ip_local_port_range: {text}"))),
    }
}

impl Memory {
    /// Reads it.
    ///
    /// # Errors
    /// When procfs cannot be read.
    pub fn read() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/meminfo")?;
        let kibibytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_suffix("kB"));
            line.and_then(|number| number.trim().parse::<u64>().ok()).map(|number| number << 10)
        };
        match (kibibytes("MemTotal:"), kibibytes("MemAvailable:")) {
            (Some(total), Some(available)) => Ok(Self { total, available }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "no MemTotal or MemAvailable in /proc/meminfo",
            )),
        }
    }
}

/// Open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Entries of the host's table that are in use (proc(5), `file-nr`).
    pub used: u64,
    /// The size of the table (`file-max`).
    pub table: u64,
    /// How many descriptors a process of the daemon may have (its hard limit).
    pub process: u64,
}

impl Descriptors {
    /// Reads them.
    ///
    /// # Errors
    /// When procfs cannot be read.
    pub fn read() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/sys/fs/file-nr")?;
        let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
        let (used, table) = (numbers.next().unwrap_or(0), numbers.nth(1).unwrap_or(0));
        let (_, process) = getrlimit(Resource::RLIMIT_NOFILE)?;
        Ok(Self { used, table, process })
    }
}

/// Processes and threads, which the kernel counts alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tasks {
    /// How many there are.
    pub used: u64,
    /// How many there may be: the less of `threads-max` and `pid_max`.
    pub most: u64,
    /// How many more the daemon's own control group may have; `None` when nothing limits it.
    pub own_room: Option<u64>,
}

impl Tasks {
    /// Reads them.
    ///
    /// # Errors
    /// When procfs cannot be read.
    pub fn read() -> io::Result<Self> {
        let (used, most) = Self::of_host()?;
        let own_room = own_cgroup()?.and_then(|own| task_room(&own));
        Ok(Self { used, most, own_room })
    }

    /// How many there are on the host, and how many there may be.
    ///
    /// # Errors
    /// When procfs cannot be read.
    pub fn of_host() -> io::Result<(u64, u64)> {
        let load = fs::read_to_string("/proc/loadavg")?;
        // "0.00 0.00 0.00 RUNNING/ALL LAST"
        let all = load.split(['/', ' ']).nth(4).and_then(|word| word.parse().ok());
        let used =
            all.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/loadavg: {load}")))?;
        let most = ["threads-max", "pid_max"];
        let most = most.iter().filter_map(|name| number(&Path::new("/proc/sys/kernel").join(name))).min();
        Ok((used, most.unwrap_or(0)))
    }
}

/// How many more processes and threads a control group may have before it, or one above it, is at its limit. `None` when nothing
/// limits it.
pub fn task_room(group: &Path) -> Option<u64> {
    let room = |group: &Path| {
        Some(number(&group.join("pids.max"))?.saturating_sub(number(&group.join("pids.current"))?))
    };
    least(group, room, u64::cmp)
}

/// The directory of the control group (v2) that this process is in; `None` when there is no version 2.
///
/// # Errors
/// When procfs cannot be read.
pub fn own_cgroup() -> io::Result<Option<PathBuf>> {
    let Some(mount) = cgroup::mount()? else { return Ok(None) };
    let text = fs::read_to_string("/proc/self/cgroup")?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
    Ok(path.map(|path| mount.join(path)))
}

/// The bytes that a control group may have: the least limit of it and of those above it, each the less of `memory.max` and
/// `memory.high`. `None` when none has one.
pub fn memory_limit(group: &Path) -> Option<u64> {
    least(group, own_memory_limit, u64::cmp)
}

fn own_memory_limit(group: &Path) -> Option<u64> {
    ["memory.max", "memory.high"].iter().filter_map(|file| number(&group.join(file))).min()
}

/// The bytes that may still be taken in a control group before it, or one above it, is at its limit; what the kernel takes
/// back first (`inactive_file`) counts as free. `None` when nothing limits it.
pub fn memory_room(group: &Path) -> Option<u64> {
    let room = |group: &Path| {
        let limit = own_memory_limit(group)?;
        let used = number(&group.join("memory.current"))?;
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let idle = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
        // Not up to the brim: at the limit the kernel kills somebody, or slows everybody down.
        let reserve = limit / 20;
        Some(limit.saturating_sub(reserve).saturating_sub(used.saturating_sub(idle.unwrap_or(0))))
    };
    least(group, room, u64::cmp)
}

/// The least that is read of a control group and of those above it: what limits those limits it as well. `None` when nothing is.
fn least<T>(
    group: &Path,
    read: impl Fn(&Path) -> Option<T>,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Option<T> {
    group.ancestors().filter_map(read).min_by(compare)
}

/// The processors that this process may use, ascending.
///
/// # Errors
/// As the kernel says.
pub fn usable_processors() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    let usable = (0..CpuSet::count()).filter(|processor| set.is_set(*processor).unwrap_or(false));
    Ok(usable.filter_map(|processor| u32::try_from(processor).ok()).collect())
}

/// The least quota of processor time of a control group and of those above it (`cpu.max`), as microseconds and the period in
/// which they may be used. `None` when none has one.
pub fn cpu_quota(group: &Path) -> Option<(u64, u64)> {
    let quota = |group: &Path| {
        let text = fs::read_to_string(group.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        Some((quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?))
    };
    // Fractions, compared without dividing.
    least(group, quota, |one, other| one.0.saturating_mul(other.1).cmp(&other.0.saturating_mul(one.1)))
}

/// A number in a file of the kernel; `None` when it says `max`, or there is no such file.
pub(super) fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_host_is_read_and_less_is_available_than_there_is() {
        let memory = Memory::read().unwrap();
        assert!(memory.available > 0 && memory.available < memory.total, "{memory:?}");
    }

    #[test]
    fn open_files_and_processes_of_this_host_are_read() {
        let open = Descriptors::read().unwrap();
        assert!(open.used > 0 && open.used < open.table && open.process > 0, "{open:?}");
        let tasks = Tasks::read().unwrap();
        assert!(tasks.used > 0 && tasks.used < tasks.most, "{tasks:?}");
    }

    #[test]
    fn the_room_of_a_group_is_the_least_of_it_and_of_those_above() {
        let root = tempfile::tempdir().unwrap();
        let (above, group) = (root.path().join("a"), root.path().join("a/b"));
        fs::create_dir_all(&group).unwrap();
        let write = |group: &Path, file, text| fs::write(group.join(file), text).unwrap();
        write(&group, "memory.max", "1000\n");
        write(&group, "memory.high", "max\n");
        write(&group, "memory.current", "500\n");
        write(&group, "memory.stat", "anon 1\ninactive_file 100\n");
        assert_eq!((memory_limit(&group), memory_room(&group)), (Some(1000), Some(550)));
        write(&above, "memory.max", "600\n");
        write(&above, "memory.current", "560\n");
        assert_eq!((memory_limit(&group), memory_room(&group)), (Some(600), Some(10)));
        write(&above, "memory.high", "400\n");
        assert_eq!(memory_limit(&group), Some(400));
        write(&group, "memory.max", "max\n");
        write(&above, "memory.high", "max\n");
        assert_eq!((memory_limit(&group), memory_room(&group)), (Some(600), Some(10)));
        assert_eq!(memory_room(root.path()), None);
        assert_eq!(task_room(&group), None);
        for (group, max, current) in [(&group, "100\n", "40\n"), (&above, "90\n", "50\n")] {
            write(group, "pids.max", max);
            write(group, "pids.current", current);
        }
        assert_eq!(task_room(&group), Some(40));
        write(&group, "cpu.max", "max 100000\n");
        assert_eq!(cpu_quota(&group), None);
        write(&above, "cpu.max", "150000 100000\n");
        assert_eq!(cpu_quota(&group), Some((150_000, 100_000)));
        write(&group, "cpu.max", "10000 20000\n");
        assert_eq!(cpu_quota(&group), Some((10_000, 20_000)));
    }
}
