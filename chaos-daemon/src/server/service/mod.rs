//! What the daemon does for a caller, whatever protocol the caller speaks.

mod dry_run;
mod leave;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::history::{ExperimentResult, History, Retention, of_document, of_stages};
use super::keys::{Begun, IdempotencyKey, Keys};
use super::notes::{Note, Notes};
use super::owner::Owner;
use super::registry::{Document, Entry, Registry, Store};
use super::runs::{Occasion, Run, Runs, Which};
use super::schedule::Schedules;
use crate::experiment::driver::unexpected;
use crate::experiment::stage::Refusal;
use crate::experiment::staged;
use crate::experiment::variables::Nowhere;
use crate::experiment::{Experiment, Impact, Stage};
use crate::probe::prober::Prober;
use crate::probe::{Sample, arguments};
use crate::request::facts::{Facts, Question};
use crate::request::host_targets::{HostTargets, Wanted};
use crate::request::wire::Door;
use crate::request::{
    Act, ApiError, Caller, DoctorReport, ErrorCode, FaultState, FaultStatus, PlanReport, Removal, Reply,
    Request, ResidueReport, WentDown,
};
use crate::spec::{FaultName, FaultRequest, FaultType, Probability, SpecError, TargetRequest};
pub use dry_run::{DryRun, PlannedFault};

/// How long a call waits for a run that it stops.
pub const WAIT_FOR_STOP: Duration = Duration::from_secs(30);

/// The daemon, as one caller's connection sees it. Clones share everything.
#[derive(Debug, Clone)]
pub struct Service {
    door: Door,
    prober: Prober,
    pub(super) store: Store,
    history: History,
    pub(super) runs: Runs,
    /// By which runs were begun, each known by its handle.
    run_keys: Keys<String>,
    injection_keys: Keys<Injection>,
    schedules: Schedules,
    /// Who reads the catalogue.
    pub(super) reading: Arc<tokio::sync::Mutex<()>>,
}

/// What came of an injection. It is small: by its key it is kept for an hour, whatever else the fault says.
#[derive(Debug, Clone)]
pub enum Injection {
    /// The roll of the dice said no.
    NotTriggered(Brief),
    /// The fault is active.
    Active(Brief, Box<FaultStatus>),
}

/// What is told of a registered fault.
#[derive(Debug, Clone)]
pub struct Brief {
    /// Its type.
    pub fault_type: FaultType,
    /// Of what the roll has to say yes.
    pub probability: Probability,
    /// What is reported when it is triggered.
    pub error_message: Option<String>,
}

impl From<&FaultRequest> for Brief {
    fn from(fault: &FaultRequest) -> Self {
        let (fault_type, probability) = (fault.fault_type, fault.probability);
        Self { fault_type, probability, error_message: fault.error_message.clone() }
    }
}

/// What came of registering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Something was registered under the name before.
    pub replaced: bool,
    /// A fault of this name is active, and goes on as it was.
    pub active: bool,
    /// It names no target yet, so that it cannot be injected.
    pub needs_target: bool,
    /// What could not be saved.
    pub problem: Option<String>,
}

/// Checks a fault for registration; returns whether it lacks a target. The tool specification registers faults without
/// any, so that is allowed; a target that is given has to be right.
///
/// # Errors
/// Names the first field that is wrong.
pub fn check(fault: &FaultRequest) -> Result<bool, SpecError> {
    match fault.parse() {
        Err(error) if fault.target == TargetRequest::default() => {
            let any = Some("any".to_owned());
            let target = match error.field.as_str() {
                "target.interface" => TargetRequest { interface: any, ..TargetRequest::default() },
                "target.unit" => {
                    TargetRequest { unit: Some("any.service".to_owned()), ..TargetRequest::default() }
                }
                "target.cgroup" => TargetRequest { cgroup: any, ..TargetRequest::default() },
                _ => return Err(error),
            };
            FaultRequest { target, ..fault.clone() }.parse().map(|_| true)
        }
        checked => checked.map(|_| false),
    }
}

