//! What a run would do and whether it could begin now, without its actions.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::entrusting::AtStage;
use super::{Service, Subject, about, beside};
use crate::experiment::ahead::{Ahead, plan_all};
use crate::experiment::host_limits;
use crate::experiment::role::Stages;
use crate::experiment::staged;
use crate::experiment::verification::ready;
use crate::experiment::{Experiment, Impact, Recorder, Stage};
use crate::probe::Probe;
use crate::request::approvals::digest_of_run;
use crate::request::{Act, ApiError, Caller, ErrorCode, PlanReport};
use crate::server::history::precedents::Precedents;
use crate::server::history::{ExperimentResult, of_document};
use crate::server::runs::now;
use crate::spec::{FaultName, FaultRequest, FaultType, Owner, QualifiedName, SpecError};

/// What a dry run of an experiment has shown.
#[derive(Debug)]
pub struct DryRun {
    /// How it went: whether it could be run now.
    pub result: ExperimentResult,
    /// What the document is, but for its secrets: its SHA-256.
    pub digest: String,
    /// What all of the plan is known by, for who runs it later; none of one that would be refused.
    pub plan_digest: Option<String>,
    /// What of this host it would have to stay within by the policy, a line for each limit; none where it may not begin by the policy.
    pub host_limits: Vec<String>,
    /// What each fault would be.
    pub plans: Vec<PlannedFault>,
    /// What has run before of it, and what was like it.
    pub history: Precedents,
    /// The probes, gates and alerts that were not sampled, because asking may change something.
    pub not_sampled: Vec<String>,
}

/// What a fault of a dry run would be.
#[derive(Debug)]
pub struct PlannedFault {
    /// Name of its action.
    pub action: String,
    /// Its name.
    pub name: FaultName,
    /// Its type.
    pub fault_type: FaultType,
    /// What the injector would do, and who would be affected how badly; or why it would be refused.
    pub plan: Result<(PlanReport, Impact), ApiError>,
}

impl Service {
    /// Checks an experiment without its actions: the steady state, what the injector would do for each, and who would be
    /// affected how badly. A stage that is not due is looked at all the same, and said to be refused.
    ///
    /// # Errors
    /// When there is no such experiment, or none with such a stage.
    pub async fn dry_run(
        &self,
        name: &str,
        wanted: Option<Stage>,
        caller: Caller,
    ) -> Result<DryRun, ApiError> {
        self.try_out(self.experiment(name, caller).await?, wanted, caller).await
    }

    /// The same of an experiment that is not registered.
    ///
    /// # Errors
    /// As of [`Service::register_experiment`] and [`Service::dry_run`].
    pub async fn dry_run_of(
        &self,
        document: &Map<String, Value>,
        wanted: Option<Stage>,
        caller: Caller,
    ) -> Result<DryRun, ApiError> {
        let experiment = self.understand(document).await?;
        let subject = Subject { owner: caller.owner(), experiment, document: document.clone() };
        self.try_out(subject, wanted, caller).await
    }

    async fn try_out(
        &self,
        subject: Subject,
        wanted: Option<Stage>,
        caller: Caller,
    ) -> Result<DryRun, ApiError> {
        let Subject { owner, experiment, document } = subject;
        self.ask(about(Act::Plan, &document)).await?;
        let mut problems = Vec::new();
        let experiment = match self.admit(&experiment, &document).await {
            Err(error) if error.code == ErrorCode::PolicyDenied => {
                problems.push(error.to_string());
                experiment
            }
            admitted => admitted?,
        };
        let (at, not_due) = match self.stage_of(&experiment, &document, wanted, (owner, caller)).await {
            Err(error) if error.code == ErrorCode::StageNotDue => {
                problems.push(error.to_string());
                (AtStage { stage: wanted, skips: false }, None)
            }
            found => found?,
        };
        let stage = at.stage;
        let experiment = match stage {
            Some(stage) => staged::at(&experiment, stage)?,
            None => experiment,
        };
        let (started_at, started) = (now(), std::time::Instant::now());
        // Of a dry run nothing is recorded.
        let recorder = Recorder::new(&experiment, BTreeMap::new());
        let may_start = self.runs.may_start(&experiment, owner, caller.owner());
        problems.extend(may_start.err().map(|error| error.to_string()));
        let may_probe = match self.ask_leave(Act::Probe).await {
            Err(error) if error.code == ErrorCode::PolicyDenied => false,
            asked => asked.map(|()| true)?,
        };
        let (harmless, not_sampled) = harmless(&experiment, may_probe);
        let steady = ready(&harmless, &self.prober.asking(&self.door), &recorder).await;
        let asked = experiment.asked().before && harmless.conditions.len() == experiment.conditions.len();
        let steady_now = asked && steady.is_ok();
        problems.extend(steady.err());
        let plans = self.plan_all(&experiment, owner).await?;
        for planned in &plans {
            problems
                .extend(planned.plan.as_ref().err().map(|error| format!("{:?}: {error}", planned.action)));
        }
        if problems.is_empty()
            && let Err(error) = self.ask_approval(&experiment, &document, owner, at).await
        {
            problems.push(beside(error, not_due.as_ref()).in_full());
        }
        let result = ExperimentResult {
            experiment_name: owner.name_for(caller.owner(), &experiment.name),
            verdict: None,
            success: problems.is_empty(),
            steady_state_before: steady_now,
            // Nothing happened in between.
            steady_state_after: steady_now,
            verified: Some(Stages { before: asked, during: false, after: asked }),
            duration_seconds: started.elapsed().as_secs_f64(),
            error: (!problems.is_empty()).then(|| problems.join("; ")),
            started_at,
            stage,
            ..ExperimentResult::default()
        };
        let (digest, _) = of_document(&document);
        let plan_digest = plan_digest(&digest, at, &plans);
        let history = self.history.precedents(&experiment, owner, &digest, caller.owner()).await;
        let host_limits = host_limits::told(&experiment);
        Ok(DryRun { result, digest, plan_digest, host_limits, plans, history, not_sampled })
    }

