//! Sending signals to processes, in volleys, and watching what comes of it: when they have ended, and when somebody has come in
//! their place.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use caps::Capability;

use super::arm::{Arm, ArmError, Armed, Means};
use super::pauser::vary;
use crate::fault::SignalWork;
use crate::host::deaf::deaf;
use crate::host::privilege::SIGNALLER;
use crate::host::process::numbers;
use crate::host::{Aim, ProcessId, Running, boot_time_ns};
use crate::kernel::process::Process;
use crate::request::Evidence;
use crate::request::evidence::{Recovery, Seconds, Signals};
use crate::target::process::{Matcher, choose, mark_ways_in};

/// How often it is looked who has ended and who is new.
const LOOK: Duration = Duration::from_millis(20);
/// The same once nobody new has come for a while.
const RARE_LOOK: Duration = Duration::from_millis(250);
/// How long a supervisor may take before its absence is told: most wait 0.1 to 3 s.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the first look may take: most signals have done their work by then.
const FIRST_LOOK: Duration = Duration::from_millis(100);

impl Arm for SignalWork {
    fn needed(&self) -> &'static [Capability] {
        SIGNALLER
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        Ok(Box::new(Signaller::start(self, means.deadline_ns).map_err(ArmError::Signals)?))
    }
}

impl Armed for Signaller {
    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        self.set_deadline(deadline_ns);
        Ok(())
    }

    /// What has come of it so far.
    fn evidence(&self) -> Result<Evidence, ArmError> {
        Ok(Evidence::Signals(*self.shared.tally()))
    }
}

/// Volleys of signals, until the last one, or until the value is dropped.
#[derive(Debug)]
struct Signaller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Boot-time nanoseconds after which no signal is sent; 0 is the order to end.
    deadline: AtomicU64,
    tally: Mutex<Signals>,
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Signals> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self) -> bool {
        self.deadline.load(Ordering::Acquire) == 0
    }
}

impl Signaller {
    /// Sends the first volley, and goes on by itself.
    ///
    /// # Errors
    /// When none of the processes is there any more, or the kernel refuses them all.
    fn start(work: &SignalWork, deadline_ns: u64) -> io::Result<Self> {
        let deadline = AtomicU64::new(deadline_ns);
        let shared = Arc::new(Shared { deadline, tally: Mutex::default() });
        let volley = Volley::fire(work, &work.targets, &shared)?;
        let (work, of_thread) = (work.clone(), Arc::clone(&shared));
        let thread =
            thread::Builder::new().name("signal".into()).spawn(move || go_on(&work, &of_thread, volley))?;
        let signaller = Self { shared, thread: Some(thread) };
        signaller.first_look();
        Ok(signaller)
    }

    /// Waits for the first effect, so that what is reported next is one, if there is one soon.
    fn first_look(&self) {
        let until = Instant::now() + FIRST_LOOK;
        while self.shared.tally().recovery.gone_after_seconds.is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Goes on until `deadline_ns`; 0 ends it.
    fn set_deadline(&self, deadline_ns: u64) {
        self.shared.deadline.store(deadline_ns, Ordering::Release);
        if deadline_ns == 0 {
            self.thread.as_ref().map(JoinHandle::thread).map(Thread::unpark);
        }
    }
}

impl Drop for Signaller {
    fn drop(&mut self) {
        self.set_deadline(0);
        if let Some(thread) = self.thread.take() {
            // One that has panicked sends nothing any more, which is all that is wanted here.
            drop(thread.join());
        }
    }
}

/// Watches the first volley, fires the others, watches the last until the end.
fn go_on(work: &SignalWork, shared: &Shared, mut volley: Volley) {
    for _ in 1..work.volleys.times {
        let due = Instant::now() + vary(work.volleys.interval, work.volleys.jitter);
        if !volley.watch(work, shared, Some(due)) {
            return;
        }
        match Volley::fire(work, &meant(work), shared) {
            Ok(next) => volley = next,
            Err(error) => tracing::info!(%error, "nobody was hit this time"),
        }
    }
    volley.watch(work, shared, None);
}

/// Who is meant by another volley than the first. The selector means the service, not the processes that it had: those that match
/// now. A number means one process and nobody who has it afterwards. When nobody is meant, or nobody may be hit, a volley is spent.
fn meant(work: &SignalWork) -> Vec<ProcessId> {
    let Ok(all) = Running::all() else { return Vec::new() };
    let matcher = Matcher::of_programs(&work.selector, work.programs.clone(), &work.spared);
    let selected = matcher.and_then(|matcher| {
        let mut matching = matcher.matching(all)?;
        mark_ways_in(&mut matching)?;
        choose(&work.selector, matching, &work.spared)
    });
    let mut ids = selected.map(|selection| selection.ids()).unwrap_or_default();
    if work.selector.pid.is_some() {
        ids.retain(|id| work.targets.contains(id));
    }
    ids
}

/// One volley: whom it has hit, and who was there before.
#[derive(Debug)]
struct Volley {
    fired: Instant,
    /// Those that were hit and have not ended.
    hit: Vec<Process>,
    /// Everybody who was there, by number; taken out when the number is free again.
    before: BTreeSet<i32>,
    /// When the next look for somebody new is due.
    look: Instant,
}

impl Volley {
    fn fire(work: &SignalWork, targets: &[ProcessId], shared: &Shared) -> io::Result<Self> {
        let open: Vec<_> = targets.iter().filter_map(|id| Some((*id, id.open().ok().flatten()?))).collect();
        let before = numbers()?.into_iter().collect();
        let (mut hit, mut taken, mut refused) = (Vec::new(), 0, None);
        let fired = Instant::now();
        for (id, process) in open {
            // Asked each time: whoever stood still between two signals may find the lease over.
            if boot_time_ns() >= shared.deadline.load(Ordering::Acquire) {
                break;
            }
            // Asked before: it may have ended afterwards.
            let takes = deaf(id, work.volleys.signal).is_none();
            match process.signal(work.volleys.signal) {
                Ok(()) => {
                    taken += u64::from(takes);
                    hit.push(process);
                }
                Err(error) => refused = Some(error),
            }
        }
        if hit.is_empty() {
            return Err(
                refused.unwrap_or_else(|| io::Error::other("no process that is meant is there any more"))
            );
        }
        let mut tally = shared.tally();
        tally.signals_sent += taken;
        let processes_ended = tally.recovery.processes_ended;
        tally.recovery = Recovery { processes_ended, ..Recovery::default() };
        Ok(Self { fired, hit, before, look: fired })
    }

