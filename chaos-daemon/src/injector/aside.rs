//! What callers ask for and may block for long, on threads of its own. Nobody gets more places at once than others do, whoever asks
//! waits in a queue that has an end, and who injects comes before who only looks. Tokio's pool is left to what undoes: however many
//! ask, and whatever of it hangs, undoing finds a thread.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::libc;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::host::budget::Budget;
use crate::request::{ApiError, Caller, ErrorCode};

/// How long whoever asks waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many looks of one party may wait for their turn.
const MOST_LOOKS: usize = 16;
/// How many injections: as many faults as can be active at once.
const MOST_INJECTIONS: usize = 64;
/// How long whoever finds the queue full waits for being refused: who asks without end is not to keep the loop busy with refusals.
const REFUSAL: Duration = Duration::from_millis(500);
/// How much longer than its budget of processor time a look is waited for: on a busy host it gets a part of a processor only, and the
/// last of many things may have to end. After that it hangs, and whoever has waited for its turn meanwhile still gets it.
const GRACE: Duration = Duration::from_secs(20);
/// By how much whoever only looks gives way to the loop and to faults (setpriority(2)).
const NICE: libc::c_int = 10;

/// Who asks, as far as places are shared: every process of a user is the same party.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    /// This user.
    User(u32),
    /// The far side of a vsock.
    Context(u32),
    /// A fault that is active.
    Fault,
}

impl From<Caller> for Party {
    fn from(caller: Caller) -> Self {
        match caller {
            Caller::Unix { uid, .. } => Self::User(uid),
            Caller::Vsock { cid } => Self::Context(cid),
        }
    }
}

/// What it is for. The first comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// A fault is to be injected.
    Injection,
    /// Nothing is to be changed.
    Look,
}

impl Purpose {
    /// How many of one party may wait.
    fn most_waiting(self) -> usize {
        match self {
            Self::Injection => MOST_INJECTIONS,
            Self::Look => MOST_LOOKS,
        }
    }
}

/// Places for one kind of work.
#[derive(Debug)]
pub(super) struct Places {
    /// How many there are.
    all: usize,
    /// How many of them one party may have at once.
    each: usize,
    /// How many of them are for injections alone.
    kept: usize,
    /// How much of a processor one turn may take; without it, as much as it does.
    longest: Option<Duration>,
    /// What is done there, in the plural.
    what: &'static str,
    desk: Mutex<Desk>,
}

/// Who has a place, and who waits for one.
#[derive(Debug)]
struct Desk {
    taken: usize,
    parties: BTreeMap<Party, Standing>,
    waiting: Vec<Waiter>,
    /// How many have asked and been served: a clock.
    ticks: u64,
}

/// Of one party.
#[derive(Debug, Default)]
struct Standing {
    /// Places that it has, those of what hangs as well.
    busy: usize,
    /// When it was served last.
    served: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    party: Party,
    purpose: Purpose,
    turn: oneshot::Sender<Turn>,
}

