//! Idempotency keys: of the calls of one caller with the same key only the first begins something, and all are answered with that.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::{Owner, SpecError};

/// How long a key is known, from the first call on.
pub const KNOWN: Duration = Duration::from_secs(3600);
/// The most keys of one caller that are known at a time, of each kind of call.
pub const MOST_KEYS: usize = 256;
/// The most characters of a key.
pub const LONGEST_KEY: usize = 128;

/// What a caller calls something that it wants to begin once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// One of 1 to [`LONGEST_KEY`] visible characters of ASCII.
    ///
    /// # Errors
    /// When it is something else.
    pub fn new(key: String) -> Result<Self, SpecError> {
        match (1..=LONGEST_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(key)),
            false => {
                let problem =
                    format!("1 to {LONGEST_KEY} visible characters of ASCII without blanks are needed here");
                Err(SpecError::new("idempotency_key", problem))
            }
        }
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// What has come of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun<T> {
    /// What was begun.
    pub what: T,
    /// How long ago, if an earlier call has begun it, and this one nothing.
    pub repeated: Option<Duration>,
}

type AllKnown<T> = BTreeMap<(Owner, IdempotencyKey), Arc<Known<T>>>;

/// The keys by which something was begun, in memory: they go with the server. Clones share them.
#[derive(Debug)]
pub struct Keys<T> {
    known: Arc<Mutex<AllKnown<T>>>,
}

impl<T> Clone for Keys<T> {
    fn clone(&self) -> Self {
        Self { known: Arc::clone(&self.known) }
    }
}

impl<T> Default for Keys<T> {
    fn default() -> Self {
        Self { known: Arc::default() }
    }
}

#[derive(Debug)]
struct Known<T> {
    /// What was asked for, in words.
    asked: String,
    since: Instant,
    /// Empty while the first call goes on, or when it has begun nothing.
    begun: OnceCell<T>,
}

