//! Runs of experiments: each lives in a task of the daemon's own, so that no client that leaves can stop or leak it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use chaos_audit as audit;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::history::views::sees_all;
use super::history::{ExperimentResult, History, Recorded, RunFault, of_document, of_stages};
use super::ledger::{Ledger, begun, ended, log_end, refused};
use super::notes::{Note, Notes, unnoted};
use crate::experiment::role::Role;
use crate::experiment::timeline::{Kind, Occurrence, Reading};
use crate::experiment::{
    Ending, Experiment, Means, Outcome, Progress, Recorder, Recovery, Stage, Timeline, drive, staged,
};
use crate::probe::prober::Prober;
use crate::request::wire::Door;
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::owner::meanings;
use crate::spec::{FaultName, FaultRequest, Owner, QualifiedName};

/// How many experiments may run at once when nobody says. What one run sees is its own fault's doing only if it is alone.
pub const MOST_RUNS: u32 = 1;
/// The most that may be asked for.
pub const MOST_RUNS_EVER: u32 = 16;

/// What a run is one of.
#[derive(Debug, Clone, Copy)]
pub struct Occasion<'a> {
    /// Whose experiment it is, and so whose run.
    pub owner: Owner,
    /// The stage of its blast radius, if the document has stages.
    pub stage: Option<Stage>,
    /// What has begun it, if the caller is not there; without it, the caller has.
    pub started_by: Option<&'a str>,
}

/// Which of the runs that go on is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The one with this handle, or which alone begins with it.
    Run(String),
    /// The one of this experiment: of the caller's own, or of another user's by its qualified name.
    Experiment(String),
}

impl Which {
    fn is(&self, run: &Run, caller: Owner) -> bool {
        match self {
            Self::Run(beginning) => run.run_id.starts_with(beginning),
            Self::Experiment(name) => {
                meanings(name, caller).any(|meant| meant == (run.owner, &run.experiment))
            }
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(beginning) => write!(f, "{beginning:?}"),
            Self::Experiment(name) => write!(f, "of {name:?}"),
        }
    }
}

/// What a run does right now. Times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Its phase.
    pub phase: String,
    /// The names of the activities that go on, or whose faults do.
    pub activities: Vec<String>,
    /// Since it began.
    pub elapsed: f64,
    /// Until its method is over, or its system has to have recovered, if that can be said.
    pub left: Option<f64>,
    /// The latest sample of each probe, gate and alert.
    pub latest: Vec<Reading>,
}

impl fmt::Display for Live {
    /// Its phase, activities and time left, and the latest sample of each gate and of what is not met: `lasting (cut), 48 s
    /// left; p95 512.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.phase)?;
        if !self.activities.is_empty() {
            write!(f, " ({})", self.activities.join(", "))?;
        }
        if let Some(left) = self.left {
            write!(f, ", {left:.0} s left")?;
        }
        let told = self.latest.iter().filter(|sample| sample.role == Role::Gate || !sample.met);
        for (index, sample) in told.enumerate() {
            write!(f, "{} {}", if index == 0 { ";" } else { "," }, sample.probe)?;
            if let Some(value) = sample.value {
                write!(f, " {value:.1}")?;
            }
            if sample.no_data {
                f.write_str(" no data")?;
            }
            if !sample.met {
                f.write_str(" not met")?;
            }
        }
        Ok(())
    }
}

/// A run that goes on.
#[derive(Debug, Clone)]
pub struct Run {
    /// Handle.
    pub run_id: String,
    /// Whose it is.
    pub owner: Owner,
    /// Experiment, as its owner calls it.
    pub experiment: String,
    /// The names of the faults it injects, by activity.
    pub faults: BTreeMap<usize, FaultName>,
    /// What share of what they match they affect, of a document with stages.
    pub stage: Option<Stage>,
    /// When it began, ISO 8601 in UTC.
    pub started_at: String,
    targets: BTreeSet<String>,
    /// The names of its activities.
    activities: Arc<[String]>,
    /// How long its method takes, and how long its system may take to recover.
    lasts: Duration,
    recovery: Option<Duration>,
    timeline: Arc<Mutex<Timeline>>,
    /// What its record will have that is known from the beginning.
    known: Arc<Recorded>,
    started: Instant,
    /// Each change is a stop.
    stop: watch::Sender<()>,
    /// Who was the first to stop it.
    stopped_by: Arc<OnceLock<String>>,
    progress: watch::Receiver<Progress>,
    result: watch::Receiver<Option<ExperimentResult>>,
}

