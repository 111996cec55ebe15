//! Questions and answers between two processes of the daemon of which one asks the other only: frames as on the door (see
//! [`super::wire`]), each with a number, so that a slow answer keeps no other waiting. A process that has died may be followed by
//! another.

use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use super::wire::{FrameReader, frame, write_frames};

/// A question or an answer, with its number.
#[derive(Serialize, Deserialize)]
struct Numbered<T> {
    id: u64,
    what: T,
}

/// What is left of an answer that cannot be read.
#[derive(Deserialize)]
struct OnlyId {
    id: u64,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The other process has ended, or has said what is no answer at all.
    #[error("the process that was asked is gone; the daemon starts another")]
    Gone,
    /// The answer is none to such a question.
    #[error("the answer cannot be read: {0}")]
    Unread(String),
}

/// Who waits for an answer.
type Asker<A> = oneshot::Sender<Result<A, Unanswered>>;

/// Those who wait; `None` once the other process is gone.
type Waiting<A> = Mutex<Option<HashMap<u64, Asker<A>>>>;

/// The end of who asks questions `Q` that are answered by `A`. Clones ask the same process, also after it was followed by another.
#[derive(Debug)]
pub struct Line<Q, A> {
    next: Arc<AtomicU64>,
    to: Arc<Mutex<Connection<A>>>,
    /// No answer is longer, in bytes.
    longest: usize,
    asks: PhantomData<fn(Q)>,
}

impl<Q, A> Clone for Line<Q, A> {
    fn clone(&self) -> Self {
        let Self { next, to, longest, asks } = self;
        Self { next: Arc::clone(next), to: Arc::clone(to), longest: *longest, asks: *asks }
    }
}

/// The way to one process.
#[derive(Debug)]
struct Connection<A> {
    waiting: Arc<Waiting<A>>,
    frames: mpsc::UnboundedSender<Vec<u8>>,
}

impl<A> Clone for Connection<A> {
    fn clone(&self) -> Self {
        Self { waiting: Arc::clone(&self.waiting), frames: self.frames.clone() }
    }
}

/// A place among those who wait, which is given back however the wait ends.
struct Place<'a, A> {
    waiting: &'a Waiting<A>,
    id: u64,
}

impl<A> Drop for Place<'_, A> {
    fn drop(&mut self) {
        if let Some(waiting) = lock(self.waiting).as_mut() {
            waiting.remove(&self.id);
        }
    }
}

impl<Q: Serialize, A: DeserializeOwned + Send + 'static> Line<Q, A> {
    /// Takes over a connected stream, by which no answer is longer than `longest` bytes: after one that is, nothing more is read. Must
    /// be called within a tokio runtime.
    pub fn new(stream: UnixStream, longest: usize) -> Self {
        let line = Self::to_nobody(longest);
        line.connect(stream);
        line
    }

    /// One by which nobody can be asked yet.
    pub fn to_nobody(longest: usize) -> Self {
        let (frames, _) = mpsc::unbounded_channel();
        let to = Connection { waiting: Arc::default(), frames };
        Self { next: Arc::default(), to: Arc::new(Mutex::new(to)), longest, asks: PhantomData }
    }

    /// Asks the process behind this stream from now on. Must be called within a tokio runtime.
    pub fn connect(&self, stream: UnixStream) {
        let (reader, writer) = stream.into_split();
        let (frames, queue) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(write_frames(writer, queue));
        tokio::spawn(read_answers(FrameReader::with_limit(reader, self.longest), Arc::clone(&waiting)));
        *lock(&self.to) = Connection { waiting, frames };
    }

    /// Asks, and waits for the answer as long as it takes.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn ask(&self, question: Q) -> Result<A, Unanswered> {
        let Connection { waiting, frames } = lock(&self.to).clone();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        match lock(&waiting).as_mut() {
            Some(waiting) => waiting.insert(id, answer),
            None => return Err(Unanswered::Gone),
        };
        let _place = Place { waiting: &waiting, id };
        let asked = frame(&Numbered { id, what: question }).ok().and_then(|bytes| frames.send(bytes).ok());
        // Nobody is kept connected by those who wait.
        drop(frames);
        match asked {
            Some(()) => answered.await.unwrap_or(Err(Unanswered::Gone)),
            None => Err(Unanswered::Gone),
        }
    }

    /// How many wait; `None` once the other process is gone.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> Option<usize> {
        lock(&lock(&self.to).waiting).as_ref().map(HashMap::len)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read_answers<A: DeserializeOwned>(mut reader: FrameReader, waiting: Arc<Waiting<A>>) {
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(error) => {
                tracing::error!(%error, "cannot read answers any more");
                break;
            }
        };
        let (id, answer) = match understood(&frame) {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, "an answer is none");
                continue;
            }
        };
        let asker = lock(&waiting).as_mut().and_then(|waiting| waiting.remove(&id));
        if let Some(asker) = asker {
            // One that has left does not want the answer.
            let _ = asker.send(answer);
        }
    }
    lock(&waiting).take();
}

