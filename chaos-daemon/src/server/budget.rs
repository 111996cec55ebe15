//! What the server holds on behalf of its callers: requests that are under way, and replies that wait to be written.
//!
//! All connections share one number of bytes. Who finds it used up is not read from until something is given back, so that a
//! caller who sends much, asks for much or reads nothing waits for itself. A connection with nothing under way is always read,
//! for one short message: so nobody's `chaos_stop` waits for what others hold.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The most bytes that all connections hold, but for [`ALWAYS`] of each.
pub const MOST_HELD: usize = 96 << 20;
/// The most bytes that one connection holds, unless it is for one message alone.
pub const MOST_OF_ONE: usize = 16 << 20;
/// The most messages of one connection under way.
pub const MOST_MESSAGES: usize = 64;
/// What a connection with nothing under way may always hold.
pub const ALWAYS: usize = 3 << 20;

/// How often is looked whether memory can be given back to the kernel.
const GIVING_BACK: Duration = Duration::from_secs(1);
/// From how many bytes on that is worth a walk through the heap.
const WORTH_IT: usize = 4 << 20;

/// The bytes of all connections. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Budget(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whose turn it is to have the one thread that serves everybody for long.
    turn: tokio::sync::Mutex<()>,
    held: AtomicUsize,
    /// The most that was held since memory was given back.
    peak: AtomicUsize,
    eased: Notify,
}

impl Budget {
    /// How many bytes are held now.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Acquire)
    }

    /// The part of a connection that begins now.
    pub fn tally(&self) -> Arc<Tally> {
        let counts = Counts { messages: 0, bytes: 0, said: Instant::now() };
        let (budget, left, leave) = (self.clone(), AtomicBool::default(), Notify::default());
        Arc::new(Tally { budget, counts: Mutex::new(counts), left, leave })
    }

    /// Gives what was freed back to the kernel whenever much less is held than was: the allocator would keep it.
    pub async fn give_back(&self) -> Infallible {
        loop {
            tokio::time::sleep(GIVING_BACK).await;
            let held = self.held();
            let peak = self.0.peak.load(Ordering::Acquire);
            if peak >= WORTH_IT && held <= peak / 2 {
                self.0.peak.store(held, Ordering::Release);
                trim();
            }
        }
    }
}

/// Has the allocator take few arenas, and give large blocks back at once. Call it before there is a second thread.
pub fn frugal() {
    // SAFETY: mallopt(3) only sets parameters of the allocator; nobody allocates meanwhile, since there is one thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        use nix::libc;
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
    }
}

fn trim() {
    // SAFETY: malloc_trim(3) may be called at any time, from any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// What one connection holds, when it last said something, and whether it has to end.
#[derive(Debug)]
pub struct Tally {
    budget: Budget,
    counts: Mutex<Counts>,
    left: AtomicBool,
    leave: Notify,
}

#[derive(Debug)]
struct Counts {
    messages: usize,
    bytes: usize,
    said: Instant,
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Messages under way, and bytes held.
    pub fn held(&self) -> (usize, usize) {
        let counts = self.lock();
        (counts.messages, counts.bytes)
    }

    /// For how long nothing was said, with nothing under way; zero while something is.
    pub fn idle(&self) -> Duration {
        let counts = self.lock();
        if counts.messages > 0 { Duration::ZERO } else { counts.said.elapsed() }
    }

    /// Takes one more message in, which is held as so many bytes, as soon as there is room for it.
    pub async fn take(self: &Arc<Self>, bytes: usize) -> Held {
        self.until(|counts, held| {
            let alone = counts.messages == 0;
            let own = alone || (counts.messages < MOST_MESSAGES && counts.bytes + bytes <= MOST_OF_ONE);
            own && ((alone && counts.bytes + bytes <= ALWAYS) || held + bytes <= MOST_HELD)
        })
        .await;
        self.hold(bytes)
    }

    /// Waits for the turn to have the thread for long; between two turns others have it.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        let turn = self.budget.0.turn.lock().await;
        tokio::task::yield_now().await;
        turn
    }

    /// Returns once there is room for one more message, however small.
    pub async fn room(&self) {
        self.until(|counts, _| counts.messages < MOST_MESSAGES).await;
    }

    async fn until(&self, fits: impl Fn(&Counts, usize) -> bool) {
        loop {
            let eased = self.budget.0.eased.notified();
            tokio::pin!(eased);
            // From here on nothing that is given back is missed.
            eased.as_mut().enable();
            if fits(&self.lock(), self.budget.held()) {
                return;
            }
            eased.await;
        }
    }

    /// Takes one more message in, whether there is room for it or not.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        let mut counts = self.lock();
        counts.messages += 1;
        counts.said = Instant::now();
        drop(counts);
        let mut held = Held { tally: Arc::clone(self), bytes: 0, messages: 1 };
        held.resize(bytes);
        held
    }

    /// Ends the connection: what is on its way is still written.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
        self.leave.notify_waiters();
    }

    /// Returns once the connection has to end.
    pub async fn left(&self) {
        let leave = self.leave.notified();
        tokio::pin!(leave);
        leave.as_mut().enable();
        if !self.left.load(Ordering::Acquire) {
            leave.await;
        }
    }
}

