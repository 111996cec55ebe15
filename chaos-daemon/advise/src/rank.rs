//! Services in order.

use crate::reasons::reasons;
use crate::{Reason, Service, Trial};

/// What is told of one service.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Name of the service.
    pub service: String,
    /// What all reasons are worth together.
    pub points: f64,
    /// Why, the one that is worth most first.
    pub reasons: Vec<Reason>,
    /// What could be tried, what answers the first reason first.
    pub trials: Vec<Trial>,
}

/// The services, the one that deserves chaos most first; of two that deserve it alike, by name.
pub fn rank(services: &[Service]) -> Vec<Advice> {
    let mut all: Vec<_> = services.iter().map(advice).collect();
    all.sort_by(|one, other| {
        other.points.total_cmp(&one.points).then_with(|| one.service.cmp(&other.service))
    });
    all
}

fn advice(service: &Service) -> Advice {
    let reasons = reasons(service);
    let points: f64 = reasons.iter().map(|reason| reason.points).sum();
    let mut trials = Vec::<Trial>::new();
    for trial in reasons.iter().flat_map(|reason| &reason.trials) {
        if !trials.contains(trial) {
            trials.push(trial.clone());
        }
    }
    Advice { service: service.name.clone(), points: (points * 100.0).round() / 100.0, reasons, trials }
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
