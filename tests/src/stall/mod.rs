//! Why something was late that was not the daemon's doing. A cause counts only if it was seen while it acted: a processor that
//! was taken away, a thread that wanted to run and had none. That something was late says nothing by itself.

mod judge;
mod look;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use chaos_daemon::host::Part;
use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};

pub use judge::Cause;

use crate::process::{self, wait_until};
use look::{Eye, Look};

/// How often is looked. What was lost is counted by the kernel, so nothing is missed between two looks, and looking costs little: on
/// an emulated processor it must not be what keeps the daemon.
const LOOK: Duration = Duration::from_millis(300);
/// Who loses most of such a time at once may be too late for something.
const WINDOW: Duration = Duration::from_secs(1);
/// Who loses most of such a time may be too late for a lease: it is 3 s, and renewed every second.
const SPARE: Duration = Duration::from_secs(2);
/// Longer than any step takes.
const KEPT: Duration = Duration::from_secs(300);
/// What is over was not seen any more for so long.
const OVER: Duration = Duration::from_secs(1);

/// Looks at the machine and at what runs on it, for as long as it lives.
#[derive(Debug, Default)]
pub struct Stalls {
    machine: Arc<Mutex<VecDeque<Look>>>,
    /// How long RCU took, and when that was over.
    rcu: Arc<Mutex<VecDeque<(Instant, Duration)>>>,
    /// Threads that everything waits for: the kernel's, and those that test.
    needed: Arc<Mutex<Vec<PathBuf>>>,
    threads: Threads,
}

impl Stalls {
    /// Begins to look at every processor that this process may use, and at the kernel's own threads.
    pub fn watch() -> Self {
        let mut stalls = Self { needed: Arc::new(Mutex::new(look::kernel_threads())), ..Self::default() };
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let mut halted = Vec::new();
        for cpu in 0..CpuSet::count() {
            let late = Arc::new(AtomicU64::new(0));
            halted.push(Arc::clone(&late));
            if allowed.is_set(cpu).unwrap_or(false) {
                stalls.threads.start(move |stop| watch_timers(cpu, &late, stop));
            }
        }
        let (looks, needed) = (Arc::clone(&stalls.machine), Arc::clone(&stalls.needed));
        stalls.threads.start(move |stop| watch_threads(&looks, &halted, stop, || lock(&needed).clone()));
        let rcu = Arc::clone(&stalls.rcu);
        stalls.threads.start(move |stop| watch_rcu(&rcu, stop));
        stalls
    }

    /// Looks at the calling thread as well, which tests, and at what it starts of the daemon.
    pub fn watch_lane(&self) -> Lane {
        let mut lane =
            Lane { machine: Arc::clone(&self.machine), rcu: Arc::clone(&self.rcu), ..Lane::default() };
        let mut needed = lock(&self.needed);
        if !needed.contains(&this_thread()) {
            needed.push(this_thread());
        }
        drop(needed);
        let (looks, here) = (Arc::clone(&lane.looks), gettid());
        lane.threads.start(move |stop| watch_threads(&looks, &[], stop, || of_the_daemon(here)));
        lane
    }
}

/// What is seen of one lane.
#[derive(Debug, Default)]
pub struct Lane {
    machine: Arc<Mutex<VecDeque<Look>>>,
    rcu: Arc<Mutex<VecDeque<(Instant, Duration)>>>,
    looks: Arc<Mutex<VecDeque<Look>>>,
    threads: Threads,
}

impl Lane {
    /// What kept the daemon's processes from going on, from then on, so that a lease may have run out.
    pub fn cause_of_doubt_since(&self, since: Instant) -> Option<Cause> {
        judge::cause(lock(&self.looks).make_contiguous(), since, SPARE)
    }

    /// What kept the daemon's processes, the machine, or who tests, from then on: the one that cost more time.
    pub fn any_cause_since(&self, since: Instant) -> Option<Cause> {
        let lane = judge::cause(lock(&self.looks).make_contiguous(), since, WINDOW);
        let machine = judge::cause(lock(&self.machine).make_contiguous(), since, WINDOW);
        lane.into_iter().chain(machine).max_by_key(Cause::time)
    }

