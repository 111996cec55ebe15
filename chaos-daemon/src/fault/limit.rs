//! Resource exhaustion, limits: a cgroup gets less than it had of processor time, memory, processes or disk bandwidth.
//!
//! - **Mechanism**: one write to `cpu.max`, `memory.high`, `pids.max` or `io.max` of the cgroup. `memory.high` rather than
//!   `memory.max`: it throttles and reclaims, and kills nobody.
//! - **Kernel requirement**: cgroup v2, and the controller enabled for the cgroup (systemd enables one when a unit has a
//!   limit of its kind, or `Delegate=`).
//! - **Lifetime class**: supervised. The value is kernel state: it outlives every process of ours, and a reboot ends it.
//! - **Undo**: the old value, journalled before the write, is written back if the value is still the one we wrote. What
//!   somebody else has set since stays. A limit that is there already is refused: there would be nothing to undo.
//! - **Blast radius**: the processes of the cgroup and of those below it. Without swap, a `memory.high` far below what they
//!   use nearly stops them.
//! - **Reference**: Linux `Documentation/admin-guide/cgroup-v2.rst`.

use super::Ready;
use super::look::{Eyes, lasting, value as read};
use super::{Plan, settings};
use crate::host::CgroupRef;
use crate::kernel::setting::{CgroupSetting, Knob, Setting};
use crate::request::{ApiError, ErrorCode};
use crate::spec::Controller;
use crate::spec::Requirement;
use crate::spec::Whose;
use crate::spec::{IoRates, Limit};
use std::fs;

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

/// The value as the kernel prints it, where it is `old`.
fn value(limit: &Limit, old: &str) -> String {
    match limit {
        Limit::Cpu { percent } => format!("{:.0} {CPU_PERIOD:.0}", percent / 100.0 * CPU_PERIOD),
        Limit::Memory { bytes } => (bytes / LARGEST_PAGE * LARGEST_PAGE).to_string(),
        Limit::Pids { most } => most.to_string(),
        Limit::Io { rates, .. } => {
            let rate = |(name, _, rate): (&str, _, Option<u64>)| {
                let prefix = format!("{name}=");
                let old = old.split(' ').find_map(|word| word.strip_prefix(&prefix)).unwrap_or("max");
                format!("{prefix}{}", rate.map_or(old.to_owned(), |rate| rate.to_string()))
            };
            in_order(rates).map(rate).join(" ")
        }
    }
}

/// The parts of a line of `io.max` in its order: the kernel's name for each, in words, and what it is to be.
fn in_order(rates: &IoRates) -> [(&'static str, &'static str, Option<u64>); 4] {
    [
        ("rbps", "bytes read per second", rates.read_bps),
        ("wbps", "bytes written per second", rates.write_bps),
        ("riops", "reads per second", rates.read_iops),
        ("wiops", "writes per second", rates.write_iops),
    ]
}

/// The rates for people: those that are limited.
fn io_words(rates: &IoRates) -> String {
    let words = |(_, unit, rate): (&str, &str, Option<u64>)| rate.map(|rate| format!("{rate} {unit}"));
    let all: Vec<_> = in_order(rates).into_iter().filter_map(words).collect();
    all.join(", ")
}

/// Looks at the group, and plans it; `fault` is whom a refusal names.
///
/// # Errors
/// Names what cannot be limited, and why.
pub(super) fn prepare(whose: &Whose, limit: &Limit, fault: &str, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    let (cgroup, open) = lasting(whose, eyes)?;
    let device = match limit {
        Limit::Io { device, .. } => block_device(device)?,
        _ => String::new(),
    };
    let knob = knob(limit, &device);
    let old = read(fault, &cgroup, &open, &knob)?;
    Ok(plan(limit, &cgroup, &knob, &old).into())
}

/// The number of a block device, given as such, as a name, or as a path below `/dev`.
fn block_device(text: &str) -> Result<String, ApiError> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if text.split_once(':').is_some_and(|(major, minor)| is_number(major) && is_number(minor)) {
        return Ok(text.to_owned());
    }
    let name = text.strip_prefix("/dev/").unwrap_or(text);
    let found = match name.contains('/') || name.starts_with('.') {
        true => None,
        false => fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok(),
    };
    found.map(|number| number.trim().to_owned()).ok_or_else(|| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.device: no block device {text:?}"))
            .hint("`lsblk` shows them; a number such as 8:0 works too")
    })
}

/// Plans it, where the value is `old`.
pub fn plan(limit: &Limit, cgroup: &CgroupRef, knob: &Knob, old: &str) -> Plan {
    let what = match limit {
        Limit::Cpu { percent } => format!("{percent} % of a processor"),
        Limit::Memory { bytes } => format!("{} MiB of memory, beyond which it is throttled", bytes >> 20),
        Limit::Pids { most } => format!("{most} processes and threads"),
        Limit::Io { device, rates } => format!("{} of device {device}", io_words(rates)),
    };
    let path = cgroup.path.display();
    let description = format!("resource_exhaustion: limits cgroup {path} to {what}");
    let (cgroup, knob, new) = (cgroup.clone(), knob.clone(), value(limit, old));
    settings(description, Setting::Cgroup(CgroupSetting { cgroup, knob, old: old.to_owned(), new }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: &str = "rbps=max wbps=max riops=max wiops=max";

    fn io(rates: IoRates) -> Limit {
        Limit::Io { device: "sda".into(), rates }
    }

    #[test]
    fn values_are_written_as_the_kernel_prints_them() {
        assert_eq!(value(&Limit::Cpu { percent: 20.0 }, "max 100000"), "20000 100000");
        assert_eq!(value(&Limit::Cpu { percent: 1.0 }, "max 100000"), "1000 100000");
        assert_eq!(value(&Limit::Memory { bytes: (10 << 20) + 5 }, "max"), "10485760");
        assert_eq!(value(&Limit::Pids { most: 7 }, "max"), "7");
        let both = IoRates { read_bps: Some(4096), write_bps: Some(4096), ..IoRates::default() };
        assert_eq!(value(&io(both), FREE), "rbps=4096 wbps=4096 riops=max wiops=max");
    }

    #[test]
    fn of_a_disk_what_is_not_limited_stays_as_it_is() {
        let rates = IoRates { read_iops: Some(7), write_bps: Some(9000), ..IoRates::default() };
        assert_eq!(value(&io(rates), FREE), "rbps=max wbps=9000 riops=7 wiops=max");
        let limited = "rbps=5 wbps=max riops=3 wiops=4";
        assert_eq!(value(&io(rates), limited), "rbps=5 wbps=9000 riops=7 wiops=4");
        assert_eq!(io_words(&rates), "9000 bytes written per second, 7 reads per second");
    }
}
