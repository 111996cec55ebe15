//! The resiliency score of a run, as Litmus has it: what share of the probes passed, weighed by fault,
//! <https://docs.litmuschaos.io/docs/concepts/resilience-score>.
//!
//! Sum of (weight × probe success percent) over the sum of the weights, without what is behind the point. A fault that was
//! not injected adds nothing to the first sum, and its weight to the second. All probes of a run are those of each of its faults.
//!
//! Beside it the score by severity, as krkn has it: what share of the points its probes kept,
//! <https://github.com/krkn-chaos/krkn/blob/673897815fdd1f4d0f623b66ac4069ffc34ec3c9/krkn/resiliency/score.py>.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Recorded;
use crate::experiment::Verdict;
use crate::experiment::gate::is_of_the_host;
use crate::experiment::role::{Role, Stage};
use crate::experiment::severity::Severity;
use crate::experiment::timeline::{Kind, Reading};

/// What one fault adds to a score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Factor {
    /// Name of the fault.
    pub fault: String,
    /// Its type.
    pub fault_type: String,
    /// Its weight, from 0 to 10.
    pub weight: u8,
    /// Whether it was injected.
    pub ran: bool,
    /// What percentage of the probes passed; 0 when it was not injected.
    pub probe_success_percent: f64,
}

/// Whether a probe of the steady state, or a gate, passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeResult {
    /// Its name in the document.
    pub probe: String,
    /// What it was for: steady_state, gate.
    #[schemars(with = "String")]
    pub role: Role,
    /// A probe of the steady state: met before, at the end, and in between, whenever it was sampled. A gate: not breached.
    pub passed: bool,
    /// How many samples of it were met.
    pub met: u64,
    /// How many were taken, as far as they are kept.
    pub samples: u64,
    /// How severe it is that it does not pass, as the document has it: critical, warning; of a gate, warning.
    #[schemars(with = "String")]
    pub severity: Severity,
}

/// What share of the points its probes kept: a critical one counts for 3, any other for 1, and one that was never sampled for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeverityScore {
    /// From 0 to 100; 0 when there are no points.
    pub score: u8,
    /// All points.
    pub total: u64,
    /// Those of the probes that did not pass.
    pub lost: u64,
    /// How many probes passed.
    pub passed: u64,
    /// How many did not.
    pub failed: u64,
}

/// A score, and what it is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// From 0 to 100.
    pub score: u8,
    /// What each fault adds.
    pub factors: Vec<Factor>,
    /// Which probes passed.
    pub probes: Vec<ProbeResult>,
    /// What that is by severity.
    pub severity_score: SeverityScore,
}

/// The score of a run; none when it is not known what happened in it, or what became of the steady state.
pub fn score(recorded: &Recorded) -> Option<Score> {
    let is_known = !matches!(recorded.run.verdict, Some(Verdict::Unverified | Verdict::Interrupted));
    if recorded.events.is_empty() || recorded.faults.is_empty() || !is_known {
        return None;
    }
    let probes = probes(recorded);
    let passed = probes.iter().filter(|probe| probe.passed).count();
    let percent = if probes.is_empty() { 0.0 } else { 100.0 * passed as f64 / probes.len() as f64 };
    let injected = |name: &str| {
        recorded.events.iter().any(|event| event.kind == Kind::Injected && event.subject == name)
    };
    let factors = recorded.faults.iter().map(|fault| {
        let ran = injected(&fault.name);
        Factor {
            fault: fault.name.clone(),
            fault_type: fault.fault_type.clone(),
            weight: fault.weight,
            ran,
            probe_success_percent: if ran { percent } else { 0.0 },
        }
    });
    let factors: Vec<_> = factors.collect();
    let score = weighed(&factors);
    let severity_score = by_severity(&probes);
    Some(Score { score, factors, probes, severity_score })
}

/// krkn's formula.
fn by_severity(probes: &[ProbeResult]) -> SeverityScore {
    let points = |probe: &ProbeResult| match probe.severity {
        Severity::Critical => 3,
        Severity::Warning => 1,
    };
    let (passed, failed): (Vec<_>, Vec<_>) = probes.iter().partition(|probe| probe.passed);
    let total = probes.iter().map(points).sum();
    let lost = failed.iter().map(|probe| points(probe)).sum();
    // In this order, and cut off, as krkn does: 29 of 100 are 28.
    let score = if total == 0 { 0 } else { ((total - lost) as f64 / total as f64 * 100.0) as u8 };
    SeverityScore { score, total, lost, passed: passed.len() as u64, failed: failed.len() as u64 }
}

/// Litmus' formula.
fn weighed(factors: &[Factor]) -> u8 {
    let weights: f64 = factors.iter().map(|factor| f64::from(factor.weight)).sum();
    let sum: f64 = factors.iter().map(|factor| f64::from(factor.weight) * factor.probe_success_percent).sum();
    // From 0 to 100, and cut off, as Litmus does.
    if weights > 0.0 { (sum / weights) as u8 } else { 0 }
}

/// Which probes passed, by name. The limits of a host are none: they say nothing of the system, and would make one document's scores
/// differ from host to host.
fn probes(recorded: &Recorded) -> Vec<ProbeResult> {
    let counts = |sample: &&Reading| match sample.role {
        Role::SteadyState => true,
        Role::Gate => !is_of_the_host(&sample.probe),
        _ => false,
    };
    let mut samples = BTreeMap::<(Role, &str), Vec<&Reading>>::new();
    for sample in recorded.samples.iter().filter(counts) {
        samples.entry((sample.role, &sample.probe)).or_default().push(sample);
    }
    let breached =
        |gate: &str| recorded.events.iter().any(|event| event.kind == Kind::Breach && event.subject == gate);
    // Then what was not sampled at the end was not to be: its mode is another.
    let ended = recorded.run.verdict == Some(Verdict::Held);
    let ended = ended
        || samples.iter().any(|((role, _), samples)| {
            *role == Role::SteadyState && samples.iter().any(|sample| sample.stage == Stage::After)
        });
    let results = samples.into_iter().map(|((role, probe), samples)| {
        let met = samples.iter().filter(|sample| sample.met).count() as u64;
        let on_the_way = samples.iter().all(|sample| match (role, sample.stage) {
            // While recovery may take its time, only the last counts.
            (_, Stage::After) => true,
            // A gate may wait for more before it is breached.
            (Role::Gate, Stage::During) => true,
            _ => sample.met,
        });
        let passed = match role {
            Role::Gate => on_the_way && !breached(probe),
            _ => {
                let last = samples.iter().rfind(|sample| sample.stage == Stage::After);
                on_the_way && last.map_or(ended, |sample| sample.met)
            }
        };
        let severity = match (role, &recorded.document) {
            (Role::SteadyState, Some(document)) => Severity::of(document, probe),
            _ => Severity::default(),
        };
        ProbeResult { probe: probe.to_owned(), role, passed, met, samples: samples.len() as u64, severity }
    });
    results.collect()
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;
