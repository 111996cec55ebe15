//! Whatever a client says, every message is weighed before it is taken in, nothing is held when all is answered, and each answer
//! is a line of JSON.

use std::io::Cursor;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::RoleServer;
use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::RxJsonRpcMessage;
use rmcp::transport::Transport;
use serde_json::Value;

use super::{LineTransport, shape};
use crate::fuzzing::peak_of;
use crate::mcp::tools;
use crate::request::Caller;
use crate::server::budget::Budget;

/// What a message may take beside what it weighs: buffers that are no part of it.
const ASIDE: usize = 16 << 10;

pub(crate) fn read(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        is_weighed(line.trim_ascii());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    if let Ok(runtime) = runtime {
        runtime.block_on(converse(bytes));
    }
}

/// Reads a line as rmcp has it read, and hands it on as a call does.
fn is_weighed(line: &[u8]) {
    let Ok(weight) = shape::weigh(line) else { return };
    let peak = peak_of(|| {
        let line = line.to_vec();
        let message = serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(&line);
        let arguments = message.as_ref().ok().and_then(arguments);
        drop((arguments.clone(), arguments, message, line));
    });
    assert!(peak <= weight + ASIDE, "it takes {peak} bytes, and weighs {weight}");
}

fn arguments(message: &RxJsonRpcMessage<RoleServer>) -> Option<serde_json::Map<String, Value>> {
    match message {
        JsonRpcMessage::Request(request) => match &request.request {
            ClientRequest::CallToolRequest(call) => call.params.arguments.clone(),
            _ => None,
        },
        _ => None,
    }
}

/// Has all of it as a client that reads its answers.
#[expect(clippy::expect_used, reason = "an answer that is no JSON is what is looked for")]
async fn converse(bytes: &[u8]) {
    let budget = Budget::default();
    let tally = budget.tally();
    let reader = Cursor::new([bytes, b"\n"].concat());
    let caller = Caller::Unix { uid: 1000, gid: 1000, pid: 7 };
    let mut transport = LineTransport::new(reader, Vec::new(), Arc::clone(&tally), None, caller);
    let output = Arc::clone(&transport.output);
    while let Some(message) = transport.receive().await {
        if let JsonRpcMessage::Request(request) = message {
            if let ClientRequest::CallToolRequest(call) = &request.request {
                tools::fuzzed::read(&call.params.name, call.params.arguments.clone().unwrap_or_default());
            }
            let id = request.id.clone();
            drop(request);
            let answer = JsonRpcMessage::error(ErrorData::internal_error("none", None), Some(id));
            assert!(transport.send(answer).await.is_ok());
        }
    }
    // Complaints are written by tasks of their own.
    while Arc::strong_count(&output) > 2 {
        tokio::task::yield_now().await;
    }
    let said = output.writer.lock().await.take().unwrap_or_default();
    drop(transport);
    assert_eq!((tally.held(), budget.held()), ((0, 0), 0), "held, with nothing under way");
    for line in said.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let answer: Value = serde_json::from_slice(line).expect("an answer that is no JSON");
        assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
    }
}
