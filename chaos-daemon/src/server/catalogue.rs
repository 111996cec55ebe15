//! Which experiments there are: those that are registered, and those built in, which are ready to be registered.

use std::fmt;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::history::views::sees_all;
use super::history::{Latest, RunFault, of_document};
use super::nearest::or_nearest;
use super::runs::{Run, described};
use super::service::Service;
use crate::experiment::hub::{self, Parameter, holds};
use crate::experiment::source::Source;
use crate::experiment::variables::Nowhere;
use crate::experiment::{Experiment, Verdict};
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::{FaultName, Owner, SpecError};

/// Among how many names that of an experiment is looked for which somebody may have meant.
const MOST_NAMES: usize = 200;

/// Where an experiment is from. In this order they are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// It is registered, and can be run.
    Registered,
    /// It is built in, and can be registered.
    BuiltIn,
}

/// Every origin.
pub const ORIGINS: [Origin; 2] = [Origin::Registered, Origin::BuiltIn];

impl Origin {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::BuiltIn => hub::BUILT_IN,
        }
    }

    /// The origin with this name.
    pub fn parse(name: &str) -> Option<Self> {
        ORIGINS.into_iter().find(|origin| origin.name() == name)
    }
}

/// Where in the list an experiment stands: by origin, and then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Where it is from.
    pub origin: Origin,
    /// Its name.
    pub name: String,
}

impl Place {
    /// Understands what [`Place::to_cursor`] has written.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn from_cursor(cursor: &str) -> Result<Self, SpecError> {
        let (origin, name) = cursor.split_once('/').unwrap_or_default();
        match Origin::parse(origin) {
            Some(origin) => Ok(Self { origin, name: name.to_owned() }),
            None => {
                let problem =
                    format!("{cursor:?} is none: give the next_cursor of an answer as it stands there");
                Err(SpecError::new("cursor", problem))
            }
        }
    }

    /// As text that a caller gives back to have what follows.
    pub fn to_cursor(&self) -> String {
        format!("{}/{}", self.origin.name(), self.name)
    }
}

/// An experiment, and what its document means.
#[derive(Debug, Clone)]
pub struct Known {
    /// Where it stands in the list.
    pub place: Place,
    /// Whose it is, and its name there, of one that is registered.
    pub registered: Option<(Owner, String)>,
    /// The document, without its secrets.
    pub document: Map<String, Value>,
    /// The names of its secrets, with their groups.
    pub secrets: Vec<String>,
    /// What the document is: its SHA-256.
    pub digest: String,
    /// What it means; of one that an earlier version took and this one does not, why.
    pub experiment: Result<Experiment, SpecError>,
}

impl Known {
    /// One of this owner's, as `viewer` calls it.
    fn registered(owner: Owner, name: &str, document: Map<String, Value>, viewer: Owner) -> Self {
        let shown = owner.name_for(viewer, name);
        let registered = Some((owner, name.to_owned()));
        Self { registered, ..Self::new(Origin::Registered, shown, document) }
    }

    /// What `document` is, of `origin`, under `name`.
    fn new(origin: Origin, name: String, document: Map<String, Value>) -> Self {
        let experiment = Experiment::parse(&document, &Nowhere);
        let secrets = secrets(&document);
        let (digest, document) = of_document(&document);
        Self { place: Place { origin, name }, registered: None, document, secrets, digest, experiment }
    }

    /// Whether this is its run.
    pub fn is_of(&self, run: &Run) -> bool {
        self.registered.as_ref().is_some_and(|(owner, name)| run.owner == *owner && run.experiment == *name)
    }

    /// A text of the document as it may be shown. Of a document that is not understood nobody knows what is a secret in it.
    fn shown(&self, text: &str) -> Option<String> {
        self.experiment.as_ref().ok().map(|experiment| experiment.variables.hide(text))
    }

    /// What it is about, in a few words.
    pub fn title(&self) -> String {
        let title = self.document.get("title").and_then(Value::as_str).unwrap_or_default();
        self.shown(title).unwrap_or_default()
    }

    /// What is expected to hold.
    pub fn description(&self) -> String {
        self.experiment
            .as_ref()
            .map_or_else(|_| String::new(), |experiment| experiment.variables.hide(&experiment.description))
    }

    /// The document as it may be shown: of one that is not understood, nothing.
    pub fn shown_document(&self) -> Option<Value> {
        let experiment = self.experiment.as_ref().ok()?;
        Some(experiment.variables.hide_in(&Value::Object(self.document.clone())))
    }

    /// The values of its configuration, as they may be shown.
    pub fn parameters(&self) -> Vec<Parameter> {
        let shown = self.shown_document();
        shown.as_ref().and_then(Value::as_object).map(hub::parameters).unwrap_or_default()
    }

    /// Its tags.
    pub fn tags(&self) -> Vec<String> {
        let tags = self.document.get("tags").and_then(Value::as_array).into_iter().flatten();
        tags.filter_map(Value::as_str).filter_map(|tag| self.shown(tag)).collect()
    }

    /// The faults that it injects. One to which the document gives no name has none until it is run.
    pub fn faults(&self) -> Vec<RunFault> {
        let Ok(experiment) = &self.experiment else { return Vec::new() };
        let named = |(index, name, _): (usize, Option<&FaultName>, _)| Some((index, name?.clone()));
        described(experiment, &experiment.faults().filter_map(named).collect())
    }
}

