//! Whether calls of tools would be permitted, without making them: what a client asks before it lets a model call one.
//!
//! The rules are the policy's, and the words those of the tools. Here is only what each call has to ask the policy for.

use std::collections::BTreeMap;
use std::future::Future;

use rmcp::ErrorData;
use rmcp::model::{CustomResult, ErrorCode as RpcCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::experiment::{self, Planned, Wanted};
use super::inject::{self, Action};
use super::results::Failure;
use super::{plan, probe, schedule};
use crate::experiment::variables::Nowhere;
use crate::experiment::{Experiment, Stage};
use crate::probe::arguments;
use crate::probe::prober::needed_leaves;
use crate::request::facts::Question;
use crate::request::fields::Fields;
use crate::request::{Act, ApiError, Caller, ErrorCode};
use crate::server::registry::Document;
use crate::server::service::{Service, about, beginning, no_probe};
use crate::spec::{FaultRequest, GivenName};

/// The request of a client that wants to know. It is none of the protocol's, and no tool: a model has no use for it.
pub(crate) const METHOD: &str = "chaos/judge";
/// The most calls that are judged at once.
pub(crate) const MOST_CALLS: usize = 32;

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    /// Name of the tool.
    pub(crate) tool: String,
    /// What it is given.
    pub(crate) arguments: Map<String, Value>,
}

/// Calls that are made one after the other.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Calls {
    pub(crate) calls: Vec<ToolCall>,
}

/// Whether all of them would be permitted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Judgement {
    pub(crate) permitted: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

impl ToolCall {
    /// A call of this tool with these arguments.
    pub(crate) fn new(tool: &str, arguments: Map<String, Value>) -> Self {
        Self { tool: tool.to_owned(), arguments }
    }

    /// Of a tool that does one thing whatever it is given: what that is.
    fn act(&self) -> Option<Act> {
        Some(match self.tool.as_str() {
            "chaos_status"
            | "chaos_doctor"
            | "chaos_get_run"
            | "chaos_list_experiments"
            | "chaos_list_runs"
            | "chaos_describe_experiment"
            | "chaos_node"
            | "chaos_report"
            | "chaos_statistics" => Act::Look,
            "chaos_stop" => Act::End,
            "chaos_targets" | "chaos_advise" => Act::Plan,
            "chaos_inject_fault" if self.arguments.get("action") == Some(&json!("remove")) => Act::End,
            _ => return None,
        })
    }

    /// Whether it does nothing but look at what the daemon knows, or end something.
    pub(crate) fn looks_or_ends(&self) -> bool {
        matches!(self.act(), Some(Act::Look | Act::End))
    }
}

impl From<Result<(), ApiError>> for Judgement {
    fn from(judged: Result<(), ApiError>) -> Self {
        let error = judged.err().map(|error| Failure::from(&error));
        Self { permitted: error.is_none(), error }
    }
}

/// Who knows the policy, and what is registered.
pub(crate) trait Court {
    /// Asks something to which leave is the whole answer.
    fn ask(&self, question: Question) -> impl Future<Output = Result<(), ApiError>> + Send;
    /// The fault that is registered under a name.
    fn fault(&self, name: &GivenName) -> impl Future<Output = Result<FaultRequest, ApiError>> + Send;
    /// The experiment that is registered under a name.
    fn document(&self, name: &str) -> impl Future<Output = Result<Map<String, Value>, ApiError>> + Send;
    /// Whether a run at this stage, or at the next, is due of what has this name.
    fn due(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
        wanted: (&str, Option<Stage>),
    ) -> impl Future<Output = Result<(), ApiError>> + Send;
}

/// The daemon, for somebody.
struct Daemon<'a> {
    service: &'a Service,
    caller: Caller,
}

impl Court for Daemon<'_> {
    async fn ask(&self, question: Question) -> Result<(), ApiError> {
        self.service.ask(question).await
    }

    async fn fault(&self, name: &GivenName) -> Result<FaultRequest, ApiError> {
        self.service.fault_meant(name, self.caller).await
    }

    async fn document(&self, name: &str) -> Result<Map<String, Value>, ApiError> {
        self.service.document_meant(name, self.caller).await
    }

    async fn due(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
        wanted: (&str, Option<Stage>),
    ) -> Result<(), ApiError> {
        self.service.stage_due(experiment, document, wanted, self.caller).await
    }
}

