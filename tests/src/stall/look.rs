//! What the kernel shows of threads and processors at a moment (proc(5)). Times only ever grow.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where in the kernel a thread may be kept, and why that is not the daemon's doing.
const PLACES: [(&str, &str); 2] = [
    // It tries again and again until whoever was just reading there has let go, and has to get a processor for that.
    ("shrink_dcache_parent", "taking apart what /proc shows of a dead process"),
    ("io_schedule", "waiting for a disk"),
];

/// What was seen at one moment.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) processors: Vec<Processor>,
    pub(super) threads: Vec<Thread>,
}

/// Of one processor, since the machine started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Processor {
    /// How long somebody else had it, by the word of whoever runs this machine.
    pub(super) stolen: Duration,
    /// How long its timers were served too late: it did not go on, and nobody said why.
    pub(super) halted: Duration,
    /// How long it handled packets, and other such work of the kernel.
    pub(super) softirq: Duration,
}

/// Of one thread, since it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Thread {
    pub(super) id: i32,
    pub(super) name: String,
    /// How long it wanted to run, and had no processor.
    pub(super) waited: Duration,
    /// How long it ran in the kernel, or was kept there without a way to be woken.
    pub(super) kernel: Duration,
    /// Where in the kernel it is just now, if that is one of [`PLACES`].
    pub(super) place: Option<&'static str>,
}

/// Looks at threads again and again.
#[derive(Debug, Default)]
pub(super) struct Eye {
    last: HashMap<PathBuf, (Instant, Raw)>,
}

impl Eye {
    /// Looks at the threads with these folders in `/proc`.
    pub(super) fn look(&mut self, threads: &[PathBuf], halted: &[Duration]) -> Look {
        let (mut seen, mut last) = (Vec::new(), HashMap::new());
        for folder in threads {
            // After it was read, so that no wait is thought longer than it is.
            let Some(mut raw) = Raw::read(folder) else { continue };
            let now = Instant::now();
            if let Some((then, before)) = self.last.get(folder) {
                raw.go_on(before, now - *then);
            }
            seen.push(raw.thread(folder));
            last.insert(folder.clone(), (now, raw));
        }
        self.last = last;
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Look { at: Instant::now(), processors: processors(&text, halted), threads: seen }
    }
}

/// One thread, as its files say, and what follows from the look before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Raw {
    id: i32,
    name: String,
    state: char,
    kernel: Duration,
    ran: Duration,
    waited: Duration,
    /// How often it was given a processor.
    turns: u64,
    /// How long it has been waiting now, which `waited` does not count before it is over.
    waiting: Duration,
    /// How long it was in a sleep that nothing ends but the kernel.
    blocked: Duration,
}

impl Raw {
    fn read(folder: &Path) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        Self::parse(&read("stat")?, &read("schedstat")?)
    }

    fn parse(stat: &str, schedstat: &str) -> Option<Self> {
        let (front, back) = stat.rsplit_once(')')?;
        let (id, name) = front.split_once('(')?;
        let fields: Vec<&str> = back.split_whitespace().collect();
        let numbers: Vec<u64> =
            schedstat.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [ran, waited, turns] = numbers.try_into().ok()?;
        Some(Self {
            id: id.trim().parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            kernel: ticks(fields.get(12)?.parse().ok()?),
            ran: Duration::from_nanos(ran),
            waited: Duration::from_nanos(waited),
            turns,
            ..Self::default()
        })
    }

    /// Adds what lasts since the look before, so long ago.
    fn go_on(&mut self, before: &Self, since: Duration) {
        let both = |state| (before.state, self.state) == (state, state);
        if both('R') && (before.ran, before.turns) == (self.ran, self.turns) {
            self.waiting = before.waiting + since;
        }
        self.blocked = before.blocked + if both('D') { since } else { Duration::ZERO };
    }

    fn thread(&self, folder: &Path) -> Thread {
        let stack = || fs::read_to_string(folder.join("stack")).unwrap_or_default();
        Thread {
            id: self.id,
            name: self.name.clone(),
            waited: self.waited + self.waiting,
            kernel: self.kernel + self.blocked,
            place: if matches!(self.state, 'R' | 'D') { place(&stack()) } else { None },
        }
    }
}

fn place(stack: &str) -> Option<&'static str> {
    PLACES.iter().find(|(function, _)| stack.contains(&format!(" {function}+"))).map(|(_, why)| *why)
}

