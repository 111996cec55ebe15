//! Tests of what is said of samples without data.

use super::super::role::Stage;
use super::*;

fn sample(probe: &str, role: Role, no_data: bool) -> Reading {
    Reading {
        at_seconds: 1.0,
        time: String::new(),
        probe: probe.into(),
        role,
        stage: Stage::During,
        met: true,
        value: None,
        took_seconds: 0.1,
        late_seconds: None,
        no_data,
        detail: String::new(),
    }
}

#[test]
fn samples_without_data_are_counted_of_each_gate_that_had_some() {
    let samples = [
        sample("p95", Role::Gate, true),
        sample("up", Role::Gate, false),
        sample("p95", Role::Gate, false),
        sample("rate", Role::Gate, true),
        sample("rate", Role::Gate, true),
        sample("health", Role::SteadyState, false),
    ];
    let told: Vec<_> = blind(&samples).iter().map(ToString::to_string).collect();
    let expected = [
        "gate p95 had no data in 1 of 2 samples",
        "gate rate never had data in 2 samples: it has watched nothing",
    ];
    assert_eq!(told, expected);
    assert!(blind(&samples[1..2]).is_empty());
}