    /// How long RCU took, at most, from then on.
    pub fn rcu_since(&self, since: Instant) -> Duration {
        let rcu = lock(&self.rcu);
        let after = rcu.iter().filter(|(at, _)| *at >= since);
        after.map(|(_, took)| *took).max().unwrap_or_default()
    }

    /// Waits until no cause is seen any more, so long at most.
    pub fn wait_over(&self, limit: Duration) {
        let is_over = || {
            let now = Instant::now();
            self.any_cause_since(now.checked_sub(OVER).unwrap_or(now)).is_none()
        };
        wait_until(limit, is_over);
    }
}

/// The daemon's processes that a thread has started, what they have started, and those whose parent is dead: they are children of
/// this process's first thread (`PR_SET_CHILD_SUBREAPER`).
fn of_the_daemon(thread: Pid) -> Vec<PathBuf> {
    let parents = [thread, Pid::this()].map(|thread| PathBuf::from(format!("/proc/self/task/{thread}")));
    let first: Vec<_> = parents.iter().flat_map(|parent| started_by(parent)).collect();
    let first_thread = |process: &PathBuf| process.join("task").join(process.file_name().unwrap_or_default());
    let next: Vec<_> = first.iter().flat_map(|process| started_by(&first_thread(process))).collect();
    first.into_iter().chain(next).collect()
}

/// The daemon's processes among the children of a thread. One that has only just started is called after its file.
fn started_by(thread: &Path) -> Vec<PathBuf> {
    let folders = process::children(thread).into_iter().map(|pid| PathBuf::from(format!("/proc/{pid}")));
    let is_of_the_daemon = |folder: &PathBuf| {
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        name == "exe\n" || Part::named(name.trim_end()).is_some()
    };
    folders.filter(is_of_the_daemon).collect()
}

/// Threads that end with this.
#[derive(Debug, Default)]
struct Threads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start(&mut self, work: impl FnOnce(&AtomicBool) + Send + 'static) {
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::spawn(move || work(&stop)));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Looks at the threads with these folders again and again.
fn watch_threads(
    looks: &Mutex<VecDeque<Look>>,
    halted: &[Arc<AtomicU64>],
    stop: &AtomicBool,
    folders: impl Fn() -> Vec<PathBuf>,
) {
    let mut eye = Eye::default();
    while !stop.load(Ordering::Relaxed) {
        let late: Vec<_> =
            halted.iter().map(|late| Duration::from_nanos(late.load(Ordering::Relaxed))).collect();
        keep(looks, eye.look(&folders(), &late), |look| look.at);
        thread::sleep(LOOK);
    }
}

