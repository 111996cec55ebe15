//! One JSON-RPC message per line, as rmcp's own transport has it, but nothing that a client says is dropped in
//! silence: a line that is too long, not JSON, or not a message is answered with an error.
//!
//! rmcp has a task for each message, as many as come. So what a connection holds is counted here: a message from when it is taken in
//! until its reply is written, and its memory until its handler has ended, too. Without room nothing more is read.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, GetExtensions, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use super::shape::{self, Envelope};
use super::under_way::{Memory, UnderWay};
use crate::request::Caller;
use crate::server::budget::{Held, Tally};

/// The longest line: a fault with the most prefixes fits.
pub(super) const MAX_LINE: usize = 4 * 1024 * 1024;
/// A longer one has to be whole within [`LONG_LINE`], and there has to be room for it by then. A buffer that grew beyond this is
/// given back once it is empty.
const SHORT_LINE: usize = 64 * 1024;
/// How long a long line may take to come, and then to get room.
const LONG_LINE: Duration = Duration::from_secs(10);
/// How long a reply may wait for a client that does not read it, once it is its turn.
const UNREAD: Duration = Duration::from_secs(120);
/// How long the rest of a line that was too long is read, so that the client gets to see the error.
const DISCARD: Duration = Duration::from_secs(2);

/// What an error, or a notification of the daemon's, is held as until its length is known, in bytes.
const COMPLAINT: usize = 4096;

/// JSON-RPC: it is no request that can be understood.
const INVALID: i32 = -32600;
/// It could be, but there is no room for it now.
const NO_ROOM: i32 = -32000;

/// Messages as lines, over any pair of streams.
pub(super) struct LineTransport<R, W> {
    reader: R,
    buffer: Vec<u8>,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    /// The memory of a long line that is being read, and by when it has to be whole.
    long: Option<(Held, Instant)>,
    /// A long line that waits for its turn to be looked at.
    whole: Option<Vec<u8>>,
    /// A line that waits for room: how much, and for what.
    next: Option<Next>,
    tally: Arc<Tally>,
    under_way: Arc<UnderWay>,
    output: Arc<Output<W>>,
    /// Why only a few requests are served here.
    narrow: Option<String>,
    /// For the log.
    caller: Caller,
    end: Option<Instant>,
}

/// A line that was understood so far.
struct Next {
    line: Vec<u8>,
    envelope: Envelope,
    bytes: usize,
    /// By when there has to be room for it.
    until: Option<Instant>,
}

struct Output<W> {
    writer: Mutex<Option<W>>,
    tally: Arc<Tally>,
}

impl<W: AsyncWrite + Send + Unpin + 'static> Output<W> {
    /// Writes one message as a line. It is `held` until then. It must not be cancelled: half a line would spoil the next.
    async fn write(self: Arc<Self>, message: impl Serialize, mut held: Held) -> io::Result<()> {
        // Each in its turn, so that of the one thread every connection has as much.
        let mut writer = self.writer.lock().await;
        let stream = writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        drop(message);
        held.resize(line.capacity());
        let written = timeout(UNREAD, async {
            stream.write_all(&line).await?;
            stream.flush().await
        });
        let written = written.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if let Err(error) = &written {
            // Nothing can follow half a line, and nobody reads it.
            *writer = None;
            tracing::debug!(%error, "a client does not read its answers");
            self.tally.leave();
        }
        drop((line, held));
        written
    }
}