/// Everything that `chaos_status` tells.
#[derive(Debug)]
pub struct Overview {
    /// What is registered.
    pub registry: Arc<Registry>,
    /// What is active or ended a short while ago, or why that is not known.
    pub faults: Result<Vec<FaultStatus>, ApiError>,
    /// Runs that go on.
    pub runs: Vec<Run>,
}

impl Service {
    /// A service behind `door`, with the registry and the history of `state_dir`. `prober` takes the samples of experiments,
    /// of which `most_runs` may run at once. `went_down` is why runs did not end, if they had it.
    pub fn new(
        door: Door,
        prober: Prober,
        state_dir: Option<&Path>,
        retention: Retention,
        most_runs: u32,
        went_down: Option<&WentDown>,
    ) -> Self {
        let store = Store::open(state_dir);
        let history = History::open(state_dir, retention);
        store.hand_over(&history);
        let (notes, left) = Notes::open(state_dir);
        if !left.is_empty() {
            let now = jiff::Timestamp::now();
            let interrupted = |(run_id, note): (String, Note)| note.interrupted(run_id, now, went_down);
            history.record_interrupted(left.into_iter().map(interrupted));
            notes.save();
        }
        let runs = Runs::new(notes, history.clone(), most_runs);
        let schedules = Schedules::open(state_dir);
        let (run_keys, injection_keys) = (Keys::default(), Keys::default());
        let reading = Arc::default();
        Self { door, prober, store, history, runs, run_keys, injection_keys, schedules, reading }
    }

    /// What runs by itself, and when.
    pub fn schedules(&self) -> &Schedules {
        &self.schedules
    }

    /// What has run.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Registers a fault, in place of any of the same name. A fault that is active goes on as it was.
    ///
    /// # Errors
    /// When the fault makes no sense, or the registry is full. Nothing has changed then.
    pub async fn register(
        &self,
        name: FaultName,
        fault: FaultRequest,
        caller: Caller,
    ) -> Result<Registered, ApiError> {
        self.ask_leave(Act::Register, caller).await?;
        let owner = Owner::from(caller);
        let _turn = self.store.turn(owner).await;
        let needs_target = check(&fault)?;
        let (key, entry) = (name.clone(), Entry::new(Some(owner), fault));
        let change =
            self.store.change(owner, move |registry| Ok(registry.faults.insert(key, entry).is_some()));
        let (replaced, problem) = change.await?;
        let active = self.active().await.is_ok_and(|faults| faults.iter().any(|fault| fault.name == name));
        Ok(Registered { replaced, active, needs_target, problem })
    }

    fn registered(&self, name: &FaultName) -> Result<Arc<FaultRequest>, ApiError> {
        self.store.read(|registry| registry.faults.get(name).map(|it| Arc::clone(&it.what))).ok_or_else(
            || {
                ApiError::new(
                    ErrorCode::FaultNotFound,
                    format!("no fault is registered as {name:?}", name = name.as_str()),
                )
                .hint("register it first: action \"register\" with a fault_type")
            },
        )
    }

    /// Rolls the dice once and, if they say so, injects a registered fault.
    ///
    /// # Errors
    /// When no such fault is registered, and whatever the injector says. Nothing has changed then.
    pub async fn inject(&self, name: FaultName, caller: Caller) -> Result<Injection, ApiError> {
        let fault = self.registered(&name)?;
        fault.parse().map_err(|error| {
            ApiError::from(error)
                .hint("register the fault again, with a target: nothing is injected anywhere by default")
        })?;
        if !rand::random_bool(fault.probability.get()) {
            tracing::info!(fault = %name, %caller, "not triggered");
            return Ok(Injection::NotTriggered(Brief::from(&*fault)));
        }
        let request =
            Request::Inject { name, fault: Box::new(FaultRequest::clone(&fault)), in_run: false, caller };
        match self.door.call(request).await? {
            Reply::Injected(status) => Ok(Injection::Active(Brief::from(&*fault), status)),
            other => Err(unexpected(&other)),
        }
    }

    /// As [`Service::inject`], but of the calls of a caller with the same `key` only the first rolls the dice and injects: the others
    /// are answered with what came of it then.
    ///
    /// # Errors
    /// As of [`Service::inject`] and [`Keys::once`].
    pub async fn inject_once(
        &self,
        name: FaultName,
        key: &IdempotencyKey,
        caller: Caller,
    ) -> Result<Begun<Injection>, ApiError> {
        let asked = format!("fault {name}");
        self.injection_keys.once(caller, key, asked, self.inject(name, caller)).await
    }

