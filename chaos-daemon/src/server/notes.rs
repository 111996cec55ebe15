//! Which runs have begun and not ended: a small file that is replaced as a whole, so that a server that starts knows what
//! its predecessor left unfinished.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::diary;
use super::history::{ExperimentResult, Recorded, RunFault};
use super::registry::{replace, replace_synced};
use crate::experiment::entry::Entries;
use crate::experiment::timeline::Occurrence;
use crate::experiment::{FailureMode, Stage, Verdict};
use crate::request::{ApiError, ErrorCode, WentDown};
use crate::spec::{Owner, QualifiedName};

/// The name of the file in the state directory.
const FILE: &str = "runs.json";

/// A run that has begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// Experiment.
    pub experiment: String,
    /// When it began, ISO 8601 in UTC.
    pub started_at: String,
    /// The names of its faults.
    pub faults: Vec<QualifiedName>,
    /// What its faults are.
    #[serde(default)]
    pub described: Vec<RunFault>,
    /// What its document was.
    #[serde(default)]
    pub digest: Option<String>,
    /// The document itself, without secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Map<String, Value>>,
    /// What is known to have happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Occurrence>,
    /// At which stage of its blast radius it runs.
    #[serde(default)]
    pub stage: Option<Stage>,
    /// By what the stages of its document are known.
    #[serde(default)]
    pub staged: Option<String>,
    /// Whose it is; root's if it was noted before that was.
    #[serde(default)]
    pub owner: Option<String>,
    /// The name of the host.
    #[serde(default)]
    pub host: Option<String>,
}

impl Note {
    /// What is known of a run that a server did not end, after a fault has taken the host down if one has. How long it went on, and what
    /// was seen until then, its diary has.
    pub fn interrupted(&self, run_id: String, went_down: Option<&WentDown>) -> Recorded {
        // As its owner, who reads it, calls them.
        let faults: Vec<_> = self.faults.iter().map(|fault| fault.name.as_str()).collect();
        let cause = match went_down.filter(|down| self.faults.contains(&down.fault)) {
            Some(WentDown { fault, fault_type, words }) => {
                format!("its fault {} ({}) {words}", fault.name, fault_type.name())
            }
            None => "the daemon, or its server, ended while it went on".to_owned(),
        };
        let error = format!("{cause}; its faults ({}) ended with it", faults.join(", "));
        let run = ExperimentResult {
            experiment_name: self.experiment.clone(),
            verdict: Some(Verdict::Interrupted),
            error: Some(error),
            failure_mode: Some(FailureMode::Interrupted),
            started_at: self.started_at.clone(),
            run_id,
            stage: self.stage,
            ..ExperimentResult::default()
        };
        Recorded {
            run,
            digest: self.digest.clone(),
            document: self.document.clone(),
            staged: self.staged.clone(),
            owner: self.owner.clone().or_else(|| Some(Owner::ROOT.to_string())),
            host: self.host.clone(),
            faults: self.described.clone(),
            events: self.events.clone(),
            ..Recorded::default()
        }
    }
}

/// Notes by the handles of their runs.
type Unfinished = BTreeMap<String, Note>;

/// The notes and their file. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Notes {
    path: Option<PathBuf>,
    unfinished: Arc<Mutex<Unfinished>>,
}

impl Notes {
    /// Begins with none; and what the last server in `directory` left unfinished, which stays in the file until the next
    /// change. A file that cannot be understood is as good as none.
    pub fn open(directory: Option<&Path>) -> (Self, Unfinished) {
        let path = directory.map(|directory| directory.join(FILE));
        let left = path.as_deref().map(load).unwrap_or_default();
        (Self { path, unfinished: Arc::default() }, left)
    }

    /// Notes that a run begins, and that on disk: its own faults may take the host down. Call it before anything is done for it.
    ///
    /// # Errors
    /// When it cannot be noted, as on a disk that is full: nothing is noted then, and the run must not begin.
    pub async fn begin(&self, run_id: &str, note: Note) -> io::Result<()> {
        let noted = run_id.to_owned();
        let begun = self.change(replace_synced, move |unfinished| drop(unfinished.insert(noted, note))).await;
        if begun.is_err() {
            self.lock().remove(run_id);
        }
        begun
    }

    /// Begins the diary of a run that is noted; where it cannot be written, it has none.
    pub async fn diary(&self, run_id: &str) -> Option<Entries> {
        let (notes, run_id) = (self.clone(), run_id.to_owned());
        let begun = tokio::task::spawn_blocking(move || diary::begin(notes.directory(), &run_id));
        begun.await.ok().flatten()
    }

    fn directory(&self) -> Option<&Path> {
        self.path.as_deref().and_then(Path::parent)
    }

    /// Forgets a run and its diary: call it after its result is recorded. Not synced: one that is noted again is known by its handle.
    pub async fn end(&self, run_id: &str) {
        let (notes, ended) = (self.clone(), run_id.to_owned());
        let forgotten = tokio::task::spawn_blocking(move || diary::forget(notes.directory(), &ended)).await;
        self.warn(forgotten.map_err(io::Error::other));
        let run_id = run_id.to_owned();
        let ended = self.change(replace, move |unfinished| drop(unfinished.remove(&run_id))).await;
        self.warn(ended);
    }

    /// Writes the file as it is to be, off the runtime's thread.
    async fn change(
        &self,
        replace: Replace,
        change: impl FnOnce(&mut Unfinished) + Send + 'static,
    ) -> io::Result<()> {
        let notes = self.clone();
        tokio::task::spawn_blocking(move || notes.write(replace, change)).await.map_err(io::Error::other)?
    }