/// A message that is held, or the memory of one. Dropping it gives its bytes back.
#[derive(Debug)]
pub struct Held {
    tally: Arc<Tally>,
    bytes: usize,
    messages: usize,
}

impl Held {
    /// Takes so many of its bytes apart, which are given back by themselves.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { tally: Arc::clone(&self.tally), bytes, messages: 0 }
    }

    /// It is held as so many bytes from now on.
    pub fn resize(&mut self, bytes: usize) {
        let shared = &self.tally.budget.0;
        let mut counts = self.tally.lock();
        counts.bytes = (counts.bytes + bytes).saturating_sub(self.bytes);
        if bytes >= self.bytes {
            let more = bytes - self.bytes;
            let held = shared.held.fetch_add(more, Ordering::AcqRel) + more;
            shared.peak.fetch_max(held, Ordering::AcqRel);
        } else {
            shared.held.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
        }
        drop(counts);
        let eases = bytes < self.bytes;
        self.bytes = bytes;
        if eases {
            shared.eased.notify_waiters();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.resize(0);
        self.tally.lock().messages -= self.messages;
        self.tally.budget.0.eased.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a message of so many bytes is taken in at once.
    async fn fits(tally: &Arc<Tally>, bytes: usize) -> Option<Held> {
        tokio::time::timeout(Duration::from_millis(1), tally.take(bytes)).await.ok()
    }

    #[tokio::test]
    async fn what_is_held_stays_below_the_bounds_and_is_given_back() {
        // Of one connection: what each message is held as, and how many fit.
        for (bytes, most) in [(0, MOST_MESSAGES), (1 << 20, 16), (5 << 20, 3), (40 << 20, 1)] {
            let budget = Budget::default();
            let tally = budget.tally();
            let mut all = Vec::new();
            while let Some(held) = fits(&tally, bytes).await {
                all.push(held);
            }
            assert_eq!(all.len(), most, "{bytes}");
            assert_eq!((tally.held(), budget.held()), ((most, most * bytes), most * bytes));
            all.pop();
            assert!(fits(&tally, bytes).await.is_some(), "{bytes}");
            drop(all);
            assert_eq!((tally.held(), budget.held()), ((0, 0), 0));
        }
    }

    #[tokio::test]
    async fn where_all_is_used_up_a_connection_with_nothing_under_way_is_read_all_the_same() {
        let budget = Budget::default();
        let greedy: Vec<_> = (0..16).map(|_| budget.tally()).collect();
        let mut all = Vec::new();
        for tally in &greedy {
            while let Some(held) = fits(tally, 1 << 20).await {
                all.push(held);
            }
        }
        assert!(budget.held() <= MOST_HELD + greedy.len() * ALWAYS, "{}", budget.held());
        let modest = budget.tally();
        let one = fits(&modest, ALWAYS).await.unwrap();
        assert!(fits(&modest, 1 << 20).await.is_none());
        assert!(fits(&budget.tally(), ALWAYS + 1).await.is_none());
        drop((all, one));
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn who_waits_for_room_gets_it_as_soon_as_there_is_some() {
        let budget = Budget::default();
        let tally = budget.tally();
        let first = tally.take(MOST_OF_ONE).await;
        let mut first = first;
        let reply = first.split(1 << 20);
        let waiting = tokio::spawn({
            let tally = Arc::clone(&tally);
            async move { tally.take(8 << 20).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        let second = waiting.await.unwrap();
        assert_eq!(tally.held(), (1, 9 << 20));
        drop((reply, second));
        assert_eq!(tally.held(), (0, 0));
    }
}
