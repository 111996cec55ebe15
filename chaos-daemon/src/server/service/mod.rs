//! What the daemon does for a caller, whatever protocol the caller speaks.

mod advising;
mod dry_run;
mod entrusting;
mod faults;
mod leave;
mod node;
mod searching;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::advise::Looks;
use super::diary;
use super::history::{ExperimentResult, History, Retention, of_document, of_stages};
use super::keys::{Begun, IdempotencyKey, Keys};
use super::ledger::Ledger;
use super::nearest::or_nearest;
use super::notes::{Note, Notes};
use super::registry::{Document, Registry, Store};
use super::runs::{Occasion, Run, Runs, Which};
use super::schedule::Schedules;
use super::search::Searches;
use crate::experiment::driver::unexpected;
use crate::experiment::stage::Refusal;
use crate::experiment::staged;
use crate::experiment::variables::Nowhere;
use crate::experiment::{Experiment, Stage};
use crate::probe::prober::Prober;
use crate::probe::{Sample, arguments};
use crate::request::claim::Claim;
use crate::request::facts::{Facts, Question};
use crate::request::host_targets::{HostTargets, Wanted};
use crate::request::wire::Door;
use crate::request::{
    Act, ApiError, Caller, DoctorReport, ErrorCode, FaultStatus, Reply, Request, ResidueReport, WentDown,
};
use crate::spec::owner::split;
use crate::spec::{Owner, SpecError};
pub use advising::AdviceWanted;
pub use dry_run::{DryRun, PlannedFault};
use entrusting::AtStage;
pub(super) use entrusting::entrusted;
pub use faults::{Injection, Registered, Removed, check};
pub use leave::{about, beginning};
pub use node::Node;

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
    searches: Searches,
    /// What was seen of services.
    looks: Looks,
    /// The way to the audit.
    ledger: Ledger,
    /// Who reads the catalogue.
    pub(super) reading: Arc<tokio::sync::Mutex<()>>,
}

/// How an experiment is to be run.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// The stage of its blast radius, if not the one that is due.
    pub stage: Option<Stage>,
    /// What was planned: nothing else is to be run.
    pub plan_digest: Option<String>,
}