/// Which question a frame answers, and the answer, or why it cannot be read: what the world says has a part in it, and must not be
/// able to keep other answers from being read. What is passed over to find the number may be nested as deep as it likes.
fn understood<A: DeserializeOwned>(frame: &[u8]) -> Result<(u64, Result<A, Unanswered>), serde_json::Error> {
    match serde_json::from_slice::<Numbered<A>>(frame) {
        Ok(Numbered { id, what }) => Ok((id, Ok(what))),
        Err(problem) => {
            let OnlyId { id } = serde_json::from_slice(frame)?;
            Ok((id, Err(Unanswered::Unread(problem.to_string()))))
        }
    }
}

/// The end of who is asked: answers all at once, until who asks is gone or says something that is not a question.
pub async fn answer_questions<Q, A, F>(stream: UnixStream, answer: impl Fn(Q) -> F)
where
    Q: DeserializeOwned,
    A: Serialize,
    F: Future<Output = A> + Send + 'static,
{
    let (reader, writer) = stream.into_split();
    let (frames, queue) = mpsc::unbounded_channel();
    tokio::spawn(write_frames(writer, queue));
    let mut reader = FrameReader::new(reader);
    while let Ok(Some(bytes)) = reader.next().await {
        let Ok(Numbered { id, what }) = serde_json::from_slice(&bytes) else {
            tracing::error!("a question is none");
            return;
        };
        let (frames, answer) = (frames.clone(), answer(what));
        tokio::spawn(async move {
            match frame(&Numbered { id, what: answer.await }) {
                // Fails only when who asks is gone.
                Ok(bytes) => drop(frames.send(bytes)),
                Err(error) => tracing::error!(%error, "cannot encode an answer"),
            }
        });
    }
}

#[cfg(any(test, fuzzing))]
#[path = "line_fuzzed.rs"]
pub(crate) mod fuzzed;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::time::timeout;

    use super::*;
    use crate::waits::HANG;

    type Texts = Line<String, String>;

    #[tokio::test]
    async fn each_question_gets_its_own_answer_in_whatever_order_they_come() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let line = Texts::new(ours, 1000);
        let (open, opened) = tokio::sync::watch::channel(false);
        tokio::spawn(answer_questions(theirs, move |asked: String| {
            let mut opened = opened.clone();
            async move {
                if asked == "slow" {
                    opened.wait_for(|open| *open).await.unwrap();
                }
                format!("{asked}!")
            }
        }));
        let slow = tokio::spawn({
            let line = line.clone();
            async move { line.ask("slow".to_owned()).await }
        });
        assert_eq!(timeout(HANG, line.ask("quick".to_owned())).await.unwrap().unwrap(), "quick!");
        assert!(!slow.is_finished());
        open.send_replace(true);
        assert_eq!(timeout(HANG, slow).await.unwrap().unwrap().unwrap(), "slow!");
    }

    #[tokio::test]
    async fn whatever_the_other_end_says_instead_of_an_answer_who_asks_learns_why_there_is_none() {
        let framed = |text: &[u8]| [&u32::try_from(text.len()).unwrap().to_le_bytes()[..], text].concat();
        let deep = format!("{{\"id\":0,\"what\":{}{}}}", "[".repeat(200), "]".repeat(200));
        let long = format!("{{\"id\":0,\"what\":\"{}\"}}", "a".repeat(1000));
        for (said, why) in [
            (framed(deep.as_bytes()), "cannot be read"),
            (framed(b"{\"id\":0,\"what\":7}"), "cannot be read"),
            (framed(long.as_bytes()), "gone"),
            (u32::MAX.to_le_bytes().to_vec(), "gone"),
            (Vec::new(), "gone"),
            (framed(b"nonsense"), "gone"),
            (framed(b"{\"id\":1,\"what\":\"of another question\"}"), "gone"),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let line = Texts::new(ours, 1000);
            let asked = line.clone();
            let asked = tokio::spawn(async move { asked.ask("a".to_owned()).await });
            theirs.write_all(&said).await.unwrap();
            theirs.shutdown().await.unwrap();
            let answer = timeout(HANG, asked).await.unwrap().unwrap();
            assert!(
                answer.as_ref().is_err_and(|error| error.to_string().contains(why)),
                "{said:?}: {answer:?}"
            );
        }
    }

    #[tokio::test]
    async fn who_had_nobody_to_ask_or_has_lost_it_asks_whichever_process_follows() {
        let line = Texts::to_nobody(1000);
        let early = line.clone();
        assert_eq!(early.ask("a".to_owned()).await, Err(Unanswered::Gone));
        for name in ["first", "second"] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            line.connect(ours);
            let serving =
                tokio::spawn(answer_questions(theirs, move |_: String| async move { name.to_owned() }));
            assert_eq!(timeout(HANG, early.ask("a".to_owned())).await.unwrap().unwrap(), name);
            serving.abort();
            let gone = async { while early.ask("a".to_owned()).await.is_ok() {} };
            timeout(HANG, gone).await.unwrap();
        }
    }
}
