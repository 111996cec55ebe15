//! The holder's own end, kept by the kernel: a timer that kills the process, also when it is stopped.

use std::time::Duration;

use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use crate::sabotage::{self, Guard};

/// How long after its end, and after its last packets are out, a fault's holder may still take to tidy up.
const GRACE: Duration = Duration::from_secs(8);

/// How long after the end of its lease a holder may take to let go of what it holds.
const SLACK: Duration = Duration::from_millis(500);

/// How long an injection may take until the lease is renewed for the first time: on a busy host longer than a lease.
const ARMING: Duration = Duration::from_secs(20);

/// A timer that kills this process a little after its lease. For what no program of the kernel ends: what is held is given back,
/// and processes that stand still go on, when their holder dies, also one that was stopped and cannot let go.
#[derive(Debug)]
pub struct Leash {
    timer: Timer,
    /// What it is set to; 0 is nothing.
    deadline_ns: u64,
}

impl Leash {
    /// One that is not set.
    ///
    /// # Errors
    /// When the kernel has no timer left for this user.
    pub fn new() -> nix::Result<Self> {
        let event = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGKILL, si_value: 0 });
        Ok(Self { timer: Timer::new(ClockId::CLOCK_BOOTTIME, event)?, deadline_ns: 0 })
    }

    /// Kills this process a little after `deadline_ns` (boot time), and not before.
    pub fn hold(&mut self, deadline_ns: u64) {
        if deadline_ns == 0 || deadline_ns == self.deadline_ns || sabotage::without(Guard::Timer) {
            return;
        }
        self.set(Duration::from_nanos(deadline_ns) + SLACK);
        self.deadline_ns = deadline_ns;
    }

    /// The same during an injection, before whose end nobody renews.
    pub fn hold_while_arming(&mut self, deadline_ns: u64) {
        self.hold(deadline_ns.saturating_add(u64::try_from(ARMING.as_nanos()).unwrap_or(u64::MAX)));
    }

    /// Nothing is held any more: this process may live.
    pub fn let_go(&mut self) {
        if self.deadline_ns != 0 {
            // All zeros: timer_settime(2) disarms it.
            self.set(Duration::ZERO);
            self.deadline_ns = 0;
        }
    }

    fn set(&mut self, at: Duration) {
        let at = Expiration::OneShot(TimeSpec::from(at));
        if let Err(error) = self.timer.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME) {
            // The timer of the whole fault is behind it.
            tracing::warn!(%error, "cannot set the timer of a lease");
        }
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
