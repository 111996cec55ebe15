//! What has run before of an experiment, and what was like it: for its plan. How alike two experiments are is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rusqlite::{OptionalExtension as _, Row};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::database::{self, Database};
use super::statistics::Count;
use super::{History, Latest};
use crate::experiment::{Experiment, Verdict};
use crate::request::ApiError;
use crate::spec::{Owner, TargetRequest};

/// The most runs of other experiments that are told.
const MOST_SIMILAR: usize = 3;
/// How many of the latest runs of other experiments are compared.
const COMPARED: u32 = 1000;

/// What of the faults of an experiment can be the same in another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// A fault of this type with this target.
    FaultOf(String, String),
    /// A fault of this type.
    Fault(String),
    /// A fault with this target.
    Target(String),
}

impl fmt::Display for Feature {
    /// `latency of interface eth0`, `latency`, `interface eth0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FaultOf(fault_type, target) => write!(f, "{fault_type} of {target}"),
            Self::Fault(word) | Self::Target(word) => f.write_str(word),
        }
    }
}

/// What of these faults (type and target) can be the same in another experiment.
pub fn features<'a>(faults: impl Iterator<Item = (&'a str, &'a TargetRequest)>) -> BTreeSet<Feature> {
    let of_fault = |(fault_type, target): (&str, &TargetRequest)| {
        let fault_type = fault_type.to_owned();
        let targets = target.names().into_iter().flat_map({
            let fault_type = fault_type.clone();
            move |name| [Feature::FaultOf(fault_type.clone(), name.clone()), Feature::Target(name)]
        });
        targets.chain([Feature::Fault(fault_type)]).collect::<Vec<_>>()
    };
    faults.flat_map(of_fault).collect()
}

/// How alike two are, from 0 to 1: what they have in common, of all that either has (Jaccard).
fn similarity(one: &BTreeSet<Feature>, other: &BTreeSet<Feature>) -> f64 {
    let all = one.union(other).count();
    #[expect(clippy::cast_precision_loss, reason = "there are no 2^52 faults")]
    let share = one.intersection(other).count() as f64 / all.max(1) as f64;
    share
}

/// What two have in common, in words; of a fault of one target not that its type and its target are the same, too.
fn why(one: &BTreeSet<Feature>, other: &BTreeSet<Feature>) -> Vec<String> {
    let common: BTreeSet<_> = one.intersection(other).collect();
    let is_told = |feature: &Feature| {
        common.iter().any(|whole| match (whole, feature) {
            (Feature::FaultOf(fault_type, _), Feature::Fault(word)) => fault_type == word,
            (Feature::FaultOf(_, target), Feature::Target(word)) => target == word,
            _ => false,
        })
    };
    common.iter().filter(|feature| !is_told(feature)).map(ToString::to_string).collect()
}

/// What has run before of an experiment, and what was like it, as far as it is still recorded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Precedents {
    /// All of it in a sentence, also that there is nothing.
    pub summary: String,
    /// Runs of an experiment of this name, whatever its document was.
    pub same_name: Before,
    /// Runs of this very document, but for its secrets.
    pub same_document: Before,
    /// Of other experiments those whose faults are most like those of this one, at most three, the latest run of each.
    pub similar: Vec<Similar>,
}

/// How runs went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Before {
    /// How many there are.
    pub runs: u64,
    /// How many with which verdict; "none" in results of before there were verdicts.
    pub verdicts: Vec<Count>,
    /// The latest.
    #[schemars(with = "Latest")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Latest>,
}

impl fmt::Display for Before {
    /// `3 times (held 2, deviated 1)`, or `never`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdicts: Vec<_> =
            self.verdicts.iter().map(|count| format!("{} {}", count.name, count.runs)).collect();
        match self.runs {
            0 => f.write_str("never"),
            1 => write!(f, "once ({})", verdicts.join(", ")),
            runs => write!(f, "{runs} times ({})", verdicts.join(", ")),
        }
    }
}

