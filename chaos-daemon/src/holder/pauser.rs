//! Having processes stand still: one thread that traces them, for as long as the lease lasts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use caps::Capability;

use super::arm::{Arm, ArmError, Armed, Means};
use super::deadline::Leash;
use crate::fault::PauseWork;
use crate::host::boot_time_ns;
use crate::host::privilege::TRACER;
use crate::kernel::trace::{Standstill, TraceError};
use crate::request::Evidence;
use crate::request::evidence::Pauses;

/// How often the thread looks what has become of the processes, and of the lease.
const TICK: Duration = Duration::from_millis(10);

impl Arm for PauseWork {
    fn needed(&self) -> &'static [Capability] {
        TRACER
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        Ok(Box::new(Pauser::start(self, means.deadline_ns)?))
    }
}

impl Armed for Pauser {
    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        self.set_deadline(deadline_ns);
        Ok(())
    }

    /// How many stand still, and how often they were made to; an error when they could not be made to again.
    fn evidence(&self) -> Result<Evidence, ArmError> {
        self.shared.tally().clone().map(Evidence::Pauses).map_err(ArmError::Rhythm)
    }
}

/// Processes that stand still until the deadline, or until the value is dropped.
#[derive(Debug)]
struct Pauser {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Boot-time nanoseconds after which everybody goes on; 0 is the order to end.
    deadline: AtomicU64,
    tally: Mutex<Result<Pauses, String>>,
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Result<Pauses, String>> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Pauses)) {
        if let Ok(evidence) = self.tally().as_mut() {
            change(evidence);
        }
    }

    fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Acquire)
    }
}

impl Pauser {
    /// Starts, and returns when every thread stands still.
    ///
    /// # Errors
    /// Names the thread that cannot be traced or does not stop; everybody goes on then.
    fn start(work: &PauseWork, deadline_ns: u64) -> Result<Self, TraceError> {
        let deadline = AtomicU64::new(deadline_ns);
        let shared = Arc::new(Shared { deadline, tally: Mutex::new(Ok(Pauses::default())) });
        let (sender, first) = mpsc::channel();
        let (work, of_thread) = (work.clone(), Arc::clone(&shared));
        let thread = thread::Builder::new().name("pause".into()).spawn(move || {
            if let Err(error) = alternate(&work, &of_thread, &sender) {
                *of_thread.tally() = Err(error.to_string());
                // Nobody listens any more once the first pause has begun.
                let _ = sender.send(Err(error));
            }
        });
        let thread = thread.map_err(|source| TraceError::Look { pid: 0, source })?;
        let pauser = Self { shared, thread: Some(thread) };
        first.recv().unwrap_or(Err(TraceError::Ended)).map(|()| pauser)
    }

    /// Goes on until `deadline_ns`; 0 has everybody go on now.
    fn set_deadline(&self, deadline_ns: u64) {
        self.shared.deadline.store(deadline_ns, Ordering::Release);
        self.thread.as_ref().map(JoinHandle::thread).map(Thread::unpark);
    }
}

impl Drop for Pauser {
    fn drop(&mut self) {
        self.set_deadline(0);
        if let Some(thread) = self.thread.take() {
            // One that has panicked traces nobody any more, which is all that is wanted here.
            drop(thread.join());
        }
    }
}

/// Pauses until the lease is over or the phase is, lets go, and begins again.
fn alternate(
    work: &PauseWork,
    shared: &Shared,
    first: &mpsc::Sender<Result<(), TraceError>>,
) -> Result<(), TraceError> {
    let mut leash = Leash::new().map_err(|errno| TraceError::Look { pid: 0, source: errno.into() })?;
    loop {
        while shared.deadline() <= boot_time_ns() {
            if shared.deadline() == 0 {
                return Ok(());
            }
            thread::park_timeout(TICK);
        }
        leash.hold(shared.deadline());
        let mut still = match Standstill::begin(&work.targets) {
            // Of those who were paused before, nobody is left: there is nothing more to do.
            Err(TraceError::Ended) if shared.tally().as_ref().is_ok_and(|tally| tally.pauses > 0) => {
                return Ok(());
            }
            begun => begun?,
        };
        shared.count(|tally| {
            tally.pauses += 1;
            tally.processes_paused = still.held();
        });
        let _ = first.send(Ok(()));
        let rhythm = work.rhythm;
        keep(&mut still, &mut leash, shared, rhythm.map(|rhythm| vary(rhythm.pause, rhythm.jitter)));
        drop(still);
        leash.let_go();
        shared.count(|tally| tally.processes_paused = 0);
        if let Some(rhythm) = rhythm {
            rest(shared, vary(rhythm.run, rhythm.jitter));
        }
    }
}

/// Keeps them still until the phase, the lease or the fault is over.
fn keep(still: &mut Standstill, leash: &mut Leash, shared: &Shared, phase: Option<Duration>) {
    let end = phase.map(|phase| Instant::now() + phase);
    loop {
        let deadline = shared.deadline();
        let lease = Duration::from_nanos(deadline.saturating_sub(boot_time_ns()));
        let left = end.map_or(lease, |end| lease.min(end.saturating_duration_since(Instant::now())));
        if left.is_zero() {
            return;
        }
        leash.hold(deadline);
        still.attend();
        shared.count(|tally| tally.processes_paused = still.held());
        thread::park_timeout(left.min(TICK));
    }
}

/// Lets them run for so long, or until the fault is over.
fn rest(shared: &Shared, phase: Duration) {
    let end = Instant::now() + phase;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        && shared.deadline() != 0
    {
        thread::park_timeout(left);
    }
}

/// A time, give or take, chosen uniformly.
pub(super) fn vary(time: Duration, jitter: Duration) -> Duration {
    vary_by(&mut rand::rng(), time, jitter)
}

/// The same, as these dice fall.
pub(super) fn vary_by(dice: &mut impl rand::Rng, time: Duration, jitter: Duration) -> Duration {
    let share: f64 = rand::RngExt::random_range(dice, 0.0..=2.0);
    time.saturating_sub(jitter) + jitter.mul_f64(share)
}
