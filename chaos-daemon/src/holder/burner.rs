//! Burning CPU time: one pinned thread per processor, closed loop on its own CPU clock.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use caps::Capability;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use super::arm::{Arm, ArmError, Armed, Means};
use crate::fault::CpuWork;
use crate::host::{boot_time_ns, supply};
use crate::kernel::membership;
use crate::request::Evidence;
use crate::request::evidence::{Burned, Seconds};

/// A burn that was prevented (the processor was busy with others) is made up for, but no more than this much,
/// so that the load never bursts.
const MOST_DEBT: Duration = Duration::from_millis(20);

/// A few periods of a burning thread.
const FIRST_BURN: Duration = Duration::from_millis(40);

impl Arm for CpuWork {
    fn needed(&self) -> &'static [Capability] {
        &[]
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        if let Some(group) = &self.cgroup {
            membership::enter(group).map_err(ArmError::Burn)?;
        }
        let burner = Burner::start(self, means.deadline_ns).map_err(ArmError::Burn)?;
        // Long enough for every thread to have burned: what is reported next is an effect, not a hope.
        thread::sleep(FIRST_BURN);
        Ok(Box::new(burner))
    }
}

impl Armed for Burner {
    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        self.set_deadline(deadline_ns);
        Ok(())
    }

    fn evidence(&self) -> Result<Evidence, ArmError> {
        Ok(Evidence::Burned(Burned { cpu_seconds: Seconds(self.burned()) }))
    }
}

/// Burning threads. They stop at the deadline, and when the value is dropped.
#[derive(Debug)]
struct Burner {
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
    /// Starts burning on the processors that are named, or on the first `work.cores` that this process may use.
    ///
    /// # Errors
    /// When the processors cannot be read, one of those named cannot be used, or a thread cannot be made.
    fn start(work: &CpuWork, deadline_ns: u64) -> io::Result<Self> {
        let processors = chosen(work, &supply::usable_processors()?)?;
        let shared = Arc::new(Shared { deadline: AtomicU64::new(deadline_ns), burned_ns: AtomicU64::new(0) });
        let mut burner = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        for cpu in processors {
            let shared = Arc::clone(&shared);
            let (share, ramp) = (work.percent / 100.0, work.ramp);
            burner.threads.push(
                thread::Builder::new()
                    .name(format!("burn-{cpu}"))
                    .spawn(move || burn(cpu as usize, share, ramp, &shared))?,
            );
        }
        Ok(burner)
    }

    /// Goes on until `deadline_ns`.
    fn set_deadline(&self, deadline_ns: u64) {
        self.shared.deadline.store(deadline_ns, Ordering::Relaxed);
    }

