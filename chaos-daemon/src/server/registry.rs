//! What is registered: in memory, and in one file that is replaced as a whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::history::{ExperimentResult, History, Total};
use crate::request::{ApiError, ErrorCode};
use crate::spec::owner::split;
use crate::spec::{FaultName, FaultRequest, Owner};

/// The most faults that may be registered.
pub const MOST_FAULTS: usize = 1000;
/// The most experiments that may be registered.
pub const MOST_EXPERIMENTS: usize = 250;
/// The most the whole registry may take, as JSON, in bytes: in memory it is some times as much.
pub const MOST_BYTES: usize = 8 << 20;
/// What part of each of these is one user's at most: a half. What the others do not use is root's.
const SHARE: usize = 2;
/// What part of each of these is kept for root: an eighth.
const ROOTS: usize = 8;
/// The most an experiment's document may take, as JSON, in bytes.
pub const MOST_OF_A_DOCUMENT: usize = 256 << 10;
/// The most values in one.
pub const MOST_VALUES: usize = 10_000;
/// The name of the file in the state directory.
const FILE: &str = "registry.json";

/// The whole registry: each user's things by their names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "super::old_registry::Stored")]
pub struct Registry {
    /// By whose they are; nobody is here who has nothing.
    pub owned: BTreeMap<Owner, Belongings>,
    /// Results of before there was a history, until it has taken them over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<ExperimentResult>,
    /// Totals of that time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub totals: BTreeMap<String, Total>,
}

/// What one user has registered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Belongings {
    /// Faults by name.
    pub faults: BTreeMap<FaultName, Entry<FaultRequest>>,
    /// Experiment documents by name, as they were given.
    pub experiments: BTreeMap<String, Entry<Document>>,
}

/// Something that is registered. Clones share it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "T", bound(deserialize = "T: Deserialize<'de> + Serialize"))]
pub struct Entry<T> {
    /// What it is.
    pub what: Arc<T>,
    /// What it takes as JSON, in bytes.
    bytes: usize,
}

impl<T: Serialize> From<T> for Entry<T> {
    fn from(what: T) -> Self {
        let bytes = serde_json::to_vec(&what).map_or(0, |json| json.len());
        Self { what: Arc::new(what), bytes }
    }
}

impl<T: Serialize> Serialize for Entry<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.what.as_ref().serialize(serializer)
    }
}

/// An experiment's document: kept as text, which takes a fraction of what its values would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Map<String, Value>", from = "Map<String, Value>")]
pub struct Document(Box<str>);

impl Document {
    /// What it says.
    pub fn read(&self) -> Map<String, Value> {
        // It was made of such a value.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Refuses what would take more than a document may.
    ///
    /// # Errors
    /// Says how much there is, and how much there may be.
    pub fn check(document: &Map<String, Value>) -> Result<(), ApiError> {
        let values: usize = document.values().map(count).sum();
        let bytes = serde_json::to_vec(document).map_or(usize::MAX, |json| json.len());
        if values <= MOST_VALUES && bytes <= MOST_OF_A_DOCUMENT {
            return Ok(());
        }
        let text = format!(
            "a document of {bytes} bytes with {values} values: at most {} KiB and {MOST_VALUES} values",
            MOST_OF_A_DOCUMENT >> 10
        );
        Err(ApiError::new(ErrorCode::LimitReached, text).hint("make several documents of it"))
    }
}

/// How many values this is.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(count).sum(),
        Value::Object(all) => all.values().map(count).sum(),
        _ => 0,
    }
}

impl From<Map<String, Value>> for Document {
    fn from(document: Map<String, Value>) -> Self {
        Self(Value::Object(document).to_string().into())
    }
}

impl From<Document> for Map<String, Value> {
    fn from(document: Document) -> Self {
        document.read()
    }
}

/// How much is registered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    faults: usize,
    experiments: usize,
    bytes: usize,
}

impl Amount {
    const MOST: Self = Self { faults: MOST_FAULTS, experiments: MOST_EXPERIMENTS, bytes: MOST_BYTES };

    /// Whether it is more than `most` of anything of which it is more than `before`.
    fn exceeds(self, most: Self, before: Self) -> bool {
        let more = |now: usize, before: usize, most: usize| now > before && now > most;
        more(self.faults, before.faults, most.faults)
            || more(self.experiments, before.experiments, most.experiments)
            || more(self.bytes, before.bytes, most.bytes)
    }

