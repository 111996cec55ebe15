//! What is registered, and what experiments have shown: in memory, and in one file that is replaced as a whole.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::experiment::{Recovery, Verdict};
use crate::request::{ApiError, ErrorCode};
use crate::spec::{FaultName, FaultRequest};

/// The most faults that may be registered.
pub const MOST_FAULTS: usize = 1000;
/// The most experiments that may be registered.
pub const MOST_EXPERIMENTS: usize = 250;
/// How many results are kept; the totals go on counting.
pub const KEPT_RESULTS: usize = 500;
/// The most the whole registry may take, as JSON.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// The name of the file in the state directory.
const FILE: &str = "registry.json";

/// The outcome of one run, in the words of the tool specification and a few more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// Experiment that ran.
    pub experiment_name: String,
    /// The last word on it; none while it goes on, for a dry run, and in results of before there were verdicts.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// Whether the system kept its steady state.
    pub success: bool,
    /// Steady state before the action.
    pub steady_state_before: bool,
    /// Steady state after the action.
    pub steady_state_after: bool,
    /// How long the run took, in seconds.
    pub duration_seconds: f64,
    /// What went wrong.
    pub error: Option<String>,
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
}

/// How often an experiment ran, and how often with success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Finished runs.
    pub runs: u64,
    /// Runs with success.
    pub successes: u64,
}

/// The whole registry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Registry {
    /// Faults by name.
    pub faults: BTreeMap<FaultName, Arc<FaultRequest>>,
    /// Experiment documents by name, as they were given.
    pub experiments: BTreeMap<String, Map<String, Value>>,
    /// The latest results, oldest first.
    pub results: Vec<ExperimentResult>,
    /// Totals by experiment.
    pub totals: BTreeMap<String, Total>,
}

impl Registry {
    /// Adds a result to history and totals.
    pub fn record(&mut self, result: ExperimentResult) {
        let total = self.totals.entry(result.experiment_name.clone()).or_default();
        total.runs += 1;
        total.successes += u64::from(result.success);
        self.results.push(result);
        let surplus = self.results.len().saturating_sub(KEPT_RESULTS);
        self.results.drain(..surplus);
    }
}

/// The registry and its file. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    path: Option<PathBuf>,
    registry: Arc<Mutex<Registry>>,
}

impl Store {
    /// Records what a former server left unfinished, unless its result is there.
    pub fn record_interrupted(&self, left: impl IntoIterator<Item = ExperimentResult>) {
        let left: Vec<_> = left.into_iter().collect();
        let recorded = self.change_blocking(|registry| {
            for result in left {
                if registry.results.iter().all(|known| known.run_id != result.run_id) {
                    tracing::warn!(
                        experiment = result.experiment_name,
                        run = result.run_id,
                        "was interrupted"
                    );
                    registry.record(result);
                }
            }
            Ok(())
        });
        if let Err(error) = recorded {
            tracing::error!(%error, "cannot record interrupted runs");
        }
    }

    /// Loads the registry from `directory`, or begins an empty one. A file that cannot be understood is moved aside:
    /// a daemon that undoes faults must not be kept from starting by its own history.
    pub fn open(directory: Option<&Path>) -> Self {
        let path = directory.map(|directory| directory.join(FILE));
        let registry = path.as_deref().map(load).unwrap_or_default();
        Self { path, registry: Arc::new(Mutex::new(registry)) }
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks something up.
    pub fn read<T>(&self, look: impl FnOnce(&Registry) -> T) -> T {
        look(&self.lock())
    }

    /// Changes the registry and writes it down, off the runtime's thread. Returns what is wrong with the file when it
    /// could not be written: the change holds until the daemon ends.
    ///
    /// # Errors
    /// What `change` refuses, and [`ErrorCode::LimitReached`] when the registry would become too large; nothing has
    /// changed then.
    pub async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Registry) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Option<String>), ApiError> {
        let store = self.clone();
        let changed = tokio::task::spawn_blocking(move || store.change_blocking(change)).await;
        changed
            .map_err(|error| ApiError::new(ErrorCode::Unavailable, format!("the registry broke: {error}")))?
    }

    fn change_blocking<T>(
        &self,
        change: impl FnOnce(&mut Registry) -> Result<T, ApiError>,
    ) -> Result<(T, Option<String>), ApiError> {
        let mut registry = self.lock();
        let mut changed = registry.clone();
        let result = change(&mut changed)?;
        let too_many = changed.faults.len() > MOST_FAULTS || changed.experiments.len() > MOST_EXPERIMENTS;
        let bytes = serde_json::to_vec(&changed).map_err(|error| {
            ApiError::new(ErrorCode::InvalidParameter, format!("cannot be written down: {error}"))
        })?;
        if too_many || bytes.len() > MOST_BYTES {
            let text = format!(
                "registering: at most {MOST_FAULTS} faults and {MOST_EXPERIMENTS} experiments, {} MiB in all",
                MOST_BYTES >> 20
            );
            return Err(ApiError::new(ErrorCode::LimitReached, text).hint("remove what is no longer needed"));
        }
        *registry = changed;
        let problem = self.path.as_deref().and_then(|path| {
            let problem = replace(path, &bytes).err()?;
            tracing::warn!(path = %path.display(), error = %problem, "cannot save the registry");
            Some(format!("not saved, so it is lost when the daemon ends: {}: {problem}", path.display()))
        });
        Ok((result, problem))
    }
}

