//! What a fault would do: the result of `chaos_plan`, and of a dry run of an experiment for each fault.

use std::fmt::Display;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::inject::{OF_A_FAULT, fault, fault_name};
use super::params;
use super::results::{Failure, lifetime, says_its_error};
use super::schema::object;
use super::tool::{Call, Hints, Output, Tool};
use crate::experiment::Impact;
use crate::request::fields::Fields;
use crate::request::{ApiError, Caller, PlanReport, TargetsReport};
use crate::server::service::{PlannedFault, Service};
use crate::spec::{FaultRequest, GivenName};

/// Result of `chaos_plan`, and what a dry run of an experiment has of each fault.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct PlanOutput {
    /// Name of its action, of a fault of an experiment.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<String>,
    /// Fault identifier.
    pub(crate) fault_name: String,
    /// Type of the fault, of a fault of an experiment.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault_type: Option<String>,
    /// What the fault would do to what.
    pub(crate) description: String,
    /// What would bind it to its end: "kernel", "supervised" or "irreversible".
    pub(crate) lifetime: String,
    /// Who would see to its end when the daemon cannot.
    pub(crate) guard: String,
    /// How long it would last.
    pub(crate) duration_seconds: f64,
    /// Kernel operations in order, each with its undo.
    pub(crate) steps: Vec<String>,
    /// What all of this plan is known by: an inject with it as plan_digest does this, or nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "String")]
    pub(crate) plan_digest: String,
    /// The processes that would be hit, but of a fault that is the whole host's.
    #[schemars(with = "TargetsReport")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) targets: Option<TargetsReport>,
    /// process_kill: who would start the processes anew, a line each: systemd by a service's Restart=, a supervisor, perhaps a container
    /// runtime or a parent that runs the same program, or nobody.
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) restarts: Vec<String>,
    /// What to see to before it is injected.
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
    /// Who would be affected, and how badly.
    #[schemars(with = "Impact")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) impact: Option<Impact>,
    /// Why it cannot be.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(PlanOutput);

impl PlanOutput {
    pub(super) fn of(name: &impl Display, plan: PlanReport, impact: Impact) -> Self {
        Self {
            action: None,
            fault_name: name.to_string(),
            fault_type: None,
            description: plan.description,
            lifetime: lifetime(plan.lifetime),
            guard: plan.guard,
            duration_seconds: plan.duration.as_secs_f64(),
            steps: plan.steps,
            plan_digest: plan.digest,
            targets: plan.targets,
            restarts: plan.restarts,
            warnings: plan.warnings,
            impact: Some(impact),
            error: None,
        }
    }

    /// Of a fault that would be refused.
    fn of_refused(fault_name: String, error: &ApiError) -> Self {
        Self { fault_name, ..Self::refused(error) }
    }

    /// Of a fault of an experiment, also of one that would be refused.
    pub(super) fn of_experiment(planned: PlannedFault) -> Self {
        let PlannedFault { action, name, fault_type, plan } = planned;
        let output = match plan {
            Ok((plan, impact)) => Self::of(&name, plan, impact),
            Err(error) => Self::of_refused(name.to_string(), &error),
        };
        Self { action: Some(action), fault_type: Some(fault_type.name().to_owned()), ..output }
    }
}

pub(super) struct Plan;

impl Tool for Plan {
    const NAME: &'static str = "chaos_plan";
    const TITLE: &'static str = "Plan a fault";
    const DESCRIPTION: &'static str = "What injecting would do, without doing it: kernel operations in order, each with its undo. Takes the name of a registered fault, or the fields of chaos_inject_fault's register. For a process fault also whom it would hit, who is left out, and who would start them anew.";
    const HINTS: Hints = Hints::LOOKS;
    const GIVEN_UP: bool = true;
    type Output = PlanOutput;

    fn input() -> JsonObject {
        object(params::of_fault_in_short(), &["fault_name"])
    }

    async fn carry_out(call: Call<'_>) -> Result<PlanOutput, ApiError> {
        plan(call.service, call.caller, call.arguments).await
    }

    fn failed(arguments: &Map<String, Value>, error: &ApiError) -> PlanOutput {
        let name = arguments.get("fault_name").and_then(Value::as_str).unwrap_or_default();
        PlanOutput::of_refused(name.to_owned(), error)
    }
}

async fn plan(
    service: &Service,
    caller: Caller,
    arguments: Map<String, Value>,
) -> Result<PlanOutput, ApiError> {
    let (name, fault) = wanted(arguments)?;
    let (plan, impact) = service.plan(&name, fault, caller).await?;
    Ok(PlanOutput::of(&name, plan, impact))
}

/// What is to be planned: the fault that is described, or without one that which is registered under the name.
pub(super) fn wanted(arguments: Map<String, Value>) -> Result<(GivenName, Option<FaultRequest>), ApiError> {
    let registered = !OF_A_FAULT.iter().any(|field| arguments.contains_key(*field));
    let mut fields = Fields::new("", arguments);
    let name = fault_name(&mut fields)?;
    let fault = if registered { None } else { Some(fault(&mut fields)?) };
    fields.finish()?;
    Ok((name, fault))
}