    fn less(self, part: usize) -> Self {
        let less = |number: usize| number - number / part;
        Self { faults: less(self.faults), experiments: less(self.experiments), bytes: less(self.bytes) }
    }
}

impl Registry {
    /// The fault of this name.
    pub fn fault(&self, owner: Owner, name: &FaultName) -> Option<Arc<FaultRequest>> {
        self.owned.get(&owner)?.faults.get(name).map(|entry| Arc::clone(&entry.what))
    }

    /// The document of this name.
    pub fn experiment(&self, owner: Owner, name: &str) -> Option<Arc<Document>> {
        self.owned.get(&owner)?.experiments.get(name).map(|entry| Arc::clone(&entry.what))
    }

    /// Whose experiment is meant, and how it is called there. What is qualified like a name of others may be the name of one's own.
    /// Whether the caller may name it is not asked here.
    pub fn meant<'a>(&self, name: &'a str, own: Owner) -> (Owner, &'a str) {
        if self.experiment(own, name).is_some() {
            return (own, name);
        }
        let (owner, name) = split(name);
        (owner.unwrap_or(own), name)
    }

    /// What this user has, to be changed.
    pub fn of(&mut self, owner: Owner) -> &mut Belongings {
        self.owned.entry(owner).or_default()
    }

    /// How much of it these users have registered.
    fn amount(&self, is: impl Fn(Owner) -> bool) -> Amount {
        let theirs = self.owned.iter().filter(|(owner, _)| is(**owner)).map(|(_, theirs)| theirs);
        theirs.fold(Amount::default(), |sum, Belongings { faults, experiments }| {
            let bytes: usize =
                faults.values().map(|it| it.bytes).chain(experiments.values().map(|it| it.bytes)).sum();
            Amount {
                faults: sum.faults + faults.len(),
                experiments: sum.experiments + experiments.len(),
                bytes: sum.bytes + bytes,
            }
        })
    }

    /// Refuses what `owner` has added to what was there `before`, if that is too much: for one user, for all but root, or for all.
    fn check(&self, before: &Self, owner: Owner) -> Result<(), ApiError> {
        let exceeds = |is: &dyn Fn(Owner) -> bool, most| {
            self.amount(is).exceeds(most, before.amount(is)).then_some(most)
        };
        let mut exceeded = exceeds(&|_| true, Amount::MOST).map(|most| (most, "in all"));
        if !owner.is_root() {
            let others = || exceeds(&|by| !by.is_root(), Amount::MOST.less(ROOTS));
            exceeded = exceeded.or_else(|| others().map(|most| (most, "but for root")));
            let own = || exceeds(&|by| by == owner, Amount::MOST.less(SHARE));
            exceeded = exceeded.or_else(|| own().map(|most| (most, "of one user")));
        }
        let Some((most, whose)) = exceeded else { return Ok(()) };
        let text = format!(
            "registering: at most {} faults and {} experiments, {} KiB together, {whose}",
            most.faults,
            most.experiments,
            most.bytes >> 10
        );
        Err(ApiError::new(ErrorCode::LimitReached, text).hint("remove what is no longer needed"))
    }
}

/// The registry and its file. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    path: Option<PathBuf>,
    registry: Arc<Mutex<Arc<Registry>>>,
    /// Who changes it writes it, one after the other; who looks something up does not wait for that.
    writing: Arc<Mutex<()>>,
    turns: Turns,
}

/// Whose turn it is: one at a time of each user's. Clones share it.
#[derive(Debug, Clone, Default)]
struct Turns(Arc<Mutex<BTreeMap<Owner, Arc<tokio::sync::Mutex<()>>>>>);

/// A turn, which is over when this is dropped.
pub type Turn = tokio::sync::OwnedMutexGuard<()>;

