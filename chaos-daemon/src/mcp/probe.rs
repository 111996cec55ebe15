//! `chaos_probe`.

use rmcp::model::CallToolResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::results::{Failure, Output};
use crate::request::fields::Fields;
use crate::request::{ApiError, Caller};
use crate::server::service::Service;
use crate::spec::SpecError;

/// Result of `chaos_probe`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct ProbeOutput {
    /// Whether it is as it should be.
    pub(crate) ok: bool,
    /// What was seen.
    pub(crate) detail: String,
    /// What was measured, in the unit of the probe; absent when nothing was.
    #[schemars(with = "f64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<f64>,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

impl Output for ProbeOutput {
    fn failed(&self) -> bool {
        self.error.is_some()
    }
}

/// What came back of an address is left out: an experiment's tolerance may look at it, a caller need not see it.
pub(super) async fn take(
    service: &Service,
    caller: Caller,
    arguments: Map<String, Value>,
) -> Result<ProbeOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    let words = fields.array("arguments")?;
    let words = fields.need("arguments", words, "give the words after \"chaosctl probe\"")?;
    fields.finish()?;
    let text = |word: &Value| match word {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(SpecError::new("arguments", format!("{other} is no word: give text or a number"))),
    };
    let words = words.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let sample = service.probe(&words, caller).await?;
    Ok(ProbeOutput {
        ok: sample.ok,
        detail: sample.detail,
        // JSON has no infinity, and the detail says it.
        value: sample.value.filter(|value| value.is_finite()),
        seconds: sample.took.as_secs_f64(),
        error: None,
    })
}

pub(super) fn failed(error: &ApiError) -> CallToolResult {
    ProbeOutput { error: Some(Failure::from(error)), ..ProbeOutput::default() }.result()
}
