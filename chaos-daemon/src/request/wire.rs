//! The frames on the door: a little-endian `u32` length, then that many bytes of JSON.
//!
//! [`Door`] is the server's end, [`Desk`] the injector's. Every request carries an id and is answered under it,
//! so that a slow injection never keeps a `Status` waiting.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};

use super::claim::Claim;
use super::{ApiError, ErrorCode, Reply, Request};

/// The longest frame. A fault with the most prefixes takes a quarter of it.
pub const MAX_FRAME: usize = 32 * 1024 * 1024;

/// A buffer that grew beyond this is given back once it is empty.
const KEPT_BUFFER: usize = 256 * 1024;

/// A request; or, without one, that nobody waits any more for the answer to the one of this id.
#[derive(Serialize, Deserialize)]
struct Call {
    id: u64,
    /// In whose name.
    #[serde(default)]
    claim: Claim,
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

/// The server's end: asks the injector, in somebody's name. Clones share one stream.
#[derive(Debug, Clone)]
pub struct Door {
    claim: Claim,
    next: Arc<AtomicU64>,
    waiting: Arc<Waiting>,
    frames: mpsc::UnboundedSender<Vec<u8>>,
    closed: watch::Receiver<bool>,
}

impl Door {
    /// Takes over a connected stream, and asks in nobody's name. Must be called within a tokio runtime.
    pub fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        let (frames, queue) = mpsc::unbounded_channel();
        let (closing, closed) = watch::channel(false);
        let waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(write_frames(writer, queue));
        tokio::spawn(read_answers(FrameReader::new(reader), Arc::clone(&waiting), closing));
        Self { claim: Claim::Nobody, next: Arc::default(), waiting, frames, closed }
    }

    /// The same, to ask in another name.
    #[must_use]
    pub fn in_the_name_of(&self, claim: Claim) -> Self {
        Self { claim, ..self.clone() }
    }

    /// Asks the injector and waits for its answer. Cancelling the wait takes the request back: the injector is told. A request that
    /// only looks, or that waits for its turn, ends without an answer; a fault that was injected for it is ended.
    ///
    /// # Errors
    /// What the injector answers as [`Reply::Error`]; [`ErrorCode::Unavailable`] when the injector is gone.
    pub async fn call(&self, request: Request) -> Result<Reply, ApiError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let bytes = frame(&Call { id, claim: self.claim, request: Some(request) }).map_err(|error| {
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

    /// What goes on in the name in which this asks is over. An injector that is gone knows of nothing any more.
    pub async fn release(&self) {
        let _: Result<Reply, ApiError> = self.call(Request::Release).await;
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
            && let Ok(bytes) = frame(&Call { id: self.id, claim: Claim::Nobody, request: None })
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
    /// In whose name something was asked.
    claim: Claim,
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
        Self { id: 0, claim: Claim::Nobody, wanted: Wanted(wanted) }
    }

    /// In whose name it was asked.
    pub fn claim(&self) -> Claim {
        self.claim
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
}

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
        Self { reader: FrameReader::new(reader), answers: Answers { frames }, wanted: HashMap::new() }
    }

    /// The handle that answers.
    pub fn answers(&self) -> Answers {
        self.answers.clone()
    }

    /// The next request; `None` when the server is gone. Cancelling it loses nothing. What is not a request
    /// of the protocol is answered here, with [`ErrorCode::MalformedRequest`]. Whoever of the requests before is taken back learns of
    /// it while this is waited for.
    ///
    /// # Errors
    /// When the stream breaks, or carries something that has not even an id.
    pub async fn next(&mut self) -> io::Result<Option<(Ticket, Request)>> {
        while let Some(frame) = self.reader.next().await? {
            match serde_json::from_slice::<Call>(&frame) {
                Ok(Call { id, claim, request: Some(request) }) => {
                    return Ok(Some((self.ticket(id, claim), request)));
                }
                Ok(Call { id, request: None, .. }) => drop(self.wanted.remove(&id)),
                Err(problem) => {
                    let OnlyId { id } = serde_json::from_slice(&frame)?;
                    let error = ApiError::new(ErrorCode::MalformedRequest, problem.to_string());
                    let ticket = self.ticket(id, Claim::Nobody);
                    self.answers.answer(ticket, Reply::Error(error));
                }
            }
        }
        Ok(None)
    }

    fn ticket(&mut self, id: u64, claim: Claim) -> Ticket {
        // Those that have been answered, and of which nobody minds whether they are wanted.
        self.wanted.retain(|_, want| !want.is_closed());
        let (want, wanted) = watch::channel(());
        self.wanted.insert(id, want);
        Ticket { id, claim, wanted: Wanted(wanted) }
    }
}

#[cfg(any(test, fuzzing))]
#[path = "wire_fuzzed.rs"]
pub(crate) mod fuzzed;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::waits::HANG;

