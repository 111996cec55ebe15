//! `chaos_list_runs` and `chaos_get_run`: what has run.

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::results::{Failure, RunOutput, RunState, RunningView, says_its_error};
use super::schema::{object, text};
use super::status::meant;
use super::tool::{Call, Hints, Output, Tool};
use super::waiting::{Asker, wait_property, wait_seconds};
use crate::experiment::Verdict;
use crate::experiment::blind::{Blind, blind};
use crate::experiment::role::{Role, Stage};
use crate::experiment::timeline::{Occurrence, Reading};
use crate::experiment::verdict::VERDICTS;
use crate::request::fields::Fields;
use crate::request::{ApiError, ErrorCode};
use crate::server::history::score::{Score, score};
use crate::server::history::statistics::{self, statistics};
use crate::server::history::views::sees_all;
use crate::server::history::{FOUND_RUNS, Filter, MOST_FOUND, Recorded, RunFault, Summary};
use crate::server::runs::Run;
use crate::server::service::Service;
use crate::spec::{Owner, SpecError};

/// A run in a list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct Listed {
    /// How it went.
    #[serde(flatten)]
    pub(crate) run: RunOutput,
    /// Types of its faults.
    pub(crate) fault_types: Vec<String>,
    /// Resiliency score, from 0 to 100.
    #[schemars(with = "u8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) score: Option<u8>,
    /// SHA-256 of its document, by which runs of the same experiment are known.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
}

impl Listed {
    /// A run as `viewer` sees it.
    pub(super) fn of(found: Summary, viewer: Owner) -> Self {
        let found = found.seen_by(viewer);
        let run = RunOutput { owner: found.owner.told_to(viewer), ..found.run.into() };
        Self { run, fault_types: found.fault_types, score: found.score, digest: found.digest }
    }
}

/// Result of `chaos_list_runs`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct ListOutput {
    /// The runs that were found, the latest first.
    pub(crate) runs: Vec<Listed>,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(ListOutput);

pub(super) struct ListRuns;

impl Tool for ListRuns {
    const NAME: &'static str = "chaos_list_runs";
    const TITLE: &'static str = "List runs";
    const DESCRIPTION: &'static str = "Searches the history of experiment runs: by experiment, type or name of a fault, target, verdict, text and \
         time. The latest first.";
    const HINTS: Hints = Hints::LOOKS;
    type Output = ListOutput;

    fn input() -> JsonObject {
        object(filter_properties(), &[])
    }

    async fn carry_out(call: Call<'_>) -> Result<ListOutput, ApiError> {
        list(call.service, call.arguments, call.caller.owner()).await
    }
}

pub(super) struct GetRun;

impl Tool for GetRun {
    const NAME: &'static str = "chaos_get_run";
    const TITLE: &'static str = "Get a run";
    const DESCRIPTION: &'static str = "Everything about one run: its faults, what happened when, and what was sampled; of one that goes on, as far as it \
         has come. With wait_seconds it waits for its end.";
    const HINTS: Hints = Hints::LOOKS;
    type Output = RunDetails;

    fn input() -> JsonObject {
        let everything = json!({"type": "boolean", "default": false, "description": "Every sample, and the document. \
            Otherwise only samples that are not met or say something new."});
        let wait = wait_property(
            Duration::ZERO,
            "Of a run that goes on: how long to wait for its end. The answer comes at once when it ends; `ended` says whether it has.",
        );
        object(
            json!({"run_id": text("Handle of the run, or the beginning of it; one that goes on is meant first."),
                "all_samples": everything, "wait_seconds": wait}),
            &["run_id"],
        )
    }

    async fn carry_out(call: Call<'_>) -> Result<RunDetails, ApiError> {
        run(call.service, call.arguments, (call.asker, call.caller.owner())).await
    }

    fn failed(arguments: &Map<String, Value>, error: &ApiError) -> RunDetails {
        let run_id = arguments.get("run_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let run = RunOutput { run_id, state: RunState::Refused, ..RunOutput::default() };
        RunDetails { run, ..RunDetails::refused(error) }
    }
}

/// What a search understands, as JSON Schema.
fn filter_properties() -> Value {
    let verdicts: Vec<_> = VERDICTS.iter().map(|verdict| verdict.name()).collect();
    json!({
        "experiment_name": text("Only runs of this experiment."),
        "fault": text("Only runs with a fault of this type or name."),
        "target": text("Only runs with a fault whose target has this text in it, e.g. \"eth0\" or \"payment.service\"."),
        "verdict": {"type": "string", "enum": verdicts, "description": "Only runs with this verdict."},
        "text": text("Only runs with this text in their experiment's name, their error, or what happened."),
        "since": text("Only runs that began then or later, ISO 8601, e.g. \"2026-02-05T10:00:00Z\"."),
        "until": text("Only runs that began before, ISO 8601."),
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "default": FOUND_RUNS,
            "description": "The most runs."},
    })
}

