//! The Model Context Protocol on a connection: which tools there are, and how a call becomes a result.

pub(crate) mod advise;
pub(crate) mod approvals;
pub(crate) mod catalogue;
pub(crate) mod control;
mod deeds;
pub(crate) mod describe;
pub(crate) mod experiment;
pub(crate) mod history;
mod inject;
pub(crate) mod judge;
mod node;
mod params;
pub(crate) mod plan;
pub(crate) mod probe;
mod prompts;
mod report;
mod resources;
pub(crate) mod results;
pub(crate) mod schedule;
mod schema;
pub(crate) mod search;
mod shape;
mod status;
mod subscriptions;
pub(crate) mod targets;
mod tool;
mod tools;
mod transport;
mod under_way;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use chaos_audit::{Kind, Record};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    CustomRequest, CustomResult, GetPromptRequestParams, GetPromptResponse, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::request::{ApiError, Caller, ErrorCode};
use crate::server::ledger::refused;
use crate::server::service::Service;
use crate::server::{self, ServerError, ServerOptions, Session};
use subscriptions::Subscriptions;
use tool::Call;
use tools::Entry;
use transport::LineTransport;
use under_way::Memory;
use waiting::News;

pub use subscriptions::MOST_FOLLOWED;
#[cfg(any(test, fuzzing))]
pub(crate) use transport::fuzzed;
pub use waiting::LONGEST_WAIT;

/// The most calls of one connection at once.
pub const MOST_CALLS: usize = 8;
/// How long one call may take; common clients give up after a minute.
pub const CALL_LIMIT: Duration = Duration::from_secs(45);
/// How long a connection may say nothing that opens a session.
pub const OPENING_LIMIT: Duration = Duration::from_secs(30);

/// Where a client says which trace a call is part of.
const TRACE: &str = "traceparent";

const INSTRUCTIONS: &str = "chaos-daemon injects real faults (slow, lost or refused packets, partitions, failing calls, load, killed or paused \
processes) into the Linux host it runs on. Every fault ends by itself, and at once with chaos_stop.\n\
The way:\n\
1. Find: chaos_node says who you are, what you may, what this kernel can, and what to aim at; more: chaos_targets, chaos_advise, chaos_probe.\n\
2. Plan: take a built-in experiment (chaos_describe_experiment), put in the names of this host and a gate with a number, and give it to \
chaos_plan_experiment. A single fault: chaos_plan.\n\
3. Register: chaos_register_experiment. A single fault: chaos_inject_fault.\n\
4. Run: chaos_run_experiment, with the plan_digest.\n\
5. Follow: chaos_get_run with wait_seconds, chaos_status. A run whose state is running has not failed.\n\
6. Report: chaos_report. Later: chaos_list_runs, chaos_statistics, chaos_schedule, chaos_search.\n\
Name the narrowest target that serves, and keep faults short. Never inject into a host whose users have not agreed. A registered \
probability is rolled once per inject: was_triggered=false means that nothing was done. An error has a hint; retryable says whether the same call may \
succeed later.\n\
Resources: chaos://schema/experiment, chaos://policy, chaos://fault/TYPE, chaos://probe/KIND, chaos://run/RUN_ID, chaos://report/RUN_ID.html.";

/// The names of all tools.
#[cfg(test)]
pub(crate) fn tool_names() -> Vec<&'static str> {
    tools::TOOLS.iter().map(|tool| tool.name).collect()
}

/// Serves MCP until the injector is gone.
///
/// # Errors
/// As [`server::run`].
pub async fn serve(options: ServerOptions) -> Result<(), ServerError> {
    let tools = Arc::new(tools::list());
    server::run(options, move |session| speak(session, Arc::clone(&tools))).await
}

async fn speak(session: Session, tools: Arc<Vec<Tool>>) {
    let Session { service, caller, reader, writer, tally, narrow } = session;
    let calls = Arc::new(Semaphore::new(MOST_CALLS));
    let what = narrow.clone();
    let record = Record { act: "connect".to_owned(), what, ..Record::default() };
    service.ledger().put(Kind::Look, record, caller).await;
    let subscriptions = Subscriptions::default();
    let handler = Handler { service, caller, tools, calls: Arc::clone(&calls), subscriptions };
    let transport = LineTransport::new(reader, writer, tally, narrow, caller);
    let opened = tokio::time::timeout(OPENING_LIMIT, handler.serve(transport)).await;
    match opened {
        Ok(Ok(running)) => {
            if let Err(error) = running.waiting().await {
                tracing::error!(%caller, %error, "a connection broke");
            }
        }
        Ok(Err(error)) => tracing::debug!(%caller, %error, "no session was opened"),
        Err(_) => tracing::info!(%caller, "closed: no session within {OPENING_LIMIT:?}"),
    }
    // What has begun goes on without its client, in this connection's place: who comes and goes has no more at once than others.
    let all = u32::try_from(MOST_CALLS).unwrap_or(u32::MAX);
    let _ended = calls.acquire_many(all).await;
}

/// One connection's side of the protocol.
struct Handler {
    service: Service,
    caller: Caller,
    tools: Arc<Vec<Tool>>,
    calls: Arc<Semaphore>,
    subscriptions: Subscriptions,
}

