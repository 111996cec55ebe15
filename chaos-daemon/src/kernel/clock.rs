//! The wall clock, read and stepped.

use std::io;

use nix::libc;
use nix::time::{ClockId, clock_gettime};

/// How far apart the two looks at the boot clock may be, between which the wall clock is read.
const QUICK_NS: i64 = 1_000_000;

/// Wall clock minus boot clock, in nanoseconds.
///
/// # Errors
/// When a clock cannot be read: both exist since Linux 2.6.39.
pub fn distance_ns() -> io::Result<i64> {
    let read = |clock| {
        let now = clock_gettime(clock)?;
        Ok::<_, io::Error>(now.tv_sec() * 1_000_000_000 + now.tv_nsec())
    };
    let look = || {
        let before = read(ClockId::CLOCK_BOOTTIME)?;
        let wall = read(ClockId::CLOCK_REALTIME)?;
        let after = read(ClockId::CLOCK_BOOTTIME)?;
        Ok::<_, io::Error>((after - before, wall - before))
    };
    // Somebody else may have had the processor in between: then again, and the quickest counts.
    let mut best = look()?;
    for _ in 0..16 {
        if best.0 < QUICK_NS {
            break;
        }
        best = best.min(look()?);
    }
    Ok(best.1)
}

/// Steps the wall clock by so much (clock_adjtime(2), `ADJ_SETOFFSET`).
pub(super) fn step(offset_ns: i64) -> io::Result<()> {
    // SAFETY: timex is plain old data; all zeroes is a valid value.
    let mut request: libc::timex = unsafe { std::mem::zeroed() };
    request.modes = libc::ADJ_SETOFFSET | libc::ADJ_NANO;
    request.time.tv_sec = offset_ns.div_euclid(1_000_000_000);
    // With ADJ_NANO this field counts nanoseconds, and is never negative.
    request.time.tv_usec = offset_ns.rem_euclid(1_000_000_000);
    // SAFETY: the kernel reads and writes the timex it is given, which outlives the call.
    let result = unsafe { libc::clock_adjtime(libc::CLOCK_REALTIME, &raw mut request) };
    match result {
        // Otherwise a state of the clock, such as "not synchronised".
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