/// Which experiments are looked for. What is not given does not matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    /// Text in its name or title, in whatever case.
    pub text: Option<String>,
    /// A tag.
    pub tag: Option<String>,
    /// Type or name of one of its faults.
    pub fault: Option<String>,
    /// Text in the target of one of its faults.
    pub target: Option<String>,
    /// The verdict of its latest run.
    pub verdict: Option<Verdict>,
    /// Where it is from.
    pub origin: Option<Origin>,
    /// Only those that come after.
    pub after: Option<Place>,
}

impl Wanted {
    /// Whether this one is looked for, whose latest run was `latest`.
    pub fn is(&self, known: &Known, latest: Option<&Latest>) -> bool {
        let Place { origin, name } = &known.place;
        let faults = known.faults();
        let any = |wanted: &Option<String>, has: &dyn Fn(&RunFault, &str) -> bool| {
            wanted.as_ref().is_none_or(|wanted| faults.iter().any(|fault| has(fault, wanted)))
        };
        self.origin.is_none_or(|wanted| wanted == *origin)
            && self.after.as_ref().is_none_or(|after| known.place > *after)
            && self.text.as_ref().is_none_or(|text| holds(name, text) || holds(&known.title(), text))
            && self.tag.as_ref().is_none_or(|tag| known.tags().contains(tag))
            && any(&self.fault, &|fault, wanted| fault.fault_type == wanted || fault.name == wanted)
            && any(&self.target, &|fault, wanted| holds(&fault.target, wanted))
            && self.verdict.is_none_or(|verdict| latest.and_then(|latest| latest.verdict) == Some(verdict))
    }
}

impl Service {
    /// Of every experiment that `viewer` may see, registered or built in, in their order, what `keep` makes of those that it keeps, the
    /// first `limit`.
    /// They are read one after the other, and for one caller at a time: all of them at once would take more memory than callers may.
    ///
    /// # Errors
    /// When what is built in cannot be read.
    pub async fn catalogue<T: Send + 'static>(
        &self,
        viewer: Owner,
        limit: usize,
        keep: impl FnMut(Known) -> Option<T> + Send + 'static,
    ) -> Result<Vec<T>, ApiError> {
        let registry = self.store.all();
        let broke = |error: &dyn fmt::Display| {
            ApiError::new(ErrorCode::Unavailable, format!("reading experiments: {error}"))
        };
        let _turn = self.reading.lock().await;
        // Off the runtime's thread, because they may be many, and long.
        let read = tokio::task::spawn_blocking(move || {
            let seen = registry.owned.iter().filter(|(owner, _)| sees_all(**owner, viewer));
            let theirs = seen.flat_map(|(owner, theirs)| {
                theirs.experiments.iter().map(|(name, entry)| (*owner, name.as_str(), &entry.what))
            });
            let mut theirs: Vec<_> = theirs.collect();
            theirs.sort_by_cached_key(|(owner, name, _)| owner.name_for(viewer, name));
            let registered = theirs
                .into_iter()
                .map(|(owner, name, document)| Known::registered(owner, name, document.read(), viewer));
            Ok::<_, SpecError>(all(registered)?.filter_map(keep).take(limit).collect())
        });
        Ok(read.await.map_err(|error| broke(&error))??)
    }

    /// The experiment of this name: the one that is registered, or else the one that is built in.
    ///
    /// # Errors
    /// When there is none, or it is another user's.
    pub async fn known(&self, name: &str, caller: Caller) -> Result<Known, ApiError> {
        let (wanted, viewer) = (name.to_owned(), caller.owner());
        let (owner, plain) = {
            let registry = self.store.all();
            let (owner, plain) = registry.meant(name, viewer);
            (owner, plain.to_owned())
        };
        self.meant(Some(owner), caller).await?;
        let is = move |known: &Known| match &known.registered {
            Some((of, name)) => *of == owner && *name == plain,
            None => known.place.name == wanted,
        };
        let mut known = self.catalogue(viewer, 1, move |known| Some(known).filter(&is)).await?;
        if let Some(known) = known.pop() {
            return Ok(known);
        }
        let text = format!("no experiment is registered or built in as {name:?}");
        let all = self.catalogue(viewer, MOST_NAMES, |known| Some(known.place.name)).await?;
        let advice = "chaos_list_experiments lists them";
        Err(ApiError::new(ErrorCode::ExperimentNotFound, text).hint(or_nearest(
            advice,
            name,
            all.iter().map(String::as_str),
        )))
    }

    /// The runs that go on.
    pub fn going_on(&self) -> Vec<Run> {
        self.runs.list()
    }
}

/// The names of the secrets in a document, with their groups.
fn secrets(document: &Map<String, Value>) -> Vec<String> {
    let groups = document.get("secrets").and_then(Value::as_object).into_iter().flatten();
    let names = groups.filter_map(|(group, members)| Some((group, members.as_object()?)));
    names.flat_map(|(group, members)| members.keys().map(move |name| format!("{group}.{name}"))).collect()
}

/// All of them in their order: these that are registered, by name, and those built in.
///
/// # Errors
/// When what is built in cannot be read.
fn all(registered: impl Iterator<Item = Known>) -> Result<impl Iterator<Item = Known>, SpecError> {
    Ok(registered.chain(built_in()?.iter().cloned()))
}

/// What is built in, by name. It is read once, and not for everybody who asks.
fn built_in() -> Result<&'static [Known], SpecError> {
    static ALL: LazyLock<Result<Vec<Known>, SpecError>> = LazyLock::new(|| {
        let mut entries = hub::entries([])?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let known = |entry: hub::Entry| {
            let document = Source::read(&entry.text)?.document().clone();
            Ok(Known::new(Origin::BuiltIn, entry.name, document))
        };
        entries.into_iter().map(known).collect()
    });
    ALL.as_deref().map_err(Clone::clone)
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