/// Answers a request of [`METHOD`].
pub(super) async fn answer(
    service: &Service,
    caller: Caller,
    params: Option<Value>,
) -> Result<CustomResult, ErrorData> {
    let Calls { calls } = Calls::deserialize(params.unwrap_or_default())
        .map_err(|error| ErrorData::invalid_params(format!("{METHOD}: {error}"), None))?;
    let judged = judge(&Daemon { service, caller }, calls).await;
    Ok(CustomResult(json!(Judgement::from(judged))))
}

/// That a method is not known.
pub(super) fn unknown(method: String) -> ErrorData {
    ErrorData::new(RpcCode::METHOD_NOT_FOUND, method, None)
}

/// Whether all of these would be permitted one after the other, however many faults are active and whatever is on the host: what one
/// registers is known to the next.
///
/// # Errors
/// Why the first one would not be.
pub(crate) async fn judge(court: &impl Court, calls: Vec<ToolCall>) -> Result<(), ApiError> {
    if calls.len() > MOST_CALLS {
        let text = format!("{} calls at once are too many to judge: make {MOST_CALLS} at most", calls.len());
        return Err(ApiError::new(ErrorCode::LimitReached, text));
    }
    let mut hearing = Hearing { court, faults: BTreeMap::new(), documents: BTreeMap::new() };
    for call in calls {
        hearing.judge(call).await?;
    }
    Ok(())
}

/// A court, and what the calls before have registered.
struct Hearing<'a, C> {
    court: &'a C,
    faults: BTreeMap<String, FaultRequest>,
    documents: BTreeMap<String, Map<String, Value>>,
}

