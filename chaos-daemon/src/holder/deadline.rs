//! The holder's own end, kept by the kernel: a timer that kills the process, also when it is stopped.

use std::time::Duration;

use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use crate::sabotage::{self, Guard};

/// How long after its end, and after its last packets are out, a fault's holder may still take to tidy up.
const GRACE: Duration = Duration::from_secs(8);

/// Has the kernel kill this process a little after `end_ns` (boot time) and `drain`, the time that queued packets
/// need to get out: timer_create(2) with SIGKILL, which
/// ends a stopped process too. The fault itself has stopped acting at `end_ns`, by its programs' deadline.
///
/// The timer is deleted when the value is dropped.
///
/// # Errors
/// When the kernel has no timer left for this user.
pub fn arm(end_ns: u64, drain: Duration) -> nix::Result<Timer> {
    let event = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGKILL, si_value: 0 });
    let mut timer = Timer::new(ClockId::CLOCK_BOOTTIME, event)?;
    if sabotage::without(Guard::Timer) {
        return Ok(timer);
    }
    let at = TimeSpec::from(Duration::from_nanos(end_ns) + drain + GRACE);
    timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
    Ok(timer)
}
