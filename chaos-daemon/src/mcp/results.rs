//! What the tools return. Every result, also that of a failed call, satisfies its tool's output schema: several
//! clients check that, and would hide the error from the model otherwise.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::PlanOutput;
use super::tool::Output;
use crate::experiment::role::Stages;
use crate::experiment::timeline::Reading;
use crate::experiment::{FailureMode, Impact, Recovery, Stage, Verdict};
use crate::request::{ApiError, Evidence, FaultState, FaultStatus};
use crate::server::history::precedents::Precedents;
use crate::server::history::views::sees_all;
use crate::server::history::{ExperimentResult, Recorded};
use crate::server::runs::{Run, now};
use crate::spec::{LifetimeClass, Owner};

/// Makes results of types that have a field `error`: absent unless the call has failed, and then all that is known.
macro_rules! says_its_error {
    ($output:ty) => {
        impl $crate::mcp::tool::Output for $output {
            fn failed(&self) -> bool {
                self.error.is_some()
            }

            fn refused(error: &$crate::request::ApiError) -> Self {
                Self { error: Some($crate::mcp::results::Failure::from(error)), ..Self::default() }
            }
        }
    };
}
pub(super) use says_its_error;

/// Why a call failed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct Failure {
    /// Stable name of the error, e.g. FAULT_NOT_FOUND.
    pub(crate) code: String,
    /// What was asked and why it cannot be.
    pub(crate) message: String,
    /// What to do about it.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Whether the same call may succeed later, without being changed.
    pub(crate) retryable: bool,
}

/// What to do about an error.
fn advice(error: &ApiError) -> String {
    error.hint.clone().unwrap_or_else(|| error.code.advice().to_owned())
}

/// A word of the protocol, as text.
pub(crate) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => format!("{other:?}"),
    }
}

impl From<&ApiError> for Failure {
    fn from(error: &ApiError) -> Self {
        Self {
            code: word(error.code),
            message: error.message.clone(),
            hint: Some(advice(error)),
            retryable: error.code.is_retryable(),
        }
    }
}

/// Result of `chaos_inject_fault`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct InjectOutput {
    /// "registered", "injected", "removed" or "error".
    #[schemars(extend("enum" = ["registered", "injected", "removed", "error"]))]
    pub(crate) status: String,
    /// Fault identifier.
    pub(crate) fault_name: String,
    /// Type of the fault; empty when unknown.
    pub(crate) fault_type: String,
    /// Whether the fault was actually triggered (for inject).
    pub(crate) was_triggered: bool,
    /// Of an inject with an idempotency_key: whether an earlier one has rolled the dice, and injected if they said so, and this one
    /// nothing. What has become of the fault since then, chaos_status tells.
    #[schemars(with = "bool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repeated: Option<bool>,
    /// What happened, in a sentence.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The registered error message of a fault that was triggered.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_message: Option<String>,
    /// What the fault does to what.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// "no_traffic" (active, nothing has met it yet) or "effective".
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    /// What binds it to its end: "kernel", "supervised" or "irreversible".
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lifetime: Option<String>,
    /// Who sees to its end when the daemon cannot.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) guard: Option<String>,
    /// What keeps packets from meeting it, such as programs of others that run before it.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// Seconds until it ends by itself.
    #[schemars(with = "f64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ends_in_seconds: Option<f64>,
    /// What it has met.
    #[schemars(with = "Evidence")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) evidence: Option<Evidence>,
    /// What is left on the host after removal; empty when residue was looked for and none found.
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) residue: Option<Vec<String>>,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(InjectOutput);

/// One registered or active fault.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct FaultView {
    /// Fault name: of another user's as UID/NAME.
    pub(crate) name: String,
    /// Whose it is, if not yours.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// Fault type.
    pub(crate) fault_type: String,
    /// Injection probability, rolled once per inject.
    pub(crate) probability: f64,
    /// Whether it is registered, so that inject finds it.
    pub(crate) registered: bool,
    /// Whether it is on the host now, also while it starts or is being undone; absent when that is not known.
    #[schemars(with = "bool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) active: Option<bool>,
    /// Where it is in its life: "starting" (being applied), "no_traffic" (nothing has met it yet), "effective", "waiting", "ending",
    /// "ended" or "stuck". What waits has lost its target, and goes on when that is there again.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    /// What it does to what.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// What binds it to its end.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lifetime: Option<String>,
    /// Who sees to its end when the daemon cannot.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) guard: Option<String>,
    /// Who began it.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) began_by: Option<String>,
    /// Seconds since it started.
    #[schemars(with = "f64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) age_seconds: Option<f64>,
    /// Seconds until it ends by itself.
    #[schemars(with = "f64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remaining_seconds: Option<f64>,
    /// What it has met.
    #[schemars(with = "Evidence")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) evidence: Option<Evidence>,
    /// What the host that its target names stands for now, and stood for one look-up ago: whom the fault is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub(crate) host_addresses: Vec<IpAddr>,
    /// Why it ended, or what is stuck.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

