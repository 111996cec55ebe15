//! What has run: in a SQLite database beside the registry, and what cannot be written there in memory, so that neither a
//! full disk nor a broken file keeps a run from ending or the daemon from starting.

mod conditions;
mod database;
mod migrations;
pub mod precedents;
pub mod score;
pub mod statistics;
mod total;
pub mod tried;
pub mod views;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::experiment::EXTENSION;
use crate::experiment::guardrails::FULL_WEIGHT;
use crate::experiment::role::Stages;
use crate::experiment::stage::Step;
use crate::experiment::timeline::{Occurrence, Reading};
use crate::experiment::{FailureMode, Fate, Recovery, Stage, Verdict};
use crate::request::evidence::words;
use crate::request::{ApiError, ErrorCode, Evidence};
use crate::spec::{FaultType, Owner};
use database::Database;
pub use total::Total;

/// The name of the database in the state directory.
pub const FILE: &str = "history.db";
/// How many runs are kept when nobody says.
pub const KEPT_RUNS: u32 = 10_000;
/// How many bytes they may take when nobody says.
pub const KEPT_BYTES: u64 = 1 << 30;
/// What part of that one user's runs may take: a quarter.
const SHARE: u64 = 4;
/// How many bytes they may take in memory, where they cannot be written to the file.
const BYTES_IN_MEMORY: u64 = 8 << 20;
/// How many runs a search finds when nobody says.
pub const FOUND_RUNS: u32 = 100;
/// The most runs that one search finds.
pub const MOST_FOUND: u32 = 1000;

/// The outcome of one run, in the words of the tool specification and a few more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// Experiment that ran.
    pub experiment_name: String,
    /// The last word on it; none while it goes on, for a dry run, and in results of before there were verdicts.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// Whether its verdict is held.
    pub success: bool,
    /// Steady state before the action; false, too, if it was not verified.
    pub steady_state_before: bool,
    /// Steady state after the action; likewise.
    pub steady_state_after: bool,
    /// When the steady state was verified; none where that is not known: in results of before it was recorded, and of an interrupted run
    /// without a diary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Stages>,
    /// How long the run took, in seconds.
    pub duration_seconds: f64,
    /// What went wrong.
    pub error: Option<String>,
    /// What failed first; none of a success, and in results of before it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_mode: Option<FailureMode>,
    /// When it began, ISO 8601 in UTC.
    pub started_at: String,
    /// Handle of the run.
    pub run_id: String,
    /// Packets the fault acted on.
    #[serde(default)]
    pub packets_affected: u64,
    /// When a gate was breached: seconds from that sample's question until every fault was removed.
    #[serde(default)]
    pub gate_reaction_seconds: Option<f64>,
    /// What it has shown of recovery, if something of it made an outage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// What share of what its faults match it affected, of a document with stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// What to run next, or what would be wider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// What it could not remove, each of which stands in `error`, too; nobody knows of a result that was read from the history.
    #[serde(skip)]
    pub left: Vec<String>,
    /// What went wrong beside the run: it could not be recorded.
    #[serde(default)]
    pub warning: Option<String>,
}

/// The latest run of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latest {
    /// Handle.
    pub run_id: String,
    /// When it began, ISO 8601 in UTC.
    pub started_at: String,
    /// The last word on it; absent in results of before there were verdicts.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Whether its verdict is held.
    pub success: bool,
}

/// A fault of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunFault {
    /// Name.
    pub name: String,
    /// Type.
    pub fault_type: String,
    /// The fields of its target, as JSON.
    pub target: String,
    /// How long it was to last, in seconds.
    pub seconds: f64,
    /// What it weighs in the resiliency score, from 0 to 10.
    #[serde(default = "full_weight")]
    pub weight: u8,
    /// Whether it was injected; absent when its turn did not come, or that is not known.
    #[schemars(with = "bool")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected: Option<bool>,
    /// Whether it was seen to act.
    #[schemars(with = "bool")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<bool>,
    /// Whether it is removed, and residue was looked for and none found.
    #[schemars(with = "bool")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_clean: Option<bool>,
    /// What it had met, taken or done when it was looked at last.
    #[schemars(with = "Evidence")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

impl RunFault {
    /// What it had met, taken or done, in lines for people; without any when nothing is recorded.
    pub fn met(&self) -> Vec<String> {
        let fault_type = FaultType::parse(&self.fault_type).ok();
        self.evidence.map_or_else(Vec::new, |evidence| words::lines(&evidence, fault_type))
    }

