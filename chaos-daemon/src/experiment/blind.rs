//! Samples of gates that came without data: how many, of which gate. Such a sample says nothing, and a gate that has had no other has
//! watched nothing.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::role::Role;
use super::timeline::Reading;

/// A gate that has had samples without data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blind {
    /// Its name.
    pub gate: String,
    /// How many samples of it are recorded.
    pub samples: u64,
    /// How many of them had no data.
    pub without_data: u64,
}

impl Blind {
    /// Whether it has never had any.
    pub fn is_wholly(&self) -> bool {
        self.samples == self.without_data
    }
}

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, samples, without_data } = self;
        match self.is_wholly() {
            true => write!(f, "gate {gate} never had data in {samples} samples: it has watched nothing"),
            false => write!(f, "gate {gate} had no data in {without_data} of {samples} samples"),
        }
    }
}

/// The gates that have had samples without data, in the order of their first.
pub fn blind(samples: &[Reading]) -> Vec<Blind> {
    let mut gates: Vec<Blind> = Vec::new();
    for sample in samples.iter().filter(|sample| sample.role == Role::Gate) {
        let without_data = u64::from(sample.no_data);
        match gates.iter_mut().find(|gate| gate.gate == sample.probe) {
            Some(gate) => {
                gate.samples += 1;
                gate.without_data += without_data;
            }
            None => gates.push(Blind { gate: sample.probe.clone(), samples: 1, without_data }),
        }
    }
    gates.retain(|gate| gate.without_data > 0);
    gates
}

#[cfg(test)]
#[path = "blind_tests.rs"]
mod tests;