    /// CPU time burned so far.
    fn burned(&self) -> Duration {
        Duration::from_nanos(self.shared.burned_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.set_deadline(0);
        for thread in self.threads.drain(..) {
            // A thread that panicked burns nothing any more, which is all that is wanted here.
            drop(thread.join());
        }
    }
}

/// Where to burn, of what can be used: a control group may have taken some away (cpuset).
fn chosen(work: &CpuWork, usable: &[u32]) -> io::Result<Vec<u32>> {
    if let Some(missing) = work.processors.iter().find(|processor| !usable.contains(processor)) {
        let text = format!("processor {missing} cannot be used here, but {usable:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(match work.processors.is_empty() {
        true => usable.iter().copied().take(work.cores as usize).collect(),
        false => work.processors.clone(),
    })
}

fn burn(cpu: usize, share: f64, ramp: Duration, shared: &Shared) {
    let mut only = CpuSet::new();
    // Not pinned is still the right load in total: the scheduler then places the thread.
    let _ = only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
    let mut rng = rand::rng();
    let mut wanted = cpu_time();
    let mut reported = wanted;
    let born = boot_time_ns();
    let mut turn = born;
    loop {
        let deadline = shared.deadline.load(Ordering::Relaxed);
        if deadline == 0 {
            return;
        }
        let period = Duration::from_micros(rand::RngExt::random_range(&mut rng, 3_700..=16_300));
        let end = turn + nanos(period);
        if boot_time_ns() < deadline {
            wanted = owed(wanted, cpu_time()) + period.mul_f64(share * climbed(turn - born, ramp));
            while cpu_time() < wanted && boot_time_ns() < end {
                std::hint::spin_loop();
            }
        }
        let used = cpu_time();
        shared.burned_ns.fetch_add(nanos(used - reported), Ordering::Relaxed);
        reported = used;
        let rest = Duration::from_nanos(end.saturating_sub(boot_time_ns()));
        if !rest.is_zero() {
            thread::sleep(rest);
        }
        turn = next_turn(end, boot_time_ns());
    }
}

/// What is to have been burned by now: what was prevented is made up for, but for what is long ago.
fn owed(wanted: Duration, used: Duration) -> Duration {
    wanted.min(used + MOST_DEBT)
}

/// When the next turn begins: with the end of this one, so that what a sleep took too long is burned for, too.
fn next_turn(end: u64, now: u64) -> u64 {
    end.max(now.saturating_sub(nanos(MOST_DEBT)))
}

/// How much of the ramp is behind at this age: 0 to 1.
fn climbed(age_ns: u64, ramp: Duration) -> f64 {
    let age = Duration::from_nanos(age_ns);
    if age >= ramp { 1.0 } else { age.as_secs_f64() / ramp.as_secs_f64() }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::waits::wait_for;

    fn half(processors: Vec<u32>) -> CpuWork {
        CpuWork { percent: 50.0, cores: 1, processors, ramp: Duration::ZERO, cgroup: None }
    }

    #[test]
    fn named_processors_are_taken_and_none_in_the_place_of_another() {
        assert_eq!(chosen(&half(Vec::new()), &[2, 5]).unwrap(), [2]);
        assert_eq!(chosen(&half(vec![5]), &[2, 5]).unwrap(), [5]);
        assert!(chosen(&half(vec![3]), &[2, 5]).is_err());
        assert!((climbed(500, Duration::from_nanos(2000)) - 0.25).abs() < 1e-9);
        assert!((climbed(1, Duration::ZERO) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_burn_that_was_prevented_for_long_is_not_made_up_for_in_a_burst() {
        let used = Duration::from_millis(500);
        let since = |debt| owed(used + Duration::from_millis(debt), used).checked_sub(used);
        assert_eq!((since(7), since(700)), (Some(Duration::from_millis(7)), Some(MOST_DEBT)));
        assert_eq!(owed(Duration::from_millis(499), used), Duration::from_millis(499));
    }

    #[test]
    fn a_turn_begins_when_the_one_before_was_to_end_unless_that_is_long_ago() {
        let debt = nanos(MOST_DEBT);
        assert_eq!(next_turn(5_000, 5_000), 5_000);
        assert_eq!(next_turn(5_000, 5_060), 5_000);
        assert_eq!(next_turn(5_000, 5_000 + 3 * debt), 5_000 + 2 * debt);
    }

    #[test]
    fn no_more_than_half_a_processor_is_burned_until_the_deadline_and_nothing_after() {
        let start = Instant::now();
        let burner = Burner::start(&half(Vec::new()), u64::MAX).unwrap();
        // How long it takes depends on who else wants the processor.
        wait_for(|| burner.burned() > Duration::from_millis(200));
        let (burned, age) = (burner.burned(), start.elapsed());
        assert!(burned < age.mul_f64(0.55) + MOST_DEBT, "burned {burned:?} of {age:?}");
        burner.set_deadline(boot_time_ns());
        thread::sleep(Duration::from_millis(200));
        let after = burner.burned();
        thread::sleep(Duration::from_millis(200));
        // A turn that others have interrupted is told of when it ends.
        let more = burner.burned() - after;
        assert!(more < MOST_DEBT, "{more:?} burned after the deadline");
    }
}
