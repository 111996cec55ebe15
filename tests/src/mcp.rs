//! A blocking MCP client over the daemon's unix socket, so that tests read from top to bottom.

use std::path::Path;
use std::thread;

use rmcp::model::CallToolRequestParams;
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceExt};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::become_user;

/// What a tool answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Whether the tool says that it failed.
    pub is_error: bool,
    /// The structured content; `Null` when there is none.
    pub json: Value,
    /// The text content, joined.
    pub text: String,
}

impl Answer {
    /// The structured content of a success.
    ///
    /// # Errors
    /// When the tool says that it failed.
    pub fn ok(self) -> Result<Value> {
        if self.is_error {
            return Err(Error::Mcp {
                what: "tool failed".into(),
                problem: format!("{} {}", self.text, self.json),
            });
        }
        Ok(self.json)
    }
}

/// A connected client. Dropping it closes the connection.
pub struct Mcp {
    // Before the runtime, which has to outlive it.
    client: RunningService<RoleClient, ()>,
    runtime: Runtime,
}

impl Mcp {
    /// Connects as this user, as the kernel tells the daemon.
    ///
    /// # Errors
    /// As of [`Mcp::connect`], and when this is not root.
    pub fn connect_as(user: u32, socket: &Path) -> Result<Self> {
        let socket = socket.to_owned();
        let connected = thread::spawn(move || {
            become_user(user)?;
            Self::connect(&socket)
        });
        connected.join().map_err(|_panic| Error::Different("a connection panicked".into()))?
    }

    /// Connects and shakes hands.
    ///
    /// # Errors
    /// When nobody listens, or the handshake fails or takes too long.
    pub fn connect(socket: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("start", "a runtime"))?;
        let subject = socket.display().to_string();
        let client = runtime.block_on(async {
            let stream = UnixStream::connect(socket).await.map_err(Error::io("connect to", subject))?;
            bounded("handshake", ().serve(stream)).await
        })?;
        Ok(Self { client, runtime })
    }

    /// Calls a tool. `arguments` has to be an object.
    ///
    /// # Errors
    /// When the protocol fails; a tool that fails is an [`Answer`].
    pub fn call_tool(&self, name: &str, arguments: Value) -> Result<Answer> {
        let mut params = CallToolRequestParams::new(name.to_owned());
        match arguments {
            Value::Object(map) => params.arguments = Some(map),
            other => {
                return Err(Error::Mcp { what: name.into(), problem: format!("{other} is not an object") });
            }
        }
        let result = self.runtime.block_on(bounded(name, self.client.call_tool(params)))?;
        let text: Vec<_> =
            result.content.iter().filter_map(|block| block.as_text().map(|text| text.text.clone())).collect();
        Ok(Answer {
            is_error: result.is_error.unwrap_or(false),
            json: result.structured_content.unwrap_or(Value::Null),
            text: text.join("\n"),
        })
    }

    /// Names of the tools on offer.
    ///
    /// # Errors
    /// When the protocol fails.
    pub fn tools(&self) -> Result<Vec<String>> {
        let tools = self.runtime.block_on(bounded("tools/list", self.client.list_all_tools()))?;
        Ok(tools.into_iter().map(|tool| tool.name.into_owned()).collect())
    }

    /// The tools on offer, as a model is told of them.
    ///
    /// # Errors
    /// When the protocol fails.
    pub fn tool_list(&self) -> Result<Value> {
        let tools = self.runtime.block_on(bounded("tools/list", self.client.list_all_tools()))?;
        serde_json::to_value(tools)
            .map_err(|error| Error::Mcp { what: "tools/list".into(), problem: error.to_string() })
    }
}

async fn bounded<T, E: std::fmt::Display>(
    what: &str,
    work: impl Future<Output = std::result::Result<T, E>>,
) -> Result<T> {
    match tokio::time::timeout(HANG, work).await {
        Ok(result) => result.map_err(|error| Error::Mcp { what: what.into(), problem: error.to_string() }),
        Err(_elapsed) => Err(Error::Hung { what: format!("answer to {what}") }),
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolResponse, CallToolResult, ServerCapabilities, ServerConfig};
    use rmcp::service::RequestContext;
    use rmcp::{ErrorData, RoleServer, ServerHandler};
    use serde_json::json;
    use tokio::net::UnixListener;

    use super::*;

    /// A server whose tools give their arguments back, as a success or as a failure.
    struct Mirror;

    impl ServerHandler for Mirror {
        fn get_info(&self) -> ServerConfig {
            ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
        }

        async fn call_tool(
            &self,
            request: CallToolRequestParams,
            _: RequestContext<RoleServer>,
        ) -> std::result::Result<CallToolResponse, ErrorData> {
            let arguments = Value::Object(request.arguments.unwrap_or_default());
            let result = match request.name.as_ref() {
                "good" => CallToolResult::structured(arguments),
                _ => CallToolResult::structured_error(arguments),
            };
            Ok(result.into())
        }
    }

    #[test]
    fn a_tool_that_fails_is_an_answer_and_a_dropped_client_hangs_up() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mcp.sock");
        let path = socket.clone();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListener::bind(path).unwrap();
                ready.send(()).unwrap();
                let (stream, _) = listener.accept().await.unwrap();
                Mirror.serve(stream).await.unwrap().waiting().await.unwrap();
            });
        });
        is_ready.recv().unwrap();
        let client = Mcp::connect(&socket).unwrap();
        assert_eq!(client.call_tool("good", json!({"a": 1})).unwrap().ok().unwrap(), json!({"a": 1}));
        let answer = client.call_tool("bad", json!({"b": 2})).unwrap();
        assert!(answer.is_error);
        assert_eq!(answer.json, json!({"b": 2}));
        assert!(client.call_tool("good", json!(3)).is_err());
        drop(client);
        server.join().unwrap();
    }
}
