//! Schedules: which experiments are run at which times, by themselves, and what has become of it.
//!
//! The rules of time are pure (`cron.rs`, `windows.rs`, `plan.rs`); here is what is kept, in memory and in one file that is
//! replaced as a whole; `keep.rs` looks after the clock and starts the runs.

pub mod cron;
mod keep;
pub mod plan;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::registry::replace_synced;
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::{GivenName, Owner, QualifiedName, SpecError};
pub(super) use keep::keep;
use plan::{Due, Firing, Plan, Words, settle};

/// The most schedules there may be.
pub const MOST_SCHEDULES: usize = 100;
/// How much of what has become of a schedule is kept.
pub const KEPT_OUTCOMES: usize = 20;
/// The name of the file in the state directory.
const FILE: &str = "schedules.json";

/// What has become of a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    /// A run was started.
    Fired,
    /// Nothing: it would have come too late.
    Missed,
    /// Nothing: it fell on a date on which it never fires.
    Skipped,
    /// Nothing: the run was not admitted.
    Refused,
}

/// A firing that is over, or several in a row that were missed or skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The time that was meant, without jitter; of several the first. ISO 8601 in UTC.
    pub time: String,
    /// fired, missed, skipped or refused.
    #[schemars(with = "String")]
    pub became: Became,
    /// How many times it stands for.
    pub times: u32,
    /// Handle of the run.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Why there is no run.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A schedule as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// What it is.
    pub words: Words,
    /// Whether it stands still.
    pub paused: bool,
    /// Who has set it: its runs are theirs.
    pub set_by: Caller,
    /// When.
    pub set_at: Timestamp,
    /// What the experiment was then: another one is not run in their name.
    pub digest: String,
    /// By which the injector lets its runs begin in their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<u64>,
    /// Every time up to this one is dealt with.
    handled: Timestamp,
    /// The latest time for which a run was asked.
    tried: Option<Timestamp>,
    /// The latest outcomes, the last one last.
    pub outcomes: VecDeque<Outcome>,
}

impl Schedule {
    /// One that begins now.
    pub fn new(words: Words, paused: bool, digest: String, caller: Caller, now: Timestamp) -> Self {
        let (tried, outcomes) = (None, VecDeque::new());
        let set_by = caller.without_process();
        Self { words, paused, set_by, set_at: now, digest, grant: None, handled: now, tried, outcomes }
    }

    fn note(&mut self, outcome: Outcome) {
        // Holidays come time by time, and would leave no place for anything else.
        if let Some(last) = self
            .outcomes
            .back_mut()
            .filter(|last| last.became == Became::Skipped && outcome.became == Became::Skipped)
        {
            last.times = last.times.saturating_add(outcome.times);
            return;
        }
        while self.outcomes.len() >= KEPT_OUTCOMES {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(outcome);
    }

    /// What has come, if anything; it is dealt with from here on.
    fn look(&mut self, plan: &Plan, now: Timestamp) -> Option<Firing> {
        self.handled = settle(self.handled, self.tried, now);
        loop {
            match plan.due(self.handled, now) {
                Due::NotYet(_) | Due::Never => return None,
                Due::Fire(firing) => {
                    (self.handled, self.tried) = (firing.occurrence, Some(firing.occurrence));
                    return Some(firing);
                }
                Due::Missed { first, until, times } => {
                    let reason = "the daemon did not run when it came, or the clock was set ahead";
                    self.pass(Became::Missed, reason, first, until, times);
                }
                Due::Skipped { first, until, times } => {
                    let reason = "it fell on a date of its windows `never`";
                    self.pass(Became::Skipped, reason, first, until, times);
                }
            }
        }
    }

    /// Deals with times that have come to nothing.
    fn pass(&mut self, became: Became, reason: &str, first: Timestamp, until: Timestamp, times: u32) {
        self.handled = until;
        let reason = Some(reason.to_owned());
        self.note(Outcome { time: shown(first), became, times, run_id: None, reason });
    }
}

/// The time, ISO 8601 in UTC, to the second.
fn shown(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// A schedule with its plan.
#[derive(Debug, Clone)]
struct Planned {
    schedule: Schedule,
    plan: Plan,
}

type All = BTreeMap<QualifiedName, Planned>;

/// A schedule and when it fires next.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub name: QualifiedName,
    /// What it is.
    pub schedule: Schedule,
    /// When it fires next, as the clocks of its time zone show it; nothing while it stands still.
    pub next: Vec<String>,
}

/// How many next firings are told.
const TOLD: usize = 3;

impl Listed {
    fn of(name: &QualifiedName, planned: &Planned, now: Timestamp) -> Self {
        let Planned { schedule, plan } = planned;
        let mut after = settle(schedule.handled, schedule.tried, now);
        let next = std::iter::from_fn(|| {
            let firing = plan.next(after)?;
            after = firing.occurrence;
            Some(firing.due)
        });
        // What is over will be found to be missed.
        let next = next.skip_while(|due| *due < now - plan::GRACE).take(TOLD);
        let next = if schedule.paused { Vec::new() } else { next.map(|due| plan.shown(due)).collect() };
        Self { name: name.clone(), schedule: schedule.clone(), next }
    }
}

/// A run to be started.
#[derive(Debug)]
struct Start {
    name: QualifiedName,
    schedule: Schedule,
    firing: Firing,
}

/// The schedules and their file. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Schedules {
    path: Option<PathBuf>,
    all: Arc<Mutex<All>>,
    changed: Arc<Notify>,
}

