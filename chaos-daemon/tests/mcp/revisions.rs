//! `chaosctl probe mcp` and a server of the Rust SDK that speaks only the revision without a handshake; `chaosctl mcp` brings its socket
//! to stdio.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::process::Command;

use crate::client::PATIENCE;

/// Speaks these revisions.
#[derive(Clone, Copy)]
struct Only(&'static [ProtocolVersion]);

impl ServerHandler for Only {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(self.0)
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("modern", "1"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema: JsonObject = serde_json::from_value(json!({"type": "object"})).unwrap();
        Ok(ListToolsResult::with_all_items(vec![Tool::new("add", "Adds.", schema)]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let said = format!("{:?}", request.arguments);
        let content = vec![ContentBlock::text(said.clone())];
        Ok(if said.contains("wrong") {
            CallToolResult::error(content)
        } else {
            CallToolResult::success(content)
        }
        .into())
    }
}

/// A socket at which such a server answers each connection, for as long as the folder is there.
fn serve(server: Only) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mcp.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                // One that does not come to terms with its client is told so, and is over.
                if let Ok(session) = server.serve(stream).await {
                    session.waiting().await.unwrap();
                }
            });
        }
    });
    (folder, socket)
}

/// Exit code and answer of `chaosctl probe mcp` of the server at this socket.
async fn probe(socket: &Path, words: &[&str]) -> (i32, Value) {
    let chaosctl = env!("CARGO_BIN_EXE_chaosctl");
    let mut command = Command::new(chaosctl);
    command
        .args(["--json", "probe", "mcp", "--timeout", "30s"])
        .args(words)
        .args(["--", chaosctl, "--socket"]);
    command.arg(socket).arg("mcp").stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("no end").unwrap();
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

#[tokio::test]
async fn a_server_without_a_handshake_is_no_server_that_is_down() {
    let (_folder, socket) = serve(Only(&[ProtocolVersion::V_2026_07_28]));
    let (code, sample) =
        probe(&socket, &["--tool", "add", "--call", "add", "--arguments", "{\"a\": 1}"]).await;
    let answer = &sample["answer"];
    assert_eq!(
        (code, &answer["revision"], &answer["tools"]),
        (0, &json!("2026-07-28"), &json!(["add"])),
        "{sample}"
    );
    assert!(
        answer["server"] == "modern" && sample["detail"].as_str().unwrap().contains("add answered"),
        "{sample}"
    );
    let (code, sample) = probe(&socket, &["--call", "add", "--arguments", "{\"a\": \"wrong\"}"]).await;
    assert!(code == 1 && sample["detail"].as_str().unwrap().contains("add failed: "), "{sample}");
}

#[tokio::test]
async fn a_server_that_knows_the_handshake_is_asked_by_it() {
    let (_folder, socket) = serve(Only(ProtocolVersion::KNOWN_VERSIONS));
    let (code, sample) = probe(&socket, &["--tool", "add"]).await;
    assert_eq!((code, &sample["answer"]["revision"]), (0, &json!("2025-06-18")), "{sample}");
}
