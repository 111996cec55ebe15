//! `chaosctl` as a client of the daemon: MCP over its unix socket, the same as any agent.

use std::io::{self, Read};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, CustomRequest, CustomResult, Implementation,
    ReadResourceRequestParams, ResourceContents, ServerResult,
};
use rmcp::service::{ClientInitializeError, RoleClient, RunningService};
use rmcp::{ServiceError, ServiceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::net::UnixStream;

use super::words::in_shell;
use crate::mcp::judge::{Calls, Judgement, METHOD, ToolCall};
use crate::mcp::results::Failure;

/// How long the daemon may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why the daemon cannot be asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// Nothing listens there.
    #[error("connecting to the daemon at {}: {}", path.display(), advice(source))]
    Connect {
        /// Socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something listens, but does not speak the protocol.
    #[error("opening a session with the daemon: {0}")]
    Session(String),
    /// The daemon has said that it does not serve this session, as where too many are open.
    #[error("opening a session with the daemon: {0}")]
    NotServed(String),
    /// The session broke.
    #[error("asking the daemon: {0}")]
    Call(String),
    /// The daemon is gone while a run was waited for.
    #[error(
        "the daemon has ended while run {run} went on, and its faults with it ({why})\n  once it is started again, chaosctl show {run} \
         says what became of the run, and chaosctl status what is active"
    )]
    Ended {
        /// Handle of the run.
        run: String,
        /// What came of the last attempt to ask it.
        why: String,
    },
    /// The daemon refused or failed.
    #[error("{message}")]
    Refused {
        /// Stable name.
        code: String,
        /// What and why.
        message: String,
        /// What to do.
        hint: Option<String>,
        /// The whole answer.
        answer: Value,
    },
}

/// What a failure to connect means, and what to do about it.
pub(super) fn advice(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "there is no such socket: start the daemon (systemctl start chaos-daemon, or chaos-daemon run), or name \
             its socket with --socket or CHAOS_SOCKET"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied: join the group that owns the socket (usermod -aG chaos USER, then log in again), or \
             use sudo"
                .to_owned()
        }
        io::ErrorKind::ConnectionRefused => {
            "the socket is there, but no daemon listens: start it again".to_owned()
        }
        _ => error.to_string(),
    }
}

/// What a tool has answered.
#[derive(Debug)]
pub(super) struct Answer<T> {
    /// As it came, for programs.
    pub(super) json: Value,
    /// The same, read.
    pub(super) read: T,
}

impl<T: DeserializeOwned> Answer<T> {
    /// Reads what `tool` has said.
    fn of(tool: &str, json: Value) -> Result<Self, ClientError> {
        match T::deserialize(&json) {
            Ok(read) => Ok(Self { json, read }),
            Err(error) => Err(ClientError::Call(format!(
                "{tool} has answered what this chaosctl does not understand: {error}; are both of one version?"
            ))),
        }
    }
}

/// Why a call failed, wherever its tool has that: as an object, or in words with the rest beside it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: Option<Why>,
    error_code: Option<String>,
    hint: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Why {
    Failure(Failure),
    Words(String),
}

impl Refusal {
    /// The failure of `tool`.
    fn failure(self, tool: &str) -> Failure {
        let silent = || format!("{tool} failed without saying why");
        match self.error {
            Some(Why::Failure(failure)) if !failure.message.is_empty() => failure,
            Some(Why::Failure(failure)) => Failure { message: silent(), ..failure },
            Some(Why::Words(message)) => Failure {
                code: self.error_code.unwrap_or_default(),
                message,
                hint: self.hint,
                ..Failure::default()
            },
            None => Failure {
                code: self.error_code.unwrap_or_default(),
                message: silent(),
                hint: self.hint,
                ..Failure::default()
            },
        }
    }
}

/// A session with the daemon.
pub(super) struct Client {
    session: RunningService<RoleClient, ClientConfig>,
}

impl Client {
    /// Opens a session.
    pub(super) async fn connect(path: &Path) -> Result<Self, ClientError> {
        let broken = |source| ClientError::Connect { path: path.to_owned(), source };
        let stream = UnixStream::connect(path).await.map_err(broken)?.into_std().map_err(broken)?;
        // What the daemon has said before a write failed is still to be read there.
        let unread = stream.try_clone().map_err(broken)?;
        let stream = UnixStream::from_std(stream).map_err(broken)?;
        let me = Implementation::new("chaosctl", env!("CARGO_PKG_VERSION"));
        let config = ClientConfig::new(ClientCapabilities::default(), me);
        match tokio::time::timeout(PATIENCE, config.serve(stream)).await {
            Ok(Ok(session)) => Ok(Self { session }),
            Ok(Err(error)) => Err(why(error, &unread)),
            Err(_) => Err(ClientError::Session(format!("no answer within {PATIENCE:?}"))),
        }
    }