impl<T: Clone> Keys<T> {
    /// Begins what is `asked` for, in words, unless it was begun by this key: then that is what comes back, also to who asks while it
    /// is being begun. A call that begins nothing leaves its key unused.
    ///
    /// # Errors
    /// [`ErrorCode::IdempotencyKeyReused`] when something else was asked for with this key, [`ErrorCode::LimitReached`] when the
    /// caller has too many, and as `begin` does. Nothing was begun then.
    pub async fn once(
        &self,
        caller: Caller,
        key: &IdempotencyKey,
        asked: String,
        begin: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<Begun<T>, ApiError> {
        let known = self.known(caller, key, asked)?;
        let mut is_first = false;
        let first = &mut is_first;
        let begin = move || async move {
            *first = true;
            begin.await
        };
        let what = known.begun.get_or_try_init(begin).await?.clone();
        Ok(Begun { what, repeated: (!is_first).then(|| known.since.elapsed()) })
    }

    fn known(&self, caller: Caller, key: &IdempotencyKey, asked: String) -> Result<Arc<Known<T>>, ApiError> {
        let owner = caller.owner();
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Clones are made under this lock alone: who has the only one is asked for by nobody.
        all.retain(|_, known| {
            let in_use = Arc::strong_count(known) > 1;
            in_use || (known.begun.initialized() && known.since.elapsed() < KNOWN)
        });
        if let Some(known) = all.get(&(owner, key.clone())) {
            if known.asked != asked {
                let (ago, first) = (known.since.elapsed().as_secs(), &known.asked);
                let text =
                    format!("idempotency_key: {key} was given {ago} s ago for {first}, and now for {asked}");
                return Err(ApiError::new(ErrorCode::IdempotencyKeyReused, text)
                    .hint("give whatever is to be begun a key of its own"));
            }
            return Ok(Arc::clone(known));
        }
        if all.keys().filter(|(other, _)| *other == owner).count() >= MOST_KEYS {
            let text =
                format!("idempotency_key: {MOST_KEYS} keys of the last hour are known, the most at once");
            return Err(ApiError::new(ErrorCode::LimitReached, text).hint("leave it out, or wait"));
        }
        let known = Arc::new(Known { asked, since: Instant::now(), begun: OnceCell::new() });
        all.insert((owner, key.clone()), Arc::clone(&known));
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const ONE: Caller = Caller::Unix { uid: 1000, gid: 1000, pid: 71 };

    fn key(text: &str) -> IdempotencyKey {
        IdempotencyKey::new(text.to_owned()).unwrap()
    }

    async fn once(keys: &Keys<u32>, caller: Caller, name: &str, what: u32) -> (u32, bool) {
        let begun = keys.once(caller, &key(name), "a".into(), ready(Ok(what))).await.unwrap();
        (begun.what, begun.repeated.is_some())
    }

    #[test]
    fn a_key_is_bounded_in_length_and_characters() {
        let long = "k".repeat(LONGEST_KEY + 1);
        for bad in ["", " ", "a b", "a\n", "é", long.as_str()] {
            assert!(IdempotencyKey::new(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert!(IdempotencyKey::new(long[1..].to_owned()).is_ok());
    }

    #[tokio::test]
    async fn a_key_is_of_a_user_whatever_process_of_theirs_calls() {
        let keys = Keys::default();
        assert_eq!(once(&keys, ONE, "k", 1).await, (1, false));
        assert_eq!(once(&keys, Caller::Unix { uid: 1000, gid: 0, pid: 72 }, "k", 2).await, (1, true));
        assert_eq!(once(&keys, Caller::Unix { uid: 1001, gid: 1000, pid: 71 }, "k", 3).await, (3, false));
        assert_eq!(once(&keys, Caller::Vsock { cid: 1000 }, "k", 4).await, (4, false));
        assert_eq!(once(&keys, ONE, "other", 5).await, (5, false));
    }

    #[tokio::test]
    async fn a_call_that_begins_nothing_leaves_its_key_unused() {
        let keys = Keys::default();
        let refused = || ready(Err(ApiError::new(ErrorCode::LimitReached, "busy")));
        let error = keys.once(ONE, &key("k"), "a".into(), refused()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::LimitReached);
        // For something else, too.
        assert!(keys.once(ONE, &key("k"), "b".into(), refused()).await.is_err());
        assert_eq!(once(&keys, ONE, "k", 1).await, (1, false));
        let error = keys.once(ONE, &key("k"), "b".into(), ready(Ok(2))).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::IdempotencyKeyReused);
        assert!(error.message.contains("for a, and now for b"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_while_it_is_being_begun_waits_and_begins_in_its_place_if_it_is_not() {
        let keys = Keys::default();
        let (answer, answered) = tokio::sync::oneshot::channel();
        let same = key("k");
        let first = keys.once(ONE, &same, "a".into(), async { answered.await.unwrap() });
        let others = async {
            let other = once(&keys, ONE, "k", 2);
            tokio::pin!(other);
            assert!(tokio::time::timeout(Duration::from_secs(1), &mut other).await.is_err(), "too soon");
            let reused = keys.once(ONE, &same, "b".into(), pending()).await.unwrap_err();
            assert_eq!(reused.code, ErrorCode::IdempotencyKeyReused);
            answer.send(Err(ApiError::new(ErrorCode::Unavailable, "gone"))).unwrap();
            other.await
        };
        let (first, other) = tokio::join!(first, others);
        assert!(first.is_err());
        assert_eq!(other, (2, false));
        assert_eq!(once(&keys, ONE, "k", 3).await, (2, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_forgotten_after_its_time_and_of_one_caller_so_many_are_known() {
        let keys = Keys::default();
        for number in 0..MOST_KEYS {
            assert_eq!(once(&keys, ONE, &format!("k{number}"), 1).await, (1, false));
        }
        let error = keys.once(ONE, &key("more"), "a".into(), ready(Ok(2))).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::LimitReached);
        assert_eq!(once(&keys, ONE, "k0", 2).await, (1, true));
        assert_eq!(once(&keys, Caller::Vsock { cid: 3 }, "more", 2).await, (2, false));
        tokio::time::advance(KNOWN - Duration::from_secs(1)).await;
        assert_eq!(once(&keys, ONE, "k0", 2).await, (1, true));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(once(&keys, ONE, "k0", 2).await, (2, false));
        assert_eq!(once(&keys, ONE, "more", 3).await, (3, false));
    }
}
