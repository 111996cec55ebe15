//! Resource exhaustion, limits: a cgroup gets less than it had of processor time, memory, processes or disk bandwidth.
//!
//! - **Mechanism**: one write to `cpu.max`, `memory.high`, `pids.max` or `io.max` of the cgroup. `memory.high` rather than
//!   `memory.max`: it throttles and reclaims, and kills nobody.
//! - **Kernel requirement**: cgroup v2, and the controller enabled for the cgroup (systemd enables one when a unit has a
//!   limit of its kind, or `Delegate=`).
//! - **Lifetime class**: supervised. The value is kernel state: it outlives every process of ours, and a reboot ends it.
//! - **Undo**: the old value, journalled before the write, is written back if the value is still the one we wrote. What
//!   somebody else has set since stays.
//! - **Blast radius**: the processes of the cgroup and of those below it. Without swap, a `memory.high` far below what they
//!   use nearly stops them.
//! - **Reference**: Linux `Documentation/admin-guide/cgroup-v2.rst`.

use super::{Plan, settings};
use crate::host::{CgroupRef, Controller, Requirement};
use crate::kernel::setting::{CgroupSetting, Knob, Setting};
use crate::spec::Limit;

/// In microseconds: what the kernel takes when nobody says.
const CPU_PERIOD: f64 = 100_000.0;
/// The kernel rounds down to whole pages, which have at most so many bytes where Linux runs.
const LARGEST_PAGE: u64 = 65_536;

/// What a limit of processor time needs of the kernel.
pub const OF_CPU: &[Requirement] = &[Requirement::CgroupV2, Requirement::Controller(Controller::Cpu)];
/// Likewise of memory.
pub const OF_MEMORY: &[Requirement] = &[Requirement::CgroupV2, Requirement::Controller(Controller::Memory)];
/// Likewise of processes.
pub const OF_PIDS: &[Requirement] = &[Requirement::CgroupV2, Requirement::Controller(Controller::Pids)];
/// Likewise of block devices.
pub const OF_IO: &[Requirement] = &[Requirement::CgroupV2, Requirement::Controller(Controller::Io)];

/// Which value of a cgroup the limit is; `device` is the number of the block device it names, if it names one.
pub fn knob(limit: &Limit, device: &str) -> Knob {
    match limit {
        Limit::Cpu { .. } => Knob::CpuMax,
        Limit::Memory { .. } => Knob::MemoryHigh,
        Limit::Pids { .. } => Knob::PidsMax,
        Limit::Io { .. } => Knob::IoMax { device: device.to_owned() },
    }
}

/// The value as the kernel prints it.
fn value(limit: &Limit) -> String {
    match limit {
        Limit::Cpu { percent } => format!("{:.0} {CPU_PERIOD:.0}", percent / 100.0 * CPU_PERIOD),
        Limit::Memory { bytes } => (bytes / LARGEST_PAGE * LARGEST_PAGE).to_string(),
        Limit::Pids { most } => most.to_string(),
        Limit::Io { bytes_per_second: rate, .. } => format!("rbps={rate} wbps={rate} riops=max wiops=max"),
    }
}

/// Plans it, where the value is `old`.
pub fn plan(limit: &Limit, cgroup: &CgroupRef, knob: &Knob, old: &str) -> Plan {
    let what = match limit {
        Limit::Cpu { percent } => format!("{percent} % of a processor"),
        Limit::Memory { bytes } => format!("{} MiB of memory, beyond which it is throttled", bytes >> 20),
        Limit::Pids { most } => format!("{most} processes and threads"),
        Limit::Io { device, bytes_per_second } => {
            format!("{bytes_per_second} bytes per second of device {device}")
        }
    };
    let path = cgroup.path.display();
    let description = format!("resource_exhaustion: limits cgroup {path} to {what}");
    let (cgroup, knob, old) = (cgroup.clone(), knob.clone(), old.to_owned());
    settings(description, Setting::Cgroup(CgroupSetting { cgroup, knob, old, new: value(limit) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_the_kernel_prints_them() {
        assert_eq!(value(&Limit::Cpu { percent: 20.0 }), "20000 100000");
        assert_eq!(value(&Limit::Cpu { percent: 1.0 }), "1000 100000");
        assert_eq!(value(&Limit::Memory { bytes: (10 << 20) + 5 }), "10485760");
        assert_eq!(value(&Limit::Pids { most: 7 }), "7");
        let io = Limit::Io { device: "sda".into(), bytes_per_second: 4096 };
        assert_eq!(value(&io), "rbps=4096 wbps=4096 riops=max wiops=max");
    }
}