    /// Watches until `due`; false when the fault is over.
    fn watch(&mut self, work: &SignalWork, shared: &Shared, due: Option<Instant>) -> bool {
        loop {
            if shared.over() {
                return false;
            }
            let leased = boot_time_ns() < shared.deadline.load(Ordering::Acquire);
            if leased && due.is_some_and(|due| Instant::now() >= due) {
                return true;
            }
            self.see_ends(shared);
            self.see_new(work, shared);
            let rest = due.and_then(|due| due.checked_duration_since(Instant::now()));
            thread::park_timeout(rest.map_or(LOOK, |rest| rest.min(LOOK)));
        }
    }

    fn see_ends(&mut self, shared: &Shared) {
        let waiting = self.hit.len();
        self.hit.retain(|process| !process.wait(Duration::ZERO).unwrap_or(false));
        let ended = waiting - self.hit.len();
        if ended > 0 {
            let mut tally = shared.tally();
            tally.recovery.processes_ended += ended as u64;
            tally.recovery.gone_after_seconds = self.hit.is_empty().then(|| Seconds(self.fired.elapsed()));
        }
    }

    /// Looks for a process that matches and was not there before. A number selects nobody else ever.
    fn see_new(&mut self, work: &SignalWork, shared: &Shared) {
        let Recovery { processes_ended: ended, back_after_seconds: back_after, .. } = shared.tally().recovery;
        let now = Instant::now();
        if work.selector.pid.is_some() || ended == 0 || back_after.is_some() || now < self.look {
            return;
        }
        let late = self.fired.elapsed() > PATIENCE;
        self.look = now + if late { RARE_LOOK } else { LOOK };
        if self.finds_new(work) {
            let mut tally = shared.tally();
            tally.recovery.back_after_seconds = Some(Seconds(self.fired.elapsed()));
            tally.recovery.nobody_came_back = false;
        } else if late && self.hit.is_empty() {
            shared.tally().recovery.nobody_came_back = true;
        }
    }

    fn finds_new(&mut self, work: &SignalWork) -> bool {
        let Ok(there) = numbers() else { return false };
        let there: BTreeSet<i32> = there.into_iter().collect();
        self.before.retain(|pid| there.contains(pid));
        // One that does not match may do so when it has become another program.
        let new: BTreeSet<i32> = there.difference(&self.before).copied().collect();
        if new.is_empty() {
            return false;
        }
        // While a service starts, its control group may not be there yet.
        let Ok(matcher) = Matcher::of_programs(&work.selector, work.programs.clone(), &work.spared) else {
            return false;
        };
        let above = Running::with_those_above(new.iter().copied());
        let Ok(matching) = matcher.matching(above) else { return false };
        let is_met = |process: &Running| process.protected(Aim::AtPlace, &work.spared).is_none();
        matching.iter().any(|process| new.contains(&process.id.pid) && is_met(process))
    }
}