impl Handler {
    /// A place among the calls that are under way.
    fn place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.calls).try_acquire_owned().ok().ok_or_else(|| {
            let text =
                format!("{MOST_CALLS} calls of this connection are under way, which is the most at once");
            ApiError::new(ErrorCode::LimitReached, text).hint("wait for one to end")
        })
    }

    async fn answer(
        &self,
        tool: Entry,
        arguments: Map<String, Value>,
        request: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let place = match self.place() {
            Ok(place) => place,
            Err(error) => {
                let record =
                    Record { act: "call".to_owned(), on: Some(tool.name.to_owned()), ..Record::default() };
                self.service.ledger().put(Kind::Look, refused(record, &error), self.caller).await;
                return tool.failed(&arguments, &error, self.caller);
            }
        };
        let (service, caller, given) = (self.service.clone(), self.caller, arguments.clone());
        let (asker, followed) = waiting::between();
        let mut news = News::new(request, followed);
        let trace = request.meta.0.0.get(TRACE).and_then(Value::as_str).map(str::to_owned);
        // What was asked for is there until it is done, also where nobody waits for that.
        let memory = request.extensions.get::<Arc<Memory>>().cloned();
        // In a task of its own, so that a client that leaves does not cut a change in half. What only looks is given up with it, and an
        // injection is taken back (`mcp/inject.rs`).
        let work = tokio::spawn(async move {
            let call = Call { service: &service, caller, arguments: given, asker: &asker, trace };
            let result = tool.carry_out(call).await;
            drop((place, memory));
            result
        });
        let _given_up = tool.given_up.then(|| GiveUp(work.abort_handle()));
        let work = tokio::time::timeout(CALL_LIMIT, work);
        tokio::pin!(work);
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut work => break answered,
                // Nobody hears this; a change that has begun goes on, but for waits and injections.
                () = request.ct.cancelled() => {
                    let cancelled = ApiError::new(ErrorCode::Unavailable, "cancelled by the client");
                    return tool.failed(&arguments, &cancelled, caller);
                }
                () = news.due() => news.tell().await,
            }
        };
        match answered {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => {
                tracing::error!(%caller, %error, tool = tool.name, "a call broke");
                let broke = ApiError::new(ErrorCode::Unavailable, "the call broke within the daemon");
                tool.failed(&arguments, &broke, caller)
            }
            Err(_) => {
                let text = format!(
                    "no answer from the injector within {CALL_LIMIT:?}; an injection is taken back, and anything else that was asked \
                     may still happen"
                );
                let late = ApiError::new(ErrorCode::Unavailable, text).hint("look at chaos_status");
                tool.failed(&arguments, &late, caller)
            }
        }
    }
}

/// Ends a call, unless it has ended, once nobody waits for it.
struct GiveUp(AbortHandle);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_resources()
                .enable_resources_subscribe()
                .enable_prompts()
                .enable_completions()
                .build(),
        )
        .with_server_info(Implementation::new("chaos-daemon", env!("CARGO_PKG_VERSION")))
        .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // The same list for everyone: what a caller may do is decided when it does it.
        Ok(ListToolsResult::with_all_items(Vec::clone(&self.tools)))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = Entry::named(&request.name) else {
            let known: Vec<_> = self.tools.iter().map(|tool| tool.name.as_ref()).collect();
            let text = format!("no tool {:?}: there are {}", request.name, known.join(", "));
            return Err(ErrorData::invalid_params(text, None));
        };
        Ok(self.answer(tool, request.arguments.unwrap_or_default(), &context).await.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(resources::list())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        // It is as much work as a call.
        let place = || self.place().map_err(|error| ErrorData::internal_error(error.to_string(), None));
        if request.uri == resources::AUDIT {
            let _place = place()?;
            return resources::read_audit(&self.service).await.map(Into::into);
        }
        if request.uri == resources::RULES {
            let _place = place()?;
            return resources::read_rules(&self.service).await.map(Into::into);
        }
        if let Some(run_id) = resources::reported(&request.uri) {
            let (_place, owner) = (place()?, self.caller.owner());
            return resources::read_report(&self.service, &request.uri, run_id, owner).await.map(Into::into);
        }
        let Some(run_id) = resources::run_id(&request.uri) else {
            return resources::read(&request.uri).map(Into::into);
        };
        let _place = place()?;
        resources::read_run(&self.service, &request.uri, run_id, self.caller.owner()).await.map(Into::into)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let _place = self.place().map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let answered = async {
            match request.method.as_str() {
                judge::METHOD => judge::answer(&self.service, self.caller, request.params).await,
                approvals::METHOD => approvals::answer(&self.service, request.params).await,
                _ => Err(judge::unknown(request.method)),
            }
        };
        let late = |_| ErrorData::internal_error(format!("no answer within {CALL_LIMIT:?}"), None);
        tokio::time::timeout(CALL_LIMIT, answered).await.map_err(late)?
    }

    // Of revisions with a session: one resource each.

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.subscribe(&self.service, request.uri, context.peer).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.unsubscribe(&request.uri);
        Ok(())
    }

    // Of the revision without: one request for several, which lasts.

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(subscriptions::accepted(requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.subscriptions.listen(&self.service, &context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let _place = self.place().map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        prompts::complete(&self.service, &request.r#ref, &request.argument, self.caller.owner()).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(prompts::list())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(&request.name, request.arguments.as_ref()).map(Into::into)
    }
}

#[cfg(test)]
mod owners_tests;
