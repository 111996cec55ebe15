//! Whether something goes as fast as was asked for, also where others want what it needs.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How long is measured at a time: long enough for what a load makes up for to be little of it.
const WINDOW: Duration = Duration::from_secs(2);
/// How often, before the best of it counts as too little: others may take most of a machine for a while, and hardly all the time.
const WINDOWS: u32 = 10;
/// The least and the most of what was asked for. More is nobody's doing but the load's own.
const SHARE: (f64, f64) = (0.7, 1.15);
/// A thread that waits for its processor for more than this share of the time gets as much as there is: one that wants a small
/// share of it waits for the turns of others, and has its own turn soon.
const HELD_UP: f64 = 0.5;

/// Measures how much `counter` grows in a second, again and again until it is as much as was asked for; what share of it that was.
///
/// # Errors
/// When it never is, or once is more, or cannot be counted.
pub fn reaches(asked: f64, counter: impl FnMut() -> Result<f64>) -> Result<f64> {
    best(asked, counter, || Ok(0.0), WINDOW, WINDOWS)
}

/// The same of the processor time, in seconds, that burning threads of this process use. They may use less while others have
/// their processors: the kernel says how long they wait for them.
///
/// # Errors
/// As [`reaches`].
pub fn burns(asked: f64, pid: i32, used: impl FnMut() -> Result<f64>) -> Result<f64> {
    best(asked, used, || waited(pid), WINDOW, WINDOWS)
}

/// The burning threads of a process, by their folders in procfs.
pub fn burning(pid: i32) -> Vec<PathBuf> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let burns =
        |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("burn-"));
    threads.map(|thread| thread.path()).filter(burns).collect()
}

/// Processor time that they have used, in seconds: what it takes to start a process is not theirs.
pub fn burned(pid: i32) -> f64 {
    burning(pid).iter().filter_map(|thread| schedstat(thread, 0)).sum()
}

/// How long they have waited for their processors, in seconds, each of them.
fn waited(pid: i32) -> Result<f64> {
    let threads = burning(pid);
    let waited: Vec<_> = threads.iter().filter_map(|thread| schedstat(thread, 1)).collect();
    if waited.is_empty() {
        return Err(Error::Different(format!("no thread of process {pid} burns")));
    }
    Ok(waited.iter().sum::<f64>() / waited.len() as f64)
}

/// One of the kernel's numbers of a thread, in seconds (sched-stats.rst): the first is its time on a processor, and the second its
/// time in the queue for one.
fn schedstat(thread: &std::path::Path, field: usize) -> Option<f64> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    Some(text.split(' ').nth(field)?.parse::<f64>().ok()? / 1e9)
}

fn best(
    asked: f64,
    mut counter: impl FnMut() -> Result<f64>,
    mut waited: impl FnMut() -> Result<f64>,
    window: Duration,
    windows: u32,
) -> Result<f64> {
    let mut seen = Vec::new();
    for _ in 0..windows {
        // The clock is read outside of the count, so that a pause between the two never makes it more.
        let (queued, start, before) = (waited()?, Instant::now(), counter()?);
        std::thread::sleep(window);
        let (more, span) = (counter()? - before, start.elapsed().as_secs_f64());
        let share = more / span / asked;
        if share > SHARE.1 {
            return Err(Error::Different(format!("{share:.3} times what was asked for, {asked} a second")));
        }
        let held_up = (waited()? - queued) / span;
        if share >= SHARE.0 || held_up >= HELD_UP {
            return Ok(share);
        }
        seen.push(format!("{share:.3}, held up {held_up:.3}"));
    }
    Err(Error::Different(format!("asked for {asked} a second, and seen of it: {}", seen.join("; "))))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Asked for 1000 a second, by a counter that grows at these rates, one window after the other.
    fn seen(rates: &[f64]) -> Result<f64> {
        seen_beside(rates, 0.0)
    }

    /// The same while the thread that counts waits for its processor for this share of the time.
    fn seen_beside(rates: &[f64], held_up: f64) -> Result<f64> {
        let window = Duration::from_millis(20);
        let (mut rates, mut start, mut count) = (VecDeque::from(rates.to_vec()), None::<Instant>, 0.0);
        let counter = || {
            count += match start.take() {
                Some(start) => start.elapsed().as_secs_f64() * rates.pop_front().unwrap_or(0.0),
                None => {
                    start = Some(Instant::now());
                    0.0
                }
            };
            Ok(count)
        };
        let since = Instant::now();
        best(1000.0, counter, || Ok(since.elapsed().as_secs_f64() * held_up), window, 3)
    }

    #[test]
    fn one_window_with_enough_is_enough_and_one_with_too_much_is_too_much() {
        assert!((0.9..1.1).contains(&seen(&[100.0, 690.0, 1000.0]).unwrap()));
        let never = seen(&[100.0, 300.0, 600.0, 1000.0]).unwrap_err().to_string();
        assert!(never.contains("0.1") && never.contains("0.6"), "{never}");
        assert!(seen(&[100.0, 2000.0]).unwrap_err().to_string().contains("times what was asked for"));
    }

    #[test]
    fn a_thread_that_others_keep_from_its_processor_may_use_less_of_it_and_never_more() {
        assert!((0.05..0.15).contains(&seen_beside(&[100.0], 0.8).unwrap()));
        assert!(seen_beside(&[100.0, 100.0, 100.0], 0.3).is_err());
        assert!(seen_beside(&[2000.0], 0.8).is_err());
        assert!(waited(i32::MAX).is_err());
    }
}
