//! Who decides: the daemon, or where none runs the policy file alone.

use std::path::Path;

use jiff::Timestamp;
use nix::unistd;
use serde_json::{Map, Value};

use super::super::client::{Client, ClientError};
use crate::experiment::{Experiment, Stage};
use crate::mcp::judge::{Court, Judgement, ToolCall, judge};
use crate::policy::{Policy, Who};
use crate::request::facts::Question;
use crate::request::{ApiError, Caller, ErrorCode, chain};
use crate::spec::{FaultRequest, GivenName};

/// Why calls are refused; nothing if they are permitted.
pub(super) type Refused = Option<String>;

/// Asks the daemon; where none listens, the policy file. The caller bounds the time.
///
/// # Errors
/// Why nobody decides.
pub(super) async fn decide(socket: &Path, policy: &Path, calls: Vec<ToolCall>) -> Result<Refused, String> {
    let client = match Client::connect(socket).await {
        Ok(client) => client,
        Err(ClientError::Connect { source, .. })
            if matches!(
                source.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
            ) =>
        {
            return by_file(policy, calls).await;
        }
        Err(error) => return Err(error.to_string()),
    };
    let judged = client.judge(calls).await.map_err(|error| error.to_string())?;
    Ok(said(judged))
}

/// By the policy file alone: what is registered is not known, and of the stages none was run.
async fn by_file(path: &Path, calls: Vec<ToolCall>) -> Result<Refused, String> {
    let policy = Policy::read(path).map_err(|error| format!("no daemon answers, and {}", chain(&error)))?;
    let caller = Caller::Unix {
        uid: unistd::getuid().as_raw(),
        gid: unistd::getgid().as_raw(),
        pid: unistd::getpid().as_raw(),
    };
    let groups = unistd::getgroups().unwrap_or_default().into_iter().map(|group| group.as_raw()).collect();
    let who = Who { groups, ..caller.into() };
    Ok(said(judge(&File { policy, who }, calls).await.into()))
}

fn said(judged: Judgement) -> Refused {
    match judged {
        Judgement { permitted: true, .. } => None,
        Judgement { error: None, .. } => Some("the daemon refuses it, and does not say why".to_owned()),
        Judgement { error: Some(error), .. } => Some(match error.hint {
            Some(hint) => format!("{} ({}): {hint}", error.message, error.code),
            None => format!("{} ({})", error.message, error.code),
        }),
    }
}

/// A policy file, for whoever runs this.
struct File {
    policy: Policy,
    who: Who,
}

fn unknown(code: ErrorCode, name: impl std::fmt::Display) -> ApiError {
    ApiError::new(code, format!("no daemon answers, and nobody else knows what is registered as {name}"))
        .hint("start the daemon (systemctl start chaos-daemon)")
}

impl Court for File {
    async fn ask(&self, question: Question) -> Result<(), ApiError> {
        match &question {
            // Whether others could change the program is seen by the daemon.
            Question::Command(path) => self.policy.may_run(&self.who, path),
            Question::Python(modules) => self.policy.may_call(&self.who, modules),
            question => self.policy.answer(&self.who, question, Timestamp::now()).map(drop),
        }
    }

    async fn fault(&self, name: &GivenName) -> Result<FaultRequest, ApiError> {
        Err(unknown(ErrorCode::FaultNotFound, name))
    }

    async fn document(&self, name: &str) -> Result<Map<String, Value>, ApiError> {
        Err(unknown(ErrorCode::ExperimentNotFound, name))
    }

    async fn due(
        &self,
        experiment: &Experiment,
        _: &Map<String, Value>,
        (_, wanted): (&str, Option<Stage>),
    ) -> Result<(), ApiError> {
        let Some(radius) = &experiment.guardrails.blast_radius else { return Ok(()) };
        let due = radius.due(&[], wanted);
        due.map(drop).map_err(|refusal| ApiError::new(ErrorCode::StageNotDue, refusal.to_string()))
    }
}