/// Understands a verdict.
pub(super) fn verdict(fields: &mut Fields, key: &'static str) -> Result<Option<Verdict>, SpecError> {
    let Some(word) = fields.string(key)? else { return Ok(None) };
    let unknown = || {
        let known: Vec<_> = VERDICTS.iter().map(|verdict| verdict.name()).collect();
        SpecError::new(key, format!("{word:?} is not one of {}", known.join(", ")))
    };
    Verdict::parse(&word).ok_or_else(unknown).map(Some)
}

/// Understands how many are wanted at most.
pub(super) fn limit(fields: &mut Fields, unless_given: u32, most: u32) -> Result<u32, SpecError> {
    let limit = fields.number("limit")?.unwrap_or(f64::from(unless_given));
    if limit.fract() != 0.0 || !(1.0..=f64::from(most)).contains(&limit) {
        return Err(SpecError::new("limit", format!("{limit} is not a whole number from 1 to {most}")));
    }
    // Whole, and within bounds.
    Ok(limit as u32)
}

/// Understands the fields of a search of `viewer`'s. Whoever looks for what is in runs finds those that they may see all of.
pub(super) fn filter(fields: &mut Fields, viewer: Owner) -> Result<Filter, ApiError> {
    let verdict = verdict(fields, "verdict");
    let mut time = |key: &'static str| -> Result<Option<jiff::Timestamp>, SpecError> {
        let Some(text) = fields.string(key)? else { return Ok(None) };
        let time = text.parse().map_err(|error| {
            SpecError::new(key, format!("{text:?} is no time, e.g. \"2026-02-05T10:00:00Z\": {error}"))
        });
        time.map(Some)
    };
    let (since, until) = (time("since")?, time("until")?);
    let limit = limit(fields, FOUND_RUNS, MOST_FOUND)?;
    let experiment = meant(fields.string("experiment_name")?.as_deref(), viewer);
    let (fault, target) = (fields.string("fault")?, fields.string("target")?);
    let text = fields.string("text")?;
    let looks_inside = fault.is_some() || target.is_some() || text.is_some();
    Ok(Filter {
        experiment,
        owner: (looks_inside && !viewer.is_root()).then_some(viewer),
        fault,
        target,
        verdict: verdict?,
        text,
        since,
        until,
        limit: Some(limit),
    })
}

async fn list(
    service: &Service,
    arguments: Map<String, Value>,
    viewer: Owner,
) -> Result<ListOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    let filter = filter(&mut fields, viewer)?;
    fields.finish()?;
    let runs = service.history().search(filter).await?;
    Ok(ListOutput { runs: runs.into_iter().map(|run| Listed::of(run, viewer)).collect(), error: None })
}

/// Result of `chaos_get_run`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct RunDetails {
    /// Whether it has ended. Otherwise the rest is as far as it has come.
    pub(crate) ended: bool,
    /// Whose it is. Of another user's run the rest is its name, its verdict and its times, but for root.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// The name of the host that it ran on.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// How it went.
    pub(crate) run: RunOutput,
    /// What it does right now, if it goes on.
    #[schemars(with = "RunningView")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<RunningView>,
    /// SHA-256 of its document, by which runs of the same experiment are known.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// By what the stages of its document are known, of a run at a stage.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) staged: Option<String>,
    /// The document, without secrets.
    #[schemars(with = "Map<String, Value>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) document: Option<Map<String, Value>>,
    /// Its faults.
    pub(crate) faults: Vec<RunFault>,
    /// The resiliency score, and what it is made of.
    #[schemars(with = "Score")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resiliency: Option<Score>,
    /// What happened, in order.
    pub(crate) events: Vec<Occurrence>,
    /// Its gates that have had samples without data, and how many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) without_data: Vec<Blind>,
    /// What was sampled, in order.
    pub(crate) samples: Vec<Reading>,
    /// How many more samples were taken.
    pub(crate) samples_left_out: u64,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(RunDetails);

impl RunDetails {
    /// What `viewer` sees of a run that has ended.
    fn of(recorded: Recorded, viewer: Owner) -> Self {
        let owner = recorded.owner();
        let recorded = recorded.seen_by(viewer);
        Self {
            ended: true,
            owner: Some(owner.to_string()),
            resiliency: if sees_all(owner, viewer) { score(&recorded) } else { None },
            run: RunOutput { owner: owner.told_to(viewer), ..recorded.run.into() },
            running: None,
            host: recorded.host,
            digest: recorded.digest,
            staged: recorded.staged,
            document: recorded.document,
            faults: recorded.faults,
            events: recorded.events,
            without_data: blind(&recorded.samples),
            samples: recorded.samples,
            samples_left_out: recorded.samples_left_out,
            error: None,
        }
    }

