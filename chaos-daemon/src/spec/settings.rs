//! Faults that change a setting of the node: limits of a cgroup, a pause, an interface down, a clock that is wrong.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::target::{TargetRequest, interface_name};
use super::units::SpecError;

/// The resources that `resource_exhaustion` knows, in the order in which they are named to callers.
pub const RESOURCES: &[&str] = &["cpu", "cpu_limit", "memory_limit", "pids_limit", "io_limit"];

/// The least and the largest step of the clock, in seconds: less than the least could be mistaken for the work of a time
/// service, and more than a day shows nothing that a day does not.
pub const CLOCK_SKEW: (f64, f64) = (1.0, 86_400.0);

/// Which control group, as a caller names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupSelector {
    /// By its path below the mount of cgroup v2.
    Path(String),
    /// The one of a unit of the system's service manager.
    Unit(String),
}

/// What a control group is limited to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Limit {
    /// Processor time (`cpu.max`).
    Cpu {
        /// Percentage of one processor.
        percent: f64,
    },
    /// Memory above which it is throttled and its pages are taken back (`memory.high`).
    Memory {
        /// Bytes.
        bytes: u64,
    },
    /// Processes and threads (`pids.max`).
    Pids {
        /// How many.
        most: u32,
    },
    /// Reading from, and writing to, a block device (`io.max`).
    Io {
        /// Device number as `MAJOR:MINOR`, or the name of a block device such as `sda`.
        device: String,
        /// Bytes per second, each way.
        bytes_per_second: u64,
    },
}

/// What `resource_exhaustion` takes in `params`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExhaustionParams {
    pub(super) resource: Option<String>,
    pub(super) cpu_percent: Option<f64>,
    pub(super) cores: Option<u32>,
    memory_mb: Option<f64>,
    pids: Option<u32>,
    device: Option<String>,
    bytes_per_second: Option<u64>,
}

/// What `clock_skew` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClockParams {
    offset_seconds: f64,
}

/// `params` of a type that takes none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParams {}

impl ExhaustionParams {
    /// The limit that is asked for; `None` when processor time is to be burned.
    pub(super) fn limit(&self) -> Result<Option<Limit>, SpecError> {
        let resource = self.resource.as_deref().unwrap_or("cpu");
        self.only_fitting(resource)?;
        Ok(Some(match resource {
            "cpu" => return Ok(None),
            "cpu_limit" => {
                let percent = need("params.cpu_percent", self.cpu_percent, "percent of one processor")?;
                Limit::Cpu { percent: within("params.cpu_percent", percent, 1.0, 100_000.0)? }
            }
            "memory_limit" => {
                let megabytes =
                    need("params.memory_mb", self.memory_mb, "MiB, more than the target cannot do without")?;
                let megabytes = within("params.memory_mb", megabytes, 1.0, 16_777_216.0)?;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "bounded just before"
                )]
                let bytes = (megabytes * 1_048_576.0) as u64;
                Limit::Memory { bytes }
            }
            "pids_limit" => {
                let most = need("params.pids", self.pids, "how many processes and threads")?;
                if !(1..=4_194_304).contains(&most) {
                    return Err(SpecError::new("params.pids", "give 1 to 4194304"));
                }
                Limit::Pids { most }
            }
            "io_limit" => {
                let device =
                    need("params.device", self.device.clone(), "a block device, e.g. \"sda\" or \"8:0\"")?;
                let rate =
                    need("params.bytes_per_second", self.bytes_per_second, "bytes per second, each way")?;
                if !(1024..=1 << 50).contains(&rate) {
                    return Err(SpecError::new("params.bytes_per_second", "give 1024 or more"));
                }
                Limit::Io { device, bytes_per_second: rate }
            }
            other => {
                let known = RESOURCES.join(", ");
                return Err(SpecError::new(
                    "params.resource",
                    format!("{other:?} is not known: give one of {known}"),
                ));
            }
        }))
    }

    /// A parameter that means nothing for this resource is a mistake, not an extra.
    fn only_fitting(&self, resource: &str) -> Result<(), SpecError> {
        for (name, given, resources) in [
            ("cpu_percent", self.cpu_percent.is_some(), &["cpu", "cpu_limit"][..]),
            ("cores", self.cores.is_some(), &["cpu"]),
            ("memory_mb", self.memory_mb.is_some(), &["memory_limit"]),
            ("pids", self.pids.is_some(), &["pids_limit"]),
            ("device", self.device.is_some(), &["io_limit"]),
            ("bytes_per_second", self.bytes_per_second.is_some(), &["io_limit"]),
        ] {
            if given && RESOURCES.contains(&resource) && !resources.contains(&resource) {
                let problem = format!("belongs to resource {}, not to {resource:?}", resources.join(" and "));
                return Err(SpecError::new(format!("params.{name}"), problem));
            }
        }
        Ok(())
    }
}

impl ClockParams {
    /// The step in nanoseconds, forwards or back.
    pub(super) fn offset_ns(&self) -> Result<i64, SpecError> {
        within("params.offset_seconds", self.offset_seconds.abs(), CLOCK_SKEW.0, CLOCK_SKEW.1)?;
        #[expect(clippy::cast_possible_truncation, reason = "bounded just before")]
        let nanoseconds = (self.offset_seconds * 1e9) as i64;
        Ok(nanoseconds)
    }
}