    /// With what became of it, if its turn came.
    #[must_use]
    pub fn with_fate(self, fate: Option<&Fate>) -> Self {
        let (injected, effective, removed_clean) = (
            fate.map(|fate| fate.injected),
            fate.map(|fate| fate.effective),
            fate.map(|fate| fate.removed_clean),
        );
        let evidence = fate.and_then(|fate| fate.evidence);
        Self { injected, effective, removed_clean, evidence, ..self }
    }
}

/// What a fault weighs of which nobody says so.
fn full_weight() -> u8 {
    FULL_WEIGHT
}

/// All that is known of a run that has ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// How it went.
    pub run: ExperimentResult,
    /// What its document was, without secrets; not known of runs of before there was a history.
    #[serde(default)]
    pub digest: Option<String>,
    /// What its document was but for secrets and stages, of a run at a stage: by this its stages are known.
    #[serde(default)]
    pub staged: Option<String>,
    /// Whose run it was; root's if that was not recorded.
    #[serde(default)]
    pub owner: Option<String>,
    /// The name of the host that it ran on, if that was recorded.
    #[serde(default)]
    pub host: Option<String>,
    /// The document itself, without secrets.
    #[serde(default)]
    pub document: Option<Map<String, Value>>,
    /// Its faults.
    #[serde(default)]
    pub faults: Vec<RunFault>,
    /// What happened, in order.
    #[serde(default)]
    pub events: Vec<Occurrence>,
    /// What was sampled, in order.
    #[serde(default)]
    pub samples: Vec<Reading>,
    /// How many more samples were taken.
    #[serde(default)]
    pub samples_left_out: u64,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// How it went.
    pub run: ExperimentResult,
    /// Whose it was.
    pub owner: Owner,
    /// What its document was.
    pub digest: Option<String>,
    /// The types of its faults, in order.
    pub fault_types: Vec<String>,
    /// What became of those of them of which it is known, in order.
    pub fates: Vec<(String, Fate)>,
    /// Its resiliency score, from 0 to 100, if it has one.
    pub score: Option<u8>,
}

/// Which runs are looked for. What is not given does not matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    /// The experiment: whose, and its name there. Either of several will do.
    pub experiment: Option<Vec<(Owner, String)>>,
    /// Whose runs.
    pub owner: Option<Owner>,
    /// Type or name of one of its faults.
    pub fault: Option<String>,
    /// Text in the target of one of its faults.
    pub target: Option<String>,
    /// The verdict.
    pub verdict: Option<Verdict>,
    /// Text in the experiment's name, the error, or what happened.
    pub text: Option<String>,
    /// Begun then or later.
    pub since: Option<jiff::Timestamp>,
    /// Begun before then.
    pub until: Option<jiff::Timestamp>,
    /// The most runs to find, the latest; all when there is no limit.
    pub limit: Option<u32>,
}

/// How many runs are kept. Of whose runs there are the most, the oldest go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The most.
    pub runs: u32,
    /// The most bytes that they take.
    pub bytes: u64,
    /// For how many days; without it, for ever.
    pub days: Option<u32>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { runs: KEPT_RUNS, bytes: KEPT_BYTES, days: None }
    }
}

/// What was looked for by a handle.
#[derive(Debug, Clone, PartialEq)]
enum Found<T> {
    Nothing,
    One(T),
    Several,
}

/// The history. Clones share it.
#[derive(Debug, Clone)]
pub struct History {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    path: Option<PathBuf>,
    retention: Retention,
    file: Option<Database>,
    /// What could not be written to the file.
    memory: Option<Database>,
    /// Why not, of the latest: what is in memory is not in the file.
    unkept: Option<String>,
    /// Why there is no file.
    problem: String,
}