fn processors(stat: &str, halted: &[Duration]) -> Vec<Processor> {
    let of_one = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let processor = |line: &str| {
        let mut fields = line.split_whitespace();
        let number: usize = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
        let times: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        let halted = halted.get(number).copied().unwrap_or_default();
        Some(Processor { stolen: ticks(*times.get(7)?), halted, softirq: ticks(*times.get(6)?) })
    };
    stat.lines().filter(of_one).filter_map(processor).collect()
}

/// In hundredths of a second (proc(5); USER_HZ is 100 everywhere we run).
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * 10)
}

/// The kernel's own threads that everything waits for sooner or later: attaching a program for RCU, packets for ksoftirqd.
pub(super) fn kernel_threads() -> Vec<PathBuf> {
    let waited_for = |folder: &PathBuf| {
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let is_kernel = fs::read(folder.join("cmdline")).is_ok_and(|line| line.is_empty());
        is_kernel && ["rcu_preempt", "rcu_sched", "ksoftirqd/"].iter().any(|known| name.starts_with(known))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(waited_for).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn raw(state: char, schedstat: &str) -> Raw {
        let stat = format!("7 (a) (b)) {state} 1 7 7 0 -1 0 0 0 0 0 5 12 0 0 20 0 1 0 100");
        Raw::parse(&stat, schedstat).unwrap()
    }

    #[test]
    fn a_thread_is_read() {
        let read = raw('R', "1000000 2000000 3\n");
        assert_eq!((read.id, read.name.as_str(), read.state, read.turns), (7, "a) (b)", 'R', 3));
        assert_eq!((read.kernel, read.ran, read.waited), (120 * MILLI, MILLI, 2 * MILLI));
    }

    #[test]
    fn a_wait_counts_before_it_is_over_and_no_longer_than_the_thread_was_kept() {
        let before = raw('R', "1000000 2000000 3");
        let mut waits = before.clone();
        waits.go_on(&before, 100 * MILLI);
        assert_eq!(waits.thread(Path::new("/none")).waited, 102 * MILLI);
        let mut again = before.clone();
        again.go_on(&waits, 100 * MILLI);
        assert_eq!(again.thread(Path::new("/none")).waited, 202 * MILLI);
        for other in
            [raw('R', "1000001 2000000 3"), raw('R', "1000000 203000000 4"), raw('S', "1000000 2000000 3")]
        {
            let mut now = other.clone();
            now.go_on(&again, 100 * MILLI);
            assert_eq!(now, other);
        }
    }

    #[test]
    fn a_sleep_that_nothing_ends_is_time_in_the_kernel_and_a_stop_is_not() {
        for (state, kernel) in [('D', 220), ('S', 120), ('T', 120)] {
            let before = raw(state, "1 1 1");
            let mut now = before.clone();
            now.go_on(&before, 100 * MILLI);
            assert_eq!(now.thread(Path::new("/none")).kernel, kernel * MILLI, "{state}");
        }
    }

    #[test]
    fn a_place_is_known_by_its_function() {
        let stack = "[<0>] shrink_dcache_parent+0x1/0x2\n[<0>] d_invalidate+0x1/0x2\n";
        assert!(place(stack).is_some_and(|place| place.contains("/proc")));
        assert_eq!(place("[<0>] my_shrink_dcache_parent_2+0x1/0x2"), None);
    }

    #[test]
    fn processors_are_read_each_for_itself() {
        let stat = "cpu 9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 9 10 0 0\nintr 1\n";
        let halted = [MILLI];
        let expected = [(80, 1, 70), (100, 0, 90)].map(|(stolen, halted, softirq)| Processor {
            stolen: stolen * MILLI,
            halted: halted * MILLI,
            softirq: softirq * MILLI,
        });
        assert_eq!(processors(stat, &halted), expected);
    }

    #[test]
    fn this_thread_and_the_kernels_own_are_seen() {
        let here = PathBuf::from(format!("/proc/self/task/{}", nix::unistd::gettid()));
        let look = Eye::default().look(&[here, "/proc/none".into()], &[]);
        assert_eq!(look.threads.len(), 1);
        assert_eq!(look.threads[0].id, nix::unistd::gettid().as_raw());
        assert_eq!(look.processors.len(), thread_count());
    }

    fn thread_count() -> usize {
        fs::read_to_string("/proc/stat").unwrap().matches("\ncpu").count()
    }
}