impl Schedules {
    /// Loads the schedules from `directory`, or begins without any. A file that cannot be understood is moved aside.
    pub fn open(directory: Option<&Path>) -> Self {
        let path = directory.map(|directory| directory.join(FILE));
        let all = path.as_deref().map(load).unwrap_or_default();
        Self { path, all: Arc::new(Mutex::new(all)), changed: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of a user, of root all, or the one of this name.
    ///
    /// # Errors
    /// [`ErrorCode::ScheduleNotFound`] if there is none of this name.
    pub fn list(&self, chosen: &Chosen, now: Timestamp) -> Result<Vec<Listed>, ApiError> {
        let all = self.lock();
        let names = choose(&all, chosen)?;
        Ok(names.iter().filter_map(|name| Some(Listed::of(name, all.get(name)?, now))).collect())
    }

    /// By what the injector lets their runs begin.
    pub fn grants(&self) -> Vec<u64> {
        self.lock().values().filter_map(|planned| planned.schedule.grant).collect()
    }

    /// Sets a schedule, in place of any of the same name of the same owner. Where root sets one of another user's, it stays theirs, with
    /// the document and the grant that it had. Returns the grant that was replaced, and what could not be saved.
    ///
    /// # Errors
    /// Names what makes no sense; [`ErrorCode::LimitReached`] when there are too many. Nothing has changed then.
    pub async fn set(
        &self,
        name: QualifiedName,
        mut schedule: Schedule,
    ) -> Result<(Option<u64>, Option<String>), ApiError> {
        let plan = Plan::parse(&schedule.words, schedule.set_at)?;
        plan.zone_name().clone_into(&mut schedule.words.time_zone);
        self.change(move |all| {
            let replaced = all.get(&name).map(|planned| &planned.schedule);
            if schedule.set_by.owner() != name.owner {
                let theirs = replaced.ok_or_else(|| unknown(&name))?;
                refuse_another(&name, theirs, &schedule)?;
                (schedule.set_by, schedule.grant) = (theirs.set_by, theirs.grant);
            }
            let over =
                replaced.and_then(|replaced| replaced.grant).filter(|grant| schedule.grant != Some(*grant));
            if replaced.is_none() {
                refuse_more(all, name.owner)?;
            }
            all.insert(name, Planned { schedule, plan });
            Ok(over)
        })
        .await
    }

    /// Has those that are chosen stand still. Returns their names.
    ///
    /// # Errors
    /// [`ErrorCode::ScheduleNotFound`] if there is none of this name.
    pub async fn pause(&self, chosen: Chosen) -> Result<(Vec<QualifiedName>, Option<String>), ApiError> {
        self.change(move |all| {
            let names = choose(all, &chosen)?;
            for name in &names {
                if let Some(planned) = all.get_mut(name) {
                    planned.schedule.paused = true;
                }
            }
            Ok(names)
        })
        .await
    }

    /// Has those that are chosen go on; what would have come meanwhile does not come. Returns their names.
    ///
    /// # Errors
    /// [`ErrorCode::ScheduleNotFound`] if there is none of this name.
    pub async fn resume(
        &self,
        chosen: Chosen,
        now: Timestamp,
    ) -> Result<(Vec<QualifiedName>, Option<String>), ApiError> {
        self.change(move |all| {
            let mut names = choose(all, &chosen)?;
            names.retain(|name| all.get(name).is_some_and(|planned| planned.schedule.paused));
            for name in &names {
                let Some(Planned { schedule, .. }) = all.get_mut(name) else { continue };
                schedule.paused = false;
                schedule.handled = schedule.handled.max(now);
            }
            Ok(names)
        })
        .await
    }

    /// Forgets one. A run of it goes on. Succeeds when there is none; returns the one that there was.
    ///
    /// # Errors
    /// When the schedules broke.
    pub async fn delete(&self, name: QualifiedName) -> Result<(Option<Schedule>, Option<String>), ApiError> {
        self.change(move |all| Ok(all.remove(&name).map(|planned| planned.schedule))).await
    }

    /// What has come by `now`, dealt with and on file before it is returned: whatever happens then, no time fires twice.
    async fn due(&self, now: Timestamp) -> Vec<Start> {
        let looked = self.change_quietly(move |all| {
            let mut starts = Vec::new();
            for (name, Planned { schedule, plan }) in all.iter_mut().filter(|(_, it)| !it.schedule.paused) {
                while let Some(firing) = schedule.look(plan, now) {
                    starts.push(Start { name: name.clone(), schedule: schedule.clone(), firing });
                }
            }
            starts
        });
        looked.await.unwrap_or_default()
    }

    /// When something comes next, after `now`.
    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let all = self.lock();
        let running = all.values().filter(|planned| !planned.schedule.paused);
        let next = running.filter_map(|Planned { schedule, plan }| {
            plan.next(settle(schedule.handled, schedule.tried, now)).map(|firing| firing.due)
        });
        next.min()
    }

    /// Writes down what has become of a firing, if the schedule is still there, and was not set anew.
    async fn became(&self, name: QualifiedName, fired: &Schedule, outcome: Outcome) {
        let fired = (fired.set_at, fired.grant);
        let noted = self.change_quietly(move |all| {
            let is_it = |now: &Schedule| (now.set_at, now.grant) == fired;
            let planned = all.get_mut(&name).filter(|planned| is_it(&planned.schedule));
            if let Some(planned) = planned {
                planned.schedule.note(outcome);
            }
        });
        noted.await.unwrap_or_default();
    }

    /// Changes the schedules and writes them down, off the runtime's thread. Returns what is wrong with the file when it could
    /// not be written: the change holds until the daemon ends.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut All) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Option<String>), ApiError> {
        let schedules = self.clone();
        let changed = tokio::task::spawn_blocking(move || {
            let mut all = schedules.lock();
            let mut next = all.clone();
            let result = change(&mut next)?;
            let problem = schedules.write(&next).err();
            *all = next;
            Ok((result, problem))
        });
        let changed = changed.await.map_err(|error| {
            ApiError::new(ErrorCode::Unavailable, format!("the schedules broke: {error}"))
        })?;
        self.changed.notify_one();
        changed
    }

