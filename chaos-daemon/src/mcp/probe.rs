//! `chaos_probe`.

use std::collections::BTreeMap;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::results::{Failure, says_its_error};
use super::schema::object;
use super::tool::{Call, Hints, Tool};
use crate::experiment::schema as experiment_schema;
use crate::probe::KINDS;
use crate::request::ApiError;
use crate::request::fields::Fields;
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

says_its_error!(ProbeOutput);

pub(super) struct Probe;

impl Tool for Probe {
    const NAME: &'static str = "chaos_probe";
    const TITLE: &'static str = "Take a sample";
    const DESCRIPTION: &'static str = "Takes one sample, as an experiment's probe does, and says whether it is as it should be, e.g. [\"unit\", \"a.service\"], [\"process\", \"--unit\", \"a.service\", \"--measure\", \"memory_mb\", \"--max\", 500], [\"host\", \"memory_used_percent\", \"--max\", 80], [\"tcp\", \"127.0.0.1:5432\"], or a program that the policy names: [\"command\", \"--\", \"/usr/lib/payment/check\"].";
    /// A request of it may be any (POST), a program of it whatever the policy names, and so is what another server's tool does.
    const HINTS: Hints = Hints::BREAKS;
    const GIVEN_UP: bool = true;
    type Output = ProbeOutput;

    fn input() -> JsonObject {
        object(
            json!({
                "arguments": {
                    "type": "array", "minItems": 1,
                    "items": {"anyOf": [{"type": "string"}, {"type": "number"}]},
                    "examples": one_of_each(experiment_schema::examples_of_probes()),
                    "description": format!("The words after \"chaosctl probe\", which begin with one of {}.", KINDS.join(", ")),
                },
            }),
            &["arguments"],
        )
    }

    async fn carry_out(call: Call<'_>) -> Result<ProbeOutput, ApiError> {
        take(call.service, call.arguments).await
    }
}

/// Of each kind of probe the first example, without the word that stands before it in a document.
fn one_of_each(examples: Value) -> Vec<Value> {
    let mut first: BTreeMap<String, Value> = BTreeMap::new();
    for words in examples.as_array().into_iter().flatten().filter_map(Value::as_array) {
        let words: Vec<_> = words.iter().skip(1).cloned().collect();
        let kind = words.first().and_then(Value::as_str).unwrap_or_default().to_owned();
        first.entry(kind).or_insert(Value::Array(words));
    }
    first.into_values().collect()
}

/// What came back of an address is left out: an experiment's tolerance may look at it, a caller need not see it.
async fn take(service: &Service, arguments: Map<String, Value>) -> Result<ProbeOutput, ApiError> {
    let sample = service.probe(&words(arguments)?).await?;
    Ok(ProbeOutput {
        ok: sample.ok,
        detail: sample.detail,
        // JSON has no infinity, and the detail says it.
        value: sample.value.filter(|value| value.is_finite()),
        seconds: sample.took.as_secs_f64(),
        error: None,
    })
}

/// The words of a call, those after `chaosctl probe`.
pub(super) fn words(arguments: Map<String, Value>) -> Result<Vec<String>, ApiError> {
    let mut fields = Fields::new("", arguments);
    let words = fields.array("arguments")?;
    let words = fields.need("arguments", words, "give the words after \"chaosctl probe\"")?;
    fields.finish()?;
    let text = |word: &Value| match word {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(SpecError::new("arguments", format!("{other} is no word: give text or a number"))),
    };
    Ok(words.iter().map(text).collect::<Result<_, _>>()?)
}