impl Store {
    /// Has the history take over the results of before there was one. They stay here until it has them on file.
    pub fn hand_over(&self, history: &History) {
        let (results, totals) = self.read(|registry| (registry.results.clone(), registry.totals.clone()));
        if (results.is_empty() && totals.is_empty()) || !history.import(results, totals) {
            return;
        }
        let forgotten = self.change_blocking(Owner::ROOT, |registry| {
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
        let registry = Arc::new(Mutex::new(Arc::new(registry)));
        Self { path, registry, writing: Arc::default(), turns: Turns::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Registry>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it as it is now.
    pub fn all(&self) -> Arc<Registry> {
        Arc::clone(&self.lock())
    }

    /// Looks something up.
    pub fn read<T>(&self, look: impl FnOnce(&Registry) -> T) -> T {
        look(&self.all())
    }

    /// Waits until nothing else of this user's is being registered: so that who registers much at once waits for itself.
    pub async fn turn(&self, owner: Owner) -> Turn {
        let lock = {
            let mut turns = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(turns.entry(owner).or_default())
        };
        lock.lock_owned().await
    }

    /// Changes the registry for `owner` and writes it down, off the runtime's thread. Returns what is wrong with the file when it
    /// could not be written: the change holds until the daemon ends.
    ///
    /// # Errors
    /// What `change` refuses, and [`ErrorCode::LimitReached`] when the registry would become too large; nothing has
    /// changed then.
    pub async fn change<T: Send + 'static>(
        &self,
        owner: Owner,
        change: impl FnOnce(&mut Registry) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Option<String>), ApiError> {
        let store = self.clone();
        let changed = tokio::task::spawn_blocking(move || store.change_blocking(owner, change)).await;
        changed
            .map_err(|error| ApiError::new(ErrorCode::Unavailable, format!("the registry broke: {error}")))?
    }

    fn change_blocking<T>(
        &self,
        owner: Owner,
        change: impl FnOnce(&mut Registry) -> Result<T, ApiError>,
    ) -> Result<(T, Option<String>), ApiError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.all();
        let mut changed = Registry::clone(&before);
        let result = change(&mut changed)?;
        changed.owned.retain(|_, theirs| *theirs != Belongings::default());
        changed.check(&before, owner)?;
        let bytes = serde_json::to_vec(&changed).map_err(|error| {
            ApiError::new(ErrorCode::InvalidParameter, format!("cannot be written down: {error}"))
        })?;
        *self.lock() = Arc::new(changed);
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
    replace_with(path, |new| fs::write(new, bytes))
}

/// The same, and on disk when this returns. The file is synced once more under its name, which a journalling file system needs for
/// the name to be there after the power was lost; the folder is nobody's to open here.
pub(super) fn replace_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = replace_with(path, |new| {
        let mut file = File::create(new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(file)
    })?;
    file.sync_all()
}

/// What could not be written whole takes no room, where there was too little of it.
fn replace_with<T>(path: &Path, write: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let new = path.with_extension("new");
    let written = write(&new).and_then(|written| fs::rename(&new, path).map(|()| written));
    if written.is_err() {
        // The error that is told is the first one.
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Owner = Owner::ROOT;

    fn fault() -> Entry<FaultRequest> {
        let json = r#"{"fault_type":"latency","probability":0.5,"target":{"interface":"eth0"}}"#;
        serde_json::from_str(json).unwrap()
    }

    async fn register(store: &Store, name: &str) -> Option<String> {
        let name = FaultName::new(name).unwrap();
        let change = store.change(ROOT, move |registry| Ok(registry.of(ROOT).faults.insert(name, fault())));
        change.await.unwrap().1
    }

    /// How many faults, or documents of so many bytes, this user gets registered of so many.
    async fn fill(store: &Store, owner: Owner, bytes: Option<usize>, tries: usize) -> usize {
        for index in 0..tries {
            let name = format!("{owner}-{index}").replace(' ', "-");
            let change = store.change(owner, move |registry| {
                let Some(bytes) = bytes else {
                    registry.of(owner).faults.insert(FaultName::new(name)?, fault());
                    return Ok(());
                };
                let document = Map::from_iter([("x".to_owned(), Value::String("x".repeat(bytes)))]);
                registry.of(owner).experiments.insert(name, Document::from(document).into());
                Ok(())
            });
            if let Err(error) = change.await {
                assert_eq!(error.code, ErrorCode::LimitReached);
                return index;
            }
        }
        tries
    }

    #[tokio::test]
    async fn no_user_takes_the_room_of_all_others_and_root_always_has_some() {
        let (one, two, three) = (Owner::User(1001), Owner::Context(1001), Owner::User(1003));
        for (bytes, most) in
            [(None, [500, 375, 0, 125]), (Some(1000), [125, 94, 0, 31]), (Some(200_000), [20, 16, 0, 5])]
        {
            let store = Store::open(None);
            for (owner, most) in [one, two, three, ROOT].into_iter().zip(most) {
                assert_eq!(fill(&store, owner, bytes, 1100).await, most, "{owner}, {bytes:?}");
            }
            // What is there may be removed, and replaced by less, all the same.
            let smaller = store.change(one, move |registry| {
                let own = registry.of(one);
                own.experiments.values_mut().for_each(|entry| *entry = Document::from(Map::new()).into());
                Ok(own.faults.pop_first())
            });
            smaller.await.unwrap();
        }
    }

    #[test]
    fn each_user_has_names_of_its_own_and_names_those_of_others_by_whose_they_are() {
        let (one, two) = (Owner::User(1001), Owner::User(1002));
        let mut registry = Registry::default();
        for (owner, name, says) in [(one, "e", 1), (two, "e", 2), (one, "1002/e", 3), (two, "24/7", 4)] {
            let document = Map::from_iter([("says".to_owned(), says.into())]);
            registry.of(owner).experiments.insert(name.to_owned(), Document::from(document).into());
        }
        let found = |uid, name: &str| {
            let (owner, name) = registry.meant(name, Owner::User(uid));
            (owner, registry.experiment(owner, name).map(|document| document.read()["says"].clone()))
        };
        let says = |owner, number: i32| (owner, Some(Value::from(number)));
        assert_eq!(found(1001, "e"), says(one, 1));
        assert_eq!(found(1002, "e"), says(two, 2));
        assert_eq!(found(1002, "1002/e"), says(two, 2));
        // One's own comes first, whatever it looks like.
        assert_eq!(found(1001, "1002/e"), says(one, 3));
        assert_eq!(found(1002, "24/7"), says(two, 4));
        // Whether one may is asked of the injector.
        assert_eq!(found(1002, "1001/e"), says(one, 1));
        assert_eq!(found(0, "e"), (Owner::ROOT, None));
        assert_eq!(found(0, "1001/e"), says(one, 1));
        assert_eq!(found(0, "1001/1002/e"), says(one, 3));
        let again: Registry = serde_json::from_value(serde_json::to_value(&registry).unwrap()).unwrap();
        assert_eq!(again, registry);
    }

    #[test]
    fn what_could_not_be_written_leaves_the_old_file_and_takes_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.json");
        replace_synced(&path, b"old").unwrap();
        let half = replace_with(&path, |new| {
            fs::write(new, b"ha")?;
            Err::<(), _>(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(half.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_document_that_is_too_large_in_any_way_is_refused() {
        let document = |value: Value| Map::from_iter([("x".to_owned(), value)]);
        for (value, fits) in [
            (Value::String("x".repeat(200_000)), true),
            (Value::String("x".repeat(300_000)), false),
            (Value::Array(vec![Value::Null; 9_000]), true),
            (Value::Array(vec![Value::Null; 11_000]), false),
            (Value::Array(vec![Value::Array(vec![Value::Bool(true); 100]); 120]), false),
        ] {
            assert_eq!(Document::check(&document(value)).is_ok(), fits);
        }
    }

    #[tokio::test]
    async fn what_is_registered_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Some(directory.path()));
        assert_eq!(register(&store, "slow").await, None);
        let again = Store::open(Some(directory.path()));
        assert_eq!(again.read(Clone::clone), store.read(Clone::clone));
        assert_eq!(again.read(|registry| registry.owned[&ROOT].faults.len()), 1);
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
        assert_eq!(store.read(|registry| registry.owned[&ROOT].faults.len()), 1);
    }

    #[tokio::test]
    async fn a_refused_change_changes_nothing() {
        let store = Store::open(None);
        let refused = store.change(ROOT, |registry| {
            registry.of(ROOT).faults.insert(FaultName::new("x").unwrap(), fault());
            Err::<(), _>(ApiError::new(ErrorCode::InvalidParameter, "no"))
        });
        assert!(refused.await.is_err());
        let too_many = store.change(ROOT, |registry| {
            for index in 0..=MOST_FAULTS {
                registry.of(ROOT).faults.insert(FaultName::new(format!("f{index}")).unwrap(), fault());
            }
            Ok(())
        });
        assert_eq!(too_many.await.unwrap_err().code, ErrorCode::LimitReached);
        assert_eq!(store.read(Clone::clone), Registry::default());
    }
}