    /// Refuses to run what is not as it was `planned`.
    pub(super) async fn require_planned(
        &self,
        planned: &str,
        experiment: &Experiment,
        (document, at): (&Map<String, Value>, AtStage),
        owner: Owner,
    ) -> Result<(), ApiError> {
        let plans = self.plan_all(experiment, owner).await?;
        let refused = plans.iter().find_map(|fault| fault.plan.as_ref().err());
        let now = plan_digest(&of_document(document).0, at, &plans);
        if now.as_deref() == Some(planned) {
            return Ok(());
        }
        let now = match (now, refused) {
            (_, Some(error)) => format!("would be refused ({error})"),
            (now, None) => format!("has {:?}", now.unwrap_or_default()),
        };
        let text = format!(
            "plan_digest: what would be run now {now}, and not {planned:?}: the document, its stage, or what its faults are aimed at is \
             another by now"
        );
        Err(ApiError::new(ErrorCode::PlanChanged, text).hint("plan it again, and look at what it would do"))
    }

    /// What the injector would do for each fault of an experiment, or why it would not.
    async fn plan_all(&self, experiment: &Experiment, owner: Owner) -> Result<Vec<PlannedFault>, ApiError> {
        let name = |(index, name, _): (usize, Option<&FaultName>, &FaultRequest)| {
            let made_up = if index == 0 { "dry-run".to_owned() } else { format!("dry-run.{index}") };
            let name = name.cloned().map_or_else(|| FaultName::new(made_up), Ok)?;
            Ok(QualifiedName::new(owner, name))
        };
        let names = experiment.faults().map(name).collect::<Result<_, SpecError>>()?;
        let all = plan_all(experiment, names, &self.door).await?;
        let all = all.into_iter().filter_map(|Ahead { activity, planned, plan }| {
            let action = experiment.method.get(activity)?.name.clone();
            Some(PlannedFault { action, name: planned.name.name, fault_type: planned.fault.fault_type, plan })
        });
        Ok(all.collect())
    }
}

/// By what the plan of an experiment is known: its document, its stage, and the plans of its faults. None if one would be refused.
fn plan_digest(document: &str, at: AtStage, plans: &[PlannedFault]) -> Option<String> {
    let faults = plans.iter().map(|fault| Some(fault.plan.as_ref().ok()?.0.digest.as_str()));
    let faults: Vec<_> = faults.collect::<Option<_>>()?;
    Some(digest_of_run(document, (at.stage.map(Stage::percent), at.skips), &faults))
}

/// The experiment without what may change something when it is sampled, and the names of that; of whoever may not probe, without any sample.
fn harmless(experiment: &Experiment, may_probe: bool) -> (Experiment, Vec<String>) {
    let mut harmless = experiment.clone();
    let mut left_out = Vec::new();
    let mut keep = |name: &str, probe: &Probe| {
        let keep = may_probe && !probe.check.may_change();
        if !keep {
            left_out.push(experiment.variables.hide(name));
        }
        keep
    };
    harmless.conditions.retain(|condition| keep(&condition.name, &condition.probe));
    harmless.guardrails.gates.retain(|gate| keep(&gate.name, &gate.probe));
    harmless.guardrails.alerts.retain(|alert| keep(&alert.name, &alert.probe));
    (harmless, left_out)
}
