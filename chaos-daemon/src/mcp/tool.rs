//! What a tool is.

use std::future::Future;

use rmcp::model::{CallToolResult, JsonObject};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::waiting::Asker;
use crate::request::{ApiError, Caller};
use crate::server::service::Service;

/// A tool. One that is listed in `tools.rs` is offered.
pub(super) trait Tool {
    /// By which it is called.
    const NAME: &'static str;
    /// For people.
    const TITLE: &'static str;
    /// For models.
    const DESCRIPTION: &'static str;
    /// For clients that ask their user before a call.
    const HINTS: Hints;
    /// Whether it looks at the host, which may take long, and changes nothing: who leaves does without.
    const GIVEN_UP: bool = false;
    /// What it says, also of a call that failed.
    type Output: Output;

    /// The schema of its arguments.
    fn input() -> JsonObject;

    /// Does what is asked.
    fn carry_out(call: Call<'_>) -> impl Future<Output = Result<Self::Output, ApiError>> + Send;

    /// What it says of a call with these arguments that failed.
    fn failed(_arguments: &Map<String, Value>, error: &ApiError) -> Self::Output {
        Self::Output::refused(error)
    }
}

/// One call of a tool.
pub(super) struct Call<'a> {
    pub(super) service: &'a Service,
    pub(super) caller: Caller,
    pub(super) arguments: Map<String, Value>,
    /// Who waits for the answer.
    pub(super) asker: &'a Asker,
    /// The trace that it is part of, if the client says so (W3C Trace Context).
    pub(super) trace: Option<String>,
}

/// What a call may do, true to what the tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hints {
    /// It changes nothing.
    pub(super) read_only: bool,
    /// What it changes may break something.
    pub(super) destructive: bool,
    /// To call it again with the same arguments changes nothing more.
    pub(super) idempotent: bool,
    /// Probes of it reach out to addresses that the caller, or the experiment, names.
    pub(super) open_world: bool,
}

impl Hints {
    /// Of a tool that only looks.
    pub(super) const LOOKS: Self =
        Self { read_only: true, destructive: false, idempotent: true, open_world: false };
    /// Of a tool that breaks something, each time that it is called.
    pub(super) const BREAKS: Self =
        Self { read_only: false, destructive: true, idempotent: false, open_world: true };
}

/// A result that can say why there is none.
pub(super) trait Output: Serialize + JsonSchema {
    /// Whether the call failed.
    fn failed(&self) -> bool;

    /// That of a call that failed, of which nothing else is known.
    fn refused(error: &ApiError) -> Self;

    /// The result on the wire: structured, and as text for older clients.
    fn result(&self) -> CallToolResult {
        match serde_json::to_value(self) {
            Ok(value) if self.failed() => CallToolResult::structured_error(value),
            Ok(value) => CallToolResult::structured(value),
            Err(error) => CallToolResult::structured_error(serde_json::Value::String(error.to_string())),
        }
    }
}
