//! What is registered: in memory, and in one file that is replaced as a whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::history::{ExperimentResult, History, Total};
use crate::request::{ApiError, ErrorCode};
use crate::spec::{FaultName, FaultRequest};

/// The most faults that may be registered.
pub const MOST_FAULTS: usize = 1000;
/// The most experiments that may be registered.
pub const MOST_EXPERIMENTS: usize = 250;
/// The most the whole registry may take, as JSON.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// The name of the file in the state directory.
const FILE: &str = "registry.json";

/// The whole registry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Registry {
    /// Faults by name.
    pub faults: BTreeMap<FaultName, Arc<FaultRequest>>,
    /// Experiment documents by name, as they were given.
    pub experiments: BTreeMap<String, Map<String, Value>>,
    /// Results of before there was a history, until it has taken them over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<ExperimentResult>,
    /// Totals of that time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub totals: BTreeMap<String, Total>,
}

/// The registry and its file. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    path: Option<PathBuf>,
    registry: Arc<Mutex<Registry>>,
}

impl Store {
    /// Has the history take over the results of before there was one. They stay here until it has them on file.
    pub fn hand_over(&self, history: &History) {
        let (results, totals) = self.read(|registry| (registry.results.clone(), registry.totals.clone()));
        if (results.is_empty() && totals.is_empty()) || !history.import(results, totals) {
            return;
        }
        let forgotten = self.change_blocking(|registry| {
            registry.results.clear();
            registry.totals.clear();
            Ok(())
        });
        if let Err(error) = forgotten {
            tracing::error!(%error, "cannot forget results that the history has");
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

/// The same, and on disk when this returns. The file is synced once more under its name, which a journalling file system needs for
/// the name to be there after the power was lost; the folder is nobody's to open here.
pub(super) fn replace_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    file.sync_all()
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
}