fn load(path: &Path) -> Registry {
    let problem = match fs::read(path) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(registry) => return registry,
            Err(error) => error.to_string(),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Registry::default(),
        Err(error) => error.to_string(),
    };
    let aside = path.with_extension("broken");
    let moved = fs::rename(path, &aside);
    tracing::warn!(
        path = %path.display(),
        aside = %aside.display(),
        moved = moved.is_ok(),
        problem,
        "cannot read the registry: starting with an empty one"
    );
    Registry::default()
}

/// Replaces the file as a whole: a reader, or a crash of ours, sees the old content or the new. Not synced: a host that
/// loses power may lose the latest registrations, which is cheaper than a disk's delay in each call.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> Arc<FaultRequest> {
        let json = r#"{"fault_type":"latency","probability":0.5,"target":{"interface":"eth0"}}"#;
        Arc::new(serde_json::from_str(json).unwrap())
    }

    async fn register(store: &Store, name: &str) -> Option<String> {
        let name = FaultName::new(name).unwrap();
        store.change(move |registry| Ok(registry.faults.insert(name, fault()))).await.unwrap().1
    }

    #[tokio::test]
    async fn what_is_registered_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Some(directory.path()));
        assert_eq!(register(&store, "slow").await, None);
        let again = Store::open(Some(directory.path()));
        assert_eq!(again.read(Clone::clone), store.read(Clone::clone));
        assert_eq!(again.read(|registry| registry.faults.len()), 1);
    }

    #[tokio::test]
    async fn a_corrupt_file_is_moved_aside_and_does_not_keep_the_daemon_from_starting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        for corrupt in ["", "{\"faults\":", "{\"surprise\":1}", "[1]"] {
            fs::write(&path, corrupt).unwrap();
            let store = Store::open(Some(directory.path()));
            assert_eq!(store.read(Clone::clone), Registry::default());
            assert_eq!(fs::read_to_string(path.with_extension("broken")).unwrap(), corrupt);
            assert_eq!(register(&store, "slow").await, None);
        }
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_written_is_told_and_memory_still_holds_the_change() {
        let store = Store::open(Some(Path::new("/proc/self/no-such-directory")));
        let problem = register(&store, "slow").await.unwrap();
        assert!(problem.contains("not saved"), "{problem}");
        assert_eq!(store.read(|registry| registry.faults.len()), 1);
    }

    #[tokio::test]
    async fn a_refused_change_changes_nothing() {
        let store = Store::open(None);
        let refused = store.change(|registry| {
            registry.faults.insert(FaultName::new("x").unwrap(), fault());
            Err::<(), _>(ApiError::new(ErrorCode::InvalidParameter, "no"))
        });
        assert!(refused.await.is_err());
        let too_many = store.change(|registry| {
            for index in 0..=MOST_FAULTS {
                registry.faults.insert(FaultName::new(format!("f{index}")).unwrap(), fault());
            }
            Ok(())
        });
        assert_eq!(too_many.await.unwrap_err().code, ErrorCode::LimitReached);
        assert_eq!(store.read(Clone::clone), Registry::default());
    }

    #[test]
    fn history_is_bounded_and_the_totals_go_on_counting() {
        let mut registry = Registry::default();
        for index in 0..KEPT_RESULTS + 5 {
            registry.record(ExperimentResult {
                experiment_name: "kill-cache".into(),
                verdict: None,
                success: index % 2 == 0,
                steady_state_before: true,
                steady_state_after: true,
                duration_seconds: 1.0,
                error: None,
                started_at: String::new(),
                run_id: index.to_string(),
                packets_affected: 0,
                gate_reaction_seconds: None,
                recovery: None,
            });
        }
        assert_eq!((registry.results.len(), registry.results[0].run_id.as_str()), (KEPT_RESULTS, "5"));
        assert_eq!(registry.totals["kill-cache"], Total { runs: 505, successes: 253 });
    }
}
