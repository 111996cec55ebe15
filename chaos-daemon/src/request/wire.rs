//! The frames on the door: a little-endian `u32` length, then that many bytes of JSON.
//!
//! [`Door`] is the server's end, [`Desk`] the injector's. Every request carries an id and is answered under it,
//! so that a slow injection never keeps a `Status` waiting.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::{ApiError, ErrorCode, Reply, Request};

/// The longest frame. A fault with the most prefixes takes a quarter of it.
pub const MAX_FRAME: usize = 32 * 1024 * 1024;

/// A longer request is decoded on a thread: the loop that takes it in has faults to renew meanwhile.
const SHORT: usize = 64 * 1024;

/// A buffer that grew beyond this is given back once it is empty.
const KEPT_BUFFER: usize = 256 * 1024;

/// A request; or, without one, that nobody waits any more for the answer to the one of this id.
#[derive(Serialize, Deserialize)]
struct Call {
    id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<Request>,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    id: u64,
    reply: Reply,
}

/// What is left of a call whose request is not one of the protocol's.
#[derive(Deserialize)]
struct OnlyId {
    id: u64,
}

/// Reads frames; cancelling [`FrameReader::next`] loses nothing.
#[derive(Debug)]
pub(crate) struct FrameReader {
    stream: OwnedReadHalf,
    unread: Unread,
}

/// What has come of a stream and is not taken yet.
#[derive(Debug)]
struct Unread {
    buffer: Vec<u8>,
    /// No frame is longer, in bytes.
    longest: usize,
}

impl FrameReader {
    pub(crate) fn new(stream: OwnedReadHalf) -> Self {
        Self::with_limit(stream, MAX_FRAME)
    }

    /// Of a stream on which no frame is longer, in bytes.
    pub(crate) fn with_limit(stream: OwnedReadHalf, longest: usize) -> Self {
        Self { stream, unread: Unread { buffer: Vec::new(), longest } }
    }

    /// The next frame; `None` once the other end has closed.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(frame) = self.unread.take()? {
                return Ok(Some(frame));
            }
            let buffer = &mut self.unread.buffer;
            buffer.reserve(16 * 1024);
            if self.stream.read_buf(buffer).await? == 0 {
                return match buffer.is_empty() {
                    true => Ok(None),
                    false => {
                        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the door closed within a frame"))
                    }
                };
            }
        }
    }
}

impl Unread {
    /// The next frame, if all of it has come.
    fn take(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Self { buffer, longest } = self;
        let Some((head, rest)) = buffer.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > *longest {
            let text = format!("a frame of {length} bytes, where at most {longest} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let Some(frame) = rest.get(..length).map(<[u8]>::to_vec) else {
            buffer.reserve(length);
            return Ok(None);
        };
        buffer.drain(..4 + length);
        if buffer.is_empty() && buffer.capacity() > KEPT_BUFFER {
            *buffer = Vec::new();
        }
        Ok(Some(frame))
    }
}

/// A message with its length in front.
pub(crate) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    match u32::try_from(length) {
        Ok(head) if length <= MAX_FRAME => bytes[..4].copy_from_slice(&head.to_le_bytes()),
        _ => {
            let text = format!("{length} bytes, where at most {MAX_FRAME} fit through the door");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
    }
    Ok(bytes)
}

/// Writes whole frames in one task, so that a caller who gives up never leaves half a frame behind.
pub(crate) async fn write_frames(mut stream: OwnedWriteHalf, mut frames: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if let Err(error) = stream.write_all(&frame).await {
            tracing::warn!(%error, "cannot write to the door");
            return;
        }
    }
}

/// Callers that wait, by id; `None` once the stream has closed.
type Waiting = Mutex<Option<HashMap<u64, oneshot::Sender<Reply>>>>;

fn lock(waiting: &Waiting) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Reply>>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server's end: asks the injector. Clones share one stream.
#[derive(Debug, Clone)]
pub struct Door {
    next: Arc<AtomicU64>,
    waiting: Arc<Waiting>,
    frames: mpsc::UnboundedSender<Vec<u8>>,
    closed: watch::Receiver<bool>,
}