    /// Calls a tool, and reads its result.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        tool: &'static str,
        arguments: Map<String, Value>,
    ) -> Result<Answer<T>, ClientError> {
        Answer::of(tool, self.call(tool, arguments).await?)
    }

    /// Calls a tool; its structured result as it comes.
    pub(super) async fn call(
        &self,
        tool: &'static str,
        arguments: Map<String, Value>,
    ) -> Result<Value, ClientError> {
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = match tokio::time::timeout(PATIENCE, self.session.call_tool(request)).await {
            Ok(Ok(result)) => result,
            Ok(Err(ServiceError::McpError(error))) => {
                return Err(ClientError::Call(error.message.into_owned()));
            }
            Ok(Err(error)) => return Err(ClientError::Call(error.to_string())),
            Err(_) => return Err(ClientError::Call(format!("no answer within {PATIENCE:?}"))),
        };
        let answer = result.structured_content.unwrap_or_default();
        if result.is_error != Some(true) {
            return Ok(answer);
        }
        let refusal = Refusal::deserialize(&answer).unwrap_or_default();
        let Failure { code, message, hint, .. } = refusal.failure(tool);
        let hint = hint.map(|hint| in_shell(&hint));
        Err(ClientError::Refused { code, message, hint, answer })
    }

    /// Whether these calls would be permitted, without making them.
    pub(super) async fn judge(&self, calls: Vec<ToolCall>) -> Result<Judgement, ClientError> {
        self.custom(METHOD, serde_json::json!(Calls { calls })).await.map(|(read, _)| read)
    }

    /// Asks what no tool does. Returns the answer, and as it came.
    pub(super) async fn custom<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<(T, Value), ClientError> {
        let request = CustomRequest::new(method, Some(params));
        let failed = |error: ServiceError| ClientError::Call(error.to_string());
        match self.session.send_request(request.into()).await.map_err(failed)? {
            ServerResult::CustomResult(CustomResult(answer)) => {
                Answer::of(method, answer).map(|answer| (answer.read, answer.json))
            }
            other => Err(ClientError::Call(format!("an answer of another kind: {other:?}"))),
        }
    }

    /// What stands at a resource, which is one text.
    pub(super) async fn read(&self, uri: &str) -> Result<String, ClientError> {
        let asked = self.session.read_resource(ReadResourceRequestParams::new(uri));
        let read = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(read) => read.map_err(|error| ClientError::Call(error.to_string()))?,
            Err(_) => return Err(ClientError::Call(format!("no answer within {PATIENCE:?}"))),
        };
        match read.contents.as_slice() {
            [ResourceContents::TextResourceContents { text, .. }] => Ok(text.clone()),
            _ => Err(ClientError::Call(format!("{uri} is not one text"))),
        }
    }

    /// Says good-bye, so that what was asked last is surely sent.
    pub(super) async fn close(mut self) {
        // It ends in any case.
        let _ = self.session.close_with_timeout(Duration::from_secs(2)).await;
    }
}

/// Why no session was opened: what the daemon says, or else what its silence means.
fn why(error: ClientInitializeError, unread: &StdUnixStream) -> ClientError {
    match error {
        ClientInitializeError::JsonRpcError(error) => ClientError::NotServed(error.message.into_owned()),
        ClientInitializeError::TransportError { .. } | ClientInitializeError::ConnectionClosed(_) => {
            let mut said = vec![0; 64 * 1024];
            // It does not block: there is something, or there is nothing.
            let length = (&*unread).read(&mut said).unwrap_or_default();
            let silent = "it closed the connection at once: too many may be open; its log says why";
            refusal(&said[..length])
                .map_or_else(|| ClientError::Session(silent.to_owned()), ClientError::NotServed)
        }
        other => ClientError::Session(other.to_string()),
    }
}

/// A refusal as JSON-RPC has it, whatever it answers.
#[derive(Deserialize)]
struct Refused {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    message: String,
}

/// The reason in the last line of what the daemon has said, if that refuses something.
pub(super) fn refusal(said: &[u8]) -> Option<String> {
    let line = said.trim_ascii_end().rsplit(|byte| *byte == b'\n').next()?;
    let refused: Refused = serde_json::from_slice(line).ok()?;
    Some(refused.error.message)
}
