//! Taking something and holding it: a thread that takes step by step, gives everything back when the lease runs out, and takes
//! it again when the lease is renewed after all.

mod disk_io;
mod files;
mod memory;
mod oom;
mod port;
mod sessions;
mod things;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use caps::Capability;

use super::arm::{Arm, ArmError, Armed, Means};
use super::deadline::Leash;
use crate::fault::{Goal, HoardWork};
use crate::host::boot_time_ns;
use crate::host::privilege::{CALLER_HOLDER, CALLER_HOLDER_ELSEWHERE, LOW_PORTS, PORT_HOLDER, limit_to};
use crate::kernel::membership;
use crate::request::{Evidence, Shortfall};

/// How long an injection waits for everything to be taken: well within a lease, which is not renewed meanwhile.
const FIRST: Duration = Duration::from_millis(1500);
/// How often it is looked whether more is due, or is to be had again.
const TICK: Duration = Duration::from_millis(50);
/// How often it is looked whether all is still there.
const REST: Duration = Duration::from_millis(250);

impl Arm for HoardWork {
    fn needed(&self) -> &'static [Capability] {
        match (&self.goal, self.identity.is_root()) {
            // To enter a network namespace; given up before anything is taken.
            (Goal::Ports { .. } | Goal::Connections { .. }, true) => &[Capability::CAP_SYS_ADMIN],
            (Goal::Ports { .. } | Goal::Connections { .. }, false) => CALLER_HOLDER_ELSEWHERE,
            (Goal::Port(_), _) => PORT_HOLDER,
            (_, false) => CALLER_HOLDER,
            (_, true) => &[],
        }
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        if let Some(netns) = means.netns {
            netns.enter().map_err(ArmError::Namespace)?;
        }
        limit_to(match &self.goal {
            Goal::Port(_) => &[LOW_PORTS],
            _ if self.identity.is_root() => &[],
            // Given up as soon as it is the caller.
            _ => CALLER_HOLDER,
        })?;
        Ok(Box::new(Keeper::start(self, means.deadline_ns).map_err(ArmError::Hoard)?))
    }
}

impl Armed for Keeper {
    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        self.shared.lock().deadline = deadline_ns;
        self.shared.changed.notify_all();
        // Who ends is left the time that the lease still leaves.
        self.leash.hold(deadline_ns);
        Ok(())
    }

    /// What is held, as last read back; at the end, what was held.
    fn evidence(&self) -> Result<Evidence, ArmError> {
        Ok(self.shared.lock().evidence)
    }
}

/// Something of which more and more can be taken.
trait Store: Send {
    /// How much is to be taken in the end.
    fn goal(&self) -> u64;

    /// Takes one step towards `wanted`: short enough for an order to end to be heard in between.
    fn take(&mut self, wanted: u64) -> io::Result<Step>;

    /// Gives everything back.
    fn give_back(&mut self);

    /// What is held, as read back from the kernel.
    fn held(&mut self) -> Evidence;
}

/// What a step has led to.
enum Step {
    /// There is more to take.
    More,
    /// All that was wanted is held.
    Enough,
    /// It is no store but a load, which goes on.
    Acting,
    /// No more can be taken now.
    Short(Shortfall),
}

/// The thread that takes and holds. Everything is given back when the value is dropped.
#[derive(Debug)]
struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    leash: Leash,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Boot-time nanoseconds after which nothing is held; 0 is the order to end.
    deadline: u64,
    evidence: Evidence,
    /// Whether all that is due has been taken, or no more is to be had.
    settled: bool,
    failure: Option<io::Error>,
}

