//! The operator's limits of this host as gates of a run, beside those of its document and whatever that says.

use std::time::Duration;

use super::document::Experiment;
use super::gate::{Gate, Op, Rule};
use super::tolerance::Form;
use crate::probe::host::Number;
use crate::probe::pressure::Gauge;
use crate::probe::{Bounds, Check, Probe};
use crate::spec::SpecError;
use crate::spec::host_limits::{HostLimits, Limited};

/// What the names of these gates begin with, and those of no document.
pub(super) const PREFIX: &str = "policy:";
/// The table of the policy that has the limits.
const TABLE: &str = "experiments.host_limits";
/// How often each is sampled; also how long a sample may take.
const INTERVAL: Duration = Duration::from_secs(1);

/// The experiment with a gate more for each limit.
///
/// # Errors
/// When a limit is of what cannot be sampled.
pub fn within(experiment: &Experiment, limits: &HostLimits) -> Result<Experiment, SpecError> {
    let mut experiment = experiment.clone();
    for (what, percent) in limits.all() {
        experiment.guardrails.gates.push(gate(what, percent, Duration::from_secs(limits.for_seconds))?);
    }
    Ok(experiment)
}

/// The limits that [`within`] has added, a line each.
pub fn told(experiment: &Experiment) -> Vec<String> {
    let gates = experiment.guardrails.gates.iter().filter(|gate| is_one(&gate.name));
    gates
        .map(|gate| match &gate.rule {
            Rule::Compare { op, value, .. } => {
                let lasting = if gate.alert_after.is_zero() {
                    String::new()
                } else {
                    format!(" for {:?}", gate.alert_after)
                };
                format!("{}: {} {op} {value}{lasting}", gate.name, gate.probe.check)
            }
            Rule::Tolerance(_) => gate.name.clone(),
        })
        .collect()
}

/// Whether a gate of this name is a limit of the host.
pub fn is_one(gate: &str) -> bool {
    gate.starts_with(PREFIX)
}

fn gate(what: Limited<'_>, percent: u8, alert_after: Duration) -> Result<Gate, SpecError> {
    let number = |metric, path| Number::parse(metric, path, None).map(Check::Host);
    let check = match what {
        Limited::Memory => number("memory_used_percent", None),
        Limited::Cpu => number("cpu_busy_percent", None),
        Limited::Pressure(resource) => Gauge::parse(resource, None, None).map(Check::Pressure),
        Limited::Disk(path) => number("disk_used_percent", Some(path)),
    };
    let name = format!("{TABLE}.{what}");
    let check = check.map_err(|error| SpecError::new(&name, error.to_string()))?;
    Ok(Gate {
        name: format!("{PREFIX}{name}"),
        probe: Probe { check, timeout: INTERVAL, bounds: Bounds::default() },
        form: Form::Process,
        rule: Rule::Compare { op: Op::Gt, value: f64::from(percent), lookback: Duration::ZERO },
        alert_after,
        interval: INTERVAL,
        no_data_is_breach: true,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::native;
    use crate::experiment::variables::Nowhere;
    use crate::probe::Sample;

    fn experiment(gates: serde_json::Value) -> Result<Experiment, SpecError> {
        let process = |arguments: serde_json::Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
        let document = json!({
            "title": "cut",
            "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "port", "tolerance": 0,
                "provider": process(json!(["probe", "tcp", "127.0.0.1:5432"]))}]},
            "method": [{"type": "action", "name": "cut",
                "provider": process(json!(["inject", "network-partition", "--interface", "eth0"]))}],
            "extensions": [{"name": "chaos-daemon", "rollback_on": gates}],
        });
        Experiment::parse(document.as_object().unwrap(), native, &Nowhere)
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
                "policy:experiments.host_limits.memory_percent: host memory_used_percent > 80 for 10s",
                "policy:experiments.host_limits.cpu_percent: host cpu_busy_percent > 90 for 10s",
                "policy:experiments.host_limits.pressure_percent.io: some pressure of io, avg10 > 5 for 10s",
                "policy:experiments.host_limits.pressure_percent.irq: full pressure of irq, avg10 > 6 for 10s",
                "policy:experiments.host_limits.disk_percent.\"/var\": host disk_used_percent of /var > 95 for 10s",
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
        assert!(beyond.contains("policy:experiments.host_limits.memory_percent: 80.100 > 80"), "{beyond}");
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
        let refused = experiment(gate("policy:experiments.host_limits.memory_percent")).unwrap_err();
        assert_eq!(refused.field, "extensions[0].rollback_on[0].name", "{refused}");
    }
}