impl Desk {
    /// Nobody is there.
    const fn empty() -> Self {
        Self { taken: 0, parties: BTreeMap::new(), waiting: Vec::new(), ticks: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    fn standing(&self, party: Party) -> (usize, u64) {
        self.parties.get(&party).map_or((0, 0), |standing| (standing.busy, standing.served))
    }

    /// Takes out the next whose turn it is, with a place: injections first, then the party that was served longest ago, then who has
    /// waited longest.
    fn next(&mut self, places: &Places) -> Option<Waiter> {
        let may = |waiter: &Waiter| {
            let kept = if waiter.purpose == Purpose::Injection { 0 } else { places.kept };
            self.taken + kept < places.all && self.standing(waiter.party).0 < places.each
        };
        let numbered = self.waiting.iter().enumerate().filter(|(_, waiter)| may(waiter));
        let key = |waiter: &Waiter| (waiter.purpose, self.standing(waiter.party).1, waiter.number);
        let (index, _) = numbered.min_by_key(|(_, waiter)| key(waiter))?;
        let waiter = self.waiting.remove(index);
        self.taken += 1;
        let served = self.tick();
        let standing = self.parties.entry(waiter.party).or_default();
        *standing = Standing { busy: standing.busy + 1, served };
        Some(waiter)
    }

    /// Forgets a party that neither has a place nor waits.
    fn forget(&mut self, party: Party) {
        let waits = self.waiting.iter().any(|waiter| waiter.party == party);
        if !waits && self.standing(party).0 == 0 {
            self.parties.remove(&party);
        }
    }
}

impl Places {
    /// So many of them, of which one party has `each` at most; and how long one turn may take.
    pub(super) const fn new(all: usize, each: usize, longest: Option<Duration>, what: &'static str) -> Self {
        Self { all, each, kept: 0, longest, what, desk: Mutex::new(Desk::empty()) }
    }

    /// The same, with so many of them for injections alone.
    pub(super) const fn keeping(mut self, kept: usize) -> Self {
        self.kept = kept;
        self
    }

    /// Looks when it is its turn. What hangs keeps its place, whether or not somebody still waits for it.
    ///
    /// # Errors
    /// Those of `look`; when its turn does not come, it takes too long, or it breaks.
    pub(super) async fn look<T: Send + 'static>(
        &'static self,
        party: Party,
        look: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.turn(party, Purpose::Look).await?.run(look).await
    }

    /// Waits for a place. Who gives up waiting leaves the queue.
    ///
    /// # Errors
    /// When too many of this party wait already, or its turn does not come.
    pub(super) async fn turn(&'static self, party: Party, purpose: Purpose) -> Result<Turn, ApiError> {
        let queued = self.queue(party, purpose);
        if queued.is_err() {
            sleep(REFUSAL).await;
        }
        let (number, turn) = queued?;
        let _leave = Leave { places: self, number };
        self.serve();
        match timeout(PATIENCE, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(self.refused(&format!("it was not its turn within {PATIENCE:?}"))),
        }
    }

    fn refused(&self, why: &str) -> ApiError {
        let text = format!("too many {}: {why}", self.what);
        ApiError::new(ErrorCode::LimitReached, text)
            .hint("ask less often, or wait for the answers to those before")
    }

    fn queue(
        &'static self,
        party: Party,
        purpose: Purpose,
    ) -> Result<(u64, oneshot::Receiver<Turn>), ApiError> {
        let mut desk = self.desk();
        let same = |waiter: &&Waiter| (waiter.party, waiter.purpose) == (party, purpose);
        let most = purpose.most_waiting();
        if desk.waiting.iter().filter(same).count() >= most {
            return Err(self.refused(&format!("{most} of the same user wait already")));
        }
        let (turn, comes) = oneshot::channel();
        let number = desk.tick();
        desk.waiting.push(Waiter { number, party, purpose, turn });
        Ok((number, comes))
    }

    /// Gives away what is free.
    fn serve(&'static self) {
        loop {
            let next = self.desk().next(self);
            let Some(Waiter { party, turn, .. }) = next else { return };
            // The place of one who has left meanwhile is free again at once.
            drop(turn.send(Turn::new(self, party)));
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes who has left out of the queue.
struct Leave {
    places: &'static Places,
    number: u64,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut desk = self.places.desk();
        if let Some(index) = desk.waiting.iter().position(|waiter| waiter.number == self.number) {
            let Waiter { party, .. } = desk.waiting.remove(index);
            desk.forget(party);
        }
    }
}

/// A place, until the last clone is dropped. Clones are of one turn.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    held: Arc<Held>,
    longest: Option<Duration>,
    budget: Budget,
}

#[derive(Debug)]
struct Held {
    places: &'static Places,
    party: Party,
    /// Whether it hangs, and others have its place.
    hangs: AtomicBool,
}

impl Turn {
    fn new(places: &'static Places, party: Party) -> Self {
        let held = Arc::new(Held { places, party, hangs: AtomicBool::new(false) });
        Self { held, longest: places.longest, budget: Budget::new(places.longest) }
    }

    /// The same turn with another budget, from now on.
    #[must_use]
    pub(super) fn of(self, longest: Duration) -> Self {
        Self { longest: Some(longest), budget: Budget::new(Some(longest)), ..self }
    }

    /// Looks on a thread of its own, which gives way to the loop. When nobody waits for it any more, it stops where it next asks.
    ///
    /// # Errors
    /// Those of `look`; when it takes too long, or breaks.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.on_thread(give_way, look).await
    }

    /// The same, as urgently as the loop itself.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(super) async fn run_soon<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.on_thread(|| (), look).await
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        begin: fn(),
        look: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.clone();
        let mut unwanted = GiveUp(Some(&self.budget));
        let what = self.held.places.what;
        let done = on_a_thread(move || {
            begin();
            let done = turn.budget.within(look);
            drop(turn);
            done
        });
        let broken = |error: io::Error| {
            ApiError::new(ErrorCode::Unavailable, format!("one of the {what} broke: {error}"))
        };
        let longest = self.longest.map_or(Duration::MAX, |longest| longest.saturating_add(GRACE));
        match timeout(longest, done).await {
            Ok(done) => {
                unwanted.0 = None;
                done.map_err(broken)?
            }
            Err(_) => {
                self.held.hang();
                let text =
                    format!("one of the {what} has not ended within {longest:?}: it hangs in the kernel");
                Err(ApiError::new(ErrorCode::Unavailable, text).hint(
                    "see whether a file system, a process or the network stack of this host does not answer",
                ))
            }
        }
    }
}

/// Has a look stop that nobody waits for any more.
struct GiveUp<'a>(Option<&'a Budget>);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if let Some(budget) = self.0 {
            budget.give_up();
        }
    }
}

impl Held {
    /// Gives its place to others: what hangs counts against whoever has asked for it, and keeps nobody else waiting.
    fn hang(&self) {
        if !self.hangs.swap(true, Ordering::Relaxed) {
            self.places.desk().taken -= 1;
            self.places.serve();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut desk = self.places.desk();
        if !self.hangs.load(Ordering::Relaxed) {
            desk.taken -= 1;
        }
        if let Some(standing) = desk.parties.get_mut(&self.party) {
            standing.busy -= 1;
        }
        desk.forget(self.party);
        drop(desk);
        self.places.serve();
    }
}

/// Has the calling thread give way to the loop. Where that is refused it goes on as it is.
fn give_way() {
    // SAFETY: it takes no memory; 0 is the calling thread on Linux (setpriority(2), "C library/kernel differences").
    let _refused = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Does it on a thread of its own, which nobody waits for but who wants what it returns: it may take longer than the daemon does
/// to end.
///
/// # Errors
/// When there is no thread to be had, or it panics.
pub(super) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        // Nobody who waits any more is fine.
        let _ = tell.send(work());
    };
    thread::Builder::new().name("aside".to_owned()).spawn(work)?;
    told.await.map_err(io::Error::other)
}

#[cfg(test)]
#[path = "aside_tests.rs"]
mod tests;