impl<R, W> LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Where there is a reason to be `narrow`, only what stops and looks is served.
    pub(super) fn new(
        reader: R,
        writer: W,
        tally: Arc<Tally>,
        narrow: Option<String>,
        caller: Caller,
    ) -> Self {
        let output = Arc::new(Output { writer: Mutex::new(Some(writer)), tally: Arc::clone(&tally) });
        Self {
            reader,
            buffer: Vec::new(),
            searched: 0,
            long: None,
            whole: None,
            next: None,
            tally,
            under_way: Arc::default(),
            output,
            narrow,
            caller,
            end: None,
        }
    }

    /// Answers what is no message, in a task, since `receive` may be cancelled at any point.
    fn complain(&self, id: &Value, code: i32, message: &str) {
        let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
        let held = self.tally.hold(COMPLAINT);
        // A client that has gone does not need to be told.
        drop(tokio::spawn(Arc::clone(&self.output).write(error, held)));
    }

    /// Complains, and reads nothing more.
    fn end_with(&mut self, id: &Value, code: i32, message: &str) {
        self.complain(id, code, message);
        self.long = None;
        self.end = Some(Instant::now() + DISCARD);
    }

    /// The next whole line, without its end. Cancelling it loses nothing.
    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                return Some(self.cut(self.searched + at));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE {
                let text = format!(
                    "a line of more than {MAX_LINE} bytes, which is the limit: closing the connection"
                );
                tracing::warn!(caller = %self.caller, "{text}");
                self.end_with(&Value::Null, INVALID, &text);
                return None;
            }
            let end = self.long_until().await;
            self.buffer.reserve(8 * 1024);
            let read = self.reader.read_buf(&mut self.buffer);
            let read = match end {
                None => read.await,
                Some(end) => match timeout_at(end, read).await {
                    Ok(read) => read,
                    Err(_) => {
                        let text = format!(
                            "a line of more than {SHORT_LINE} bytes has to be whole within {LONG_LINE:?}: \
                             closing the connection"
                        );
                        self.end_with(&Value::Null, INVALID, &text);
                        return None;
                    }
                },
            };
            match read {
                // What is left is half a message, which is no message.
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot read from a client");
                    return None;
                }
            }
        }
    }

    /// Takes a line that ends here out of the buffer.
    fn cut(&mut self, end: usize) -> Vec<u8> {
        self.searched = 0;
        let mut line = match end + 1 == self.buffer.len() {
            true => std::mem::take(&mut self.buffer),
            false => self.buffer.drain(..=end).collect(),
        };
        if self.buffer.is_empty() && self.buffer.capacity() > SHORT_LINE {
            self.buffer = Vec::new();
        }
        line.pop();
        line
    }

    /// By when the line that is being read has to be whole, if it is a long one: then it has its room from here on.
    async fn long_until(&mut self) -> Option<Instant> {
        if self.searched <= SHORT_LINE {
            return None;
        }
        if self.long.is_none() {
            let held = self.tally.take(MAX_LINE + SHORT_LINE).await;
            self.buffer.reserve_exact(MAX_LINE + SHORT_LINE - self.buffer.len());
            self.long = Some((held, Instant::now() + LONG_LINE));
        }
        self.long.as_ref().map(|(_, end)| *end)
    }

    /// Reads and forgets until the client has stopped talking, or has had its time.
    async fn discard(&mut self, end: Instant) {
        loop {
            self.buffer.clear();
            self.buffer.shrink_to(SHORT_LINE);
            match timeout_at(end, self.reader.read_buf(&mut self.buffer)).await {
                Ok(Ok(read)) if read > 0 => {}
                _ => return,
            }
        }
    }

    /// What a line is held as when it is taken in; nothing of one that is answered with an error, or not at all.
    fn weigh(&mut self, mut line: Vec<u8>) -> Option<Next> {
        if line.starts_with(b"\xEF\xBB\xBF") {
            line.drain(..3);
        }
        if line.trim_ascii().is_empty() {
            return None;
        }
        let envelope = Envelope::of(&line);
        let bytes = match shape::weigh(&line) {
            Ok(bytes) => bytes,
            Err(_) if envelope.is_notification() => return None,
            Err(error) if error.is_data() => {
                self.complain(envelope.id(), INVALID, &format!("not a message that is read here: {error}"));
                return None;
            }
            Err(error) => {
                self.complain(&Value::Null, -32700, &format!("not JSON: {error}"));
                return None;
            }
        };
        if let Some(reason) = self.narrow.as_ref().filter(|_| !is_urgent(&envelope)) {
            let text = format!("{reason}; until then only chaos_stop and chaos_status are served");
            self.end_with(envelope.id(), NO_ROOM, &text);
            return None;
        }
        let until = (line.len() > SHORT_LINE).then(|| Instant::now() + LONG_LINE);
        self.long = None;
        Some(Next { line, envelope, bytes, until })
    }

    /// The message of a line for which there is room now.
    fn parse(&mut self, next: Next, mut held: Held) -> Option<RxJsonRpcMessage<RoleServer>> {
        let Next { line, envelope, bytes, .. } = next;
        let memory = held.split(bytes);
        let mut message: RxJsonRpcMessage<RoleServer> = match serde_json::from_slice(line.trim_ascii()) {
            Ok(message) => message,
            // A notification is never answered, not even one that makes no sense.
            Err(_) if envelope.is_notification() => return None,
            Err(problem) => {
                let text = format!("not a message of the protocol: {problem}");
                self.complain(envelope.id(), INVALID, &text);
                return None;
            }
        };
        match &mut message {
            JsonRpcMessage::Request(request) => {
                let Some(number) = self.under_way.begin(&request.id, held) else {
                    let text = "a request with this id is under way: give each its own";
                    self.complain(envelope.id(), INVALID, text);
                    return None;
                };
                let memory = Memory::of_request(memory, &self.under_way, request.id.clone(), number);
                request.request.extensions_mut().insert(Arc::new(memory));
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.under_way.cancel(id);
                }
                let memory = Memory::of_notification(memory, held);
                notification.notification.extensions_mut().insert(Arc::new(memory));
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        Some(message)
    }

    /// The next message that is let in; `None` for a line that was none. Cancelling it loses nothing.
    async fn message(&mut self) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Ended> {
        if self.next.is_none() {
            if self.whole.is_none() {
                self.tally.room().await;
                if !self.buffer.is_empty() {
                    // Whoever says much at once has one message after the other taken in, and others between them.
                    tokio::task::yield_now().await;
                }
                self.whole = Some(self.line().await.ok_or(Ended)?);
            }
            // Whoever has something short to say comes between two that are long.
            let is_long = self.whole.as_ref().is_some_and(|line| line.len() > SHORT_LINE);
            let tally = Arc::clone(&self.tally);
            let _turn = if is_long { Some(tally.turn().await) } else { None };
            let Some(line) = self.whole.take() else { return Ok(None) };
            self.next = self.weigh(line);
        }
        let Some(next) = &self.next else { return Ok(None) };
        let room = self.tally.take(next.bytes + reply_of(&next.envelope));
        let held = match next.until {
            None => Some(room.await),
            Some(until) => timeout_at(until, room).await.ok(),
        };
        let tally = Arc::clone(&self.tally);
        let _turn = if next.until.is_some() { Some(tally.turn().await) } else { None };
        let Some(next) = self.next.take() else { return Ok(None) };
        match held {
            Some(held) => Ok(self.parse(next, held)),
            None => {
                let text = "the server holds as much for its callers as it may: try again";
                self.complain(next.envelope.id(), NO_ROOM, text);
                Ok(None)
            }
        }
    }
}