/// Sleeps on one processor again and again, and adds up how much too late its timer is served. That does not wait for a processor: what
/// does is time that this thread waited, and is taken off.
fn watch_timers(cpu: usize, late: &AtomicU64, stop: &AtomicBool) {
    let mut one = CpuSet::new();
    if one.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &one)).is_err() {
        return;
    }
    let (own, mut eye) = (this_thread(), Eye::default());
    let mut waited = || eye.look(std::slice::from_ref(&own), &[]).threads.first().map(|own| own.waited);
    while !stop.load(Ordering::Relaxed) {
        let (begun, before) = (Instant::now(), waited().unwrap_or_default());
        thread::sleep(LOOK);
        let (elapsed, after) = (begun.elapsed(), waited().unwrap_or_default());
        let lost = elapsed.saturating_sub(LOOK).saturating_sub(after.saturating_sub(before));
        late.fetch_add(lost.as_nanos().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Waits again and again until every processor has been through a point of rest, as attaching a program and removing a device do
/// (membarrier(2)). So the kernel's thread for that always has something to do, and what keeps it is seen.
fn watch_rcu(rcu: &Mutex<VecDeque<(Instant, Duration)>>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        // SAFETY: a system call without pointers. Where it is not there, it returns at once.
        let _ = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
        keep(rcu, (Instant::now(), begun.elapsed()), |(at, _)| *at);
        thread::sleep(LOOK);
    }
}

fn this_thread() -> PathBuf {
    PathBuf::from(format!("/proc/self/task/{}", gettid()))
}

/// Adds what was seen, and drops what is too old to matter.
fn keep<T>(seen: &Mutex<VecDeque<T>>, one: T, at: impl Fn(&T) -> Instant) {
    let mut seen = lock(seen);
    let now = at(&one);
    while seen.front().is_some_and(|first| now.saturating_duration_since(at(first)) > KEPT) {
        seen.pop_front();
    }
    seen.push_back(one);
}

fn lock<T>(seen: &Mutex<T>) -> MutexGuard<'_, T> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::process::{Killed, Process};

    /// What is seen of a child meanwhile.
    fn cause_during(child: &Child, work: impl FnOnce()) -> Option<Cause> {
        let folder = PathBuf::from(format!("/proc/{}", child.id()));
        let (looks, begun) = (Arc::default(), Instant::now());
        let mut threads = Threads::default();
        let seen = Arc::clone(&looks);
        threads.start(move |stop| watch_threads(&seen, &[], stop, || vec![folder.clone()]));
        work();
        drop(threads);
        let mut looks = lock(&looks);
        assert!(looks.len() > 3, "{} looks", looks.len());
        judge::cause(looks.make_contiguous(), begun, WINDOW)
    }

    fn start(command: &mut Command) -> Killed {
        Killed(command.spawn().unwrap())
    }

    #[test]
    fn a_process_that_was_told_to_stand_still_has_no_excuse() {
        let child = start(Command::new("sleep").arg("60"));
        let process = Process::read(child.0.id().cast_signed()).unwrap();
        let cause = cause_during(&child.0, || {
            process.stop();
            thread::sleep(3 * OVER);
        });
        assert_eq!(cause, None);
    }

    #[test]
    fn a_process_that_is_given_no_processor_has_one() {
        // It runs when nobody else wants to, on the first processor that there is.
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
        let spin = ["sh", "-c", "while :; do :; done"];
        let child =
            start(Command::new("taskset").args(["-c", &first.to_string(), "chrt", "-i", "0"]).args(spin));
        let busy = move || {
            let mut one = CpuSet::new();
            one.set(first).unwrap();
            sched_setaffinity(Pid::from_raw(0), &one).unwrap();
            let begun = Instant::now();
            while begun.elapsed() < 4 * OVER {}
        };
        let cause = cause_during(&child.0, || thread::spawn(busy).join().unwrap());
        let Some(Cause::Kept { waited, .. }) = &cause else { panic!("{cause:?}") };
        assert!(*waited > OVER, "{waited:?}");
    }

    #[test]
    fn the_kernels_threads_and_whoever_tests_are_seen() {
        let stalls = Stalls::watch();
        let lane = stalls.watch_lane();
        thread::sleep(2 * OVER);
        let machine = lock(&stalls.machine).back().cloned().unwrap();
        assert_eq!(machine.processors.len(), thread::available_parallelism().unwrap().get());
        assert!(machine.threads.iter().any(|thread| thread.name.starts_with("rcu_")), "{machine:?}");
        assert!(machine.threads.iter().any(|thread| thread.id == gettid().as_raw()), "{machine:?}");
        assert!(lane.rcu_since(Instant::now() - 2 * OVER) > Duration::ZERO);
    }

    #[test]
    fn the_daemons_processes_are_seen_and_no_others() {
        let _other = start(Command::new("sleep").arg("60"));
        // By their names alone. Both end with their input.
        let named = "exec 3<&0; printf chaos-holder > /proc/self/comm; \
                     (printf chaos-server > /proc/self/comm; read -r _ <&3) & read -r _ <&3";
        let daemon = start(Command::new("sh").args(["-c", named]).stdin(Stdio::piped()));
        let names = || {
            let folders = of_the_daemon(gettid());
            let name = |folder: &PathBuf| fs::read_to_string(folder.join("comm")).unwrap_or_default();
            folders.iter().map(name).collect::<String>()
        };
        assert!(wait_until(5 * OVER, || names() == "chaos-holder\nchaos-server\n"), "{}", names());
        drop(daemon);
    }
}