impl FaultView {
    /// Fills in what everybody may know of a fault that was injected, since everybody may end it.
    pub(super) fn set_outline(&mut self, status: &FaultStatus) {
        let ended = status.state == FaultState::Ended;
        // Its registration may be of another type by now.
        self.fault_type = status.fault_type.name().to_owned();
        self.active = Some(!ended);
        self.state = Some(word(status.state));
        self.remaining_seconds = Some(if ended { 0.0 } else { status.remaining.as_secs_f64() });
    }

    /// Fills in what is known of a fault that was injected.
    pub(super) fn set_status(&mut self, status: &FaultStatus) {
        self.set_outline(status);
        let ended = status.state == FaultState::Ended;
        self.description = Some(status.description.clone());
        self.lifetime = Some(lifetime(status.lifetime));
        self.guard = Some(status.guard.clone()).filter(|_| !ended);
        self.age_seconds = Some(status.age.as_secs_f64());
        self.evidence = Some(status.evidence);
        self.note.clone_from(&status.note);
        self.began_by.clone_from(&status.began);
        self.host_addresses.clone_from(&status.addresses);
    }
}

pub(super) fn lifetime(class: LifetimeClass) -> String {
    word(class)
}

/// Where a run is. One that goes on says nothing of how it ends. Planned is what was not begun, and refused what was neither begun nor
/// found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    Running,
    #[default]
    Ended,
    Planned,
    Refused,
}

/// One result of an experiment, and the result of `chaos_run_experiment`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct RunOutput {
    /// Experiment that ran: of another user's as UID/NAME.
    pub(crate) experiment_name: String,
    /// Whose it is, if not yours.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// Whether it goes on, has ended, was planned alone, or was not begun.
    pub(crate) state: RunState,
    /// Whether its verdict is held; of a run that goes on it is false.
    pub(crate) success: bool,
    /// Steady state verified before the action. False, too, if it is not to be verified then, see verified.
    pub(crate) steady_state_before: bool,
    /// Steady state verified after the action. False, too, if it is not to be verified then, see verified.
    pub(crate) steady_state_after: bool,
    /// When it was verified, whatever came of it: "before", "during", "after".
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verified: Option<Stages>,
    /// How long the run took.
    pub(crate) duration_seconds: f64,
    /// What went wrong, if anything; a failed rollback comes last, after a semicolon.
    #[schemars(schema_with = "super::schema::text_or_null")]
    pub(crate) error: Option<String>,
    /// When it began, ISO 8601 in UTC.
    pub(crate) started_at: String,
    /// Handle of the run, by which chaos_get_run tells all of it.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) run_id: String,
    /// Of a call with an idempotency_key: whether an earlier call has begun this run, and this one nothing.
    #[schemars(with = "bool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repeated: Option<bool>,
    /// Packets the fault acted on.
    #[schemars(with = "u64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) packets_affected: Option<u64>,
    /// When a gate was breached: seconds from that sample's question until every fault was removed.
    #[schemars(with = "f64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gate_reaction_seconds: Option<f64>,
    /// When something was killed, stopped, restarted or cut off, or the steady state was seen to fail after another action: how soon
    /// that was seen, and how soon all was well again. And what became of the alerts that the document speaks of.
    #[schemars(with = "Recovery")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recovery: Option<Recovery>,
    /// The last word on it, once it has ended: "held", "deviated" (steady state not met after), "refused" (not met before),
    /// "tripped" (by a gate), "failed", "aborted" (stopped), "interrupted" (the daemon ended) or "unverified" (it shows nothing: a
    /// fault acted on nothing, or the steady state was verified neither after nor during).
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<Verdict>,
    /// What failed first, of a run that was no success: "not_steady_before", "not_steady_during", "not_steady_after",
    /// "not_recovered", "rto_missed", "alert_missing", "alert_unexpected", "gate_breached", "target_vanished", "injection_refused",
    /// "injection_failed", "fault_ended_early", "probe_broken", "method_broken", "rollback_failed", "aborted", "interrupted",
    /// "fault_idle" (a fault acted on nothing) or "not_verified" (nobody knows what became of the steady state).
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure_mode: Option<FailureMode>,
    /// What share of what its faults match it affected, in percent, of a document with stages.
    #[schemars(with = "u8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stage: Option<Stage>,
    /// What to run next: the stage that is due, or in what ways it would be wider. To be held once is no resilience.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// What went wrong beside the run: it could not be recorded.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warning: Option<String>,
    /// Whether the action was left out.
    #[schemars(with = "bool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dry_run: Option<bool>,
    /// What the action would do, for a dry run.
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<Vec<String>>,
    /// Who would be affected by each action, and how badly, for a dry run.
    #[schemars(with = "Vec<Impact>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) impact: Option<Vec<Impact>>,
    /// What each action would do, or why it would be refused, for a dry run.
    #[schemars(with = "Vec<PlanOutput>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plans: Option<Vec<PlanOutput>>,
    /// What of this host would end the run by the policy, whatever its document says, for a dry run.
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host_limits: Option<Vec<String>>,
    /// Probes, gates and alerts that a dry run did not sample, because asking may change something: a POST, a call of a tool, a program.
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_sampled: Option<Vec<String>>,
    /// SHA-256 of the document without its secrets, for a dry run: runs of the same document have the same.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// What all of this plan is known by, of a dry run that would be run: chaos_run_experiment takes it as plan_digest.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan_digest: Option<String>,
    /// How earlier runs of it went, and which runs of other experiments are like it, for a dry run.
    #[schemars(with = "Precedents")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) history: Option<Precedents>,
    /// Stable name of the error, when the call itself failed.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_code: Option<String>,
    /// What to do about it.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Whether the same call may succeed later, without being changed.
    #[schemars(with = "bool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retryable: Option<bool>,
}