    /// The same for what the daemon does by itself: the file is written only if something has changed, and nobody is told but
    /// the log.
    async fn change_quietly<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut All) -> T + Send + 'static,
    ) -> Option<T> {
        let schedules = self.clone();
        let changed = tokio::task::spawn_blocking(move || {
            let mut all = schedules.lock();
            let before: Vec<_> = all.values().map(|planned| planned.schedule.clone()).collect();
            let result = change(&mut all);
            if !before.iter().eq(all.values().map(|planned| &planned.schedule)) {
                // Already in the log; a disk that is full is no reason to stand still.
                let _ = schedules.write(&all);
            }
            result
        });
        let changed = changed.await;
        if let Err(error) = &changed {
            tracing::error!(%error, "the schedules broke");
        }
        changed.ok()
    }

    /// Says what is wrong with the file, if it could not be written.
    fn write(&self, all: &All) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let kept: BTreeMap<_, _> = all.iter().map(|(name, planned)| (name, &planned.schedule)).collect();
        let written = serde_json::to_vec(&kept).map_err(io::Error::other);
        // Synced: what a firing starts may take the host down, and must not be started again after the boot.
        written.and_then(|bytes| replace_synced(path, &bytes)).map_err(|error| {
            tracing::warn!(path = %path.display(), %error, "cannot save the schedules");
            format!("not saved, so it is lost when the daemon ends: {}: {error}", path.display())
        })
    }
}

