//! `chaos_stop` and `chaos_doctor`.

use jiff::Timestamp;
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::results::{Failure, RunOutput, RunState, says_its_error};
use super::schema::{object, text};
use super::tool::{Call, Hints, Output, Tool};
use crate::experiment::driver::residue;
use crate::request::Evidence;
use crate::request::fields::Fields;
use crate::request::{ApiError, Caller, DoctorReport, ErrorCode, ResidueReport, ResourceAbility};
use crate::server::history::views::sees_all;
use crate::server::runs::Which;
use crate::server::schedule::Chosen;
use crate::server::service::Service;
use crate::spec::{GivenName, Owner, SpecError};

/// One fault that was ended.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct StoppedView {
    /// Name: of another user's as UID/NAME.
    name: String,
    /// Whose it was, if not yours.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Type.
    fault_type: String,
    /// What it had met; of another user's nothing.
    evidence: Evidence,
    /// What is left on the host; empty when residue was looked for and none found.
    residue: Vec<String>,
}

/// Result of `chaos_stop`.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(super) struct StopOutput {
    /// Faults that were active and are ended.
    stopped: Vec<StoppedView>,
    /// The run that was ended, when one was named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    runs: Vec<RunOutput>,
    /// Schedules that will start experiments again, when everything was stopped: pause them with chaos_schedule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    schedules: Vec<String>,
    /// What happened, in a sentence.
    message: String,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

says_its_error!(StopOutput);

pub(super) struct Stop;

impl Tool for Stop {
    const NAME: &'static str = "chaos_stop";
    const TITLE: &'static str = "Stop faults";
    const DESCRIPTION: &'static str = "Ends one active fault, one run with its faults, or everything: all faults and every running experiment. \
                 Registrations stay. Succeeds when nothing is active.";
    const HINTS: Hints = Hints { destructive: false, idempotent: true, open_world: false, ..Hints::BREAKS };
    type Output = StopOutput;

    fn input() -> JsonObject {
        object(
            json!({
                "fault_name": text("The fault to end: yours, or of another user as chaos_status has it, e.g. \"1001/slow\". Without it, and without the others, everything ends."),
                "run_id": text("In its place: the run to end, by its handle, or the beginning of it."),
                "experiment_name": text("In its place: the experiment whose run is to end."),
            }),
            &[],
        )
    }

    async fn carry_out(call: Call<'_>) -> Result<StopOutput, ApiError> {
        stop(call.service, call.arguments, call.caller).await
    }

    fn failed(_arguments: &Map<String, Value>, error: &ApiError) -> StopOutput {
        StopOutput { message: error.message.clone(), ..StopOutput::refused(error) }
    }
}

async fn stop(
    service: &Service,
    arguments: Map<String, Value>,
    caller: Caller,
) -> Result<StopOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    let name = fields.string("fault_name")?.map(|name| GivenName::parse(&name)).transpose()?;
    let (run, experiment) = (fields.string("run_id")?, fields.string("experiment_name")?);
    fields.finish()?;
    // An empty one would be the beginning of every handle; nor is it the wish that everything ends.
    for (field, given) in [("run_id", &run), ("experiment_name", &experiment)] {
        if given.as_ref().is_some_and(String::is_empty) {
            return Err(SpecError::new(field, "empty: say which, or leave it out").into());
        }
    }
    let (run, experiment) = (run.map(Which::Run), experiment.map(Which::Experiment));
    match (run, experiment, &name) {
        (None, None, _) => {}
        (Some(which), None, None) | (None, Some(which), None) => {
            return stop_run(service, &which, caller).await;
        }
        _ => {
            let problem = "fault_name, run_id and experiment_name exclude each other: give one of them";
            return Err(SpecError::new("run_id", problem).into());
        }
    }
    let all = name.is_none();
    let viewer = caller.owner();
    let removals = service.stop(name.as_ref(), caller).await?;
    let schedules = if all { going_on(service, viewer)? } else { Vec::new() };
    let error = residue(&removals).map(|residue| left_behind(&residue));
    let stopped: Vec<_> = removals
        .into_iter()
        .map(|removal| StoppedView {
            name: removal.name.shown_to(viewer),
            owner: removal.name.owner.told_to(viewer),
            fault_type: removal.fault_type.name().to_owned(),
            evidence: if sees_all(removal.name.owner, viewer) {
                removal.evidence
            } else {
                Evidence::default()
            },
            residue: removal.residue,
        })
        .collect();
    let mut message = match stopped.as_slice() {
        [] => "nothing was active".to_owned(),
        faults => {
            let names: Vec<_> = faults.iter().map(|fault| fault.name.as_str()).collect();
            format!("ended: {}; registrations stay", names.join(", "))
        }
    };
    if !schedules.is_empty() {
        let names = schedules.join(", ");
        message.push_str(&format!(
            "; schedules start runs again, until chaos_schedule with action \"pause\": {names}"
        ));
    }
    let error = error.as_ref().map(Failure::from);
    Ok(StopOutput { stopped, schedules, message, error, ..StopOutput::default() })
}

fn left_behind(what: &str) -> ApiError {
    ApiError::new(ErrorCode::RevertFailed, format!("stopping: left behind: {what}"))
        .hint("it is being retried: look at chaos_status")
}

