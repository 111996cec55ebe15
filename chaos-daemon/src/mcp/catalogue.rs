//! `chaos_list_experiments`: which experiments there are.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::history::{limit, verdict};
use super::results::{Failure, says_its_error};
use super::schema::{object, text};
use super::tool::{Call, Hints, Tool};
use crate::experiment::verdict::VERDICTS;
use crate::request::ApiError;
use crate::request::fields::Fields;
use crate::server::catalogue::{Known, ORIGINS, Origin, Place, Wanted};
use crate::server::history::Latest;
use crate::server::service::Service;
use crate::spec::{Owner, SpecError};

/// How many experiments are on a page when nobody says.
const LISTED: u32 = 50;
/// The most on one page.
pub(super) const MOST_LISTED: u32 = 250;

/// An experiment in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Listed {
    /// Name: of one that is registered, the one under which it is run.
    pub(crate) experiment_name: String,
    /// Whose it is, if it is another user's, whose names are UID/NAME.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// "registered", or "built-in": it can be described, and its document registered.
    pub(crate) origin: Origin,
    /// What it is about.
    pub(crate) title: String,
    /// Its tags.
    pub(crate) tags: Vec<String>,
    /// Types of its faults, in order.
    pub(crate) fault_types: Vec<String>,
    /// SHA-256 of its document without secrets, by which its runs are known.
    pub(crate) digest: String,
    /// Its latest run that has ended.
    #[schemars(with = "Latest")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_run: Option<Latest>,
    /// Handle of its run that goes on.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<String>,
    /// Why it cannot be run: this version does not take its document any more.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

impl Listed {
    pub(super) fn new(
        known: &Known,
        last_run: Option<Latest>,
        running: Option<String>,
        viewer: Owner,
    ) -> Self {
        Self {
            experiment_name: known.place.name.clone(),
            owner: known.registered.as_ref().and_then(|(owner, _)| owner.told_to(viewer)),
            origin: known.place.origin,
            title: known.title(),
            tags: known.tags(),
            fault_types: known.faults().into_iter().map(|fault| fault.fault_type).collect(),
            digest: known.digest.clone(),
            last_run,
            running,
            problem: known.experiment.as_ref().err().map(ToString::to_string),
        }
    }
}

/// Result of `chaos_list_experiments`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct ListOutput {
    /// The experiments that were found: those registered and then those built in, each by name.
    pub(crate) experiments: Vec<Listed>,
    /// The cursor of the page that follows; absent on the last.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(ListOutput);

pub(super) struct ListExperiments;

impl Tool for ListExperiments {
    const NAME: &'static str = "chaos_list_experiments";
    const TITLE: &'static str = "List experiments";
    const DESCRIPTION: &'static str = "Which experiments there are: those you have registered, and those built in. With their faults and the \
         verdict of their latest run, page by page.";
    const HINTS: Hints = Hints::LOOKS;
    type Output = ListOutput;

    fn input() -> JsonObject {
        let verdicts: Vec<_> = VERDICTS.iter().map(|verdict| verdict.name()).collect();
        let origins = ORIGINS.map(Origin::name);
        let properties = json!({
            "text": text("Only those with this text in name or title."),
            "tag": text("Only experiments with this tag."),
            "fault": text("Only those with such a fault, by type or name."),
            "target": text("Only those with a fault whose target has this text."),
            "last_verdict": {"type": "string", "enum": verdicts, "description": "Only those whose latest run has it."},
            "origin": {"type": "string", "enum": origins, "description": "Only those."},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": LISTED, "description": "The most experiments on the page."},
            "cursor": text("The next_cursor of the page before, with the same filters."),
        });
        object(properties, &[])
    }

    async fn carry_out(call: Call<'_>) -> Result<ListOutput, ApiError> {
        list(call.service, call.arguments, call.caller.owner()).await
    }
}

/// Understands what is looked for.
pub(super) fn wanted(fields: &mut Fields) -> Result<Wanted, SpecError> {
    let origin = fields.string("origin")?.map(|name| {
        let known = ORIGINS.map(Origin::name).join(", ");
        Origin::parse(&name)
            .ok_or_else(|| SpecError::new("origin", format!("{name:?} is not one of {known}")))
    });
    Ok(Wanted {
        text: fields.string("text")?,
        tag: fields.string("tag")?,
        fault: fields.string("fault")?,
        target: fields.string("target")?,
        verdict: verdict(fields, "last_verdict")?,
        origin: origin.transpose()?,
        after: fields.string("cursor")?.map(|cursor| Place::from_cursor(&cursor)).transpose()?,
    })
}

async fn list(
    service: &Service,
    arguments: Map<String, Value>,
    viewer: Owner,
) -> Result<ListOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    let wanted = wanted(&mut fields)?;
    let limit = limit(&mut fields, LISTED, MOST_LISTED)? as usize;
    fields.finish()?;
    let mut latest = service.history().latest().await?;
    let running = service.going_on();
    let listed = move |known: Known| {
        // What is built in is run under its title, once that is registered.
        let last = known.registered.as_ref().and_then(|registered| latest.remove(registered));
        if !wanted.is(&known, last.as_ref()) {
            return None;
        }
        let running = running.iter().find(|run| known.is_of(run)).map(|run| run.run_id.clone());
        Some((known.place.clone(), Listed::new(&known, last, running, viewer)))
    };
    let mut found = service.catalogue(viewer, limit + 1, listed).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = found.last().filter(|_| more).map(|(place, _)| place.to_cursor());
    let experiments = found.into_iter().map(|(_, listed)| listed).collect();
    Ok(ListOutput { experiments, next_cursor, error: None })
}
