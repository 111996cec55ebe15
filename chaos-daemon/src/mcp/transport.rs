//! One JSON-RPC message per line, as rmcp's own transport has it, but nothing that a client says is dropped in
//! silence: a line that is too long, not JSON, or not a message is answered with an error.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout_at};

/// The longest line: a fault with the most prefixes fits.
pub(super) const MAX_LINE: usize = 4 * 1024 * 1024;
/// How many answers may wait for a client that does not read them, before no more of its requests are read.
const MOST_WAITING: usize = 64;
/// How long the rest of a line that was too long is read, so that the client gets to see the error.
const DISCARD: Duration = Duration::from_secs(2);
/// A buffer that grew beyond this is given back once it is empty.
const KEPT_BUFFER: usize = 64 * 1024;

/// Messages as lines, over any pair of streams.
pub(super) struct LineTransport<R, W> {
    reader: R,
    buffer: Vec<u8>,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    output: Arc<Output<W>>,
    end: Option<Instant>,
}

struct Output<W> {
    writer: Mutex<Option<W>>,
    waiting: AtomicUsize,
    eased: Notify,
}

impl<W: AsyncWrite + Send + Unpin + 'static> Output<W> {
    /// Writes one line. It must not be cancelled: half a line would spoil the next.
    async fn write(self: Arc<Self>, message: Result<Vec<u8>, serde_json::Error>) -> io::Result<()> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let written = async {
            let mut line = message?;
            line.push(b'\n');
            let mut writer = self.writer.lock().await;
            let writer = writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            writer.write_all(&line).await?;
            writer.flush().await
        };
        let written = written.await;
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.eased.notify_one();
        written
    }
}

impl<R, W> LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(reader: R, writer: W) -> Self {
        let (writer, waiting, eased) = (Mutex::new(Some(writer)), AtomicUsize::new(0), Notify::new());
        let output = Arc::new(Output { writer, waiting, eased });
        Self { reader, buffer: Vec::new(), searched: 0, output, end: None }
    }

    /// Answers what is no message, in a task, since `receive` may be cancelled at any point.
    fn complain(&self, id: &Value, code: i32, message: &str) {
        let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
        // A client that has gone does not need to be told.
        drop(tokio::spawn(Arc::clone(&self.output).write(serde_json::to_vec(&error))));
    }

    /// The next whole line, without its end. Cancelling it loses nothing.
    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=self.searched + at).collect();
                self.searched = 0;
                if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BUFFER {
                    self.buffer = Vec::new();
                }
                line.pop();
                return Some(line);
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE {
                let text = format!(
                    "a line of more than {MAX_LINE} bytes, which is the limit: closing the connection"
                );
                tracing::warn!("{text}");
                self.complain(&Value::Null, -32600, &text);
                self.end = Some(Instant::now() + DISCARD);
                return None;
            }
            self.buffer.reserve(8 * 1024);
            match self.reader.read_buf(&mut self.buffer).await {
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

    /// Reads and forgets until the client has stopped talking, or has had its time.
    async fn discard(&mut self, end: Instant) {
        loop {
            self.buffer.clear();
            match timeout_at(end, self.reader.read_buf(&mut self.buffer)).await {
                Ok(Ok(read)) if read > 0 => {}
                _ => return,
            }
        }
    }

    fn parse(&self, line: &[u8]) -> Option<RxJsonRpcMessage<RoleServer>> {
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return None;
        }
        let problem = match serde_json::from_slice(line) {
            Ok(message) => return Some(message),
            Err(problem) => problem,
        };
        match serde_json::from_slice::<Value>(line) {
            Err(error) => self.complain(&Value::Null, -32700, &format!("not JSON: {error}")),
            // A notification is never answered, not even one that makes no sense.
            Ok(value) if value.get("method").is_some() && value.get("id").is_none() => {}
            Ok(value) => {
                let id =
                    value.get("id").filter(|id| id.is_string() || id.is_number()).unwrap_or(&Value::Null);
                self.complain(id, -32600, &format!("not a message of the protocol: {problem}"));
            }
        }
        None
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
        Arc::clone(&self.output).write(serde_json::to_vec(&item))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(end) = self.end {
                self.discard(end).await;
                return None;
            }
            while self.output.waiting.load(Ordering::Acquire) > MOST_WAITING {
                self.output.eased.notified().await;
            }
            match self.line().await {
                Some(line) => {
                    if let Some(message) = self.parse(&line) {
                        return Some(message);
                    }
                }
                None if self.end.is_some() => {}
                None => return None,
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