/// An experiment that is registered.
struct Subject {
    owner: Owner,
    experiment: Experiment,
    document: Map<String, Value>,
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

/// Why an approval is needed, where the stage is not due: that comes first.
fn beside(error: ApiError, not_due: Option<&ApiError>) -> ApiError {
    match not_due {
        Some(not_due) if error.code == ErrorCode::ApprovalNeeded => {
            ApiError { message: format!("{}; {}", not_due.message, error.message), ..error }
        }
        _ => error,
    }
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
            let interrupted = |(run_id, note): (&String, &Note)| {
                let mut recorded = note.interrupted(run_id.clone(), went_down);
                diary::add(&mut recorded, diary::read(state_dir, run_id));
                recorded
            };
            history.record_interrupted(left.iter().map(interrupted));
            notes.save();
            left.keys().for_each(|run_id| diary::forget(state_dir, run_id));
        }
        let runs = Runs::new(notes, history.clone(), most_runs);
        let (schedules, searches) =
            (Schedules::open(state_dir), Searches::open(state_dir, went_down.is_some()));
        let (run_keys, injection_keys) = (Keys::default(), Keys::default());
        let (looks, reading, ledger) = (Looks::default(), Arc::default(), Ledger::new(door.clone()));
        Self {
            door,
            prober,
            store,
            history,
            runs,
            run_keys,
            injection_keys,
            schedules,
            searches,
            looks,
            ledger,
            reading,
        }
    }

    /// The same, to ask the injector in this name.
    #[must_use]
    pub fn in_the_name_of(&self, claim: Claim) -> Self {
        let door = self.door.in_the_name_of(claim);
        Self { ledger: self.ledger.through(door.clone()), door, ..self.clone() }
    }

    /// What runs by itself, and when.
    pub fn schedules(&self) -> &Schedules {
        &self.schedules
    }

    /// The way to the audit.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What has run.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Ends one run that goes on, whoever asks, and says whose it was and how it has ended; after [`WAIT_FOR_STOP`], that it is being ended. Registrations stay.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn stop_run(
        &self,
        which: &Which,
        caller: Caller,
    ) -> Result<(Owner, ExperimentResult), ApiError> {
        self.ask_leave(Act::End).await?;
        let run = self.runs.stop_one(which, caller)?;
        tracing::info!(%caller, run = %run.run_id, "ending a run");
        let result = match tokio::time::timeout(WAIT_FOR_STOP, run.finished()).await {
            Ok(result) => result?,
            Err(_) => run.so_far("it is being stopped; see chaos_status"),
        };
        Ok((run.owner, result))
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
    pub async fn doctor(&self) -> Result<DoctorReport, ApiError> {
        match self.door.call(Request::Doctor).await? {
            Reply::Doctor(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// What of ours is left anywhere on the node.
    ///
    /// # Errors
    /// Whatever the injector says.
    pub async fn residue(&self) -> Result<ResidueReport, ApiError> {
        match self.door.call(Request::Residue).await? {
            Reply::Residue(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes one sample of what `words` say, those after `chaosctl probe`.
    ///
    /// # Errors
    /// When they are no probe. What goes wrong with the sample is what was seen.
    pub async fn probe(&self, words: &[String]) -> Result<Sample, ApiError> {
        self.ask(Question::Named { act: Act::Probe, texts: words.to_vec() }).await?;
        let probe = arguments::read(words).map_err(|problem| no_probe(words, problem))?;
        Ok(self.prober.asking(&self.door).sample(&probe).await)
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
        self.ask(about(Act::Register, &document)).await?;
        let owner = caller.owner();
        let _turn = self.store.turn(owner).await;
        let experiment = self.understand(&document).await?;
        let (name, document) = (experiment.name.clone(), Document::from(document));
        let change = self.store.change(owner, move |registry| {
            Ok(registry.of(owner).experiments.insert(name, document.into()).is_some())
        });
        let (replaced, problem) = change.await?;
        tracing::info!(%caller, experiment = experiment.name, replaced, "registered an experiment");
        Ok((experiment, problem))
    }

    /// What of all that can be aimed at on this host is wanted, as far as `caller` may see it.
    ///
    /// # Errors
    /// When the policy forbids it, or it cannot be looked at.
    pub async fn host_targets(&self, wanted: Wanted) -> Result<HostTargets, ApiError> {
        match self.door.call(Request::Look { question: Question::Targets(wanted) }).await? {
            Reply::Seen(Facts::Targets(found)) => Ok(*found),
            other => Err(unexpected(&other)),
        }
    }

    /// What a document means, if `caller` may have the programs run that it names.
    async fn understand(&self, document: &Map<String, Value>) -> Result<Experiment, ApiError> {
        Document::check(document)?;
        let experiment = Experiment::parse(document, &Nowhere)?;
        let prober = self.prober.asking(&self.door);
        for (name, probe) in experiment.probes() {
            prober.admit(&probe.check).await.map_err(|error| ApiError {
                message: format!("probe {name:?}: {}", error.message),
                ..error
            })?;
        }
        Ok(experiment)
    }

    /// The experiment that is meant by a name.
    async fn experiment(&self, name: &str, caller: Caller) -> Result<Subject, ApiError> {
        let registry = self.store.all();
        let (owner, plain) = registry.meant(name, caller.owner());
        self.meant(Some(owner), caller).await?;
        self.subject(owner, plain)
    }

    fn subject(&self, owner: Owner, name: &str) -> Result<Subject, ApiError> {
        let document = self.store.read(|registry| registry.experiment(owner, name)).ok_or_else(|| {
            let registry = self.store.all();
            let theirs = registry.owned.get(&owner).into_iter().flat_map(|theirs| theirs.experiments.keys());
            let advice = "register it first, with chaos_register_experiment";
            ApiError::new(ErrorCode::ExperimentNotFound, format!("no experiment is registered as {name:?}"))
                .hint(or_nearest(advice, name, theirs.map(String::as_str)))
        })?;
        let document = document.read();
        Ok(Subject { owner, experiment: Experiment::parse(&document, &Nowhere)?, document })
    }

    /// The stage at which an experiment may be run now: the one that is `wanted`, or the one that is due; none of a document
    /// without stages.
    async fn due(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
        wanted: Option<Stage>,
        (owner, caller): (Owner, Caller),
    ) -> Result<Option<Stage>, ApiError> {
        let Some(radius) = &experiment.guardrails.blast_radius else {
            return match wanted {
                None => Ok(None),
                Some(_) => {
                    Err(SpecError::new("stage", "the document has no blast_radius: leave it out").into())
                }
            };
        };
        let history = self.history.stages(of_stages(document), owner).await?;
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
                    "run it first: chaos_run_experiment of {:?} with stage {}",
                    experiment.name,
                    due.percent()
                )),
            }
        };
        let admitted = radius.due(&history, wanted).map_err(refused)?;
        tracing::info!(%caller, experiment = experiment.name, stage = %admitted.stage, why = ?admitted.admission, "may be run");
        Ok(Some(admitted.stage))
    }

    /// The stage at which an experiment is to be run. One that is wanted and not due comes with the reason, where an approval may let it be
    /// run out of its order.
    async fn stage_of(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
        wanted: Option<Stage>,
        whose: (Owner, Caller),
    ) -> Result<(AtStage, Option<ApiError>), ApiError> {
        match self.due(experiment, document, wanted, whose).await {
            Err(error) if error.code == ErrorCode::StageNotDue && wanted.is_some() => {
                match self.ask(Question::Skipping).await {
                    Ok(()) => Ok((AtStage { stage: wanted, skips: true }, Some(error))),
                    Err(_) => Err(error),
                }
            }
            due => Ok((AtStage { stage: due?, skips: false }, None)),
        }
    }

    /// Starts a run of an experiment, which goes on whether or not somebody waits for it. Of one with stages at the one that is
    /// `wanted`, or the next that is due.
    ///
    /// # Errors
    /// When there is no such experiment, it cannot start now, the stage is not due, or it is not what was planned.
    pub async fn run(&self, name: &str, wish: &Wish, caller: Caller) -> Result<Run, ApiError> {
        self.begin(&self.experiment(name, caller).await?, wish, caller, None).await
    }

    /// As [`Service::run`], but of the calls of a caller with the same `key` only the first starts a run; all get the handle of that one,
    /// which may have ended.
    ///
    /// # Errors
    /// As of [`Service::run`] and [`Keys::once`].
    pub async fn run_once(
        &self,
        name: &str,
        wish: &Wish,
        key: &IdempotencyKey,
        caller: Caller,
    ) -> Result<Begun<String>, ApiError> {
        let stage = wish.stage.map(|stage| format!(" at stage {}", stage.percent())).unwrap_or_default();
        let begin = async { Ok(self.run(name, wish, caller).await?.run_id) };
        self.run_keys.once(caller, key, format!("experiment {name:?}{stage}"), begin).await
    }

    /// The run that goes on whose handle is this, or begins with it.
    ///
    /// # Errors
    /// When several do.
    pub fn find_going_on(&self, handle: &str) -> Result<Option<Run>, ApiError> {
        // Handles are nobody's.
        self.runs.find(&Which::Run(handle.to_owned()), Owner::ROOT)
    }

    /// The run that goes on whose whole handle is this.
    pub fn run_going_on(&self, run_id: &str) -> Option<Run> {
        self.find_going_on(run_id).ok().flatten().filter(|run| run.run_id == run_id)
    }

    async fn begin(
        &self,
        subject: &Subject,
        wish: &Wish,
        caller: Caller,
        started_by: Option<&str>,
    ) -> Result<Run, ApiError> {
        let Subject { owner, experiment, document } = subject;
        let (at, not_due) = self.stage_of(experiment, document, wish.stage, (*owner, caller)).await?;
        let stage = at.stage;
        // What could not start anyway does not count as begun.
        self.runs.may_start(experiment, *owner, caller.owner())?;
        let experiment = self.admit(experiment, document).await?;
        let held = stage.map(|stage| staged::at(&experiment, stage)).transpose()?;
        let experiment = held.unwrap_or(experiment);
        if let Some(planned) = &wish.plan_digest {
            self.require_planned(planned, &experiment, (document, at), *owner).await?;
        }
        self.runs.may_start(&experiment, *owner, caller.owner())?;
        let entrusted = self.entrust_run(&experiment, document, *owner, at).await;
        let (door, approved) = entrusted.map_err(|error| beside(error, not_due.as_ref()))?;
        let prober = self.prober.asking(&door);
        let by = started_by.map_or_else(|| caller.to_string(), str::to_owned);
        let by = approved.map(|approved| format!("{by}, approved by {approved}"));
        let occasion = Occasion { owner: *owner, stage, started_by: by.as_deref().or(started_by) };
        let begun = self.runs.start(experiment, document, occasion, caller, door.clone(), prober).await;
        if begun.is_err() {
            door.release().await;
        }
        begun
    }

    /// What a schedule of `owner`'s would run by this name, for [`Service::run_pinned`]: its plain name, and what it is now.
    ///
    /// # Errors
    /// When there is no such experiment, or it is another user's than the schedule.
    pub fn to_be_scheduled(&self, name: &str, owner: Owner) -> Result<(String, String), ApiError> {
        let is_own = self.store.read(|registry| registry.experiment(owner, name).is_some());
        let plain = match split(name) {
            _ if is_own => name,
            (Some(of), _) if of != owner => {
                let text =
                    format!("experiment: {name:?} is of {of}, and a schedule of {owner} runs theirs alone");
                return Err(ApiError::new(ErrorCode::InvalidParameter, text));
            }
            (_, plain) => plain,
        };
        Ok((plain.to_owned(), of_document(&self.subject(owner, plain)?.document).0))
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
        let subject = self.subject(caller.owner(), name)?;
        if of_document(&subject.document).0 != digest {
            let text =
                format!("{name:?} was registered anew, as another experiment, after the schedule was set");
            return Err(ApiError::new(ErrorCode::InvalidParameter, text).hint("set the schedule again"));
        }
        self.begin(&subject, &Wish::default(), caller, Some(started_by)).await
    }

    /// Returns once the injector is gone.
    pub async fn injector_gone(&self) {
        self.door.closed().await;
    }
}
/// That these words are no probe, and how one is written.
pub fn no_probe(words: &[String], problem: String) -> ApiError {
    let usage = arguments::usage(words.first().map(String::as_str));
    ApiError::from(SpecError::new("arguments", problem)).hint(usage)
}