impl History {
    /// The history in `directory`; without one, or where it cannot be opened, it is kept in memory until the daemon ends. A
    /// database that is broken is moved aside.
    pub fn open(directory: Option<&Path>, retention: Retention) -> Self {
        let path = directory.map(|directory| directory.join(FILE));
        let memory = Database::memory();
        if let Err(error) = &memory {
            tracing::error!(%error, "there is no history in memory");
        }
        let memory = memory.ok();
        let mut shared = Shared { path, retention, file: None, memory, unkept: None, problem: String::new() };
        shared.reopen();
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Takes over what was recorded before there was a history. Whether it is safe there now.
    pub fn import(&self, results: Vec<ExperimentResult>, totals: BTreeMap<String, Total>) -> bool {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let imported = match &mut shared.file {
            Some(file) => file.import(&results, &totals),
            None => {
                let memory = shared.memory.as_mut();
                let _ = memory.map(|memory| memory.import(&results, &totals));
                return false;
            }
        };
        imported.map_err(|error| tracing::warn!(%error, "cannot take over earlier results")).is_ok()
    }

    /// Records what a former server left unfinished, unless its result is there.
    pub fn record_interrupted(&self, left: impl IntoIterator<Item = Recorded>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        for recorded in left {
            if !shared.databases().any(|database| database.has(&recorded.run.run_id)) {
                let (experiment, run) = (&recorded.run.experiment_name, &recorded.run.run_id);
                tracing::warn!(experiment, run, "was interrupted");
                shared.record(&recorded);
            }
        }
    }

    /// Records a run that has ended. What comes back is why it will be forgotten when the daemon ends.
    pub async fn record(&self, recorded: Recorded) -> Option<String> {
        let written = self.blocking(move |shared| Ok(shared.record(&recorded))).await;
        written.unwrap_or_else(|error| Some(error.message))
    }

    /// The runs that are looked for, the latest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn search(&self, filter: Filter) -> Result<Vec<Summary>, ApiError> {
        self.blocking(move |shared| {
            let mut found = shared.all(|database| database.search(&filter))?;
            // Of both databases; those that began at the same time stay in their order.
            found.sort_by(|left, right| right.run.started_at.cmp(&left.run.started_at));
            found.truncate(filter.limit.map_or(usize::MAX, |limit| limit as usize));
            Ok(found)
        })
        .await
    }

    /// How often each experiment of each owner ran, also of runs that are no longer kept.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn totals(&self) -> Result<BTreeMap<(Owner, String), Total>, ApiError> {
        self.blocking(|shared| {
            let mut totals = BTreeMap::<(Owner, String), Total>::new();
            for (experiment, total) in shared.all(|database| database.totals())? {
                let sum = totals.entry(experiment).or_default();
                *sum = *sum + total;
            }
            Ok(totals)
        })
        .await
    }

    /// The latest run of each experiment of each owner, of those that are kept.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn latest(&self) -> Result<BTreeMap<(Owner, String), Latest>, ApiError> {
        self.blocking(|shared| {
            let mut found = shared.all(|database| database.latest())?;
            // Of both databases; of one experiment the later comes over the earlier.
            found.sort_by(|(_, left), (_, right)| left.started_at.cmp(&right.started_at));
            Ok(found.into_iter().collect())
        })
        .await
    }

    /// At which stages the document with this digest (see [`of_stages`]) was run, and with which verdicts, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn stages(&self, staged: String, owner: Owner) -> Result<Vec<Step>, ApiError> {
        self.blocking(move |shared| {
            let mut found = shared.all(|database| database.stages(&staged, owner))?;
            found.sort_by_key(|(began, _)| *began);
            Ok(found.into_iter().map(|(_, step)| step).collect())
        })
        .await
    }

    /// The run with this handle, or which alone begins with it.
    ///
    /// # Errors
    /// [`ErrorCode::RunNotFound`] when there is none or more than one; and when the database cannot be read.
    pub async fn run(&self, handle: String) -> Result<Recorded, ApiError> {
        let not_found =
            |text: String| ApiError::new(ErrorCode::RunNotFound, text).hint("chaos_list_runs lists them");
        self.blocking(move |shared| {
            let mut found = Vec::new();
            let answers = shared.all(|database| Ok(vec![(database.is_memory(), database.run(&handle)?)]))?;
            for (in_memory, one) in answers {
                match one {
                    Found::Nothing => {}
                    Found::One(mut run) => {
                        run.run.warning = shared.unkept.clone().filter(|_| in_memory);
                        found.push(run);
                    }
                    Found::Several => {
                        return Err(not_found(format!(
                            "several runs begin with {handle:?}: give more of it"
                        )));
                    }
                }
            }
            match (found.pop(), found.is_empty()) {
                (Some(run), true) => Ok(run),
                (Some(_), false) => {
                    Err(not_found(format!("several runs begin with {handle:?}: give more of it")))
                }
                (None, _) => Err(not_found(format!("no run that has ended is {handle:?}"))),
            }
        })
        .await
    }

    /// Off the runtime's thread, because a disk may be slow.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Shared) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let shared = Arc::clone(&self.shared);
        let done = tokio::task::spawn_blocking(move || {
            work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
        });
        done.await
            .map_err(|error| ApiError::new(ErrorCode::Unavailable, format!("the history broke: {error}")))?
    }
}