/// Ends one run, which removes its faults itself.
async fn stop_run(service: &Service, which: &Which, caller: Caller) -> Result<StopOutput, ApiError> {
    let (owner, result) = service.stop_run(which, caller).await?;
    let how = match result.verdict {
        Some(verdict) => format!("ended: {verdict}"),
        None => "is being ended".to_owned(),
    };
    let name = owner.name_for(caller.owner(), &result.experiment_name);
    let message = format!("run {} of {name:?} {how}; registrations stay", result.run_id);
    let error = match (result.left.join("; "), result.verdict) {
        (left, _) if !left.is_empty() => Some(left_behind(&left)),
        (_, None) => Some(
            ApiError::new(ErrorCode::Unavailable, message.clone())
                .hint("chaos_get_run with wait_seconds waits for its end"),
        ),
        (_, Some(_)) => None,
    };
    let error = error.as_ref().map(Failure::from);
    let state = if result.verdict.is_some() { RunState::Ended } else { RunState::Running };
    let runs = vec![RunOutput { state, ..RunOutput::of(result, owner, caller.owner()) }];
    Ok(StopOutput { runs, message, error, ..StopOutput::default() })
}

/// The schedules that will fire again, of those that the caller has, or root.
fn going_on(service: &Service, caller: Owner) -> Result<Vec<String>, ApiError> {
    let all = service.schedules().list(&Chosen::AllOf(caller), Timestamp::now())?;
    let firing = all.into_iter().filter(|listed| !listed.next.is_empty());
    Ok(firing.map(|listed| listed.name.shown_to(caller)).collect())
}

/// Whether one type of fault is possible here.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct AbilityView {
    /// Type.
    pub(crate) fault_type: String,
    /// What it does.
    pub(crate) summary: String,
    /// The `params` it takes.
    pub(crate) parameters: String,
    /// Whether this host can do it.
    pub(crate) possible: bool,
    /// What is missing, by the name of module, option or capability.
    pub(crate) missing: Vec<String>,
    /// What would supply it.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// Of resource_exhaustion, each resource; of others, parts that need something else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<ResourceView>,
}

/// Whether a fault of one resource, or part of a type, is possible here.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct ResourceView {
    /// Its name, or what part it is.
    pub(crate) resource: String,
    /// Whether this host can do it.
    pub(crate) possible: bool,
    /// What is missing, by the name of module, option or capability.
    pub(crate) missing: Vec<String>,
    /// What would supply it.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl From<ResourceAbility> for ResourceView {
    fn from(ability: ResourceAbility) -> Self {
        let ResourceAbility { resource, missing, remedy } = ability;
        Self { resource, possible: missing.is_empty(), missing, remedy }
    }
}

/// Something worth knowing about the host.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct FactView {
    /// What it is about.
    pub(crate) name: String,
    /// What it is.
    pub(crate) value: String,
}

/// Result of `chaos_doctor`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct DoctorOutput {
    /// Kernel release.
    pub(crate) kernel: String,
    /// Version of the daemon.
    pub(crate) version: String,
    /// Per fault type, whether it is possible.
    pub(crate) faults: Vec<AbilityView>,
    /// Facts worth knowing.
    pub(crate) facts: Vec<FactView>,
    /// Our own leftovers in the daemon's network namespace: inert, removed by `chaos-daemon recover --sweep`.
    pub(crate) residue: Vec<String>,
    /// What of ours is left anywhere on the host, if it was asked for.
    #[schemars(with = "ResidueReport")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) everywhere: Option<ResidueReport>,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(DoctorOutput);

impl From<DoctorReport> for DoctorOutput {
    fn from(report: DoctorReport) -> Self {
        let ability = |ability: crate::request::Ability| AbilityView {
            fault_type: ability.fault_type.name().to_owned(),
            summary: ability.fault_type.summary().to_owned(),
            parameters: ability.fault_type.parameter_line(),
            possible: ability.missing.is_empty(),
            missing: ability.missing,
            remedy: ability.remedy,
            resources: ability.resources.into_iter().map(ResourceView::from).collect(),
        };
        Self {
            kernel: report.kernel,
            version: report.version,
            faults: report.faults.into_iter().map(ability).collect(),
            facts: report.facts.into_iter().map(|(name, value)| FactView { name, value }).collect(),
            residue: report.residue,
            everywhere: None,
            error: None,
        }
    }
}

pub(super) struct Doctor;

impl Tool for Doctor {
    const NAME: &'static str = "chaos_doctor";
    const TITLE: &'static str = "Doctor";
    const DESCRIPTION: &'static str =
        "Which faults this host's kernel can do, what is missing for the others, and leftovers if any.";
    const HINTS: Hints = Hints::LOOKS;
    const GIVEN_UP: bool = true;
    type Output = DoctorOutput;

    fn input() -> JsonObject {
        let description = "Also look everywhere on the host for what faults have left.";
        object(json!({"residue": {"type": "boolean", "default": false, "description": description}}), &[])
    }

    async fn carry_out(call: Call<'_>) -> Result<DoctorOutput, ApiError> {
        doctor(call.service, call.arguments).await
    }
}

async fn doctor(service: &Service, arguments: Map<String, Value>) -> Result<DoctorOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    let residue = fields.boolean("residue")?.unwrap_or(false);
    fields.finish()?;
    let mut output = DoctorOutput::from(service.doctor().await?);
    if residue {
        output.everywhere = Some(service.residue().await?);
    }
    Ok(output)
}