impl RunOutput {
    /// Of a run of this owner's, as `viewer` sees it; the name of the experiment is as its owner has it.
    pub(super) fn of(result: ExperimentResult, owner: Owner, viewer: Owner) -> Self {
        let recorded = Recorded { run: result, owner: Some(owner.to_string()), ..Recorded::default() };
        Self { owner: owner.told_to(viewer), ..recorded.seen_by(viewer).run.into() }
    }
}

impl From<ExperimentResult> for RunOutput {
    fn from(result: ExperimentResult) -> Self {
        Self {
            experiment_name: result.experiment_name,
            success: result.success,
            steady_state_before: result.steady_state_before,
            steady_state_after: result.steady_state_after,
            verified: result.verified,
            duration_seconds: result.duration_seconds,
            error: result.error,
            started_at: result.started_at,
            run_id: result.run_id,
            packets_affected: Some(result.packets_affected),
            gate_reaction_seconds: result.gate_reaction_seconds,
            recovery: result.recovery,
            verdict: result.verdict,
            failure_mode: result.failure_mode,
            stage: result.stage,
            next: result.next,
            warning: result.warning,
            ..Self::default()
        }
    }
}

impl Output for RunOutput {
    fn failed(&self) -> bool {
        self.error_code.is_some()
    }

    fn refused(error: &ApiError) -> Self {
        Self {
            error: Some(error.message.clone()),
            error_code: Some(word(error.code)),
            hint: Some(advice(error)),
            retryable: Some(error.code.is_retryable()),
            state: RunState::Refused,
            started_at: now(),
            ..Self::default()
        }
    }
}

/// A run that goes on.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct RunningView {
    /// Handle.
    pub(crate) run_id: String,
    /// Experiment: of another user's as UID/NAME.
    pub(crate) experiment_name: String,
    /// Whose it is, if not yours.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// Name of its first fault.
    pub(crate) fault_name: String,
    /// Names of all its faults.
    pub(crate) fault_names: Vec<String>,
    /// When it began, ISO 8601 in UTC.
    pub(crate) started_at: String,
    /// What share of what its faults match they affect, in percent, of a document with stages.
    #[schemars(with = "u8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stage: Option<Stage>,
    /// "before", "method", "lasting" (its faults are), "unwinding" (faults are being removed), "after" or "finished".
    pub(crate) phase: String,
    /// Names of the activities that go on, or whose faults do.
    pub(crate) activities: Vec<String>,
    /// Seconds since it began.
    pub(crate) elapsed_seconds: f64,
    /// Seconds until its method is over, or, after it, until the system has to have recovered; absent where nobody can say.
    #[schemars(with = "f64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remaining_seconds: Option<f64>,
    /// The latest sample of each gate, probe and alert.
    pub(crate) latest: Vec<Reading>,
}

impl RunningView {
    /// What `viewer` sees of it: of another user's what names it, so that everybody can end it.
    pub(super) fn of(run: &Run, viewer: Owner) -> Self {
        let live = run.live();
        let fault_names: Vec<_> =
            run.faults.values().map(|name| run.owner.name_for(viewer, name.as_str())).collect();
        let outline = Self {
            run_id: run.run_id.clone(),
            experiment_name: run.name_for(viewer),
            owner: run.owner.told_to(viewer),
            fault_name: fault_names.first().cloned().unwrap_or_default(),
            fault_names,
            started_at: run.started_at.clone(),
            elapsed_seconds: live.elapsed,
            ..Self::default()
        };
        if !sees_all(run.owner, viewer) {
            return outline;
        }
        Self {
            stage: run.stage,
            phase: live.phase,
            activities: live.activities,
            remaining_seconds: live.left,
            latest: live.latest,
            ..outline
        }
    }
}

/// Result of `chaos_status`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct StatusOutput {
    /// Your registered faults, root's all; and active ones whether registered or not, of others what is needed to end them.
    pub(crate) active_faults: Vec<FaultView>,
    /// Number of registered experiments: yours, for root all.
    pub(crate) registered_experiments: u64,
    /// Historical results, oldest first, if requested.
    pub(crate) results: Vec<RunOutput>,
    /// Experiments executed, of the kind asked for.
    pub(crate) total_runs: u64,
    /// Successful runs, as a fraction from 0 to 1 of those that show something: an unverified one does not count.
    pub(crate) success_rate: f64,
    /// Names of the registered experiments.
    pub(crate) experiments: Vec<String>,
    /// Runs that go on.
    pub(crate) running: Vec<RunningView>,
    /// Why the status is incomplete.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(StatusOutput);