impl Run {
    /// Its experiment as `viewer` calls it.
    pub fn name_for(&self, viewer: Owner) -> String {
        self.owner.name_for(viewer, &self.experiment)
    }

    /// The result once there is one.
    pub async fn finished(&self) -> Result<ExperimentResult, ApiError> {
        let mut result = self.result.clone();
        let ended = result.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
        ended.ok_or_else(|| ApiError::new(ErrorCode::Unavailable, "the run broke off without a result"))
    }

    /// Asks it to stop, in the name of whoever that is. It removes its faults itself.
    pub fn end(&self, by: impl ToString) {
        self.stopped_by.get_or_init(|| by.to_string());
        self.stop.send_replace(());
    }

    /// Who writes down what happens in it.
    async fn recorder(&self, experiment: &Experiment, notes: &Notes) -> Recorder {
        let entries = notes.diary(&self.run_id).await;
        Recorder::writing(experiment, self.faults.clone(), Arc::clone(&self.timeline)).with_entries(entries)
    }

    /// What was sampled by now.
    pub fn samples(&self) -> Vec<Reading> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner).samples.clone()
    }

    fn note(&self) -> Note {
        Note {
            experiment: self.experiment.clone(),
            started_at: self.started_at.clone(),
            faults: self.faults.values().map(|name| QualifiedName::new(self.owner, name.clone())).collect(),
            described: self.known.faults.clone(),
            digest: self.known.digest.clone(),
            document: self.known.document.clone(),
            events: self.known.events.clone(),
            stage: self.stage,
            staged: self.known.staged.clone(),
            owner: self.known.owner.clone(),
            host: self.known.host.clone(),
        }
    }

    /// What its record would have if this were all: `error` says why it is not.
    pub fn recorded_so_far(&self, error: &str) -> Recorded {
        let timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.recorded(self.so_far(error), timeline)
    }

    fn recorded(&self, run: ExperimentResult, timeline: Timeline) -> Recorded {
        let known = Recorded::clone(&self.known);
        let mut events = [known.events, timeline.events].concat();
        let stopped = events.iter_mut().find(|event| event.kind == Kind::Abort);
        if let (Some(stopped), Some(by)) = (stopped, self.stopped_by.get()) {
            stopped.detail.push_str(&format!(", by {by}"));
        }
        Recorded { run, events, samples: timeline.samples, samples_left_out: timeline.left_out, ..known }
    }

    /// What can be said before it has finished.
    pub fn so_far(&self, error: &str) -> ExperimentResult {
        let progress = self.progress.borrow().clone();
        ExperimentResult { error: Some(error.to_owned()), ..self.result(&progress) }
    }

    /// How much has happened in it and was sampled by now: what grows when there is something new.
    pub fn happened(&self) -> u64 {
        let timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        (timeline.events.len() + timeline.samples.len()) as u64 + timeline.left_out
    }

    /// What it does right now.
    pub fn live(&self) -> Live {
        let timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = self.started.elapsed().as_secs_f64();
        let (phase, since) = timeline.phase().unwrap_or(("before", 0.0));
        let (from, lasts) = match phase {
            "method" | "lasting" => (timeline.method_began(), Some(self.lasts)),
            "after" => (Some(since), self.recovery),
            _ => (None, None),
        };
        let left = from.zip(lasts).map(|(from, lasts)| (from + lasts.as_secs_f64() - elapsed).max(0.0));
        let going_on = self.progress.borrow().going_on.clone();
        Live {
            phase: phase.to_owned(),
            activities: going_on.iter().filter_map(|index| self.activities.get(*index)).cloned().collect(),
            elapsed,
            left,
            latest: timeline.latest(),
        }
    }

    fn result_of(
        &self,
        outcome: &Outcome,
        recovery: Option<Recovery>,
        progress: &Progress,
    ) -> ExperimentResult {
        ExperimentResult {
            recovery,
            verdict: Some(outcome.verdict),
            success: outcome.success(),
            steady_state_after: outcome.steady_after,
            verified: Some(outcome.verified),
            error: outcome.error.clone(),
            failure_mode: outcome.failure,
            left: outcome.left.clone(),
            ..self.result(progress)
        }
    }

    /// What is known without an outcome.
    fn result(&self, progress: &Progress) -> ExperimentResult {
        ExperimentResult {
            experiment_name: self.experiment.clone(),
            verdict: None,
            success: false,
            steady_state_before: progress.steady_before,
            steady_state_after: false,
            verified: Some(progress.verified),
            duration_seconds: self.started.elapsed().as_secs_f64(),
            error: None,
            failure_mode: None,
            started_at: self.started_at.clone(),
            run_id: self.run_id.clone(),
            packets_affected: progress.affected,
            gate_reaction_seconds: progress.reaction.map(|time| time.as_secs_f64()),
            recovery: None,
            stage: self.stage,
            next: None,
            left: Vec::new(),
            warning: None,
        }
    }
}

