//! `chaos_targets`: what can be aimed at on this host.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::history::limit;
use super::results::{Failure, says_its_error};
use super::schema::{object, text};
use super::tool::{Call, Hints, Tool};
use crate::request::ApiError;
use crate::request::fields::Fields;
use crate::request::host_targets::{HostTargets, MOST_TOLD, Wanted};

/// How many entries of each list are told when nobody says.
const LISTED: u32 = 20;
/// The most of each list.
#[expect(clippy::cast_possible_truncation, reason = "a few hundred")]
const MOST_LISTED: u32 = MOST_TOLD as u32;

/// Result of `chaos_targets`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct TargetsOutput {
    /// What was found.
    #[serde(flatten)]
    pub(crate) found: HostTargets,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(TargetsOutput);

pub(super) struct Targets;

impl Tool for Targets {
    const NAME: &'static str = "chaos_targets";
    const TITLE: &'static str = "List targets";
    const DESCRIPTION: &'static str = "All that can be aimed at on this host, as far as you may see it: interfaces, network namespaces, units, containers, cgroups, and ports with who listens.";
    const HINTS: Hints = Hints::LOOKS;
    const GIVEN_UP: bool = true;
    type Output = TargetsOutput;

    fn input() -> JsonObject {
        object(
            json!({
                "text": text("Only what has this text in its name, addresses, programs or owner, in whatever case."),
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": LISTED,
                    "description": "The most entries of each list."},
            }),
            &[],
        )
    }

    async fn carry_out(Call { service, arguments, .. }: Call<'_>) -> Result<TargetsOutput, ApiError> {
        let mut fields = Fields::new("", arguments);
        let text = fields.string("text")?;
        let limit = limit(&mut fields, LISTED, MOST_LISTED)? as usize;
        fields.finish()?;
        let found = service.host_targets(Wanted { text, limit }).await?;
        Ok(TargetsOutput { found, error: None })
    }
}