    fn pair() -> (Door, Desk) {
        let (server, injector) = UnixStream::pair().unwrap();
        (Door::new(server), Desk::new(injector))
    }

    #[tokio::test]
    async fn a_slow_answer_does_not_keep_a_quick_one_waiting() {
        let (door, mut desk) = pair();
        let slow = tokio::spawn({
            let door = door.clone();
            async move { door.call(Request::StopAll).await }
        });
        let (slow_ticket, request) = desk.next().await.unwrap().unwrap();
        assert!(matches!(request, Request::StopAll));
        let quick = tokio::spawn({
            let door = door.clone();
            async move { door.call(Request::Status).await }
        });
        let (quick_ticket, _) = desk.next().await.unwrap().unwrap();
        desk.answers().answer(quick_ticket, Reply::Status(Vec::new()));
        assert!(matches!(quick.await.unwrap(), Ok(Reply::Status(_))));
        assert!(!slow.is_finished());
        desk.answers().answer(slow_ticket, Reply::Removed(Vec::new()));
        assert!(matches!(slow.await.unwrap(), Ok(Reply::Removed(_))));
    }

    #[tokio::test]
    async fn who_leaves_takes_the_request_back_and_nobody_elses() {
        let (door, mut desk) = pair();
        let ask = || {
            let door = door.clone();
            tokio::spawn(async move { door.call(Request::Doctor).await })
        };
        let (leaves, stays) = (ask(), ask());
        let (mut first, _) = desk.next().await.unwrap().unwrap();
        let (mut second, _) = desk.next().await.unwrap().unwrap();
        leaves.abort();
        let next = tokio::spawn(async move { desk.next().await.map(|next| (next.is_none(), desk)) });
        tokio::time::timeout(HANG, first.cancelled()).await.expect("nobody was told");
        let waits = tokio::time::timeout(Duration::from_millis(20), second.cancelled()).await;
        assert!(waits.is_err() && !stays.is_finished());
        // What the server is gone for is wanted by nobody.
        stays.abort();
        drop(door);
        assert!(next.await.unwrap().unwrap().0);
        tokio::time::timeout(HANG, second.cancelled()).await.unwrap();
    }

    #[tokio::test]
    async fn who_has_an_answer_takes_nothing_back() {
        let (door, mut desk) = pair();
        let asked = tokio::spawn({
            let door = door.clone();
            async move { door.call(Request::Status).await }
        });
        let (ticket, _) = desk.next().await.unwrap().unwrap();
        desk.answers().answer(ticket, Reply::Status(Vec::new()));
        asked.await.unwrap().unwrap();
        drop(door);
        assert!(desk.next().await.unwrap().is_none());
        assert!(desk.wanted.values().all(watch::Sender::is_closed));
    }