impl<C: Court> Hearing<'_, C> {
    async fn judge(&mut self, call: ToolCall) -> Result<(), ApiError> {
        if let Some(act) = call.act() {
            return self.act(act).await;
        }
        let ToolCall { tool, arguments } = call;
        match tool.as_str() {
            "chaos_inject_fault" => self.inject(arguments).await,
            "chaos_plan" => {
                let (name, fault) = plan::wanted(arguments)?;
                let fault = match fault {
                    Some(fault) => fault,
                    None => self.fault(&name).await?,
                };
                self.with_fault(Act::Plan, fault).await
            }
            "chaos_register_experiment" => self.register(arguments).await,
            "chaos_run_experiment" => {
                let Wanted { name, dry_run, stage, .. } = experiment::wanted(arguments)?;
                match dry_run {
                    true => self.dry_run(&self.document(&name).await?).await,
                    false => self.run(&name, stage).await,
                }
            }
            "chaos_plan_experiment" => match experiment::planned(arguments)? {
                (Planned::Registered(name), _) => self.dry_run(&self.document(&name).await?).await,
                (Planned::Document(document), _) => {
                    self.understand(&document).await?;
                    self.dry_run(&document).await
                }
            },
            "chaos_probe" => self.probe(&probe::words(arguments)?).await,
            "chaos_schedule" => self.schedule(arguments).await,
            "chaos_search" => self.search(arguments).await,
            other => {
                let text = format!("{other:?} is no tool that could be judged");
                Err(ApiError::new(ErrorCode::InvalidParameter, text).hint("update chaosctl and chaos-daemon"))
            }
        }
    }

    async fn act(&self, act: Act) -> Result<(), ApiError> {
        self.court.ask(Question::Act(act)).await
    }

    async fn with_fault(&self, act: Act, fault: FaultRequest) -> Result<(), ApiError> {
        self.court.ask(Question::Fault { act, fault: Box::new(fault) }).await
    }

    async fn fault(&self, name: &GivenName) -> Result<FaultRequest, ApiError> {
        match self.faults.get(&name.to_string()) {
            Some(fault) => Ok(fault.clone()),
            None => self.court.fault(name).await,
        }
    }

    async fn document(&self, name: &str) -> Result<Map<String, Value>, ApiError> {
        match self.documents.get(name) {
            Some(document) => Ok(document.clone()),
            None => self.court.document(name).await,
        }
    }

    async fn inject(&mut self, arguments: Map<String, Value>) -> Result<(), ApiError> {
        let (name, action) = inject::parse(arguments)?;
        match action {
            // Above.
            Action::Remove => self.act(Act::End).await,
            Action::Register(fault) => {
                self.with_fault(Act::Register, FaultRequest::clone(&fault)).await?;
                self.faults.insert(name.to_string(), *fault);
                Ok(())
            }
            Action::Inject(..) => self.with_fault(Act::Inject, self.fault(&name).await?).await,
        }
    }

    /// What a document means, if what its probes need may be used.
    async fn understand(&self, document: &Map<String, Value>) -> Result<Experiment, ApiError> {
        Document::check(document)?;
        let experiment = Experiment::parse(document, &Nowhere)?;
        for question in experiment.probes().flat_map(|(_, probe)| needed_leaves(&probe.check)) {
            self.court.ask(question).await?;
        }
        Ok(experiment)
    }

    async fn register(&mut self, document: Map<String, Value>) -> Result<(), ApiError> {
        let name = self.understand(&document).await?.name;
        self.court.ask(about(Act::Register, &document)).await?;
        self.documents.insert(name, document);
        Ok(())
    }

    async fn dry_run(&self, document: &Map<String, Value>) -> Result<(), ApiError> {
        self.court.ask(about(Act::Plan, document)).await
    }

    async fn run(&self, name: &str, stage: Option<Stage>) -> Result<(), ApiError> {
        let document = self.document(name).await?;
        let experiment = Experiment::parse(&document, &Nowhere)?;
        self.court.due(&experiment, &document, (name, stage)).await?;
        self.court.ask(beginning(&experiment, &document)).await?;
        for (_, _, fault) in experiment.faults() {
            self.with_fault(Act::Run, fault.clone()).await?;
        }
        Ok(())
    }

    async fn probe(&self, words: &[String]) -> Result<(), ApiError> {
        self.court.ask(Question::Named { act: Act::Probe, texts: words.to_vec() }).await?;
        let probe = arguments::read(words).map_err(|problem| no_probe(words, problem))?;
        for question in needed_leaves(&probe.check) {
            self.court.ask(question).await?;
        }
        Ok(())
    }

    async fn schedule(&self, arguments: Map<String, Value>) -> Result<(), ApiError> {
        let mut fields = Fields::new("", arguments);
        match fields.string("action")?.as_deref() {
            Some("list") => self.act(Act::Look).await,
            Some("pause" | "delete") => self.act(Act::End).await,
            Some("set") => {
                self.act(Act::Schedule).await?;
                self.document(&schedule::words(&mut fields)?.experiment).await.map(drop)
            }
            _ => self.act(Act::Schedule).await,
        }
    }

    async fn search(&self, arguments: Map<String, Value>) -> Result<(), ApiError> {
        let mut fields = Fields::new("", arguments);
        let (action, name) = (fields.string("action")?, fields.string("name")?);
        match action.as_deref() {
            Some("list" | "status") => self.act(Act::Look).await,
            Some("stop") => self.act(Act::End).await,
            _ => {
                self.act(Act::Schedule).await?;
                let name = fields.need("name", name, "name the experiment")?;
                self.document(&name).await.map(drop)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tools::TOOLS;
    use super::*;

    /// Forbids everything, and has nothing.
    struct Closed;

    impl Court for Closed {
        async fn ask(&self, question: Question) -> Result<(), ApiError> {
            Err(ApiError::new(ErrorCode::PolicyDenied, format!("{question:?}")))
        }

        async fn fault(&self, name: &GivenName) -> Result<FaultRequest, ApiError> {
            Err(ApiError::new(ErrorCode::FaultNotFound, name.to_string()))
        }

        async fn document(&self, name: &str) -> Result<Map<String, Value>, ApiError> {
            Err(ApiError::new(ErrorCode::ExperimentNotFound, name))
        }

        async fn due(
            &self,
            _: &Experiment,
            _: &Map<String, Value>,
            _: (&str, Option<Stage>),
        ) -> Result<(), ApiError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn no_tool_is_permitted_by_a_court_that_permits_nothing_and_each_is_known() {
        for tool in TOOLS.iter().map(|tool| tool.name.to_owned()) {
            let call = ToolCall { tool: tool.clone(), arguments: Map::new() };
            let refused = judge(&Closed, vec![call]).await.expect_err(&tool);
            assert!(!refused.message.contains("no tool that could be judged"), "{tool} is not judged");
        }
        let unknown = ToolCall { tool: "chaos_break".to_owned(), arguments: Map::new() };
        assert!(judge(&Closed, vec![unknown.clone()]).await.is_err());
        let many = judge(&Closed, vec![unknown; MOST_CALLS + 1]).await.unwrap_err();
        assert_eq!(many.code, ErrorCode::LimitReached);
    }
}
