//! Searches: which go on, what each has tried, and what came of it; each in a file of its own, which is replaced as a whole after each
//! step. `keep.rs` makes the runs. What is next, and what is the best, `chaos-search` decides.

mod file;
mod keep;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chaos_search::{Method, NoData, Outcome, Search, State, Step};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};

use crate::experiment::search::Plan;
use crate::experiment::variables::Nowhere;
use crate::experiment::{Experiment, Verdict};
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::owner::meanings;
use crate::spec::{Owner, SpecError};
pub(super) use keep::keep;

/// How many searches may go on at once.
pub const MOST_GOING_ON: usize = 4;
/// How many are kept, with those that have ended: the oldest of these makes place for a new one.
pub const MOST_KEPT: usize = 32;

/// The run of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunOf {
    /// When the step began.
    pub began_at: Timestamp,
    /// The handle of the run, if one has begun.
    pub run_id: Option<String>,
    /// The last word on it.
    pub verdict: Option<Verdict>,
    /// What went wrong.
    pub problem: Option<String>,
}

/// A search as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Its name, with that of its owner before it where that is not root.
    pub name: String,
    /// The document that is searched, as it was when the search began.
    pub document: Map<String, Value>,
    /// Whose runs its runs are.
    pub set_by: Caller,
    /// By which the injector lets them begin in their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<u64>,
    /// When it began.
    pub began_at: Timestamp,
    /// What is asked, and every step.
    pub search: Search,
    /// The run of each step.
    pub runs: Vec<RunOf>,
    /// Why it ended before its time, if not by itself.
    pub problem: Option<String>,
}

impl Kept {
    /// A search of `document` that is to begin in the name of `caller`, among these.
    ///
    /// # Errors
    /// When the document asks for none, or there is no failure to begin with.
    pub fn begun(
        searches: &Searches,
        document: Map<String, Value>,
        beginning: Beginning<'_>,
        caller: Caller,
    ) -> Result<Self, ApiError> {
        let mut spec = plan_of(&document)?.spec;
        let experiment = Experiment::parse(&document, &Nowhere)?.name;
        let (name, document) = match beginning {
            Beginning::Anew(seed) => {
                let said = plan_of(&document)?.has_seed.then_some(spec.seed);
                spec.seed = seed.map(u64::from).or(said).unwrap_or_else(|| rand::random::<u32>().into());
                (caller.owner().name_for(Owner::ROOT, &experiment), document)
            }
            Beginning::Minimise(run_id) => {
                let kept = caller.owner().name_for(Owner::ROOT, &experiment);
                let found = searches.list(Some(&kept))?.remove(0);
                spec = found.search.spec().clone();
                spec.method = found.failure(run_id)?;
                (format!("{kept} (minimal)"), found.document)
            }
        };
        let search = Search::new(spec).map_err(|error| SpecError::new("search", error.to_string()))?;
        let (set_by, began_at) = (caller.without_process(), Timestamp::now());
        Ok(Self { name, document, set_by, grant: None, began_at, search, runs: Vec::new(), problem: None })
    }

    /// Whose it is.
    pub fn owner(&self) -> Owner {
        self.set_by.owner()
    }

    /// Its name as `viewer` reads and writes it.
    pub fn shown_to(&self, viewer: Owner) -> String {
        let plain = match self.owner() {
            Owner::ROOT => self.name.as_str(),
            _ => self.name.split_once('/').map_or(self.name.as_str(), |(_, plain)| plain),
        };
        self.owner().name_for(viewer, plain)
    }

    /// What its document asks for.
    ///
    /// # Errors
    /// When the document makes no sense any more, as to a daemon of another version.
    pub fn plan(&self) -> Result<Plan, SpecError> {
        plan_of(&self.document)
    }

    /// Whether it goes on.
    pub fn goes_on(&self) -> bool {
        !matches!(self.search.state(), State::Finished(_))
    }

    /// A step is pending whose run nobody sees any more.
    fn is_pending(&self) -> bool {
        self.search.history().last().is_some_and(|step| step.outcome.is_none())
    }

    fn tell(&mut self, outcome: Outcome) {
        if let Err(error) = self.search.tell_outcome(outcome) {
            // Nothing was pending, so that nothing is lost.
            tracing::error!(search = self.name, %error, "an outcome of a search was not taken");
        }
    }

