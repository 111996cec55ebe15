//! Burning CPU time: one pinned thread per processor, closed loop on its own CPU clock.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::fault::CpuWork;
use crate::host::boot_time_ns;

/// A burn that was prevented (the processor was busy with others) is made up for, but no more than this much,
/// so that the load never bursts.
const MOST_DEBT: Duration = Duration::from_millis(20);

/// Burning threads. They stop at the deadline, and when the value is dropped.
#[derive(Debug)]
pub struct Burner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Boot-time nanoseconds after which nothing is burned; 0 is the order to end.
    deadline: AtomicU64,
    burned_ns: AtomicU64,
}

impl Burner {
    /// Starts burning on the first `work.cores` processors that this process may use.
    ///
    /// # Errors
    /// When the processors cannot be read or a thread cannot be made.
    pub fn start(work: &CpuWork, deadline_ns: u64) -> io::Result<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0))?;
        let processors: Vec<usize> = (0..CpuSet::count())
            .filter(|cpu| allowed.is_set(*cpu).unwrap_or(false))
            .take(work.cores as usize)
            .collect();
        let shared = Arc::new(Shared { deadline: AtomicU64::new(deadline_ns), burned_ns: AtomicU64::new(0) });
        let mut burner = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        for cpu in processors {
            let shared = Arc::clone(&shared);
            let share = work.percent / 100.0;
            burner.threads.push(
                thread::Builder::new()
                    .name(format!("burn-{cpu}"))
                    .spawn(move || burn(cpu, share, &shared))?,
            );
        }
        Ok(burner)
    }

    /// Goes on until `deadline_ns`.
    pub fn renew(&self, deadline_ns: u64) {
        self.shared.deadline.store(deadline_ns, Ordering::Relaxed);
    }

    /// CPU time burned so far.
    pub fn burned(&self) -> Duration {
        Duration::from_nanos(self.shared.burned_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.renew(0);
        for thread in self.threads.drain(..) {
            // A thread that panicked burns nothing any more, which is all that is wanted here.
            drop(thread.join());
        }
    }
}

fn burn(cpu: usize, share: f64, shared: &Shared) {
    let mut only = CpuSet::new();
    // Not pinned is still the right load in total: the scheduler then places the thread.
    let _ = only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
    let mut rng = rand::rng();
    let mut wanted = cpu_time();
    let mut reported = wanted;
    loop {
        let deadline = shared.deadline.load(Ordering::Relaxed);
        if deadline == 0 {
            return;
        }
        let period = Duration::from_micros(rand::RngExt::random_range(&mut rng, 3_700..=16_300));
        let start = boot_time_ns();
        if start < deadline {
            let used = cpu_time();
            wanted = wanted.max(used.saturating_sub(MOST_DEBT)) + period.mul_f64(share);
            while cpu_time() < wanted && boot_time_ns() - start < nanos(period) {
                std::hint::spin_loop();
            }
        }
        let used = cpu_time();
        shared.burned_ns.fetch_add(nanos(used - reported), Ordering::Relaxed);
        reported = used;
        let spent = Duration::from_nanos(boot_time_ns() - start);
        if let Some(rest) = period.checked_sub(spent) {
            thread::sleep(rest);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_half_a_processor_is_burned_until_the_deadline_and_nothing_after() {
        let start = boot_time_ns();
        let burner = Burner::start(&CpuWork { percent: 50.0, cores: 1 }, start + 400_000_000).unwrap();
        thread::sleep(Duration::from_millis(800));
        let burned = burner.burned().as_secs_f64();
        // How much less it is depends on who else wants the processor.
        assert!((0.001..0.30).contains(&burned), "burned {burned} s of the 0.2 s asked for");
        let after = burner.burned();
        thread::sleep(Duration::from_millis(100));
        assert!(burner.burned() - after < Duration::from_millis(10));
    }
}
