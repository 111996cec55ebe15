//! A client that speaks raw lines, so that tests see exactly what is on the wire.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// Longer than anything takes in a test that does not hang, on a busy machine, too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    reader: BufReader<OwnedReadHalf>,
    writer: Option<OwnedWriteHalf>,
    next: u64,
    /// Whether requests carry their metadata, as revision 2026-07-28 wants it.
    modern: bool,
    /// How long an answer may take.
    pub(crate) patience: Duration,
}

impl Client {
    /// A connection on which nothing was said.
    pub(crate) async fn raw(socket: &Path) -> Self {
        let (reader, writer) = UnixStream::connect(socket).await.unwrap().into_split();
        Self {
            reader: BufReader::new(reader),
            writer: Some(writer),
            next: 0,
            modern: false,
            patience: PATIENCE,
        }
    }

    /// A session in a revision that has `initialize`.
    pub(crate) async fn legacy(socket: &Path, revision: &str) -> Self {
        let mut client = Self::raw(socket).await;
        let answer = client
            .request(
                "initialize",
                json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
            )
            .await;
        assert_eq!(answer["result"]["protocolVersion"], revision);
        client.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()).await;
        client
    }

    /// A connection in revision 2026-07-28, which has no sessions.
    pub(crate) async fn modern(socket: &Path) -> Self {
        Self { modern: true, ..Self::raw(socket).await }
    }

    /// The usual session.
    pub(crate) async fn open(socket: &Path) -> Self {
        Self::legacy(socket, "2025-11-25").await
    }

    pub(crate) async fn bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.writer.as_mut().unwrap().write_all(bytes).await
    }

    pub(crate) async fn line(&mut self, line: &str) {
        self.bytes(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// No more will be said.
    pub(crate) fn end(&mut self) {
        self.writer = None;
    }

    /// The next line; `None` at the end.
    pub(crate) async fn answer(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = timeout(self.patience, self.reader.read_line(&mut line)).await.expect("no answer");
        if read.unwrap_or(0) == 0 { None } else { Some(serde_json::from_str(&line).unwrap()) }
    }

    /// Sends a request; its id.
    pub(crate) async fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if self.modern {
            for (key, value) in [
                ("protocolVersion", json!("2026-07-28")),
                ("clientCapabilities", json!({})),
                ("clientInfo", json!({"name": "t", "version": "1"})),
            ] {
                params["_meta"][format!("io.modelcontextprotocol/{key}")] = value;
            }
        }
        let request = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.line(&request.to_string()).await;
        self.next
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        let answer = self.answer().await.expect("the connection ended");
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Calls a tool: its structured result, and whether it is an error. Checks what holds for every result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> (Value, bool) {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
        let result = &answer["result"];
        let structured = result["structuredContent"].clone();
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"));
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), structured);
        (structured, result["isError"] == true)
    }

    /// Calls `chaos_inject_fault` and expects it to succeed.
    pub(crate) async fn fault(&mut self, name: &str, action: &str, more: Value) -> Value {
        let mut arguments = json!({"fault_name": name, "action": action});
        for (key, value) in more.as_object().unwrap() {
            arguments[key] = value.clone();
        }
        let (result, failed) = self.call("chaos_inject_fault", arguments).await;
        assert!(!failed, "{result}");
        result
    }
}

/// An address that refuses connections, and that nobody else gets while the socket is kept: bound, not listening.
pub(crate) fn closed_port() -> (tokio::net::TcpSocket, String) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}