/// The runs that go on. Clones share them.
#[derive(Debug, Clone)]
pub struct Runs {
    going_on: Arc<Mutex<BTreeMap<String, Run>>>,
    notes: Notes,
    history: History,
    most: u32,
}

impl Runs {
    /// None yet, and never more than `most`. Those that come are noted in `notes` while they go on, and then recorded in
    /// `history`.
    pub fn new(notes: Notes, history: History, most: u32) -> Self {
        Self { going_on: Arc::default(), notes, history, most }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Run>> {
        self.going_on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every run that goes on.
    pub fn list(&self) -> Vec<Run> {
        self.lock().values().cloned().collect()
    }

    /// Asks runs to stop: the one that has a fault called `fault`, or all. They remove their faults themselves. Whether there was one.
    pub fn stop(&self, fault: Option<&QualifiedName>, caller: Caller) -> bool {
        let has = |run: &Run, fault: &QualifiedName| {
            run.owner == fault.owner && run.faults.values().any(|name| *name == fault.name)
        };
        let mut any = false;
        for run in self.lock().values().filter(|run| fault.is_none_or(|fault| has(run, fault))) {
            run.end(caller);
            any = true;
        }
        any
    }

    /// Asks one run to stop, whoever asks. It removes its faults itself.
    ///
    /// # Errors
    /// [`ErrorCode::RunNotFound`] when no run that goes on is meant, or more than one.
    pub fn stop_one(&self, which: &Which, caller: Caller) -> Result<Run, ApiError> {
        let owner = caller.owner();
        let run = self.find(which, owner)?.ok_or_else(|| self.another(which, owner))?;
        run.end(caller);
        Ok(run)
    }

    /// The run that is meant, if it goes on.
    ///
    /// # Errors
    /// [`ErrorCode::RunNotFound`] when more than one is meant.
    pub fn find(&self, which: &Which, caller: Owner) -> Result<Option<Run>, ApiError> {
        let going_on = self.lock();
        let meant: Vec<_> = going_on.values().filter(|run| which.is(run, caller)).collect();
        match meant.as_slice() {
            [] => Ok(None),
            [run] => Ok(Some(Run::clone(run))),
            _ => Err(not_found(format!("several runs that go on begin with {which}: give more of it"))),
        }
    }

    /// Why nothing is meant: perhaps one of another user's, which has to be said.
    fn another(&self, which: &Which, caller: Owner) -> ApiError {
        let error = not_found(format!("no run that goes on is {which}"));
        let Which::Experiment(name) = which else { return error };
        let going_on = self.lock();
        let others = going_on.values().filter(|run| run.experiment == *name);
        let names: Vec<_> = others.map(|run| format!("{:?}", run.name_for(caller))).collect();
        if names.is_empty() { error } else { error.hint(format!("say whose it is: {}", names.join(" or "))) }
    }

    /// Starts an experiment, which is what `document` says, held to the occasion's stage if it has stages, in a task of its own.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] when it runs already, too many others do, or one of them has the same target;
    /// [`ErrorCode::Unavailable`] when it cannot be noted, as on a disk that is full.
    pub async fn start(
        &self,
        experiment: Experiment,
        document: &Map<String, Value>,
        occasion: Occasion<'_>,
        caller: Caller,
        door: Door,
        prober: Prober,
    ) -> Result<Run, ApiError> {
        let Occasion { owner, stage, started_by } = occasion;
        let (stop, stopped) = watch::channel(());
        let (progressing, progress) = watch::channel(Progress::default());
        let (finishing, result) = watch::channel(None);
        let run_id = format!("{:016x}", rand::random::<u64>());
        let faults = fault_names(&experiment, &run_id)?;
        let started_at = now();
        let by = started_by.map_or_else(|| caller.to_string(), str::to_owned);
        let (digest, text) = of_document(document);
        let known = Recorded {
            digest: Some(digest),
            staged: stage.map(|_| of_stages(document)),
            owner: Some(owner.to_string()),
            host: host(),
            document: Some(text),
            faults: described(&experiment, &faults),
            events: vec![Occurrence::started(&started_at, &by)],
            ..Recorded::default()
        };
        let run = Run {
            run_id,
            owner,
            experiment: experiment.name.clone(),
            faults,
            stage,
            started_at,
            targets: targets(&experiment),
            activities: experiment.method.iter().map(|activity| activity.name.clone()).collect(),
            lasts: experiment.lasts(),
            recovery: experiment.guardrails.recovery,
            timeline: Arc::default(),
            known: Arc::new(known),
            started: Instant::now(),
            stop,
            stopped_by: Arc::default(),
            progress,
            result,
        };
        self.admit(&run, caller.owner())?;
        let (ledger, begun) = self.begun(&run, &by, &door).await?;
        if let Err(problem) = self.notes.begin(&run.run_id, run.note()).await {
            self.lock().remove(&run.run_id);
            let error = unnoted(&problem);
            ledger.put(audit::Kind::Start, refused(begun, &error), caller).await;
            return Err(error);
        }
        let (runs, started) = (self.clone(), run.clone());
        tokio::spawn(async move {
            let recorder = started.recorder(&experiment, &runs.notes).await;
            let (names, recorder) = (&started.faults, &recorder);
            let means = Means { caller, owner, door: &door, prober: &prober, names, recorder };
            let Ending { outcome, recovery, fates } = drive(&experiment, &means, stopped, &progressing).await;
            let mut result = started.result_of(&outcome, recovery, &progressing.borrow().clone());
            log_end(caller, &result, &outcome);
            let staged = started.known.staged.clone().map(|staged| (staged, started.owner));
            result.next = next(&experiment, &result, staged, &runs.history).await;
            let mut recorded = started.recorded(result.clone(), recorder.timeline());
            let faults = started.faults.keys().zip(recorded.faults);
            recorded.faults = faults.map(|(index, fault)| fault.with_fate(fates.get(index))).collect();
            result.warning = runs.history.record(recorded).await;
            runs.notes.end(&started.run_id).await;
            ledger.put(audit::Kind::Start, ended(begun, &result, started.stopped_by.get()), caller).await;
            door.release().await;
            runs.lock().remove(&started.run_id);
            finishing.send_replace(Some(result));
        });
        Ok(run)
    }

    /// Waits until it is recorded that a run begins.
    async fn begun(&self, run: &Run, by: &str, door: &Door) -> Result<(Ledger, audit::Record), ApiError> {
        let (ledger, begun) = (Ledger::new(door.clone()), begun(run, by));
        let written = ledger.before(begun.clone()).await;
        written.inspect_err(|_| drop(self.lock().remove(&run.run_id)))?;
        Ok((ledger, begun))
    }

    /// Whether an experiment of this owner's could start now, beside what runs.
    ///
    /// # Errors
    /// As [`Runs::start`].
    pub fn may_start(&self, experiment: &Experiment, owner: Owner, caller: Owner) -> Result<(), ApiError> {
        self.refuse((owner, &experiment.name, &targets(experiment)), caller, &self.lock())
    }

    fn refuse(
        &self,
        new: (Owner, &str, &BTreeSet<String>),
        caller: Owner,
        going_on: &BTreeMap<String, Run>,
    ) -> Result<(), ApiError> {
        match conflict(new, caller, going_on, self.most) {
            None => Ok(()),
            Some(conflict) => Err(ApiError::new(ErrorCode::LimitReached, conflict)
                .hint("follow what runs with chaos_status, or end it with chaos_stop")),
        }
    }

    fn admit(&self, run: &Run, caller: Owner) -> Result<(), ApiError> {
        let mut runs = self.lock();
        self.refuse((run.owner, &run.experiment, &run.targets), caller, &runs)?;
        runs.insert(run.run_id.clone(), run.clone());
        Ok(())
    }
}

/// The name of this host.
fn host() -> Option<String> {
    nix::unistd::gethostname().ok()?.into_string().ok()
}

fn not_found(text: String) -> ApiError {
    ApiError::new(ErrorCode::RunNotFound, text).hint("chaos_status lists what runs")
}

/// What to run after this run; nothing is said when what was run before cannot be read.
async fn next(
    experiment: &Experiment,
    result: &ExperimentResult,
    staged: Option<(String, Owner)>,
    history: &History,
) -> Option<String> {
    let verdict = result.verdict?;
    let mut steps = match staged {
        Some((staged, owner)) => history.stages(staged, owner).await.ok()?,
        None => Vec::new(),
    };
    steps.extend(result.stage.map(|stage| (stage, verdict)));
    staged::next(experiment, &steps, verdict)
}

/// What the faults of an experiment name as their targets.
fn targets(experiment: &Experiment) -> BTreeSet<String> {
    experiment.faults().flat_map(|(_, _, fault)| fault.target.names()).collect()
}

/// What keeps a run from beginning beside those that go on: the same experiment, the same target, or that they are as many
/// as there may be. Names are as the caller writes them.
fn conflict(
    (owner, new, targets): (Owner, &str, &BTreeSet<String>),
    caller: Owner,
    going_on: &BTreeMap<String, Run>,
    most: u32,
) -> Option<String> {
    let named = |run: &Run| format!("{:?}, as run {}", run.name_for(caller), run.run_id);
    if let Some(same) = going_on.values().find(|other| other.owner == owner && other.experiment == new) {
        return Some(format!("{:?} is running already, as run {}", same.name_for(caller), same.run_id));
    }
    for other in going_on.values() {
        if let Some(target) = targets.intersection(&other.targets).next() {
            // What another user's run goes to is nobody else's business.
            let target = if sees_all(other.owner, caller) { target.as_str() } else { "what it goes to" };
            let text =
                format!("{target} is a target of {}, too: a target has one run at a time", named(other));
            return Some(text);
        }
    }
    if going_on.len() < most as usize {
        return beyond_share(caller, going_on, most as usize);
    }
    let running: Vec<_> = going_on.values().map(named).collect();
    let most = if most == 1 { "one run".to_owned() } else { format!("{most} runs") };
    Some(format!("this node has {most} at a time, and is running {}", running.join("; ")))
}

/// What keeps a user from one more run where there is a place: half of them, rounded up, is one user's share, and the last place is
/// root's. Where there is one place only, it is everybody's.
fn beyond_share(caller: Owner, going_on: &BTreeMap<String, Run>, most: usize) -> Option<String> {
    if caller.is_root() || most < 2 {
        return None;
    }
    let own = going_on.values().filter(|run| run.owner == caller).count();
    let but_roots = going_on.values().filter(|run| !run.owner.is_root()).count();
    let share = most.div_ceil(2);
    if own >= share {
        return Some(format!("{caller} has {own} runs going on, and one user may have {share} of {most}"));
    }
    (but_roots + 1 >= most)
        .then(|| format!("{} runs go on, and the last place of {most} is root's", going_on.len()))
}

/// What the faults of an experiment are, with these names.
pub(super) fn described(experiment: &Experiment, names: &BTreeMap<usize, FaultName>) -> Vec<RunFault> {
    let fault = |(index, _, fault): (usize, Option<&FaultName>, &FaultRequest)| RunFault {
        name: names.get(&index).map(ToString::to_string).unwrap_or_default(),
        fault_type: fault.fault_type.name().to_owned(),
        target: serde_json::to_string(&fault.target).unwrap_or_default(),
        seconds: fault.parse().map_or(0.0, |fault| fault.duration.as_secs_f64()),
        weight: experiment.weight(index),
        injected: None,
        effective: None,
        removed_clean: None,
        evidence: None,
    };
    experiment.faults().map(fault).collect()
}

/// The names that the document gives to its faults, or some of the experiment's name and the run's handle.
pub(super) fn fault_names(
    experiment: &Experiment,
    run_id: &str,
) -> Result<BTreeMap<usize, FaultName>, ApiError> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let slug: String = experiment.name.chars().map(plain).take(40).collect();
    let slug = slug.trim_matches('-');
    let slug = if slug.is_empty() { "run" } else { slug };
    let mut unnamed = 0;
    let names = experiment.faults().map(|(index, name, _)| {
        if let Some(name) = name {
            return Ok((index, name.clone()));
        }
        unnamed += 1;
        let number = if unnamed == 1 { String::new() } else { format!(".{unnamed}") };
        Ok((index, FaultName::new(format!("{slug}.{run_id}{number}"))?))
    });
    names.collect()
}

/// The time, ISO 8601 in UTC, to the millisecond.
pub fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
