//! Whether this machine stands still: an emulated or overcommitted processor does for seconds, and what is late then says nothing
//! about the daemon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::process::wait_until;

/// How often each processor is asked.
const LOOK: Duration = Duration::from_millis(50);
/// Waking up so much too late is no matter of load.
const STILL: Duration = Duration::from_millis(750);
/// Longer than any run.
const FOREVER: Duration = Duration::from_secs(1_000_000);

/// What the watchers have noticed.
#[derive(Debug, Default)]
struct Seen {
    /// When something went on again, and how much too late.
    over: Vec<(Instant, Duration)>,
    /// When each watcher began the look that it is at.
    begun: Vec<Instant>,
}

impl Seen {
    /// How late each watcher is just now.
    fn under_way(&self, now: Instant) -> impl Iterator<Item = Duration> {
        self.begun.iter().map(move |begun| now.saturating_duration_since(*begun).saturating_sub(LOOK))
    }

    fn longest_since(&self, since: Instant, now: Instant) -> Option<Duration> {
        let over = self.over.iter().filter(|(at, _)| *at >= since).map(|(_, late)| *late);
        over.chain(self.under_way(now)).filter(|late| *late > STILL).max()
    }
}

/// Threads, one on each processor, that notice when it does not go on; and one that notices when the kernel's RCU does not.
#[derive(Debug, Default)]
pub struct Stalls {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Stalls {
    /// Begins to watch every processor that this process may use.
    pub fn watch() -> Self {
        let mut stalls = Self::default();
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        for cpu in (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)) {
            stalls.add(move |watcher| {
                let mut one = CpuSet::new();
                if one.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &one)).is_ok() {
                    watcher.repeat(|| ());
                }
            });
        }
        stalls.add(|watcher| watcher.repeat(wait_for_rcu));
        stalls
    }

    fn add(&mut self, work: impl FnOnce(&Watcher) + Send + 'static) {
        let mut seen = lock(&self.seen);
        let watcher =
            Watcher { number: seen.begun.len(), seen: Arc::clone(&self.seen), stop: Arc::clone(&self.stop) };
        seen.begun.push(Instant::now());
        drop(seen);
        self.threads.push(thread::spawn(move || {
            work(&watcher);
            watcher.leave();
        }));
    }

    /// The longest since then, one that is not over among them.
    pub fn longest_since(&self, since: Instant) -> Option<Duration> {
        lock(&self.seen).longest_since(since, Instant::now())
    }

    /// Waits until everything goes on again, so long at most.
    pub fn wait_over(&self, limit: Duration) -> bool {
        wait_until(limit, || lock(&self.seen).under_way(Instant::now()).all(|late| late <= STILL))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A thread's part in what is seen.
struct Watcher {
    number: usize,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
}

impl Watcher {
    fn repeat(&self, look: impl Fn()) {
        while !self.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            lock(&self.seen).begun[self.number] = begun;
            thread::sleep(LOOK);
            look();
            let late = begun.elapsed().saturating_sub(LOOK);
            if late > STILL {
                lock(&self.seen).over.push((Instant::now(), late));
            }
        }
    }

    /// From now on it is never late.
    fn leave(&self) {
        lock(&self.seen).begun[self.number] = Instant::now() + FOREVER;
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until every processor has been through a point of rest, as attaching a program and removing a device do
/// (membarrier(2)).
fn wait_for_rcu() {
    // SAFETY: a system call without pointers. Where it is not there, it returns at once.
    let _ = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_what_was_noticed_since_then_counts() {
        let now = Instant::now();
        let seen = Seen {
            over: [(0, 9), (1, 2), (2, 3)].map(|(at, late)| (now + at * SECOND, late * SECOND)).into(),
            begun: Vec::new(),
        };
        assert_eq!(seen.longest_since(now, now), Some(9 * SECOND));
        assert_eq!(seen.longest_since(now + SECOND, now), Some(3 * SECOND));
        assert_eq!(seen.longest_since(now + 3 * SECOND, now), None);
    }

    #[test]
    fn what_is_not_over_counts_and_a_watcher_that_looks_as_it_should_does_not() {
        let now = Instant::now();
        let seen = |age| Seen { over: Vec::new(), begun: vec![now, now + SECOND - age] };
        assert_eq!(seen(LOOK).longest_since(now, now + SECOND), Some(SECOND - LOOK));
        let seen = Seen { over: Vec::new(), begun: vec![now] };
        assert_eq!(seen.longest_since(now, now + LOOK + STILL), None);
    }

    #[test]
    fn every_processor_is_watched() {
        let stalls = Stalls::watch();
        assert_eq!(stalls.threads.len(), thread::available_parallelism().unwrap().get() + 1);
        assert!(stalls.wait_over(60 * SECOND));
    }
}
