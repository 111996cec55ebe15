//! What a process has taken: time, memory, open descriptors (proc_pid_stat(5), proc_pid_statm(5), proc_pid_fd(5)).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use procfs::process::Process;

use super::{ProcessId, boot_time_ns};

/// What a process has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// How long it has run.
    pub age: Duration,
    /// Bytes of memory that are resident.
    pub resident: u64,
    /// Open descriptors; `None` when they cannot be counted.
    pub descriptors: Option<u64>,
}

impl Usage {
    /// Of this process; `None` when it has ended.
    pub fn of(id: ProcessId) -> Option<Self> {
        let process = Process::new(id.pid).ok()?;
        let resident = process.statm().ok()?.resident * procfs::page_size();
        let descriptors = descriptors(id.pid);
        // Last, so that all before was of this one.
        let started = Some(process.stat().ok()?.starttime).filter(|started| *started == id.start_time)?;
        Some(Self { age: age(started, procfs::ticks_per_second(), boot_time_ns()), resident, descriptors })
    }
}

/// How long this process has run; `None` when its entry in /proc cannot be read.
pub fn own_age() -> Option<Duration> {
    let started = Process::myself().and_then(|me| me.stat()).ok()?.starttime;
    Some(age(started, procfs::ticks_per_second(), boot_time_ns()))
}

/// From the clock tick since boot at which it started to now.
fn age(started: u64, ticks_per_second: u64, now_ns: u64) -> Duration {
    let (whole, rest) = (started / ticks_per_second, started % ticks_per_second);
    let started =
        Duration::from_secs(whole) + Duration::from_secs(rest) / u32::try_from(ticks_per_second).unwrap_or(1);
    Duration::from_nanos(now_ns).saturating_sub(started)
}

/// From Linux 6.2 on the size of the folder is their number, and is told to everybody. Before, they are counted, and another
/// user's folder cannot be opened by an injector that has given up the right to pass by permissions.
fn descriptors(pid: i32) -> Option<u64> {
    let folder = Path::new("/proc").join(pid.to_string()).join("fd");
    let told = fs::metadata(&folder).ok()?.size();
    if told > 0 {
        return Some(told);
    }
    let counted = fs::read_dir(&folder).ok()?.count();
    u64::try_from(counted).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Command, Stdio};
    use std::thread::sleep;
    use std::time::Instant;

    use super::*;
    use crate::waits::wait_for;

    /// The kernel counts when a process has started in these.
    const TICK: Duration = Duration::from_millis(20);

    #[test]
    fn an_age_is_from_the_tick_of_the_start() {
        assert_eq!(age(250, 100, 4_000_000_000), Duration::from_millis(1500));
        // Of a tick that has just begun.
        assert_eq!(age(401, 100, 4_000_000_000), Duration::ZERO);
    }

    #[test]
    fn a_child_has_its_own_age_memory_and_descriptors() {
        let quiet = || {
            let mut command = Command::new("sleep");
            command.arg("60").stdin(Stdio::null()).stdout(Stdio::null());
            command
        };
        let before = Instant::now();
        let mut child = quiet().stderr(Stdio::null()).spawn().unwrap();
        let id = ProcessId::of(child.id().cast_signed()).unwrap();
        // Until it has executed its program, it has the descriptors of this process.
        wait_for(|| fs::read_to_string(format!("/proc/{}/comm", id.pid)).unwrap() == "sleep\n");
        sleep(Duration::from_millis(100));
        let usage = Usage::of(id).unwrap();
        // This test has every right to look; what it was itself started with the child may have, too.
        let there = fs::read_dir(format!("/proc/{}/fd", id.pid)).unwrap().count();
        assert_eq!(usage.descriptors, u64::try_from(there).ok());
        assert!(there >= 3, "{there}");
        assert!(usage.resident > 0 && usage.resident < 64 << 20, "{usage:?}");
        let most = before.elapsed() + TICK;
        assert!(
            (Duration::from_millis(100) - TICK..most).contains(&usage.age),
            "{usage:?}, and at most {most:?}"
        );
        let stranger = ProcessId { start_time: id.start_time + 1, ..id };
        assert_eq!(Usage::of(stranger), None, "its number belongs to another");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Usage::of(id), None);
    }

    #[test]
    fn a_file_that_is_opened_is_one_descriptor_more() {
        let me = ProcessId::of(std::process::id().cast_signed()).unwrap();
        let files: Vec<_> = (0..500).map(|_| File::open("/dev/null").unwrap()).collect();
        let with = Usage::of(me).unwrap().descriptors.unwrap();
        drop(files);
        // Other tests open and close a few meanwhile.
        let without = Usage::of(me).unwrap().descriptors.unwrap();
        assert!((400..600).contains(&(with - without)), "{with} {without}");
    }
}