/// A run of another experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Similar {
    /// Name of the experiment.
    pub experiment_name: String,
    /// Its latest run with these faults.
    #[serde(flatten)]
    pub run: Latest,
    /// How alike its faults are, from 0 to 1: types, targets, and types with their targets that both have, of all that either has.
    pub similarity: f64,
    /// What both have.
    pub why: Vec<String>,
}

impl Precedents {
    fn of(before: Vec<(Before, Before)>, features: &BTreeSet<Feature>, others: Vec<Other>) -> Self {
        let (names, documents): (Vec<_>, Vec<_>) = before.into_iter().unzip();
        let (same_name, same_document) = (together(names), together(documents));
        let similar = most_similar(features, others);
        let like = match similar.as_slice() {
            [] => "no run of another one is like it".to_owned(),
            [one] => format!("a run of another one is like it: of {:?}", one.experiment_name),
            several => format!("runs of {} others are like it", several.len()),
        };
        let summary = match same_name.runs + same_document.runs {
            0 => format!("no run of this experiment is recorded; {like}"),
            _ => format!("this experiment ran {same_name}, this document {same_document}; {like}"),
        };
        Self { summary, same_name, same_document, similar }
    }
}

/// What several databases say, as one.
fn together(all: Vec<Before>) -> Before {
    let mut verdicts = BTreeMap::<String, u64>::new();
    let mut latest: Option<Latest> = None;
    for one in all {
        for count in one.verdicts {
            *verdicts.entry(count.name).or_default() += count.runs;
        }
        let is_later = |known: &Latest, new: &Latest| known.started_at >= new.started_at;
        latest = match (latest, one.latest) {
            (Some(known), Some(new)) => Some(if is_later(&known, &new) { known } else { new }),
            (known, new) => known.or(new),
        };
    }
    let runs = verdicts.values().sum();
    let mut verdicts: Vec<_> = verdicts.into_iter().map(|(name, runs)| Count { name, runs }).collect();
    verdicts.sort_by_key(|count| std::cmp::Reverse(count.runs));
    Before { runs, verdicts, latest }
}

/// A run of another experiment, with its faults.
#[derive(Debug, Clone)]
struct Other {
    experiment: String,
    run: Latest,
    features: BTreeSet<Feature>,
}

/// Of each experiment the run that is most like these, the latest of several; of those the most alike, the latest first.
fn most_similar(features: &BTreeSet<Feature>, others: Vec<Other>) -> Vec<Similar> {
    let mut similar: Vec<_> = others
        .into_iter()
        .map(|Other { experiment, run, features: theirs }| Similar {
            experiment_name: experiment,
            run,
            similarity: similarity(features, &theirs),
            why: why(features, &theirs),
        })
        .filter(|other| other.similarity > 0.0)
        .collect();
    similar.sort_by(|one, other| {
        other
            .similarity
            .total_cmp(&one.similarity)
            .then_with(|| other.run.started_at.cmp(&one.run.started_at))
    });
    let mut told = BTreeSet::new();
    similar.retain(|other| told.insert(other.experiment_name.clone()));
    similar.truncate(MOST_SIMILAR);
    similar
}

impl History {
    /// What has run before of this experiment, whose document has this digest, and what was like it. Where the history cannot be
    /// read, that is what its summary says.
    pub async fn precedents(
        &self,
        experiment: &Experiment,
        owner: Owner,
        digest: &str,
        viewer: Owner,
    ) -> Precedents {
        let scope = Scope { owner, viewer };
        let (name, digest) = (experiment.name.clone(), digest.to_owned());
        let faults = experiment.faults().map(|(_, _, fault)| (fault.fault_type.name(), &fault.target));
        let features = features(faults);
        let asked = self.blocking(move |shared| {
            let before = |database: &Database| {
                let same_name =
                    before(database, "owner = ?1 AND experiment = ?2", &[&owner.to_string(), &name])?;
                let same_document =
                    before(database, "owner LIKE ?1 AND digest = ?2", &[&scope.seen(), &digest])?;
                Ok(vec![(same_name, same_document)])
            };
            let (before, others) =
                (shared.all(before)?, shared.all(|database| others(database, scope, &name))?);
            Ok(Precedents::of(before, &features, others))
        });
        asked.await.unwrap_or_else(|error: ApiError| Precedents {
            summary: format!("not known: {}", error.message),
            ..Precedents::default()
        })
    }
}