impl Door {
    /// Takes over a connected stream. Must be called within a tokio runtime.
    pub fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        let (frames, queue) = mpsc::unbounded_channel();
        let (closing, closed) = watch::channel(false);
        let waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(write_frames(writer, queue));
        tokio::spawn(read_answers(FrameReader::new(reader), Arc::clone(&waiting), closing));
        Self { next: Arc::default(), waiting, frames, closed }
    }

    /// Asks the injector and waits for its answer. Cancelling the wait takes the request back: the injector is told. A request that
    /// only looks, or that waits for its turn, ends without an answer; a fault that was injected for it is ended.
    ///
    /// # Errors
    /// What the injector answers as [`Reply::Error`]; [`ErrorCode::Unavailable`] when the injector is gone.
    pub async fn call(&self, request: Request) -> Result<Reply, ApiError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let bytes = frame(&Call { id, request: Some(request) }).map_err(|error| {
            ApiError::new(ErrorCode::LimitReached, format!("asking the injector: {error}"))
                .hint("ask for less in one request, e.g. fewer prefixes")
        })?;
        let (answer, answered) = oneshot::channel();
        match lock(&self.waiting).as_mut() {
            Some(waiting) => waiting.insert(id, answer),
            None => return Err(gone()),
        };
        let mut wait = Wait { door: self, id, answered: false };
        if self.frames.send(bytes).is_err() {
            return Err(gone());
        }
        let answer = answered.await;
        wait.answered = true;
        match answer {
            Ok(Reply::Error(error)) => Err(error),
            Ok(reply) => Ok(reply),
            Err(_) => Err(gone()),
        }
    }

    /// Returns once the injector is gone.
    pub async fn closed(&self) {
        let mut closed = self.closed.clone();
        // An error means that the reader has ended, which is the same news.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

/// Somebody waits for an answer. Who leaves before having it takes the request back, also where the answer is on its way.
struct Wait<'a> {
    door: &'a Door,
    id: u64,
    answered: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = lock(&self.door.waiting).as_mut() {
            waiting.remove(&self.id);
        }
        if !self.answered
            && let Ok(bytes) = frame(&Call { id: self.id, request: None })
        {
            // An injector that is gone has nothing to take back.
            let _ = self.door.frames.send(bytes);
        }
    }
}

fn gone() -> ApiError {
    ApiError::new(ErrorCode::Unavailable, "the injector is gone; what it had injected ends by itself")
        .hint("look at the daemon's log, and restart it")
}

async fn read_answers(mut reader: FrameReader, waiting: Arc<Waiting>, closing: watch::Sender<bool>) {
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(error) => {
                tracing::error!(%error, "cannot read from the door");
                break;
            }
        };
        let answer: Answer = match serde_json::from_slice(&frame) {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, "the injector's answer is not one");
                break;
            }
        };
        let caller = lock(&waiting).as_mut().and_then(|waiting| waiting.remove(&answer.id));
        if let Some(caller) = caller {
            // A caller that has left does not want the answer.
            let _ = caller.send(answer.reply);
        }
    }
    lock(&waiting).take();
    closing.send_replace(true);
}

/// The claim to one answer.
#[derive(Debug)]
pub struct Ticket {
    id: u64,
    wanted: Wanted,
}

/// Whether somebody wants what was asked for. Clones are of the same request, and outlive its answer, which may cross with whoever takes
/// the request back.
#[derive(Debug, Clone)]
pub struct Wanted(
    /// Nothing ever comes; it closes when the request is taken back, or the server is gone.
    watch::Receiver<()>,
);

impl Wanted {
    /// Returns once the request was taken back, or the server is gone.
    pub async fn cancelled(&mut self) {
        while self.0.changed().await.is_ok() {}
    }

    /// Whether that is so.
    pub fn is_cancelled(&self) -> bool {
        self.0.has_changed().is_err()
    }
}

impl Ticket {
    /// One that is wanted for as long as the test lasts.
    #[cfg(test)]
    pub(crate) fn of_a_test() -> Self {
        let (want, wanted) = watch::channel(());
        Box::leak(Box::new(want));
        Self { id: 0, wanted: Wanted(wanted) }
    }

    /// Whether it is wanted, also once it was answered.
    pub fn wanted(&self) -> Wanted {
        self.wanted.clone()
    }

    /// Returns once nobody waits for the answer any more: who has asked has left, or the server is gone.
    pub async fn cancelled(&mut self) {
        self.wanted.cancelled().await;
    }
}

/// The injector's end: takes requests in.
#[derive(Debug)]
pub struct Desk {
    reader: FrameReader,
    answers: Answers,
    /// By their ids, those that are wanted still.
    wanted: HashMap<u64, watch::Sender<()>>,
    /// Long ones that are decoded, in turn.
    decoded: JoinSet<io::Result<(Ticket, Decoded)>>,
    turn: Arc<Semaphore>,
}

/// A request, or why there is none in its call; `None` where it is taken back.
type Decoded = Result<Option<Request>, ApiError>;

/// Answers requests, from any task or thread. Clones share one stream.
#[derive(Debug, Clone)]
pub struct Answers {
    frames: mpsc::UnboundedSender<Vec<u8>>,
}