    /// What injecting would do, and who would be affected how badly. `fault` is the registered one of this name when none is given.
    ///
    /// # Errors
    /// As [`Service::inject`].
    pub async fn plan(
        &self,
        name: FaultName,
        fault: Option<FaultRequest>,
        caller: Caller,
    ) -> Result<(PlanReport, Impact), ApiError> {
        let fault = match fault {
            Some(fault) => fault,
            None => FaultRequest::clone(&*self.registered(&name)?),
        };
        fault.parse()?;
        let request = Request::Plan { name, fault: Box::new(fault.clone()), caller };
        match self.door.call(request).await? {
            Reply::Planned(plan) => {
                let impact = Impact::of(&fault, plan.targets.as_ref())?;
                Ok((*plan, impact))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Ends a fault if it is active, and forgets it if it is registered. Succeeds when there is none.
    ///
    /// # Errors
    /// Whatever the injector says; the registration then stays, so that the name can be found again.
    pub async fn remove(
        &self,
        name: &FaultName,
        caller: Caller,
    ) -> Result<(Vec<Removal>, Option<Arc<FaultRequest>>), ApiError> {
        self.ask_leave(Act::End, caller).await?;
        self.runs.stop(Some(name));
        let removals = self.end(Request::Remove { name: name.clone(), caller }).await?;
        if self.store.read(|registry| !registry.faults.contains_key(name)) {
            return Ok((removals, None));
        }
        let key = name.clone();
        let owner = Owner::from(caller);
        let (forgotten, _) =
            self.store.change(owner, move |registry| Ok(registry.faults.remove(&key))).await?;
        Ok((removals, forgotten.map(|entry| entry.what)))
    }

    /// Ends one active fault, or all of them and every run. Registrations stay.
    ///
    /// # Errors
    /// Whatever the injector says.
    pub async fn stop(&self, name: Option<FaultName>, caller: Caller) -> Result<Vec<Removal>, ApiError> {
        self.ask_leave(Act::End, caller).await?;
        self.runs.stop(name.as_ref());
        let request = match name {
            Some(name) => Request::Remove { name, caller },
            None => Request::StopAll { caller },
        };
        self.end(request).await
    }

    /// Ends one run that goes on, and says how it has ended; after [`WAIT_FOR_STOP`], that it is being ended. Registrations stay.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn stop_run(&self, which: &Which, caller: Caller) -> Result<ExperimentResult, ApiError> {
        self.ask_leave(Act::End, caller).await?;
        let run = self.runs.stop_one(which)?;
        tracing::info!(%caller, run = %run.run_id, "ending a run");
        match tokio::time::timeout(WAIT_FOR_STOP, run.finished()).await {
            Ok(result) => result,
            Err(_) => Ok(run.so_far("it is being stopped; see chaos_status")),
        }
    }

    async fn end(&self, request: Request) -> Result<Vec<Removal>, ApiError> {
        match self.door.call(request).await? {
            Reply::Removed(removals) => Ok(removals),
            other => Err(unexpected(&other)),
        }
    }

    /// Faults that are active now.
    async fn active(&self) -> Result<Vec<FaultStatus>, ApiError> {
        let mut faults = self.faults().await?;
        faults.retain(|fault| fault.state != FaultState::Ended);
        Ok(faults)
    }

    async fn faults(&self) -> Result<Vec<FaultStatus>, ApiError> {
        match self.door.call(Request::Status).await? {
            Reply::Status(faults) => Ok(faults),
            other => Err(unexpected(&other)),
        }
    }

    /// Everything there is to see.
    pub async fn overview(&self) -> Overview {
        let faults = self.faults().await;
        Overview { registry: self.store.all(), faults, runs: self.runs.list() }
    }

    /// What this kernel can do.
    ///
    /// # Errors
    /// Whatever the injector says.
    pub async fn doctor(&self, caller: Caller) -> Result<DoctorReport, ApiError> {
        match self.door.call(Request::Doctor { caller }).await? {
            Reply::Doctor(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// What of ours is left anywhere on the node.
    ///
    /// # Errors
    /// Whatever the injector says.
    pub async fn residue(&self, caller: Caller) -> Result<ResidueReport, ApiError> {
        match self.door.call(Request::Residue { caller }).await? {
            Reply::Residue(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes one sample of what `words` say, those after `chaosctl probe`.
    ///
    /// # Errors
    /// When they are no probe. What goes wrong with the sample is what was seen.
    pub async fn probe(&self, words: &[String], caller: Caller) -> Result<Sample, ApiError> {
        self.ask_leave(Act::Probe, caller).await?;
        let probe = arguments::read(words).map_err(|problem| SpecError::new("arguments", problem))?;
        Ok(self.prober.for_caller(&self.door, caller).sample(&probe).await)
    }

    /// Registers an experiment for `caller`, in place of any of the same name.
    ///
    /// # Errors
    /// Names what in the document is missing, wrong or not supported, and a program that may not be run for the caller. Nothing has changed
    /// then.
    pub async fn register_experiment(
        &self,
        document: Map<String, Value>,
        caller: Caller,
    ) -> Result<(Experiment, Option<String>), ApiError> {
        self.ask_leave(Act::Register, caller).await?;
        let owner = Owner::from(caller);
        let _turn = self.store.turn(owner).await;
        let experiment = self.understand(&document, caller).await?;
        let (name, entry) = (experiment.name.clone(), Entry::new(Some(owner), document.into()));
        let change = self.store.change(owner, move |registry| Ok(registry.experiments.insert(name, entry)));
        Ok((experiment, change.await?.1))
    }

    /// What of all that can be aimed at on this host is wanted, as far as `caller` may see it.
    ///
    /// # Errors
    /// When the policy forbids it, or it cannot be looked at.
    pub async fn host_targets(&self, wanted: Wanted, caller: Caller) -> Result<HostTargets, ApiError> {
        match self.door.call(Request::Look { question: Question::Targets(wanted), caller }).await? {
            Reply::Seen(Facts::Targets(found)) => Ok(*found),
            other => Err(unexpected(&other)),
        }
    }

    /// What a document means, if `caller` may have the programs run that it names.
    async fn understand(
        &self,
        document: &Map<String, Value>,
        caller: Caller,
    ) -> Result<Experiment, ApiError> {
        Document::check(document)?;
        let experiment = Experiment::parse(document, &Nowhere)?;
        let prober = self.prober.for_caller(&self.door, caller);
        for (name, probe) in experiment.probes() {
            prober.admit(&probe.check).await.map_err(|error| ApiError {
                message: format!("probe {name:?}: {}", error.message),
                ..error
            })?;
        }
        Ok(experiment)
    }

    fn experiment(&self, name: &str) -> Result<(Experiment, Map<String, Value>), ApiError> {
        let document =
            self.store.read(|registry| registry.experiments.get(name).map(|it| Arc::clone(&it.what)));
        let document = document.ok_or_else(|| {
            ApiError::new(ErrorCode::ExperimentNotFound, format!("no experiment is registered as {name:?}"))
                .hint(
                    "register it first, with chaos_register_experiment or chaosctl experiment register FILE",
                )
        })?;
        let document = document.read();
        Ok((Experiment::parse(&document, &Nowhere)?, document))
    }

    /// The stage at which an experiment may be run now: the one that is `wanted`, or the one that is due; none of a document
    /// without stages.
    async fn due(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
        wanted: Option<Stage>,
        caller: Caller,
    ) -> Result<Option<Stage>, ApiError> {
        let Some(radius) = &experiment.guardrails.blast_radius else {
            return match wanted {
                None => Ok(None),
                Some(_) => {
                    Err(SpecError::new("stage", "the document has no blast_radius: leave it out").into())
                }
            };
        };
        let history = self.history.stages(of_stages(document)).await?;
        let refused = |refusal: Refusal| {
            let error = ApiError::new(ErrorCode::StageNotDue, refusal.to_string());
            match refusal {
                Refusal::Unknown(_) => {
                    let stages: Vec<_> =
                        radius.stages().iter().map(|stage| stage.percent().to_string()).collect();
                    ApiError::from(SpecError::new(
                        "stage",
                        format!("{refusal}: give one of {}", stages.join(", ")),
                    ))
                }
                Refusal::NotDue { due, .. } => error.hint(format!(
                    "run it first: chaosctl run {:?} --stage {}",
                    experiment.name,
                    due.percent()
                )),
            }
        };
        let admitted = radius.due(&history, wanted).map_err(refused)?;
        tracing::info!(%caller, experiment = experiment.name, stage = %admitted.stage, why = ?admitted.admission, "may be run");
        Ok(Some(admitted.stage))
    }

    /// Starts a run of an experiment, which goes on whether or not somebody waits for it. Of one with stages at the one that is
    /// `wanted`, or the next that is due.
    ///
    /// # Errors
    /// When there is no such experiment, it cannot start now, or the stage is not due.
    pub async fn run(&self, name: &str, wanted: Option<Stage>, caller: Caller) -> Result<Run, ApiError> {
        let (experiment, document) = self.experiment(name)?;
        self.begin(&experiment, &document, wanted, caller, None).await
    }

    /// As [`Service::run`], but of the calls of a caller with the same `key` only the first starts a run; all get the handle of that one,
    /// which may have ended.
    ///
    /// # Errors
    /// As of [`Service::run`] and [`Keys::once`].
    pub async fn run_once(
        &self,
        name: &str,
        wanted: Option<Stage>,
        key: &IdempotencyKey,
        caller: Caller,
    ) -> Result<Begun<String>, ApiError> {
        let stage = wanted.map(|stage| format!(" at stage {}", stage.percent())).unwrap_or_default();
        let begin = async { Ok(self.run(name, wanted, caller).await?.run_id) };
        self.run_keys.once(caller, key, format!("experiment {name:?}{stage}"), begin).await
    }

    /// The run that goes on whose handle is this, or begins with it.
    ///
    /// # Errors
    /// When several do.
    pub fn find_going_on(&self, handle: &str) -> Result<Option<Run>, ApiError> {
        self.runs.find(&Which::Run(handle.to_owned()))
    }

    /// The run that goes on whose whole handle is this.
    pub fn run_going_on(&self, run_id: &str) -> Option<Run> {
        self.find_going_on(run_id).ok().flatten().filter(|run| run.run_id == run_id)
    }

    async fn begin(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
        wanted: Option<Stage>,
        caller: Caller,
        started_by: Option<&str>,
    ) -> Result<Run, ApiError> {
        let stage = self.due(experiment, document, wanted, caller).await?;
        let experiment = self.admit(experiment, document, caller).await?;
        let held = stage.map(|stage| staged::at(&experiment, stage)).transpose()?;
        let experiment = held.unwrap_or(experiment);
        let (door, prober) = (self.door.clone(), self.prober.for_caller(&self.door, caller));
        self.runs.start(experiment, document, Occasion { stage, started_by }, caller, door, prober).await
    }

    /// What the experiment of this name is now, for [`Service::run_pinned`].
    ///
    /// # Errors
    /// When there is no such experiment.
    pub fn digest(&self, name: &str) -> Result<String, ApiError> {
        Ok(of_document(&self.experiment(name)?.1).0)
    }

    /// Starts a run for `caller`, who is not there, and does not wait for it. `digest` is what the experiment was when they asked
    /// for it: what somebody has registered under its name since is not run in their name. Of one with stages it is the next that
    /// is due.
    ///
    /// # Errors
    /// When there is no such experiment, it is another one now, or it cannot start now.
    pub async fn run_pinned(
        &self,
        name: &str,
        digest: &str,
        caller: Caller,
        started_by: &str,
    ) -> Result<Run, ApiError> {
        let (experiment, document) = self.experiment(name)?;
        if of_document(&document).0 != digest {
            let text =
                format!("{name:?} was registered anew, as another experiment, after the schedule was set");
            return Err(ApiError::new(ErrorCode::InvalidParameter, text).hint("set the schedule again"));
        }
        self.begin(&experiment, &document, None, caller, Some(started_by)).await
    }

    /// Returns once the injector is gone.
    pub async fn injector_gone(&self) {
        self.door.closed().await;
    }
}