    fn write(&self, replace: Replace, change: impl FnOnce(&mut Unfinished)) -> io::Result<()> {
        // Held while writing, so that an older state does not come over a newer one.
        let mut unfinished = self.lock();
        change(&mut unfinished);
        let Some(path) = &self.path else { return Ok(()) };
        replace(path, &serde_json::to_vec(&*unfinished).map_err(io::Error::other)?)
    }

    fn lock(&self) -> MutexGuard<'_, Unfinished> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run is not kept from ending by a disk that is full.
    fn warn(&self, written: io::Result<()>) {
        if let Err(error) = written {
            let path = self.path.as_deref().unwrap_or(Path::new("memory")).display();
            tracing::warn!(%path, %error, "cannot note which runs go on");
        }
    }

    /// Writes the file with what is noted now: once what was left is recorded.
    pub fn save(&self) {
        let saved = self.write(replace, |_| ());
        self.warn(saved);
    }
}

/// How the file is replaced.
type Replace = fn(&Path, &[u8]) -> io::Result<()>;

fn load(path: &Path) -> Unfinished {
    let read = fs::read(path).and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::other));
    read.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(path = %path.display(), %error, "cannot read which runs went on");
        }
        Unfinished::new()
    })
}

/// Why no run begins of which nothing would be known after a crash.
pub(super) fn unnoted(problem: &io::Error) -> ApiError {
    let text = format!("no run begins that cannot be noted before: {problem}");
    ApiError::new(ErrorCode::Unavailable, text)
        .hint("make room where the daemon keeps its state (--state-dir)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::FaultType;

    fn note() -> Note {
        let faults = vec![QualifiedName::parse("slow.1").unwrap()];
        let started_at = "2026-02-05T10:00:00.000Z".into();
        Note {
            experiment: "slow".into(),
            started_at,
            faults,
            described: Vec::new(),
            digest: None,
            document: None,
            events: Vec::new(),
            stage: Stage::try_from(25).ok(),
            staged: Some("s".into()),
            owner: Some("uid 1000".into()),
            host: None,
        }
    }

    #[tokio::test]
    async fn what_has_begun_and_not_ended_is_found_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let (notes, left) = Notes::open(Some(directory.path()));
        assert!(left.is_empty());
        notes.begin("a", note()).await.unwrap();
        notes.begin("b", note()).await.unwrap();
        notes.end("a").await;
        let (next, left) = Notes::open(Some(directory.path()));
        assert_eq!(left, BTreeMap::from([("b".to_owned(), note())]));
        next.save();
        assert!(Notes::open(Some(directory.path())).1.is_empty());
    }

    #[tokio::test]
    async fn what_cannot_be_noted_does_not_begin_and_what_was_noted_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (notes, _) = Notes::open(Some(directory.path()));
        notes.begin("a", note()).await.unwrap();
        let full = directory.path().join("runs.new");
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        assert_eq!(notes.begin("b", note()).await.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(Notes::open(Some(directory.path())).1, BTreeMap::from([("a".to_owned(), note())]));
        // What could not be written was put away: there is room again.
        notes.begin("c", note()).await.unwrap();
        let left = Notes::open(Some(directory.path())).1;
        assert_eq!(left.keys().map(String::as_str).collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn a_file_that_is_broken_is_as_good_as_none() {
        let directory = tempfile::tempdir().unwrap();
        for broken in ["", "{\"a\":", "[1]"] {
            fs::write(directory.path().join(FILE), broken).unwrap();
            assert!(Notes::open(Some(directory.path())).1.is_empty(), "{broken}");
        }
    }

    #[test]
    fn an_interrupted_run_says_what_is_known() {
        let recorded = note().interrupted("a".into(), None);
        assert_eq!(recorded.staged.as_deref(), Some("s"));
        let result = recorded.run;
        assert_eq!(result.stage.map(Stage::percent), Some(25));
        assert_eq!(result.verdict, Some(Verdict::Interrupted));
        // Nobody has seen how long it went on.
        assert!(result.duration_seconds == 0.0 && result.verified.is_none() && !result.success);
        assert!(result.error.unwrap().contains("slow.1"));
        let begun = Occurrence::started("2026-02-05T10:00:00.000Z", "schedule nightly");
        let scheduled = Note { events: vec![begun.clone()], ..note() };
        assert_eq!(scheduled.interrupted("a".into(), None).events, [begun]);
        // By which its report has names and limits.
        let document = serde_json::json!({"title": "slow"}).as_object().cloned();
        let documented = Note { document: document.clone(), ..note() };
        assert_eq!(documented.interrupted("a".into(), None).document, document);
    }

    #[test]
    fn a_run_whose_own_fault_has_taken_the_host_down_says_so_and_no_other_does() {
        let error = |fault: &str| {
            let (fault, fault_type) = (QualifiedName::parse(fault).unwrap(), FaultType::HostReboot);
            let down = WentDown { fault, fault_type, words: "took the host down; back 31.0 s later".into() };
            // As the injector tells it.
            let told = WentDown::from_argument(&down.to_argument()).unwrap();
            note().interrupted("a".into(), Some(&told)).run.error.unwrap()
        };
        let own = error("slow.1");
        assert!(own.starts_with("its fault slow.1 (host_reboot) took the host down; back 31.0 s"), "{own}");
        assert!(error("slow.2").starts_with("the daemon, or its server, ended"));
    }
}