    #[tokio::test]
    async fn who_leaves_while_the_answer_is_on_its_way_takes_the_request_back_all_the_same() {
        for is_answered in [false, true] {
            let (door, mut desk) = pair();
            let mut asked = Box::pin(door.call(Request::Status));
            // Sent, and not looked at again.
            assert!((&mut asked).now_or_never().is_none());
            let (ticket, _) = desk.next().await.unwrap().unwrap();
            let mut wanted = ticket.wanted();
            assert!(!wanted.is_cancelled());
            if is_answered {
                desk.answers().answer(ticket, Reply::Status(Vec::new()));
                crate::waits::see(async || lock(&door.waiting).as_ref().is_some_and(HashMap::is_empty)).await;
            }
            drop(asked);
            let next = tokio::spawn(async move { desk.next().await.map(|next| next.is_none()) });
            tokio::time::timeout(HANG, wanted.cancelled()).await.expect("nobody was told");
            assert!(wanted.is_cancelled());
            drop(door);
            assert!(next.await.unwrap().unwrap());
        }
    }

    #[tokio::test]
    async fn everyone_learns_that_the_injector_is_gone() {
        let (door, mut desk) = pair();
        let waiting = tokio::spawn({
            let door = door.clone();
            async move { door.call(Request::Status).await }
        });
        desk.next().await.unwrap().unwrap();
        drop(desk);
        assert_eq!(waiting.await.unwrap().unwrap_err().code, ErrorCode::Unavailable);
        tokio::time::timeout(HANG, door.closed()).await.unwrap();
        assert_eq!(door.call(Request::Status).await.unwrap_err().code, ErrorCode::Unavailable);
    }

    #[tokio::test]
    async fn the_desk_ends_when_the_server_is_gone() {
        let (door, mut desk) = pair();
        drop(door);
        assert!(desk.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_request_that_is_none_is_answered_and_the_next_one_served() {
        let (server, injector) = UnixStream::pair().unwrap();
        let mut desk = Desk::new(injector);
        let (reader, mut writer) = server.into_split();
        let odd = br#"{"id":7,"request":{"Explode":{}}}"#;
        writer.write_all(&u32::try_from(odd.len()).unwrap().to_le_bytes()).await.unwrap();
        writer.write_all(odd).await.unwrap();
        let next = Call { id: 8, claim: Claim::Nobody, request: Some(Request::Doctor) };
        writer.write_all(&frame(&next).unwrap()).await.unwrap();
        let (ticket, request) = desk.next().await.unwrap().unwrap();
        assert_eq!((ticket.id, matches!(request, Request::Doctor)), (8, true));
        let answer = FrameReader::new(reader).next().await.unwrap().unwrap();
        let answer: Answer = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer.id, 7);
        let Reply::Error(error) = answer.reply else { panic!("not an error") };
        assert_eq!(error.code, ErrorCode::MalformedRequest);
    }

    #[tokio::test]
    async fn a_frame_beyond_the_limit_and_half_a_frame_are_errors() {
        for (bytes, kind) in [
            (u32::MAX.to_le_bytes().to_vec(), io::ErrorKind::InvalidData),
            (vec![10, 0, 0, 0, b'{'], io::ErrorKind::UnexpectedEof),
        ] {
            let (mut server, injector) = UnixStream::pair().unwrap();
            let mut desk = Desk::new(injector);
            server.write_all(&bytes).await.unwrap();
            drop(server);
            assert_eq!(desk.next().await.unwrap_err().kind(), kind);
        }
    }

    #[tokio::test]
    async fn cancelling_next_in_the_middle_of_a_frame_loses_nothing() {
        let (mut server, injector) = UnixStream::pair().unwrap();
        let mut desk = Desk::new(injector);
        let bytes = frame(&Call { id: 1, claim: Claim::Nobody, request: Some(Request::Status) }).unwrap();
        server.write_all(&bytes[..6]).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(20), desk.next()).await.is_err());
        server.write_all(&bytes[6..]).await.unwrap();
        assert_eq!(desk.next().await.unwrap().unwrap().0.id, 1);
    }
}
