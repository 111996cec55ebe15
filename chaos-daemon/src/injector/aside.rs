//! What callers ask for and may block for long: on threads of its own, so many at a time and no more, whoever asks. Those of
//! tokio's pool are left to what undoes: however many ask, and whatever of it hangs, undoing finds one.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::request::{ApiError, ErrorCode};

/// How long whoever asks waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// Places for one kind of work.
#[derive(Debug)]
pub(super) struct Places {
    free: Semaphore,
    /// What is done there, in the plural.
    what: &'static str,
}

impl Places {
    /// So many of them.
    pub(super) const fn new(most: usize, what: &'static str) -> Self {
        Self { free: Semaphore::const_new(most), what }
    }

    /// Does it when it is its turn. What hangs keeps its place, whether or not somebody still waits for it.
    ///
    /// # Errors
    /// When its turn does not come, or it breaks.
    pub(super) async fn run<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let Ok(Ok(place)) = timeout(PATIENCE, self.free.acquire()).await else {
            let text = format!("too many {}: it was not its turn within {PATIENCE:?}", self.what);
            return Err(ApiError::new(ErrorCode::LimitReached, text).hint("ask less often"));
        };
        let done = on_a_thread(move || {
            let done = work();
            drop(place);
            done
        });
        done.await.map_err(|error| {
            ApiError::new(ErrorCode::Unavailable, format!("one of the {} broke: {error}", self.what))
        })
    }
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
mod tests {
    use std::sync::mpsc;

    use tokio::task::spawn_blocking;

    use super::*;
    use crate::waits::HANG;

    #[tokio::test(start_paused = true)]
    async fn however_many_ask_no_more_is_done_at_a_time_than_there_are_places_for() {
        static PLACES: Places = Places::new(1, "questions");
        let (begins, began) = oneshot::channel();
        let (go, wait) = mpsc::channel::<()>();
        let first = tokio::spawn(PLACES.run(move || {
            begins.send(()).unwrap();
            wait.recv().is_ok()
        }));
        began.await.unwrap();
        for _ in 0..3 {
            let refused = PLACES.run(|| ()).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::LimitReached);
            assert!(refused.message.contains("too many questions"), "{refused}");
        }
        go.send(()).unwrap();
        assert!(first.await.unwrap().unwrap());
        PLACES.run(|| ()).await.unwrap();
    }

    #[tokio::test]
    async fn what_breaks_is_told_of_and_gives_its_place_back() {
        static PLACES: Places = Places::new(1, "questions");
        for _ in 0..2 {
            let broken = PLACES.run::<()>(|| panic!("for the test")).await;
            assert_eq!(broken.unwrap_err().code, ErrorCode::Unavailable);
        }
        PLACES.run(|| ()).await.unwrap();
    }

    #[test]
    fn what_hangs_takes_no_thread_from_undoing_and_the_end_does_not_wait_for_it() {
        static PLACES: Places = Places::new(2, "questions");
        let mut tokio = tokio::runtime::Builder::new_current_thread();
        let tokio = tokio.enable_all().max_blocking_threads(1).build().unwrap();
        let (go, wait) = mpsc::channel::<()>();
        tokio.block_on(async {
            let (begins, began) = oneshot::channel();
            tokio::spawn(PLACES.run(move || {
                begins.send(()).unwrap();
                // Until the test is over.
                wait.recv().is_ok()
            }));
            began.await.unwrap();
            timeout(HANG, spawn_blocking(|| ())).await.expect("no thread").unwrap();
        });
        drop(tokio);
        go.send(()).expect("it has been waited for");
    }
}