impl Keeper {
    /// Joins the control group, and takes until all of it is taken, or for a moment and then goes on by itself.
    ///
    /// # Errors
    /// When nothing could be taken, with the reason.
    fn start(work: &HoardWork, deadline_ns: u64) -> io::Result<Self> {
        let window = deadline_ns.saturating_sub(boot_time_ns());
        prepare(work)?;
        let store = open(&work.goal)?;
        let mut leash = Leash::new().map_err(io::Error::from)?;
        leash.hold_while_arming(deadline_ns);
        let state =
            State { deadline: deadline_ns, evidence: Evidence::default(), settled: false, failure: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (theirs, ramp) = (Arc::clone(&shared), work.ramp);
        let thread =
            thread::Builder::new().name("hold".to_owned()).spawn(move || keep(store, ramp, &theirs))?;
        let mut keeper = Self { shared, thread: Some(thread), leash };
        keeper.wait_settled()?;
        // The first renewal is under way: from here on, who stands still is killed as after every other.
        keeper.leash.hold(boot_time_ns().saturating_add(window));
        Ok(keeper)
    }

    fn wait_settled(&self) -> io::Result<()> {
        let state = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(state, FIRST, |state| !state.settled);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.lock().deadline = 0;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has dropped what it held.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until there is another deadline than this one, or it has come, at most so long.
    fn wait(&self, deadline: u64, most: Duration) {
        let state = self.lock();
        let left = Duration::from_nanos(deadline.saturating_sub(boot_time_ns()));
        let most = if left.is_zero() { most } else { most.min(left) };
        drop(self.changed.wait_timeout_while(state, most, |state| state.deadline == deadline));
    }

    fn publish(&self, evidence: Evidence, settled: bool) {
        let mut state = self.lock();
        // What was held at the end is told after it.
        if state.deadline != 0 {
            state.evidence = evidence;
            state.settled |= settled;
            self.changed.notify_all();
        }
    }
}

/// All that is done as root; from here on what a caller has named is opened as the caller.
fn prepare(work: &HoardWork) -> io::Result<()> {
    if let Some(group) = &work.cgroup {
        membership::enter(group)?;
    }
    offer(&work.goal)?;
    if matches!(
        work.goal,
        Goal::Descriptors { .. } | Goal::Inodes { .. } | Goal::Ports { .. } | Goal::Connections { .. }
    ) {
        things::raise_descriptor_limit()?;
    }
    if work.identity.is_root() {
        return Ok(());
    }
    work.identity.assume()?;
    limit_to(&[]).map_err(io::Error::other)
}

/// Has the kernel choose this process first when memory runs out, unless others are to be chosen.
fn offer(goal: &Goal) -> io::Result<()> {
    match goal {
        Goal::Oom { .. } => Ok(()),
        _ => membership::offer_to_oom_killer(),
    }
}

fn open(goal: &Goal) -> io::Result<Box<dyn Store>> {
    Ok(match goal {
        Goal::Memory { bytes, reserve } => Box::new(memory::Memory::open(*bytes, *reserve)?),
        Goal::Oom { bytes, reserve } => Box::new(oom::Oom::open(*bytes, *reserve)?),
        Goal::Disk { directory, bytes, leave } => Box::new(files::Disk::open(directory, *bytes, *leave)?),
        Goal::Descriptors { count, leave } => Box::new(things::Descriptors::open(*count, *leave)),
        Goal::Tasks { count, leave, own_leave } => Box::new(things::Tasks::open(*count, *leave, *own_leave)?),
        Goal::Inodes { directory, count, leave } => Box::new(files::Inodes::open(directory, *count, *leave)?),
        Goal::Ports { udp, address, range, count } => {
            Box::new(things::Ports::open(*udp, *address, *range, *count)?)
        }
        Goal::Port(local) => Box::new(port::Port::open(*local)),
        Goal::DiskIo { directory, bytes, rate } => Box::new(disk_io::DiskIo::open(directory, *bytes, *rate)?),
        Goal::Connections { server, amount, limit, spared } => {
            Box::new(sessions::Sessions::open(server, *amount, *limit, spared)?)
        }
    })
}

fn keep(mut store: Box<dyn Store>, ramp: Duration, shared: &Shared) {
    let mut since: Option<Instant> = None;
    loop {
        let deadline = shared.lock().deadline;
        if deadline == 0 {
            return;
        }
        if boot_time_ns() >= deadline {
            if since.take().is_some() {
                store.give_back();
                shared.publish(store.held().short(Some(Shortfall::Lapsed)), false);
            }
            shared.wait(deadline, REST);
            continue;
        }
        let age = since.get_or_insert_with(Instant::now).elapsed();
        let wanted = due(store.goal(), age, ramp);
        let step = store.take(wanted);
        let mut evidence = store.held();
        let acting = matches!(step, Ok(Step::Acting));
        let (settled, shortfall) = match step {
            // It knows itself what it lacks.
            Ok(Step::Acting) => (true, evidence.shortfall().and_then(|shortfall| *shortfall)),
            Ok(Step::More) => (false, Some(Shortfall::Growing)),
            Ok(Step::Enough) => (true, (wanted < store.goal()).then_some(Shortfall::Growing)),
            Ok(Step::Short(why)) => (true, Some(why)),
            Err(error) => {
                shared.lock().failure = Some(error);
                (true, Some(Shortfall::Exhausted))
            }
        };
        shared.publish(evidence.short(shortfall), settled);
        if settled && !acting {
            shared.wait(deadline, if shortfall.is_none() { REST } else { TICK });
        }
    }
}

/// How much of the goal is due at this age.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of the goal, and no larger than it"
)]
fn due(goal: u64, age: Duration, ramp: Duration) -> u64 {
    // From the first moment on a little: so that an injection has an effect to report.
    let share = (age + TICK).as_secs_f64() / ramp.as_secs_f64();
    if age >= ramp { goal } else { ((goal as f64 * share.min(1.0)) as u64).clamp(1.min(goal), goal) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_is_climbed_evenly_and_never_beyond_the_top() {
        let ramp = Duration::from_secs(10);
        assert_eq!(due(1000, Duration::ZERO, Duration::ZERO), 1000);
        assert_eq!(due(1000, Duration::ZERO, ramp), 5);
        assert_eq!(due(1000, Duration::from_secs(5), ramp), 505);
        assert_eq!(due(1000, Duration::from_secs(11), ramp), 1000);
        assert_eq!(due(1, Duration::ZERO, ramp), 1);
    }
}