impl Answers {
    /// Answers one request. An answer to a server that is gone is dropped.
    pub fn answer(&self, ticket: Ticket, reply: Reply) {
        let id = ticket.id;
        let bytes = frame(&Answer { id, reply }).or_else(|error| {
            let error = ApiError::new(ErrorCode::LimitReached, format!("the answer does not fit: {error}"));
            frame(&Answer { id, reply: Reply::Error(error) })
        });
        match bytes {
            // Fails only when the server is gone.
            Ok(bytes) => drop(self.frames.send(bytes)),
            Err(error) => tracing::error!(%error, "cannot encode an answer"),
        }
    }
}

impl Desk {
    /// Takes over a connected stream. Must be called within a tokio runtime.
    pub fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        let (frames, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_frames(writer, queue));
        Self {
            reader: FrameReader::new(reader),
            answers: Answers { frames },
            wanted: HashMap::new(),
            decoded: JoinSet::new(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// The handle that answers.
    pub fn answers(&self) -> Answers {
        self.answers.clone()
    }

    /// The next request; `None` when the server is gone. A long one comes once it is decoded, later than short ones behind it.
    /// Cancelling this loses nothing. What is not a request of the protocol is answered here, with [`ErrorCode::MalformedRequest`].
    /// Whoever of the requests before is taken back learns of it while this is waited for.
    ///
    /// # Errors
    /// When the stream breaks, or carries something that has not even an id.
    pub async fn next(&mut self) -> io::Result<Option<(Ticket, Request)>> {
        loop {
            let (ticket, decoded) = tokio::select! {
                biased;
                Some(decoded) = self.decoded.join_next() => decoded.map_err(io::Error::other)??,
                frame = self.reader.next() => match frame? {
                    None => return Ok(None),
                    Some(frame) if frame.len() > SHORT => {
                        self.decode_aside(frame)?;
                        continue;
                    }
                    Some(frame) => match serde_json::from_slice::<Call>(&frame) {
                        Ok(Call { id, request: None }) => {
                            self.wanted.remove(&id);
                            continue;
                        }
                        Ok(Call { id, request }) => (self.ticket(id), Ok(request)),
                        Err(problem) => {
                            let OnlyId { id } = serde_json::from_slice(&frame)?;
                            (self.ticket(id), Err(malformed(&problem)))
                        }
                    },
                },
            };
            match decoded {
                Ok(Some(request)) => return Ok(Some((ticket, request))),
                Ok(None) => drop(self.wanted.remove(&ticket.id)),
                Err(error) => self.answers.answer(ticket, Reply::Error(error)),
            }
        }
    }

    /// Has a long call decoded after those before it. It may be taken back meanwhile.
    fn decode_aside(&mut self, frame: Vec<u8>) -> io::Result<()> {
        let none = || io::Error::new(io::ErrorKind::InvalidData, "a long call does not begin with its id");
        let ticket = self.ticket(id_in_front(&frame).ok_or_else(none)?);
        let turn = Arc::clone(&self.turn);
        self.decoded.spawn(async move {
            let _turn = turn.acquire_owned().await;
            if ticket.wanted.is_cancelled() {
                return Ok((ticket, Ok(None)));
            }
            let (done, decoded) = oneshot::channel();
            let decode = move || {
                let call = serde_json::from_slice::<Call>(&frame);
                // Whoever waited for it is gone with the server.
                let _ = done.send(call.map(|call| call.request).map_err(|problem| malformed(&problem)));
            };
            if let Err(error) = thread::Builder::new().name("decode".into()).spawn(decode) {
                let text = format!("reading a long request: start a thread: {error}");
                return Ok((ticket, Err(ApiError::new(ErrorCode::LimitReached, text))));
            }
            Ok((ticket, decoded.await.map_err(io::Error::other)?))
        });
        Ok(())
    }

    fn ticket(&mut self, id: u64) -> Ticket {
        // Those that have been answered, and of which nobody minds whether they are wanted.
        self.wanted.retain(|_, want| !want.is_closed());
        let (want, wanted) = watch::channel(());
        self.wanted.insert(id, want);
        Ticket { id, wanted: Wanted(wanted) }
    }
}

fn malformed(problem: &serde_json::Error) -> ApiError {
    ApiError::new(ErrorCode::MalformedRequest, problem.to_string())
}

/// The id of a call, as [`frame`] writes it: in front.
fn id_in_front(call: &[u8]) -> Option<u64> {
    let rest = call.strip_prefix(br#"{"id":"#)?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

#[cfg(any(test, fuzzing))]
#[path = "wire_fuzzed.rs"]
pub(crate) mod fuzzed;

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
