//! Which tools there are, and how a call of one becomes a result.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use rmcp::model::{CallToolResult, JsonObject, Tool as Described, ToolAnnotations};
use serde_json::{Map, Value};

use super::deeds::Deed;
use super::tool::{Call, Hints, Output, Tool};
use super::{
    advise, catalogue, control, describe, experiment, history, inject, node, plan, probe, report, schedule,
    schema, search, status, targets,
};
use crate::request::{ApiError, Caller};

/// Every tool, by name.
pub(super) const TOOLS: &[Entry] = &[
    entry::<advise::Advise>(),
    entry::<describe::DescribeExperiment>(),
    entry::<control::Doctor>(),
    entry::<history::GetRun>(),
    entry::<inject::InjectFault>(),
    entry::<catalogue::ListExperiments>(),
    entry::<history::ListRuns>(),
    entry::<node::AboutNode>(),
    entry::<plan::Plan>(),
    entry::<experiment::PlanExperiment>(),
    entry::<probe::Probe>(),
    entry::<experiment::RegisterExperiment>(),
    entry::<report::Report>(),
    entry::<experiment::RunExperiment>(),
    entry::<schedule::Scheduling>(),
    entry::<search::Searching>(),
    entry::<history::Statistics>(),
    entry::<status::Status>(),
    entry::<control::Stop>(),
    entry::<targets::Targets>(),
];

/// A tool among others.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) given_up: bool,
    described: fn() -> Described,
    /// The whole schema of what it says.
    pub(super) output: fn() -> JsonObject,
    carry_out: for<'a> fn(Call<'a>) -> BoxFuture<'a, CallToolResult>,
    failed: fn(&Map<String, Value>, &ApiError) -> CallToolResult,
}

const fn entry<T: Tool>() -> Entry {
    Entry {
        name: T::NAME,
        given_up: T::GIVEN_UP,
        described: describe::<T>,
        output: schema::of_output::<T::Output>,
        carry_out: carry_out::<T>,
        failed: |arguments, error| T::failed(arguments, error).result(),
    }
}

fn describe<T: Tool>() -> Described {
    let Hints { read_only, destructive, idempotent, open_world } = T::HINTS;
    let annotations = ToolAnnotations::new()
        .read_only(read_only)
        .destructive(destructive)
        .idempotent(idempotent)
        .open_world(open_world);
    Described::new(T::NAME, T::DESCRIPTION, T::input())
        .with_title(T::TITLE)
        .with_raw_output_schema(Arc::new(schema::outline(&schema::of_output::<T::Output>())))
        .with_annotations(annotations)
}

fn carry_out<T: Tool>(call: Call<'_>) -> BoxFuture<'_, CallToolResult> {
    let (caller, arguments) = (call.caller, call.arguments.clone());
    async move {
        let mut deed = Deed::of(T::NAME, &call);
        deed.begins().await;
        // What it says does not outlive this line: it may be of one thread.
        let done = T::carry_out(call).await.map(|output| (output.failed(), output.result()));
        match done {
            Ok((failed, result)) => {
                deed.ended(None, failed).await;
                result
            }
            Err(error) => {
                deed.ended(Some(&error), true).await;
                entry::<T>().failed(&arguments, &error, caller)
            }
        }
    }
    .boxed()
}

impl Entry {
    /// The tool of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        TOOLS.iter().find(|tool| tool.name == name).copied()
    }

    /// Does what is asked, and says what came of it.
    pub(super) async fn carry_out(self, call: Call<'_>) -> CallToolResult {
        (self.carry_out)(call).await
    }

    /// The result of a call that failed: an error that the model can read, in the tool's own shape.
    pub(super) fn failed(
        self,
        arguments: &Map<String, Value>,
        error: &ApiError,
        caller: Caller,
    ) -> CallToolResult {
        tracing::info!(%caller, tool = self.name, code = ?error.code, %error, "refused or failed");
        (self.failed)(arguments, error)
    }
}

/// Every tool, as clients see it.
pub(super) fn list() -> Vec<Described> {
    TOOLS.iter().map(|tool| (tool.described)()).collect()
}

#[cfg(any(test, fuzzing))]
#[path = "tools_fuzzed.rs"]
pub(super) mod fuzzed;