/// The control group that a target names, and nothing beside it.
pub(super) fn cgroup(target: &TargetRequest) -> Result<CgroupSelector, SpecError> {
    let alone = TargetRequest { cgroup: None, unit: None, ..target.clone() };
    if alone != TargetRequest::default() {
        let problem = "this fault goes to a cgroup: give target.cgroup or target.unit, and nothing else";
        return Err(SpecError::new("target", problem));
    }
    cgroup_named(target)
}

/// The control group that a target names, whatever is beside it.
pub(super) fn cgroup_named(target: &TargetRequest) -> Result<CgroupSelector, SpecError> {
    match (&target.cgroup, &target.unit) {
        (Some(path), None) => Ok(CgroupSelector::Path(path.clone())),
        (None, Some(unit)) => unit_name(unit),
        (Some(_), Some(_)) => {
            Err(SpecError::new("target.cgroup", "give target.cgroup or target.unit, not both"))
        }
        (None, None) => Err(SpecError::new(
            "target.cgroup",
            "missing: name a cgroup by its path, or a unit by target.unit",
        )),
    }
}

fn unit_name(unit: &str) -> Result<CgroupSelector, SpecError> {
    let kinds = [".service", ".scope", ".slice"];
    if unit.contains('/') || !kinds.iter().any(|kind| unit.len() > kind.len() && unit.ends_with(kind)) {
        let problem = format!("{unit:?} is not a unit with processes: give e.g. \"payment.service\"");
        return Err(SpecError::new("target.unit", problem));
    }
    Ok(CgroupSelector::Unit(unit.to_owned()))
}

/// The interface that a target names, with its namespace, and nothing beside them.
pub(super) fn link(target: &TargetRequest) -> Result<(String, Option<String>), SpecError> {
    let alone = TargetRequest { interface: None, netns: None, ..target.clone() };
    if alone != TargetRequest::default() {
        return Err(SpecError::new(
            "target",
            "an interface goes down for everybody: give interface and netns only",
        ));
    }
    Ok((interface_name(target)?, target.netns.clone()))
}

/// No target at all.
pub(super) fn nowhere(target: &TargetRequest, why: &str) -> Result<(), SpecError> {
    match *target == TargetRequest::default() {
        true => Ok(()),
        false => Err(SpecError::new("target", format!("{why}: leave the target out"))),
    }
}

fn need<T>(field: &str, value: Option<T>, what: &str) -> Result<T, SpecError> {
    value.ok_or_else(|| SpecError::new(field, format!("missing: give {what}")))
}

fn within(field: &str, value: f64, least: f64, most: f64) -> Result<f64, SpecError> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(SpecError::new(field, format!("{value} is out of bounds: give {least} to {most}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limit(params: serde_json::Value) -> Result<Option<Limit>, SpecError> {
        serde_json::from_value::<ExhaustionParams>(params).unwrap().limit()
    }

    #[test]
    fn every_resource_has_its_own_parameters_and_takes_no_other() {
        assert_eq!(limit(json!({})).unwrap(), None);
        assert_eq!(
            limit(json!({"resource": "cpu_limit", "cpu_percent": 20})).unwrap(),
            Some(Limit::Cpu { percent: 20.0 })
        );
        let memory = limit(json!({"resource": "memory_limit", "memory_mb": 1.5})).unwrap();
        assert_eq!(memory, Some(Limit::Memory { bytes: 1_572_864 }));
        assert_eq!(
            limit(json!({"resource": "pids_limit", "pids": 5})).unwrap(),
            Some(Limit::Pids { most: 5 })
        );
        for (params, field) in [
            (json!({"resource": "pids_limit"}), "params.pids"),
            (json!({"resource": "pids_limit", "pids": 5, "memory_mb": 1}), "params.memory_mb"),
            (json!({"resource": "cpu_limit", "cpu_percent": 0}), "params.cpu_percent"),
            (json!({"resource": "io_limit", "device": "sda"}), "params.bytes_per_second"),
            (json!({"resource": "files"}), "params.resource"),
            (json!({"pids": 5}), "params.pids"),
        ] {
            assert_eq!(limit(params.clone()).unwrap_err().field, field, "{params}");
        }
    }

    #[test]
    fn a_clock_goes_wrong_by_a_second_to_a_day_either_way() {
        let offset = |offset_seconds| ClockParams { offset_seconds }.offset_ns();
        assert_eq!(offset(-3600.0).unwrap(), -3_600_000_000_000);
        for bad in [0.0, 0.5, -0.5, 86_401.0, f64::NAN] {
            assert!(offset(bad).is_err(), "{bad} was accepted");
        }
    }

    #[test]
    fn a_cgroup_is_named_once_and_alone() {
        let target = |json| serde_json::from_value::<TargetRequest>(json).unwrap();
        let unit = cgroup(&target(json!({"unit": "a.service"}))).unwrap();
        assert_eq!(unit, CgroupSelector::Unit("a.service".into()));
        for bad in [
            json!({}),
            json!({"unit": "a.service", "cgroup": "b"}),
            json!({"unit": "a"}),
            json!({"unit": "../a.service"}),
            json!({"unit": "a.service", "interface": "eth0"}),
        ] {
            assert!(cgroup(&target(bad.clone())).is_err(), "{bad} was accepted");
        }
    }
}
