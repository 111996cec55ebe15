//! `chaos_register_experiment` and `chaos_run_experiment`.

use std::time::Duration;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::inject::{digest_property, idempotency_key, key_property};
use super::plan::PlanOutput;
use super::results::{Failure, RunOutput, RunState, says_its_error};
use super::schema::{object, shallow, text};
use super::tool::{Call, Hints, Output, Tool};
use super::waiting::{Asker, LONGEST_WAIT, wait_property, wait_seconds};
use crate::experiment::{Stage, schema as experiment_schema};
use crate::request::fields::Fields;
use crate::request::{ApiError, Caller};
use crate::server::keys::{Begun, IdempotencyKey};
use crate::server::runs::Run;
use crate::server::service::{DryRun, Service, Wish};
use crate::spec::{Owner, SpecError};

pub(super) struct RunExperiment;

impl Tool for RunExperiment {
    const NAME: &'static str = "chaos_run_experiment";
    const TITLE: &'static str = "Run an experiment";
    const DESCRIPTION: &'static str = "Runs a registered experiment: steady state, method, removal of all its faults, steady state again. A run whose fault acted on nothing is unverified. Waits up to 44 seconds, or wait_seconds; a longer run goes on under its run_id: chaos_get_run with wait_seconds waits for its end.";
    const HINTS: Hints = Hints::BREAKS;
    type Output = RunOutput;

    fn input() -> JsonObject {
        let dry_run = json!({"type": "boolean", "default": false,
            "description": "Validate without executing the action."});
        let stage = json!({"type": "integer", "minimum": 1, "maximum": 100, "description": "Of a document with blast_radius: \
            its stage, in percent. Without it, the one that is due."});
        let wait = wait_property(LONGEST_WAIT, "How long to wait for its end; with 0 it is only begun.");
        let key = key_property(
            "A call with the key of an earlier one begins no second run, and is answered with the first. Not with dry_run.",
        );
        object(
            json!({
                "experiment_name": text("Name of the experiment to run, e.g. \"kill-cache\"."),
                "dry_run": dry_run, "stage": stage, "wait_seconds": wait, "idempotency_key": key,
                "plan_digest": digest_property("a run"),
            }),
            &["experiment_name"],
        )
    }

    async fn carry_out(call: Call<'_>) -> Result<RunOutput, ApiError> {
        run(call).await
    }

    fn failed(arguments: &Map<String, Value>, error: &ApiError) -> RunOutput {
        RunOutput { experiment_name: named(arguments, "experiment_name"), ..RunOutput::refused(error) }
    }
}

/// The text of an argument, as far as there is one.
fn named(arguments: &Map<String, Value>, field: &str) -> String {
    arguments.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// What a call of `chaos_run_experiment` says.
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) dry_run: bool,
    pub(super) stage: Option<Stage>,
    wait: Option<Duration>,
    key: Option<IdempotencyKey>,
    plan_digest: Option<String>,
}