/// Nothing more is to be read.
struct Ended;

/// What a reply may take until its length is known, in bytes.
fn reply_of(envelope: &Envelope) -> usize {
    let kib = match (envelope.method(), envelope.tool()) {
        (Some("tools/call"), Some("chaos_statistics")) => 8192,
        (Some("tools/call"), Some("chaos_get_run")) if envelope.all_samples() => 8192,
        (Some("tools/call"), Some("chaos_list_runs" | "chaos_targets")) => 4096,
        (
            Some("tools/call"),
            Some("chaos_status" | "chaos_describe_experiment" | "chaos_list_experiments"),
        ) => 2048,
        (Some("tools/call"), _) => 1024,
        (Some("tools/list" | "resources/read"), _) => 512,
        _ => 16,
    };
    kib << 10
}

/// Whether it is served when there is no place: what opens a session, and what ends faults or looks at them.
fn is_urgent(envelope: &Envelope) -> bool {
    match envelope.method() {
        Some("initialize" | "server/discover" | "ping") | None => true,
        Some("tools/call") => matches!(envelope.tool(), Some("chaos_stop" | "chaos_status")),
        Some(_) => envelope.is_notification(),
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let id = match &item {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let held = id.and_then(|id| self.under_way.answer(id));
        // What the daemon says by itself.
        let held = held.unwrap_or_else(|| self.tally.hold(COMPLAINT));
        let written = Arc::clone(&self.output).write(item, held);
        // To whom it cannot be written is told by `tally`. As an error it would be a line of the log for each reply that a client
        // does not wait for.
        async move { written.await.or(Ok(())) }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let tally = Arc::clone(&self.tally);
        loop {
            if let Some(end) = self.end {
                self.discard(end).await;
                return None;
            }
            let message = tokio::select! {
                biased;
                () = tally.left() => return None,
                message = self.message() => message,
            };
            match message {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(Ended) if self.end.is_some() => {}
                Err(Ended) => return None,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        match self.output.writer.lock().await.take() {
            Some(mut writer) => writer.shutdown().await,
            None => Ok(()),
        }
    }
}

impl<R, W> Drop for LineTransport<R, W> {
    fn drop(&mut self) {
        self.under_way.cancel_all();
    }
}

#[cfg(any(test, fuzzing))]
#[path = "transport_fuzzed.rs"]
pub(crate) mod fuzzed;
#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
