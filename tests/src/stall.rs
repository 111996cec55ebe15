//! Whether this machine stands still: an emulated or overcommitted processor does for seconds, and what is late then says nothing
//! about the daemon.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::process::{kernel_time, wait_until};

/// How often each processor is asked.
const LOOK: Duration = Duration::from_millis(50);
/// Waking up so much too late is no matter of load.
const STILL: Duration = Duration::from_millis(750);
/// Being busy in the kernel for longer than [`STILL`] in such a time is as good as standing still.
const WINDOW: Duration = Duration::from_secs(1);
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

    /// Watches as well whether the kernel keeps a process busy, which so long does not go on, either. Which one is to be said
    /// whenever it is another.
    pub fn watch_process(&self) -> Kept {
        let (pid, stop) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, of, until) = (Arc::clone(&self.seen), Arc::clone(&pid), Arc::clone(&stop));
        let look = move || {
            let mut times = VecDeque::new();
            while !until.load(Ordering::Relaxed) {
                let now = Instant::now();
                times.push_back((now, of.load(Ordering::Relaxed), kernel_time(of.load(Ordering::Relaxed))));
                if let Some(kept) = kept_since(&mut times) {
                    lock(&seen).over.push((now, kept));
                }
                thread::sleep(LOOK);
            }
        };
        Kept { pid, stop, thread: Some(thread::spawn(look)) }
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

/// A thread that watches one process after the other.
#[derive(Debug)]
pub struct Kept {
    pid: Arc<AtomicI32>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kept {
    /// From now on it is this one.
    pub fn watch(&self, pid: i32) {
        self.pid.store(pid, Ordering::Relaxed);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How long a process was in the kernel while these looks at it were taken, if for nearly all of the time. Those that are older than
/// that go.
fn kept_since(times: &mut VecDeque<(Instant, i32, Duration)>) -> Option<Duration> {
    let (now, pid, spent) = *times.back()?;
    times.retain(|(at, of, _)| *of == pid && now - *at <= WINDOW);
    let kept = spent.saturating_sub(times.front()?.2);
    (kept > STILL).then_some(kept)
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
    fn a_process_that_the_kernel_keeps_busy_is_told_from_one_that_works_and_from_another() {
        let start = Instant::now();
        let looks = |busy: u32, other: i32| {
            let look =
                |look: u32| (start + look * LOOK, if look < 10 { other } else { 7 }, look * LOOK * busy / 10);
            (0..40).map(look).collect::<VecDeque<_>>()
        };
        assert_eq!(kept_since(&mut looks(10, 7)), Some(WINDOW));
        assert_eq!(kept_since(&mut looks(8, 7)), Some(WINDOW * 8 / 10));
        assert_eq!(kept_since(&mut looks(7, 7)), None);
        let mut other = looks(10, 8);
        other.truncate(20);
        assert_eq!(kept_since(&mut other), None);
        assert_eq!(other.len(), 10);
    }

    #[test]
    fn every_processor_is_watched() {
        let stalls = Stalls::watch();
        assert_eq!(stalls.threads.len(), thread::available_parallelism().unwrap().get() + 1);
        assert!(stalls.wait_over(60 * SECOND));
    }
}
