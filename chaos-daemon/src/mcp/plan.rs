//! What a fault would do: the result of `chaos_plan`, and of a dry run of an experiment for each fault.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::results::{Failure, Output, lifetime};
use crate::experiment::Impact;
use crate::request::{ApiError, PlanReport, TargetsReport};
use crate::server::service::PlannedFault;
use crate::spec::FaultName;

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

impl Output for PlanOutput {
    fn failed(&self) -> bool {
        self.error.is_some()
    }
}

impl PlanOutput {
    pub(super) fn of(name: &FaultName, plan: PlanReport, impact: Impact) -> Self {
        Self {
            action: None,
            fault_name: name.to_string(),
            fault_type: None,
            description: plan.description,
            lifetime: lifetime(plan.lifetime),
            guard: plan.guard,
            duration_seconds: plan.duration.as_secs_f64(),
            steps: plan.steps,
            targets: plan.targets,
            restarts: plan.restarts,
            warnings: plan.warnings,
            impact: Some(impact),
            error: None,
        }
    }

    /// Of a fault that would be refused.
    pub(super) fn refused(fault_name: String, error: &ApiError) -> Self {
        Self { fault_name, error: Some(Failure::from(error)), ..Self::default() }
    }

    /// Of a fault of an experiment, also of one that would be refused.
    pub(super) fn of_experiment(planned: PlannedFault) -> Self {
        let PlannedFault { action, name, fault_type, plan } = planned;
        let output = match plan {
            Ok((plan, impact)) => Self::of(&name, plan, impact),
            Err(error) => Self::refused(name.to_string(), &error),
        };
        Self { action: Some(action), fault_type: Some(fault_type.name().to_owned()), ..output }
    }
}