/// Whose experiment it is, and who asks.
#[derive(Debug, Clone, Copy)]
struct Scope {
    owner: Owner,
    viewer: Owner,
}

impl Scope {
    /// A pattern of SQL for those whose runs who asks may see all of.
    fn seen(self) -> String {
        if self.viewer.is_root() { "%".to_owned() } else { self.viewer.to_string() }
    }
}

/// How the runs went of which this holds.
fn before(database: &Database, holds: &str, values: &[&str; 2]) -> database::Result<Before> {
    let counts = format!("SELECT ifnull(verdict, 'none'), count(*) FROM run WHERE {holds} GROUP BY verdict");
    let mut statement = database.connection.prepare(&counts)?;
    let count = |row: &Row<'_>| {
        let runs: i64 = row.get(1)?;
        Ok(Count { name: row.get(0)?, runs: u64::try_from(runs).unwrap_or_default() })
    };
    let verdicts = statement.query_map(*values, count)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let latest = format!(
        "SELECT id, started_at, verdict, success FROM run WHERE {holds} ORDER BY started_ms DESC, rowid DESC LIMIT 1"
    );
    let latest = database.connection.query_row(&latest, *values, run).optional()?;
    Ok(Before { runs: verdicts.iter().map(|count| count.runs).sum(), verdicts, latest })
}

/// The latest runs of other experiments than this that may be seen, with their faults, the latest first.
fn others(database: &Database, scope: Scope, experiment: &str) -> database::Result<Vec<Other>> {
    let question = "SELECT id, started_at, verdict, success, experiment, (SELECT json_group_array(json_array(fault_type, target)) \
                    FROM fault WHERE run = id), owner FROM run WHERE NOT (owner = ?1 AND experiment = ?2) AND owner LIKE ?3 AND EXISTS \
                    (SELECT 1 FROM fault WHERE run = id) ORDER BY started_ms DESC, rowid DESC LIMIT ?4";
    let mut statement = database.connection.prepare(question)?;
    let values = rusqlite::params![scope.owner.to_string(), experiment, scope.seen(), COMPARED];
    let rows = statement.query_map(values, |row| {
        let (faults, name): (String, String) = (row.get(5)?, row.get(4)?);
        let experiment = database::owner(row, 6)?.name_for(scope.viewer, &name);
        Ok(Other { run: run(row)?, experiment, features: recorded(&faults) })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The features of faults as [`others`] reads them; of a target that is not understood any more, there is none.
fn recorded(faults: &str) -> BTreeSet<Feature> {
    let faults: Vec<(String, String)> = serde_json::from_str(faults).unwrap_or_default();
    let target = |text: &str| serde_json::from_str::<TargetRequest>(text).ok();
    let all = faults.iter().flat_map(|(fault_type, text)| match target(text) {
        Some(target) => features([(fault_type.as_str(), &target)].into_iter()),
        None => [Feature::Fault(fault_type.clone())].into(),
    });
    all.collect()
}

fn run(row: &Row<'_>) -> rusqlite::Result<Latest> {
    let verdict: Option<String> = row.get(2)?;
    let verdict = verdict.as_deref().and_then(Verdict::parse);
    Ok(Latest { run_id: row.get(0)?, started_at: row.get(1)?, verdict, success: row.get(3)? })
}

#[cfg(test)]
#[path = "precedents_tests.rs"]
mod tests;