impl Shared {
    /// Opens the file, or begins a new one in place of what is no history.
    fn reopen(&mut self) {
        self.file = None;
        let Some(path) = self.path.clone() else { return };
        let mut opened = Database::open(&path);
        if opened.as_ref().is_err_and(|error| error.is_broken()) {
            self.problem = opened.as_ref().err().map(ToString::to_string).unwrap_or_default();
            move_aside(&path, &self.problem);
            opened = Database::open(&path);
        }
        match opened {
            Ok(database) => self.file = Some(database),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot open the history: keeping it in memory");
                self.problem = error.to_string();
            }
        }
    }

    fn databases(&self) -> impl Iterator<Item = &Database> {
        self.file.iter().chain(&self.memory)
    }

    /// What all databases say to a question.
    fn all<T>(
        &mut self,
        ask: impl Fn(&Database) -> Result<Vec<T>, database::Problem>,
    ) -> Result<Vec<T>, ApiError> {
        if let Some(Err(problem)) = self.file.as_ref().map(&ask)
            && problem.is_broken()
        {
            // What it had is lost for now, and kept for whoever can read it.
            if let Some(path) = &self.path {
                move_aside(path, &problem.to_string());
            }
            self.reopen();
        }
        let mut answers = Vec::new();
        for database in self.databases() {
            answers.extend(ask(database).map_err(|problem| {
                ApiError::new(ErrorCode::Unavailable, format!("reading the history: {problem}"))
            })?);
        }
        Ok(answers)
    }

    /// Writes a run to the file, or else to memory; then says why.
    fn record(&mut self, recorded: &Recorded) -> Option<String> {
        let retention = self.retention;
        let written = match &mut self.file {
            Some(file) => file.record(recorded, retention),
            None => Err(database::Problem::NoFile(self.problem.clone())),
        };
        let problem = match written {
            Ok(()) => {
                self.catch_up();
                return None;
            }
            Err(problem) if problem.is_broken() => {
                if let Some(path) = &self.path {
                    move_aside(path, &problem.to_string());
                }
                self.reopen();
                match &mut self.file {
                    Some(file) => file.record(recorded, retention).err()?,
                    None => problem,
                }
            }
            Err(problem) => problem,
        };
        if let Some(memory) = &mut self.memory
            && let Err(error) = memory
                .record(recorded, Retention { bytes: BYTES_IN_MEMORY.min(retention.bytes), ..retention })
        {
            tracing::error!(run = recorded.run.run_id, %error, "a run is not recorded at all");
        }
        let path = self.path.as_ref()?.display();
        tracing::warn!(run = recorded.run.run_id, %path, %problem, "a run is recorded in memory only");
        self.unkept =
            Some(format!("not recorded, so it is forgotten when the daemon ends: {path}: {problem}"));
        self.unkept.clone()
    }

    /// Writes to the file what could not be written there before.
    fn catch_up(&mut self) {
        let (Some(file), Some(memory)) = (&mut self.file, &mut self.memory) else { return };
        let moved = memory.everything().and_then(|all| {
            all.iter().try_for_each(|recorded| file.record(recorded, self.retention))?;
            if all.is_empty() { Ok(()) } else { memory.clear() }
        });
        if let Err(error) = moved {
            tracing::warn!(%error, "runs are still in memory only");
        }
    }
}

/// What is kept of an experiment's document: all but its secrets, and the SHA-256 of that, by which runs of the same
/// experiment are known.
pub fn of_document(document: &Map<String, Value>) -> (String, Map<String, Value>) {
    let mut document = document.clone();
    document.remove("secrets");
    let bytes = Sha256::digest(Value::Object(document.clone()).to_string().as_bytes());
    let digest = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    (digest, document)
}

/// By what the stages of a document are known: the SHA-256 of all but its secrets and the list of its stages, so that one
/// that gets another stage keeps those that it has held, and one whose faults, targets or probes have changed does not.
pub fn of_stages(document: &Map<String, Value>) -> String {
    let mut document = document.clone();
    let extensions = document.get_mut("extensions").and_then(Value::as_array_mut);
    for extension in extensions.into_iter().flatten().filter_map(Value::as_object_mut) {
        if extension.get("name").and_then(Value::as_str) == Some(EXTENSION) {
            extension.remove("blast_radius");
        }
    }
    of_document(&document).0
}

/// Puts a database that is broken, and its journal, out of the way.
fn move_aside(path: &Path, problem: &str) {
    let aside = path.with_extension("db.broken");
    let moved = fs::rename(path, &aside);
    // Played back into another database it would break that one, too.
    let journal = path.with_extension("db-journal");
    let journal_moved = fs::rename(&journal, path.with_extension("db-journal.broken"));
    tracing::warn!(
        path = %path.display(),
        aside = %aside.display(),
        moved = moved.is_ok(),
        journal = journal_moved.is_ok(),
        problem,
        "cannot read the history: starting with an empty one"
    );
}

#[cfg(test)]
mod tests;
