//! What many runs say together. Pure: runs go in, figures come out.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ExperimentResult, Summary};
use crate::experiment::{Fate, Verdict};

/// The scores are counted in these spans, both ends of which belong to them.
const SPANS: [(u8, u8); 5] = [(0, 24), (25, 49), (50, 74), (75, 99), (100, 100)];

/// How many of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// Of what.
    pub name: String,
    /// How many.
    pub runs: u64,
}

/// How runs went that have something in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// What they have in common: the experiment, the day.
    pub name: String,
    /// How many.
    pub runs: u64,
    /// How many with success.
    pub successes: u64,
    /// Their share of those that show something, from 0 to 1: an unverified run does not count.
    pub success_rate: f64,
    /// The mean of the scores of those that have one.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_score: Option<f64>,
    /// The score of the latest that has one.
    #[schemars(with = "u8")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_score: Option<u8>,
    /// Of an experiment that of the one before it that has one: the latest has fallen if it is less.
    #[schemars(with = "u8")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_score: Option<u8>,
}

/// How faults of one type went, whatever the system made of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FaultTally {
    /// Type of fault.
    pub name: String,
    /// How many runs have one, or more.
    pub runs: u64,
    /// How many faults the injector was asked for, as far as it is recorded.
    pub asked: u64,
    /// How many of them were injected.
    pub injected: u64,
    /// How many were seen to act.
    pub effective: u64,
    /// How many were removed with nothing left.
    pub removed_clean: u64,
    /// How many were all of that.
    pub successes: u64,
    /// Their share of those that were asked for, from 0 to 1.
    pub success_rate: f64,
}

/// One document whose runs ended differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Flaky {
    /// Name of the experiment.
    pub experiment_name: String,
    /// SHA-256 of its document.
    pub digest: String,
    /// How often it held.
    pub held: u64,
    /// How often it deviated, or a gate was breached.
    pub deviated: u64,
    /// Types of its faults.
    pub fault_types: Vec<String>,
}

/// What many runs say together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Statistics {
    /// How many runs there are.
    pub runs: u64,
    /// How many with success.
    pub successes: u64,
    /// Their share of those that show something, from 0 to 1: an unverified run does not count.
    pub success_rate: f64,
    /// The mean of the scores of those that have one.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_score: Option<f64>,
    /// Runs by verdict; "none" in results of before there were verdicts.
    pub verdicts: Vec<Count>,
    /// Runs without success by what failed.
    pub failure_modes: Vec<Count>,
    /// Runs by score, in spans such as "75-99".
    pub scores: Vec<Count>,
    /// By experiment.
    pub experiments: Vec<Tally>,
    /// By type of fault: not how the system bore it, but whether the fault did what it is for.
    pub faults: Vec<FaultTally>,
    /// By the day on which they began, in UTC.
    pub days: Vec<Tally>,
    /// Documents of which some runs held and some did not.
    pub flaky: Vec<Flaky>,
}

/// What `runs` say together.
pub fn statistics(runs: &[Summary]) -> Statistics {
    let all = tally(String::new(), &runs.iter().collect::<Vec<_>>());
    let by = |key: &dyn Fn(&Summary) -> Vec<String>| {
        let mut groups = BTreeMap::<String, Vec<&Summary>>::new();
        for run in runs {
            // A type that is there twice counts once.
            for name in key(run).into_iter().collect::<BTreeSet<_>>() {
                groups.entry(name).or_default().push(run);
            }
        }
        groups.into_iter().map(|(name, runs)| tally(name, &runs)).collect::<Vec<_>>()
    };
    let span = |score: u8| SPANS.iter().find(|(least, most)| (*least..=*most).contains(&score));
    Statistics {
        runs: all.runs,
        successes: all.successes,
        success_rate: all.success_rate,
        mean_score: all.mean_score,
        verdicts: counts(runs.iter().map(|run| run.run.verdict.map_or("none", Verdict::name).to_owned())),
        failure_modes: counts(runs.iter().filter_map(|run| failure_mode(&run.run)).map(str::to_owned)),
        scores: counts(runs.iter().filter_map(|run| span(run.score?)).map(|(least, most)| {
            match least == most {
                true => least.to_string(),
                false => format!("{least}-{most}"),
            }
        })),
        experiments: by(&|run| vec![run.run.experiment_name.clone()]),
        faults: faults(runs),
        // One after the other they may be of different experiments.
        days: by(&|run| run.run.started_at.get(..10).map(str::to_owned).into_iter().collect())
            .into_iter()
            .map(|day| Tally { previous_score: None, ..day })
            .collect(),
        flaky: flaky(runs),
    }
}