    /// The failure to begin with, of the run with this handle, or the best.
    fn failure(&self, run_id: Option<&str>) -> Result<Method, ApiError> {
        let failed = |step: &Step| {
            let margin = step.outcome.as_ref()?.margin().ok().filter(|margin| *margin > 0.0)?;
            Some(Method::Minimise { from: step.candidate.clone(), margin })
        };
        let found = match run_id {
            Some(wanted) => {
                let is_it = |run: &RunOf| run.run_id.as_deref() == Some(wanted);
                let step = self.runs.iter().position(is_it);
                step.and_then(|step| failed(self.search.history().get(step)?))
            }
            None => {
                self.search.best().map(|best| Method::Minimise { from: best.candidate, margin: best.margin })
            }
        };
        found.ok_or_else(|| {
            let text = match run_id {
                Some(run) => format!("no run {run:?} of the search {:?} has missed the objective", self.name),
                None => format!("the search {:?} has found no failure", self.name),
            };
            ApiError::new(ErrorCode::RunNotFound, text).hint("chaos_search with action status shows its runs")
        })
    }
}

/// What a document asks for.
fn plan_of(document: &Map<String, Value>) -> Result<Plan, SpecError> {
    let experiment = Experiment::parse(document, &Nowhere)?;
    Plan::of(&experiment)?.ok_or_else(|| {
        SpecError::new(
            "extensions",
            "there is no search in the extension chaos-daemon: say what may be varied",
        )
    })
}

/// How a search is begun.
#[derive(Debug, Clone, Copy)]
pub enum Beginning<'a> {
    /// Of the space, with this seed, or that of the document, or one by chance.
    Anew(Option<u32>),
    /// From the failure of the run with this handle, or the best one, down to the least that still fails.
    Minimise(Option<&'a str>),
}

#[derive(Debug)]
struct Entry {
    kept: Kept,
    /// The number of its file.
    place: usize,
    /// Somebody makes its runs.
    driven: bool,
    /// Changes when it is to end.
    stop: watch::Sender<()>,
}

impl Entry {
    fn new(kept: Kept, place: usize) -> Self {
        Self { kept, place, driven: false, stop: watch::channel(()).0 }
    }
}

type All = BTreeMap<String, Entry>;

/// The searches and their files. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Searches {
    directory: Option<PathBuf>,
    all: Arc<Mutex<All>>,
    begun: Arc<Notify>,
}