/// Reads what a call says.
pub(super) fn wanted(arguments: Map<String, Value>) -> Result<Wanted, ApiError> {
    let mut fields = Fields::new("", arguments);
    let name = fields.string("experiment_name")?;
    let name = fields.need("experiment_name", name, "name a registered experiment")?;
    let dry_run = fields.boolean("dry_run")?.unwrap_or(false);
    let stage = fields.number("stage")?.map(|percent| Stage::new("stage", percent)).transpose()?;
    let wait = wait_seconds(&mut fields)?;
    let key = idempotency_key(&mut fields)?;
    let plan_digest = fields.string("plan_digest")?;
    fields.finish()?;
    if dry_run {
        let given = [
            ("wait_seconds", wait.is_some()),
            ("idempotency_key", key.is_some()),
            ("plan_digest", plan_digest.is_some()),
        ];
        if let Some((field, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            let problem = match field {
                "wait_seconds" => "a dry run begins nothing whose end could be waited for: leave it out",
                "plan_digest" => "a dry run is what tells it: leave it out",
                _ => "a dry run begins nothing, however often it is asked for: leave it out",
            };
            return Err(SpecError::new(field, problem).into());
        }
    }
    Ok(Wanted { name, dry_run, stage, wait, key, plan_digest })
}

async fn run(Call { service, caller, arguments, asker, .. }: Call<'_>) -> Result<RunOutput, ApiError> {
    let Wanted { name, dry_run, stage, wait, key, plan_digest } = wanted(arguments)?;
    if dry_run {
        return service.dry_run(&name, stage, caller).await.map(RunOutput::from);
    }
    let wait = wait.unwrap_or(LONGEST_WAIT);
    let (wish, viewer) = (Wish { stage, plan_digest }, caller.owner());
    let Some(key) = key else {
        let run = service.run(&name, &wish, caller).await?;
        return outcome(&run, wait, asker, viewer).await;
    };
    let Begun { what: run_id, repeated } = service.run_once(&name, &wish, &key, caller).await?;
    let output = match service.find_going_on(&run_id)? {
        Some(run) => outcome(&run, wait, asker, viewer).await?,
        None => {
            let recorded = service.history().run(run_id).await?;
            let owner = recorded.owner();
            RunOutput::of(recorded.run, owner, viewer)
        }
    };
    Ok(RunOutput { repeated: Some(repeated.is_some()), ..output })
}

/// How a run has ended if it does within `wait`, and otherwise how far it has come.
async fn outcome(run: &Run, wait: Duration, asker: &Asker, viewer: Owner) -> Result<RunOutput, ApiError> {
    let result = match asker.until_ended(run, wait, viewer).await {
        Some(ended) => ended?,
        None => {
            let so_far = run.so_far("still running: chaos_get_run with wait_seconds waits for its end");
            let state = RunState::Running;
            return Ok(RunOutput { state, ..RunOutput::of(so_far, run.owner, viewer) });
        }
    };
    Ok(RunOutput::of(result, run.owner, viewer))
}

pub(super) struct PlanExperiment;

impl Tool for PlanExperiment {
    const NAME: &'static str = "chaos_plan_experiment";
    const TITLE: &'static str = "Plan an experiment";
    const DESCRIPTION: &'static str = "What running an experiment would do, and whether it would be admitted now, without doing it; also of a document that is not registered. Samples the steady state once, but for what not_sampled names. Tells how earlier runs of it and of its like went.";
    const HINTS: Hints = Hints { open_world: true, ..Hints::LOOKS };
    const GIVEN_UP: bool = true;
    type Output = RunOutput;

    fn input() -> JsonObject {
        let document = json!({"type": "object",
            "description": "In place of experiment_name: a document as chaos_register_experiment takes it. It is not registered."});
        let stage = json!({"type": "integer", "minimum": 1, "maximum": 100,
            "description": "As of chaos_run_experiment."});
        object(
            json!({"experiment_name": text("A registered experiment."), "document": document, "stage": stage}),
            &[],
        )
    }

    async fn carry_out(call: Call<'_>) -> Result<RunOutput, ApiError> {
        plan(call.service, call.caller, call.arguments).await
    }

    fn failed(arguments: &Map<String, Value>, error: &ApiError) -> RunOutput {
        RunExperiment::failed(arguments, error)
    }
}

/// What `chaos_plan_experiment` is to plan.
pub(super) enum Planned {
    /// What is registered under this name.
    Registered(String),
    /// This.
    Document(Map<String, Value>),
}

/// Reads what a call of `chaos_plan_experiment` says.
pub(super) fn planned(arguments: Map<String, Value>) -> Result<(Planned, Option<Stage>), ApiError> {
    let mut fields = Fields::new("", arguments);
    let (name, document) = (fields.string("experiment_name")?, fields.object("document")?);
    let stage = fields.number("stage")?.map(|percent| Stage::new("stage", percent)).transpose()?;
    fields.finish()?;
    let planned = match (name, document) {
        (Some(name), None) => Planned::Registered(name),
        (None, Some(document)) => Planned::Document(document),
        (Some(_), Some(_)) => {
            return Err(
                SpecError::new("document", "there is an experiment_name, too: give one of them").into()
            );
        }
        (None, None) => {
            let problem = "missing: give it, or the name of a registered experiment as experiment_name";
            return Err(SpecError::new("document", problem).into());
        }
    };
    Ok((planned, stage))
}

async fn plan(
    service: &Service,
    caller: Caller,
    arguments: Map<String, Value>,
) -> Result<RunOutput, ApiError> {
    let dry_run = match planned(arguments)? {
        (Planned::Registered(name), stage) => service.dry_run(&name, stage, caller).await,
        (Planned::Document(document), stage) => service.dry_run_of(&document, stage, caller).await,
    };
    dry_run.map(RunOutput::from)
}

impl From<DryRun> for RunOutput {
    fn from(dry_run: DryRun) -> Self {
        let DryRun { result, digest, plan_digest, host_limits, plans, history, not_sampled } = dry_run;
        let planned = || plans.iter().filter_map(|planned| planned.plan.as_ref().ok());
        let steps: Vec<_> = planned().flat_map(|(plan, _)| plan.steps.iter().cloned()).collect();
        let impact: Vec<_> = planned().map(|(_, impact)| impact.clone()).collect();
        Self {
            dry_run: Some(true),
            state: RunState::Planned,
            packets_affected: None,
            digest: Some(digest),
            plan_digest,
            history: Some(history),
            host_limits: Some(host_limits).filter(|limits| !limits.is_empty()),
            not_sampled: Some(not_sampled).filter(|names| !names.is_empty()),
            impact: Some(impact).filter(|impact| !impact.is_empty()),
            plan: Some(steps).filter(|steps| !steps.is_empty()),
            plans: Some(plans.into_iter().map(PlanOutput::of_experiment).collect()),
            ..Self::from(result)
        }
    }
}

/// Result of `chaos_register_experiment`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct RegisterOutput {
    /// "registered" or "error".
    #[schemars(extend("enum" = ["registered", "error"]))]
    pub(crate) status: String,
    /// Name under which it runs.
    pub(crate) experiment_name: String,
    /// The steady state, a line per probe.
    pub(crate) steady_state: Vec<String>,
    /// Type of the fault; of several, after commas.
    pub(crate) fault_type: String,
    /// How long the method takes, and so the faults are kept at most.
    pub(crate) hold_seconds: f64,
    /// What could not be saved.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(RegisterOutput);

pub(super) struct RegisterExperiment;

impl Tool for RegisterExperiment {
    const NAME: &'static str = "chaos_register_experiment";
    const TITLE: &'static str = "Register an experiment";
    const DESCRIPTION: &'static str = "Registers an experiment for chaos_run_experiment, in place of any of yours of the same name: a Chaos Toolkit document of steady-state probes with a tolerance (provider http, or process: chaosctl probe, or a program that the policy names) and a method of actions (provider process: chaosctl inject), which is understood and not executed. chaos://schema/experiment is its schema.";
    /// It replaces what is registered under the name.
    const HINTS: Hints = Hints { idempotent: true, open_world: false, ..Hints::BREAKS };
    type Output = RegisterOutput;

    fn input() -> JsonObject {
        let mut properties = experiment_schema::properties();
        // What is deeper is in the schema of a document, which is a resource.
        properties.as_object_mut().into_iter().flatten().for_each(|(_, property)| shallow(property));
        let mut input = object(properties, &["title", "method"]);
        input.insert("examples".to_owned(), json!([experiment_schema::example()]));
        input
    }

    async fn carry_out(call: Call<'_>) -> Result<RegisterOutput, ApiError> {
        register(call.service, call.caller, call.arguments).await
    }

    fn failed(arguments: &Map<String, Value>, error: &ApiError) -> RegisterOutput {
        let name = if arguments.contains_key("name") { "name" } else { "title" };
        RegisterOutput {
            status: "error".to_owned(),
            experiment_name: named(arguments, name),
            ..RegisterOutput::refused(error)
        }
    }
}

async fn register(
    service: &Service,
    caller: Caller,
    arguments: Map<String, Value>,
) -> Result<RegisterOutput, ApiError> {
    let (experiment, message) = service.register_experiment(arguments, caller).await?;
    let types: Vec<_> = experiment.faults().map(|(_, _, fault)| fault.fault_type.name()).collect();
    Ok(RegisterOutput {
        status: "registered".to_owned(),
        experiment_name: experiment.name.clone(),
        steady_state: experiment
            .conditions
            .iter()
            .map(|condition| {
                experiment.variables.hide(&format!("{}: {}", condition.name, condition.probe.check))
            })
            .collect(),
        fault_type: types.join(", "),
        hold_seconds: experiment.lasts().as_secs_f64(),
        message,
        error: None,
    })
}
