//! Whether this machine stands still: an emulated or overcommitted processor does for seconds, and what is late then says nothing
//! about the daemon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// How often each processor is asked.
const LOOK: Duration = Duration::from_millis(50);
/// Waking up so much too late is no matter of load.
const STILL: Duration = Duration::from_millis(750);

/// When something woke up, and how much too late.
type Stall = (Instant, Duration);

/// Threads, one on each processor, that notice when it does not go on; and one that notices when the kernel's RCU does not.
#[derive(Debug, Default)]
pub struct Stalls {
    seen: Arc<Mutex<Vec<Stall>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Stalls {
    /// Begins to watch every processor that this process may use.
    pub fn watch() -> Self {
        let mut stalls = Self::default();
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        for cpu in (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)) {
            let (seen, stop) = (Arc::clone(&stalls.seen), Arc::clone(&stalls.stop));
            stalls.threads.push(thread::spawn(move || watch(cpu, &seen, &stop)));
        }
        let (seen, stop) = (Arc::clone(&stalls.seen), Arc::clone(&stalls.stop));
        stalls.threads.push(thread::spawn(move || repeat(&seen, &stop, wait_for_rcu)));
        stalls
    }

    /// The longest since then.
    pub fn longest_since(&self, since: Instant) -> Option<Duration> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|(at, _)| *at >= since).map(|(_, late)| *late).max()
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

fn watch(cpu: usize, seen: &Mutex<Vec<Stall>>, stop: &AtomicBool) {
    let mut one = CpuSet::new();
    if one.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &one)).is_err() {
        return;
    }
    repeat(seen, stop, || ());
}

fn repeat(seen: &Mutex<Vec<Stall>>, stop: &AtomicBool, look: impl Fn()) {
    while !stop.load(Ordering::Relaxed) {
        let before = Instant::now();
        thread::sleep(LOOK);
        look();
        let late = before.elapsed().saturating_sub(LOOK);
        if late > STILL {
            seen.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), late));
        }
    }
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

    #[test]
    fn only_what_was_noticed_since_then_counts() {
        let stalls = Stalls::default();
        let second = Duration::from_secs(1);
        let now = Instant::now();
        *stalls.seen.lock().unwrap() =
            vec![(now, 9 * second), (now + second, 2 * second), (now + 2 * second, 3 * second)];
        assert_eq!(stalls.longest_since(now), Some(9 * second));
        assert_eq!(stalls.longest_since(now + second), Some(3 * second));
        assert_eq!(stalls.longest_since(now + 3 * second), None);
    }

    #[test]
    fn every_processor_is_watched() {
        let stalls = Stalls::watch();
        assert_eq!(stalls.threads.len(), thread::available_parallelism().unwrap().get() + 1);
    }
}