impl Searches {
    /// Those of the state directory. Those that were going on go on, unless the host went down with a fault: it would again. A file
    /// that cannot be understood is moved aside.
    pub fn open(state_dir: Option<&Path>, went_down: bool) -> Self {
        let directory = state_dir.map(Path::to_owned);
        let mut kept = directory.as_deref().map(file::load).unwrap_or_default();
        for (_, kept) in kept.iter_mut().filter(|(_, kept)| went_down && kept.goes_on()) {
            kept.search.stop();
            kept.problem = Some("the host went down with a fault".to_owned());
        }
        let all =
            kept.into_iter().map(|(place, kept)| (kept.name.clone(), Entry::new(kept, place))).collect();
        Self { directory, all: Arc::new(Mutex::new(all)), begun: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name by which the search is kept that a caller means by this one.
    ///
    /// # Errors
    /// [`ErrorCode::SearchNotFound`] if there is none.
    pub fn meant(&self, name: &str, caller: Owner) -> Result<String, ApiError> {
        let all = self.lock();
        let mut kept = meanings(name, caller).map(|(owner, plain)| owner.name_for(Owner::ROOT, plain));
        kept.find(|kept| all.contains_key(kept)).ok_or_else(|| unknown(name))
    }

    /// All of them, or the one of this name.
    ///
    /// # Errors
    /// [`ErrorCode::SearchNotFound`] if there is none of this name.
    pub fn list(&self, name: Option<&str>) -> Result<Vec<Kept>, ApiError> {
        let all = self.lock();
        match name {
            None => Ok(all.values().map(|entry| entry.kept.clone()).collect()),
            Some(name) => Ok(vec![all.get(name).ok_or_else(|| unknown(name))?.kept.clone()]),
        }
    }

    /// By what the injector lets the runs begin of those that go on.
    pub fn grants(&self) -> Vec<u64> {
        let all = self.lock();
        let going_on = all.values().filter(|entry| entry.kept.goes_on() || entry.kept.is_pending());
        going_on.filter_map(|entry| entry.kept.grant).collect()
    }

    /// Begins a search. Returns its name.
    ///
    /// # Errors
    /// When it goes on already, too many do, or it cannot be written down.
    pub async fn begin(&self, search: Kept) -> Result<String, ApiError> {
        let name = search.name.clone();
        self.off_the_loop(move |searches| searches.add(search)).await??;
        self.begun.notify_one();
        Ok(name)
    }

    fn add(&self, kept: Kept) -> Result<(), ApiError> {
        let mut all = self.lock();
        let goes_on = |entry: &Entry| entry.kept.goes_on() || entry.driven;
        if all.get(&kept.name).is_some_and(goes_on) {
            let text = format!("the search {:?} goes on already", kept.name);
            return Err(ApiError::new(ErrorCode::LimitReached, text)
                .hint("follow it with action status, or end it with action stop"));
        }
        if all.values().filter(|entry| goes_on(entry)).count() >= MOST_GOING_ON {
            let text = format!("{MOST_GOING_ON} searches go on, which is the most");
            return Err(ApiError::new(ErrorCode::LimitReached, text).hint("stop one first"));
        }
        let oldest = all.values().filter(|entry| !goes_on(entry)).min_by_key(|entry| entry.kept.began_at);
        let given_up = match all.get(&kept.name) {
            Some(same) => Some(same),
            None => oldest.filter(|_| all.len() >= MOST_KEPT),
        };
        let given_up = given_up.map(|entry| (entry.kept.name.clone(), entry.place));
        let free = || (0..MOST_KEPT).find(|place| all.values().all(|entry| entry.place != *place));
        let place = given_up.as_ref().map(|(_, place)| *place).or_else(free).unwrap_or_default();
        self.write(place, &kept).map_err(not_written)?;
        if let Some((name, _)) = given_up {
            all.remove(&name);
        }
        all.insert(kept.name.clone(), Entry::new(kept, place));
        Ok(())
    }

    /// Ends one, or all, and has the run that it makes be stopped. Returns the names of those that went on. What was found stays.
    ///
    /// # Errors
    /// [`ErrorCode::SearchNotFound`] if there is none of this name.
    pub async fn stop(&self, name: Option<&str>) -> Result<Vec<String>, ApiError> {
        let wanted = name.map(ToOwned::to_owned);
        let ended = self.off_the_loop(move |searches| {
            let mut all = searches.lock();
            if let Some(name) = wanted.as_deref().filter(|name| !all.contains_key(*name)) {
                return Err(unknown(name));
            }
            let meant = |entry: &&mut Entry| {
                entry.kept.goes_on() && wanted.as_deref().is_none_or(|name| name == entry.kept.name)
            };
            let mut ended = Vec::new();
            for entry in all.values_mut().filter(meant) {
                entry.kept.search.stop();
                entry.stop.send_replace(());
                // Already in the log: what cannot be written ends all the same.
                let _ = searches.write(entry.place, &entry.kept);
                ended.push(entry.kept.name.clone());
            }
            Ok(ended)
        });
        ended.await?
    }

    /// Those that go on and whose runs nobody makes; whoever asks does from here on.
    fn take_undriven(&self) -> Vec<String> {
        let mut all = self.lock();
        let undriven = all
            .values_mut()
            .filter(|entry| !entry.driven && (entry.kept.goes_on() || entry.kept.is_pending()));
        undriven
            .map(|entry| {
                entry.driven = true;
                entry.kept.name.clone()
            })
            .collect()
    }

    fn leave(&self, name: &str) {
        if let Some(entry) = self.lock().get_mut(name) {
            entry.driven = false;
        }
    }

    /// Changes one and writes it down, off the runtime's thread.
    async fn change<T: Send + 'static>(
        &self,
        name: &str,
        change: impl FnOnce(&mut Kept) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let name = name.to_owned();
        let changed = self.off_the_loop(move |searches| {
            let mut all = searches.lock();
            let entry = all.get_mut(&name).ok_or_else(|| unknown(&name))?;
            let result = change(&mut entry.kept);
            searches.write(entry.place, &entry.kept).map_err(not_written)?;
            Ok(result)
        });
        changed.await?
    }

    async fn off_the_loop<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let searches = self.clone();
        let done = tokio::task::spawn_blocking(move || what(&searches)).await;
        done.map_err(|error| ApiError::new(ErrorCode::Unavailable, format!("the searches broke: {error}")))
    }

    fn write(&self, place: usize, kept: &Kept) -> Result<(), String> {
        self.directory.as_deref().map_or(Ok(()), |directory| file::write(directory, place, kept))
    }
}

/// What a step has cost whose run nobody saw end: the time since, as far as the run could have taken it.
fn lost(kept: &Kept, now: Timestamp) -> Outcome {
    let space = &kept.search.spec().space;
    let planned = kept.search.history().last().map_or(0.0, |step| space.seconds(&step.candidate));
    let most = planned + kept.search.spec().budget.overhead_seconds;
    let since = kept.runs.last().map_or(0.0, |run| now.duration_since(run.began_at).as_secs_f64());
    Outcome { seen: Err(NoData::Interrupted), seconds: since.clamp(0.0, most) }
}

fn not_written(problem: String) -> ApiError {
    ApiError::new(
        ErrorCode::Unavailable,
        format!("no step is made that cannot be written down before: {problem}"),
    )
    .hint("make room where the daemon keeps its state (--state-dir)")
}

fn unknown(name: &str) -> ApiError {
    ApiError::new(ErrorCode::SearchNotFound, format!("there is no search {name:?}"))
        .hint("chaos_search with action \"list\" shows all")
}

#[cfg(test)]
mod tests;
