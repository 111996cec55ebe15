//! What the limits of a host are as gates.

use serde_json::json;

use super::*;
use crate::experiment::variables::Nowhere;
use crate::probe::Sample;

fn experiment(gates: serde_json::Value) -> Result<Experiment, SpecError> {
    let process =
        |arguments: serde_json::Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let document = json!({
        "title": "cut",
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "port", "tolerance": 0,
            "provider": process(json!(["probe", "tcp", "127.0.0.1:5432"]))}]},
        "method": [{"type": "action", "name": "cut",
            "provider": process(json!(["inject", "network-partition", "--interface", "eth0"]))}],
        "extensions": [{"name": "chaos-daemon", "rollback_on": gates}],
    });
    Experiment::parse(document.as_object().unwrap(), &Nowhere)
}

#[test]
fn each_limit_is_a_gate_more_that_its_name_tells_from_those_of_the_document() {
    let limits: HostLimits = toml::from_str(
        "memory_percent = 80\ncpu_percent = 90\npressure_percent = { io = 5, irq = 6 }\n\
         disk_percent = { \"/var\" = 95 }\nfor_seconds = 10",
    )
    .unwrap();
    let plain = experiment(json!([])).unwrap();
    assert!(told(&plain).is_empty());
    let limited = within(&plain, &limits).unwrap();
    assert_eq!(
        told(&limited),
        [
            "policy:host_limits.memory_percent: host memory_used_percent > 80 for 10s",
            "policy:host_limits.cpu_percent: host cpu_busy_percent > 90 for 10s",
            "policy:host_limits.pressure_percent.io: some pressure of io, avg10 > 5 for 10s",
            "policy:host_limits.pressure_percent.irq: full pressure of irq, avg10 > 6 for 10s",
            "policy:host_limits.disk_percent.\"/var\": host disk_used_percent of /var > 95 for 10s",
        ]
    );
    // All else is as it was, and without limits everything is.
    assert_eq!(within(&plain, &HostLimits::default()).unwrap(), plain);
    assert!(limited.guardrails.gates.iter().all(|gate| gate.probe.fits("interval").is_ok()));
}

#[test]
fn a_limit_may_be_reached_and_not_exceeded_and_what_cannot_be_seen_exceeds_it() {
    let gate = gate(Limited::Memory, 80, Duration::ZERO).unwrap();
    let used = |value| Sample { ok: true, value: Some(value), ..Sample::failed("used".to_owned()) };
    assert_eq!(gate.judge(&used(80.0)), Ok(()));
    let beyond = gate.judge(&used(80.1)).unwrap_err();
    assert!(beyond.contains("policy:host_limits.memory_percent: 80.100 > 80"), "{beyond}");
    let unseen = gate.judge(&Sample::failed("reading /proc/meminfo: gone".to_owned())).unwrap_err();
    assert!(unseen.contains("no data: reading /proc/meminfo"), "{unseen}");
    assert!(gate.needs_data());
}

#[test]
fn no_gate_of_a_document_passes_for_a_limit_of_the_policy() {
    let gate = |name: &str| {
        json!([{"name": name, "op": "gt", "value": 1,
            "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "host", "load1"]}}])
    };
    assert!(experiment(gate("policy")).is_ok());
    let refused = experiment(gate("policy:host_limits.memory_percent")).unwrap_err();
    assert_eq!(refused.field, "extensions[0].rollback_on[0].name", "{refused}");
}
