//! The operator's limits of this host as gates of a run, beside those of its document and whatever that says.

use std::time::Duration;

use super::document::Experiment;
use super::gate::{Gate, Op, PREFIX, Rule, is_of_the_host};
use super::tolerance::Form;
use crate::policy::HOST_LIMITS as TABLE;
use crate::probe::host::Number;
use crate::probe::pressure::Gauge;
use crate::probe::{Bounds, Check, Probe};
use crate::spec::SpecError;
use crate::spec::host_limits::{HostLimits, Limited};

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
    let gates = experiment.guardrails.gates.iter().filter(|gate| is_of_the_host(&gate.name));
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
#[path = "host_limits_tests.rs"]
mod tests;