fn faults(runs: &[Summary]) -> Vec<FaultTally> {
    let types: BTreeSet<_> = runs.iter().flat_map(|run| &run.fault_types).collect();
    let tally = |kind: &String| {
        let fates: Vec<_> =
            runs.iter().flat_map(|run| &run.fates).filter(|(other, _)| other == kind).collect();
        let count = |is: fn(&Fate) -> bool| fates.iter().filter(|(_, fate)| is(fate)).count();
        let successes = count(|fate| fate.injected && fate.effective && fate.removed_clean);
        FaultTally {
            name: kind.clone(),
            runs: runs.iter().filter(|run| run.fault_types.contains(kind)).count() as u64,
            asked: fates.len() as u64,
            injected: count(|fate| fate.injected) as u64,
            effective: count(|fate| fate.effective) as u64,
            removed_clean: count(|fate| fate.removed_clean) as u64,
            successes: successes as u64,
            success_rate: share(successes, fates.len()),
        }
    };
    types.into_iter().map(tally).collect()
}

fn tally(name: String, runs: &[&Summary]) -> Tally {
    let successes = runs.iter().filter(|run| run.run.success).count();
    let unverified = runs.iter().filter(|run| run.run.verdict == Some(Verdict::Unverified)).count();
    let mut scored: Vec<_> = runs.iter().filter_map(|run| Some((&run.run.started_at, run.score?))).collect();
    scored.sort_by_key(|(began, _)| *began);
    let scores: Vec<_> = scored.into_iter().map(|(_, score)| score).collect();
    Tally {
        name,
        runs: runs.len() as u64,
        successes: successes as u64,
        success_rate: share(successes, runs.len() - unverified),
        mean_score: (!scores.is_empty())
            .then(|| scores.iter().map(|score| f64::from(*score)).sum::<f64>() / scores.len() as f64),
        latest_score: scores.last().copied(),
        previous_score: scores.iter().rev().nth(1).copied(),
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How often each name comes, the most frequent first.
fn counts(names: impl Iterator<Item = String>) -> Vec<Count> {
    let mut counts = BTreeMap::<String, u64>::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().map(|(name, runs)| Count { name, runs }).collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.runs));
    counts
}

/// What failed first, in a word; none for a success.
pub fn failure_mode(run: &ExperimentResult) -> Option<&'static str> {
    match (run.success, run.failure_mode) {
        (true, _) => None,
        (false, Some(mode)) => Some(mode.name()),
        (false, None) => Some(by_words(run)),
    }
}

/// The same of a run of before it was recorded, by the words of its error.
fn by_words(run: &ExperimentResult) -> &'static str {
    let error = run.error.as_deref().unwrap_or_default();
    match run.verdict {
        Some(Verdict::Refused) => "not_steady_before",
        Some(Verdict::Tripped) => "gate_breached",
        Some(Verdict::Aborted) => "aborted",
        Some(Verdict::Interrupted) => "interrupted",
        Some(Verdict::Unverified) => "not_verified",
        Some(Verdict::Deviated) if error.contains("steady state not met during the action") => {
            "not_steady_during"
        }
        Some(Verdict::Deviated) if error.starts_with("P1: ") || error.starts_with("P2: ") => "alert",
        Some(Verdict::Deviated) if error.contains("not recovered within") => "not_recovered",
        Some(Verdict::Deviated) => "not_steady_after",
        Some(Verdict::Failed) if error.starts_with("injecting failed") => "injection_failed",
        Some(Verdict::Failed) if error.starts_with("the fault ended before its time") => "fault_ended_early",
        Some(Verdict::Failed) if error.contains("it cannot be judged") => "probe_broken",
        Some(Verdict::Failed) if error.contains("rollback failed") => "rollback_failed",
        Some(Verdict::Failed | Verdict::Held) | None => "other",
    }
}

/// Documents of which some runs held and some did not.
fn flaky(runs: &[Summary]) -> Vec<Flaky> {
    let mut documents = BTreeMap::<&str, Flaky>::new();
    for run in runs {
        let Some(digest) = &run.digest else { continue };
        let found = documents.entry(digest).or_insert_with(|| Flaky {
            experiment_name: run.run.experiment_name.clone(),
            digest: digest.clone(),
            held: 0,
            deviated: 0,
            fault_types: run.fault_types.clone(),
        });
        match run.run.verdict {
            Some(Verdict::Held) => found.held += 1,
            Some(Verdict::Deviated | Verdict::Tripped) => found.deviated += 1,
            _ => {}
        }
    }
    documents.into_values().filter(|document| document.held > 0 && document.deviated > 0).collect()
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
