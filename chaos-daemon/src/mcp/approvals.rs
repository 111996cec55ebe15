//! Approvals for `chaosctl`. It is none of the protocol's requests, and no tool: no model has any business with it. Who approves, the
//! injector knows itself.

use rmcp::ErrorData;
use rmcp::model::CustomResult;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::results::Failure;
use crate::request::ApiError;
use crate::request::approvals::{Approval, ApprovalRequest};
use crate::server::service::Service;

/// The request of who lists, gives or takes back approvals.
pub(crate) const METHOD: &str = "chaos/approvals";

/// What is answered.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ApprovalsOutput {
    /// All that were asked for, or the one that was given or taken back.
    #[serde(default)]
    pub(crate) approvals: Vec<Approval>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

impl From<Result<Vec<Approval>, ApiError>> for ApprovalsOutput {
    fn from(asked: Result<Vec<Approval>, ApiError>) -> Self {
        match asked {
            Ok(approvals) => Self { approvals, error: None },
            Err(error) => Self { approvals: Vec::new(), error: Some(Failure::from(&error)) },
        }
    }
}

/// Answers a request of [`METHOD`].
pub(super) async fn answer(service: &Service, params: Option<Value>) -> Result<CustomResult, ErrorData> {
    let what = ApprovalRequest::deserialize(params.unwrap_or_default())
        .map_err(|error| ErrorData::invalid_params(format!("{METHOD}: {error}"), None))?;
    Ok(CustomResult(json!(ApprovalsOutput::from(service.approvals(what).await))))
}
