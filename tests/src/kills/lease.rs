//! When a fault ends, as its programs know it: read from the map of its holder, past the daemon.

use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use chaos_daemon::host::boot_time_ns;
use nix::libc;

use crate::process::Process;

const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_MAP_GET_FD_BY_ID: libc::c_long = 14;
/// What `/proc/PID/fdinfo` says of an array of one u64, which of our maps only the lease is.
const SHAPE: [&str; 4] = ["map_type:\t2", "key_size:\t4", "value_size:\t8", "max_entries:\t1"];

/// `union bpf_attr`, its part for `BPF_MAP_GET_FD_BY_ID` (`include/uapi/linux/bpf.h`).
#[repr(C)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// The same for one element of a map.
#[repr(C)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The end of the one fault that these holders have; the lease of one that only waits is 0, as that of one that has ended
/// is: `None`. Good for faults that are shorter than one lease.
pub(super) fn end(holders: &[Process]) -> Option<Instant> {
    let mut latest = 0;
    for holder in holders {
        for id in lease_maps(holder.pid) {
            // One that has just ended took its map along.
            latest = latest.max(read(id).unwrap_or(0));
        }
    }
    let (now, boot) = (Instant::now(), boot_time_ns());
    latest.checked_sub(boot).map(|rest| now + Duration::from_nanos(rest))
}

fn lease_maps(pid: i32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return Vec::new() };
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let leases = texts.filter(|text| SHAPE.iter().all(|shape| text.lines().any(|line| line == *shape)));
    leases
        .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("map_id:\t")?.parse().ok()))
        .collect()
}

fn read(id: u32) -> io::Result<u64> {
    let mut attr = ById { id, next_id: 0, open_flags: 0 };
    // SAFETY: the kernel reads this plain struct, which lives until the call is over.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_GET_FD_BY_ID, &raw mut attr, size_of::<ById>()) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    let map = unsafe { OwnedFd::from_raw_fd(fd) };
    let (key, mut value) = (0_u32, 0_u64);
    let mut attr = Element {
        map_fd: map.as_raw_fd().unsigned_abs(),
        padding: 0,
        key: &raw const key as u64,
        value: &raw mut value as u64,
        flags: 0,
    };
    // SAFETY: the map was chosen by its shape: the kernel reads a key of four bytes and writes a value of eight.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_ELEM, &raw mut attr, size_of::<Element>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
