//! Setting a link down and up by turns: one thread that applies the setting of the journal and undoes it, for as long as the lease
//! lasts. It always leaves the link up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use caps::Capability;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::arm::{Arm, ArmError, Armed, Means};
use super::pauser::vary_by;
use super::settings::needed_to_set;
use crate::fault::FlapWork;
use crate::host::boot_time_ns;
use crate::kernel::node::{Kernel, StepError};
use crate::request::Evidence;
use crate::request::evidence::Flaps;

/// How often it is looked whether the lease has been renewed after all.
const TICK: Duration = Duration::from_millis(10);

impl Arm for FlapWork {
    fn needed(&self) -> &'static [Capability] {
        needed_to_set(&self.setting)
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        Ok(Box::new(Flapper::start(self, means.deadline_ns)?))
    }
}

impl Armed for Flapper {
    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        self.set_deadline(deadline_ns);
        Ok(())
    }

    /// Whether the link is down now, and how often it was set down.
    fn evidence(&self) -> Result<Evidence, ArmError> {
        self.shared.tally().clone().map(Evidence::Flaps).map_err(ArmError::Rhythm)
    }
}

/// A link that goes down and up by turns, until the deadline, or until the value is dropped.
#[derive(Debug)]
struct Flapper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Boot-time nanoseconds after which the link stays up; 0 is the order to end.
    deadline: AtomicU64,
    tally: Mutex<Result<Flaps, String>>,
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Result<Flaps, String>> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Flaps)) {
        if let Ok(evidence) = self.tally().as_mut() {
            change(evidence);
        }
    }

    fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Acquire)
    }

    fn lapsed(&self) -> bool {
        self.deadline() <= boot_time_ns()
    }

    fn over(&self) -> bool {
        self.deadline() == 0
    }

    /// Waits for so long, or until the lease is over.
    fn wait(&self, phase: Duration) {
        let end = Instant::now() + phase;
        while !self.lapsed() {
            let left = end.saturating_duration_since(Instant::now());
            let lease = Duration::from_nanos(self.deadline().saturating_sub(boot_time_ns()));
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left.min(lease));
        }
    }
}

impl Flapper {
    /// Sets the link down, and goes on by itself.
    ///
    /// # Errors
    /// When the kernel refuses to set it down.
    fn start(work: &FlapWork, deadline_ns: u64) -> Result<Self, StepError> {
        let deadline = AtomicU64::new(deadline_ns);
        let shared = Arc::new(Shared { deadline, tally: Mutex::new(Ok(Flaps::default())) });
        set_down(work, &shared)?;
        let (work, of_thread) = (work.clone(), Arc::clone(&shared));
        let alternate = move || {
            if let Err(error) = alternate(&work, &of_thread) {
                *of_thread.tally() = Err(error.to_string());
            }
        };
        let thread = thread::Builder::new().name("flap".into()).spawn(alternate).map_err(StepError::Spawn)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Goes on until `deadline_ns`; 0 ends it, with the link up.
    fn set_deadline(&self, deadline_ns: u64) {
        self.shared.deadline.store(deadline_ns, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Flapper {
    fn drop(&mut self) {
        self.set_deadline(0);
        if let Some(thread) = self.thread.take() {
            // What one that has panicked leaves down is in the journal.
            drop(thread.join());
        }
    }
}

/// Down, up, and down again, until the fault is over. When the lease is, it waits with the link up.
fn alternate(work: &FlapWork, shared: &Shared) -> Result<(), StepError> {
    let mut dice = StdRng::seed_from_u64(work.rhythm.seed);
    let mut vary = |time| vary_by(&mut dice, time, work.rhythm.jitter);
    loop {
        shared.wait(vary(work.rhythm.down));
        work.setting.undo(&Kernel)?;
        shared.count(|tally| tally.settings_held = 0);
        shared.wait(vary(work.rhythm.up));
        while shared.lapsed() {
            if shared.over() {
                return Ok(());
            }
            thread::park_timeout(TICK);
        }
        set_down(work, shared)?;
    }
}

fn set_down(work: &FlapWork, shared: &Shared) -> Result<(), StepError> {
    work.setting.apply(&Kernel)?;
    shared.count(|tally| {
        tally.settings_held = 1;
        tally.link_downs += 1;
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_varies_alike_and_within_bounds() {
        let (time, jitter) = (Duration::from_millis(200), Duration::from_millis(50));
        let of_seed = |seed| -> Vec<Duration> {
            let mut dice = StdRng::seed_from_u64(seed);
            (0..20).map(|_| vary_by(&mut dice, time, jitter)).collect()
        };
        let first = of_seed(7);
        assert!(first == of_seed(7) && first != of_seed(8));
        assert!(first.iter().all(|each| (time - jitter..=time + jitter).contains(each)), "{first:?}");
    }
}