/// What root sets of another user's runs what that user has set.
fn refuse_another(name: &QualifiedName, theirs: &Schedule, set: &Schedule) -> Result<(), ApiError> {
    if theirs.digest == set.digest {
        return Ok(());
    }
    let (experiment, owner) = (&set.words.experiment, name.owner);
    let text = format!(
        "{name} runs another document, or what is registered as {experiment:?} was registered anew: {owner} alone can have the schedule \
         run it in their name"
    );
    Err(SpecError::new("experiment", text).into())
}

fn unknown(name: &QualifiedName) -> ApiError {
    let text = format!("there is no schedule {:?} of {}", name.name.as_str(), name.owner);
    ApiError::new(ErrorCode::ScheduleNotFound, text)
        .hint("chaos_schedule with action \"list\" shows all that are yours")
}

/// Which schedules are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// The one of this name.
    One(QualifiedName),
    /// All that are of this user; of root those of everybody.
    AllOf(Owner),
}

/// The names of those that are meant.
fn choose(all: &All, chosen: &Chosen) -> Result<Vec<QualifiedName>, ApiError> {
    match chosen {
        Chosen::AllOf(owner) => {
            let is = |name: &&QualifiedName| owner.is_root() || name.owner == *owner;
            Ok(all.keys().filter(is).cloned().collect())
        }
        Chosen::One(name) if all.contains_key(name) => Ok(vec![name.clone()]),
        Chosen::One(name) => Err(unknown(name)),
    }
}

/// Refuses a further one of `owner`: of all that there may be one user has half, and an eighth is kept for root.
fn refuse_more(all: &All, owner: Owner) -> Result<(), ApiError> {
    let of = |is: &dyn Fn(Owner) -> bool| all.keys().filter(|name| is(name.owner)).count();
    let kept = MOST_SCHEDULES / 8;
    let mut bounds = vec![(all.len(), MOST_SCHEDULES, "in all")];
    if !owner.is_root() {
        bounds.push((of(&|other| !other.is_root()), MOST_SCHEDULES - kept, "but for root"));
        bounds.push((of(&|other| other == owner), MOST_SCHEDULES / 2, "of one user"));
    }
    match bounds.into_iter().find(|(there, most, _)| there >= most) {
        None => Ok(()),
        Some((_, most, whose)) => {
            let text = format!("there are {most} schedules {whose}, which is the most");
            Err(ApiError::new(ErrorCode::LimitReached, text).hint("delete one first"))
        }
    }
}

/// A schedule's name, as a caller gives it: by the rule of the names of faults.
///
/// # Errors
/// When it is none.
pub fn given_name(name: &str) -> Result<GivenName, SpecError> {
    GivenName::parse(name).map_err(|error| SpecError::new("name", error.problem))
}

fn load(path: &Path) -> All {
    let problem = match fs::read(path) {
        Ok(bytes) => match understand(&bytes) {
            Ok(all) => return all,
            Err(problem) => problem,
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return All::new(),
        Err(error) => error.to_string(),
    };
    let aside = path.with_extension("broken");
    let moved = fs::rename(path, &aside);
    tracing::warn!(
        path = %path.display(),
        aside = %aside.display(),
        moved = moved.is_ok(),
        problem,
        "cannot read the schedules: starting without any"
    );
    All::new()
}

fn understand(bytes: &[u8]) -> Result<All, String> {
    let kept: BTreeMap<String, Schedule> =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let planned = kept.into_iter().map(|(name, schedule)| {
        // Before names had owners, it was of who had set it.
        let GivenName { owner, name } = GivenName::parse(&name).map_err(|error| error.to_string())?;
        let name = QualifiedName::new(owner.unwrap_or(schedule.set_by.owner()), name);
        // By the time when it was set: one that has had its last firing is no mistake.
        let plan =
            Plan::parse(&schedule.words, schedule.set_at).map_err(|error| format!("{name}: {error}"))?;
        Ok((name, Planned { schedule, plan }))
    });
    planned.collect()
}

#[cfg(test)]
mod tests;
