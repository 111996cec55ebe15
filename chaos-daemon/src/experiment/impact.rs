//! Who would be affected by a fault of an experiment, and how badly: for its plan.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::request::TargetsReport;
use crate::spec::blast::{Of, Severity, percent};
use crate::spec::{FaultRequest, SpecError};

/// Who would be affected by a fault, and how badly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Impact {
    /// Type of the fault.
    pub fault_type: String,
    /// What its target names.
    pub targets: Vec<String>,
    /// What the share is of: "processes", "packets", "calls", or "everything" that uses the target.
    #[schemars(with = "String")]
    pub of: Of,
    /// How many processes would be hit.
    #[schemars(with = "usize")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// How many processes match, and may be a target.
    #[schemars(with = "usize")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<usize>,
    /// What share of what matches would be affected, as a fraction; of processes, of those that there are now.
    pub share: f64,
    /// How badly: "degraded" (slower, but served), "partial" (some of it fails) or "outage" (gone, stopped, cut off).
    #[schemars(with = "String")]
    pub severity: Severity,
}

impl Impact {
    /// That of a fault; `targets` are the processes that it would hit, if it goes to processes.
    ///
    /// # Errors
    /// When the fault makes no sense.
    pub fn of(fault: &FaultRequest, targets: Option<&TargetsReport>) -> Result<Self, SpecError> {
        let blast = fault.parse()?.effect.blast();
        let found = targets.filter(|_| blast.of == Of::Processes);
        Ok(Self {
            fault_type: fault.fault_type.name().to_owned(),
            targets: fault.target.names(),
            of: blast.of,
            count: found.map(|found| found.hit),
            matching: found.map(|found| found.matching),
            share: found.map_or(blast.share, |found| found.share),
            severity: blast.severity,
        })
    }
}

impl fmt::Display for Impact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = percent(self.share);
        write!(f, "{} of {}: ", self.fault_type, self.targets.join(", "))?;
        match (self.count, self.matching) {
            (Some(count), Some(matching)) => {
                write!(f, "{count} of {matching} matching processes ({percent} %)")?;
            }
            _ if self.of == Of::Everything => write!(f, "everything that uses it")?,
            _ => write!(f, "{percent} % of the matching {}", self.of.name())?,
        }
        write!(f, ": {}", self.severity.name())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_impact_says_who_and_how_badly() {
        let impact = |kind: &str, target: &str, targets| {
            let target: serde_json::Value = serde_json::from_str(target).unwrap();
            let fault = json!({"fault_type": kind, "probability": 1.0, "target": target});
            Impact::of(&serde_json::from_value(fault).unwrap(), targets).unwrap().to_string()
        };
        // What there is counts, not what was asked for: a quarter of two is one.
        let found = TargetsReport { matching: 2, hit: 1, share: 0.5, ..TargetsReport::default() };
        let kill = impact("process_kill", r#"{"unit": "a.service", "share": 0.25}"#, Some(&found));
        assert_eq!(kill, "process_kill of unit a.service: 1 of 2 matching processes (50 %): outage");
        let slow = impact("latency", r#"{"interface": "eth0"}"#, None);
        assert_eq!(slow, "latency of interface eth0: 100 % of the matching packets: degraded");
        let down = impact("link_down", r#"{"interface": "eth0"}"#, None);
        assert_eq!(down, "link_down of interface eth0: everything that uses it: outage");
        assert_eq!(
            impact("resource_exhaustion", "{}", None),
            "resource_exhaustion of this host: everything that uses it: degraded"
        );
    }
}
