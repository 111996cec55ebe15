//! The holder's own end, kept by the kernel: a timer that kills the process, also when it is stopped.

use std::time::Duration;

use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use crate::sabotage::{self, Guard};

/// How long after its end, and after its last packets are out, a fault's holder may still take to tidy up.
const GRACE: Duration = Duration::from_secs(8);

/// How long after its lease what is held may still take to be given back.
const LEASE_GRACE: Duration = Duration::from_secs(1);

/// How long an injection may take until the lease is renewed for the first time: on a busy host longer than a lease.
const ARMING: Duration = Duration::from_secs(20);

/// Has the kernel kill this process when its lease has run out and it has not given back what it holds: one that is stopped
/// holds on. A fault that only acts while its process runs, or that asks for the time itself, needs none.
#[derive(Debug)]
pub struct LeaseTimer(Timer);

impl LeaseTimer {
    /// Arms it for a first lease until `deadline_ns` (boot time), which nobody can renew before the injection is over.
    ///
    /// # Errors
    /// When the kernel has no timer left for this user.
    pub fn arm(deadline_ns: u64) -> nix::Result<Self> {
        let event = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGKILL, si_value: 0 });
        let mut timer = Self(Timer::new(ClockId::CLOCK_BOOTTIME, event)?);
        timer.kill_at(Duration::from_nanos(deadline_ns) + ARMING)?;
        Ok(timer)
    }

    /// Moves it on to a lease until `deadline_ns`.
    ///
    /// # Errors
    /// As the kernel says; it stays where it was.
    pub fn renew(&mut self, deadline_ns: u64) -> nix::Result<()> {
        self.kill_at(Duration::from_nanos(deadline_ns) + LEASE_GRACE)
    }

    fn kill_at(&mut self, boot_time: Duration) -> nix::Result<()> {
        self.0.set(Expiration::OneShot(boot_time.into()), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }
}

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