    /// What `viewer` sees of a run that goes on.
    fn of_running(run: &Run, viewer: Owner) -> Self {
        let so_far = Self::of(run.recorded_so_far("still running"), viewer);
        Self {
            ended: false,
            run: RunOutput { state: RunState::Running, ..so_far.run },
            running: Some(RunningView::of(run, viewer)),
            // What it is made of is not all there yet.
            resiliency: None,
            ..so_far
        }
    }

    /// Without the document, and the samples that say nothing new.
    fn leave_out(&mut self) {
        self.document = None;
        let taken = self.samples.len();
        self.samples = telling(std::mem::take(&mut self.samples));
        self.samples_left_out += (taken - self.samples.len()) as u64;
    }
}

async fn run(
    service: &Service,
    arguments: Map<String, Value>,
    (asker, viewer): (&Asker, Owner),
) -> Result<RunDetails, ApiError> {
    let mut fields = Fields::new("", arguments);
    let run_id = fields.string("run_id")?;
    let run_id = fields.need("run_id", run_id, "the handle of a run, or the beginning of it")?;
    let all = fields.boolean("all_samples")?.unwrap_or(false);
    let wait = wait_seconds(&mut fields)?.unwrap_or_default();
    fields.finish()?;
    if run_id.is_empty() {
        // It would be the beginning of every handle.
        return Err(SpecError::new("run_id", "empty: say which").into());
    }
    let mut details: RunDetails = match service.find_going_on(&run_id)? {
        None => RunDetails::of(service.history().run(run_id).await?, viewer),
        Some(run) => match asker.until_ended(&run, wait, viewer).await {
            Some(ended) => {
                let ended = RunOutput::of(ended?, run.owner, viewer);
                let recorded = service.history().run(run.run_id).await?;
                RunDetails { run: ended, ..RunDetails::of(recorded, viewer) }
            }
            None => RunDetails::of_running(&run, viewer),
        },
    };
    if !all {
        details.leave_out();
    }
    Ok(details)
}

/// What `chaos_get_run` tells of the run with this very handle, as JSON.
pub(super) async fn page(service: &Service, run_id: &str, viewer: Owner) -> Result<String, ApiError> {
    let mut details: RunDetails = match service.run_going_on(run_id) {
        Some(run) => RunDetails::of_running(&run, viewer),
        None => RunDetails::of(service.history().run(run_id.to_owned()).await?, viewer),
    };
    if details.run.run_id != run_id {
        let text = format!("no run has the handle {run_id:?}, though one begins with it");
        return Err(ApiError::new(ErrorCode::RunNotFound, text));
    }
    details.leave_out();
    let broken = |error: serde_json::Error| ApiError::new(ErrorCode::Unavailable, error.to_string());
    serde_json::to_string(&details).map_err(broken)
}

/// The samples that say something which the one before of the same probe did not.
fn telling(samples: Vec<Reading>) -> Vec<Reading> {
    let mut last = BTreeMap::<(String, Role), (bool, bool, Stage)>::new();
    samples
        .into_iter()
        .filter(|sample| {
            let new = (sample.met, sample.no_data, sample.stage);
            last.insert((sample.probe.clone(), sample.role), new) != Some(new) || !sample.met
        })
        .collect()
}

/// Result of `chaos_statistics`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct StatisticsOutput {
    /// The figures.
    #[serde(flatten)]
    pub(crate) statistics: statistics::Statistics,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(StatisticsOutput);

pub(super) struct Statistics;

impl Tool for Statistics {
    const NAME: &'static str = "chaos_statistics";
    const TITLE: &'static str = "Statistics";
    const DESCRIPTION: &'static str = "What recorded runs say together: success by experiment, type of fault and day, verdicts, failure modes, scores, flaky documents. Of yours; root's are everybody's.";
    const HINTS: Hints = Hints::LOOKS;
    type Output = StatisticsOutput;

    fn input() -> JsonObject {
        let mut properties = filter_properties();
        if let Some(properties) = properties.as_object_mut() {
            properties.remove("limit");
            // As those of chaos_list_runs.
            let only_kind = |property: &mut Value| *property = json!({"type": property["type"]});
            properties.values_mut().for_each(only_kind);
        }
        object(properties, &[])
    }

    async fn carry_out(call: Call<'_>) -> Result<StatisticsOutput, ApiError> {
        figures(call.service, call.arguments, call.caller.owner()).await
    }
}

async fn figures(
    service: &Service,
    arguments: Map<String, Value>,
    viewer: Owner,
) -> Result<StatisticsOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    // They tell what is in the runs.
    let owner = (!viewer.is_root()).then_some(viewer);
    let filter = Filter { limit: None, owner, ..filter(&mut fields, viewer)? };
    fields.finish()?;
    let runs = service.history().search(filter).await?;
    let runs: Vec<_> = runs.into_iter().map(|run| run.seen_by(viewer)).collect();
    Ok(StatisticsOutput { statistics: statistics(&runs), error: None })
}
