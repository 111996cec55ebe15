//! Tests of what is said beforehand.

use serde_json::{Value, json};

use super::*;
use crate::experiment::variables::Nowhere;

/// What is said of each fault of a method of these.
fn said(faults: &[Value]) -> Vec<Option<String>> {
    let action = |(number, arguments): (usize, &Value)| {
        json!({"type": "action", "name": format!("action {number}"),
            "provider": {"type": "process", "path": "chaosctl", "arguments": arguments}})
    };
    let method: Vec<_> = faults.iter().enumerate().map(action).collect();
    let probe = json!({"type": "probe", "name": "up", "tolerance": 0, "provider":
        {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:5432"]}});
    let document = json!({"title": "several", "method": method,
        "steady-state-hypothesis": {"title": "up", "probes": [probe]}});
    let experiment = Experiment::parse(document.as_object().unwrap(), &Nowhere).unwrap();
    experiment.faults().map(|(index, _, fault)| later(&experiment, index, fault)).collect()
}

#[test]
fn of_processes_that_an_earlier_action_ends_the_plan_says_that_it_cannot_know_them() {
    let kill = json!({"inject": "process_kill", "--unit": "a.service"});
    let cut = json!({"inject": "timeout", "--interface": "eth0"});
    let pause = json!({"inject": "process_pause", "--unit": "a.service"});
    assert_eq!(said(&[cut.clone(), pause.clone()]), [None, None]);
    let said = said(&[pause.clone(), kill, cut, pause]);
    assert_eq!(said[..3], [None, None, None]);
    let told = said[3].as_deref().unwrap();
    assert!(told.contains("\"action 1\" comes before it and ends some"), "{told}");
}
