//! Which boot this is, and how long it has lasted.

use std::fs;
use std::io;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The kernel's random identity of this boot (`/proc/sys/kernel/random/boot_id`).
///
/// Kernel state dies with the boot, so what a journal says of kernel state holds for one boot id only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootId(String);

impl BootId {
    /// Reads the identity of the running boot.
    ///
    /// # Errors
    /// When procfs cannot be read.
    pub fn current() -> io::Result<Self> {
        Ok(Self(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned()))
    }
}

/// Nanoseconds since boot, time asleep included: `CLOCK_BOOTTIME`, the clock that the eBPF programs compare
/// their deadline with (`bpf_ktime_get_boot_ns`).
pub fn boot_time_ns() -> u64 {
    // The clock exists since Linux 2.6.39 and its time is never negative, so there is no error to report. Should
    // a sandbox forbid the call, the far future makes every deadline look over, which is the safe side.
    let Ok(now) = clock_gettime(ClockId::CLOCK_BOOTTIME) else { return u64::MAX };
    now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs()
}
