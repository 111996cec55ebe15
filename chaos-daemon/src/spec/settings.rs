//! Faults that change a setting of the node: limits of a cgroup, a pause, an interface down, a clock that is wrong.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::process::{Whose, jitter};
use super::target::{TargetRequest, interface_name};
use super::units::{SpecError, millis};

/// The resources that `resource_exhaustion` knows, in the order in which they are named to callers.
pub const RESOURCES: &[&str] = &[
    "cpu",
    "memory",
    "disk_fill",
    "file_descriptors",
    "pids",
    "inodes",
    "ports",
    "disk_io",
    "cpu_limit",
    "memory_limit",
    "pids_limit",
    "io_limit",
];

/// The least and the largest step of the clock, in seconds: less than the least could be mistaken for the work of a time
/// service, and more than a day shows nothing that a day does not.
pub const CLOCK_SKEW: (f64, f64) = (1.0, 86_400.0);

/// The shortest and the longest part of a link's rhythm. Shorter than the first, and the kernel is not done with one change
/// when the next one comes.
const LINK_PHASE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(600));

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
        /// How fast it may still go.
        rates: IoRates,
    },
}

/// How fast a cgroup may read from, and write to, a block device. What is not said stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoRates {
    /// Bytes read per second.
    pub read_bps: Option<u64>,
    /// Bytes written per second.
    pub write_bps: Option<u64>,
    /// Reading operations per second.
    pub read_iops: Option<u64>,
    /// Writing operations per second.
    pub write_iops: Option<u64>,
}

/// The least and the most bytes per second that a block device can be limited to.
const IO_BYTES: (u64, u64) = (1024, 1 << 50);
/// Likewise of operations: the kernel counts them in 32 bits, of which the last number means that there is no limit.
const IO_OPERATIONS: (u64, u64) = (1, u32::MAX as u64 - 1);

impl Limit {
    /// The resource that callers name for it.
    pub fn resource(&self) -> &'static str {
        match self {
            Self::Cpu { .. } => "cpu_limit",
            Self::Memory { .. } => "memory_limit",
            Self::Pids { .. } => "pids_limit",
            Self::Io { .. } => "io_limit",
        }
    }
}

/// What `resource_exhaustion` takes in `params`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExhaustionParams {
    pub(super) resource: Option<String>,
    pub(super) cpu_percent: Option<f64>,
    pub(super) cores: Option<u32>,
    pub(super) processors: Option<String>,
    pub(super) memory_mb: Option<f64>,
    pub(super) memory_percent: Option<f64>,
    pub(super) reserve_mb: Option<f64>,
    pub(super) oom: Option<bool>,
    pub(super) ramp_seconds: Option<f64>,
    pids: Option<u32>,
    device: Option<String>,
    pub(super) bytes_per_second: Option<u64>,
    read_bps: Option<u64>,
    write_bps: Option<u64>,
    read_iops: Option<u64>,
    write_iops: Option<u64>,
    pub(super) path: Option<String>,
    pub(super) megabytes: Option<f64>,
    pub(super) percent: Option<f64>,
    pub(super) leave_free_mb: Option<f64>,
    pub(super) count: Option<u64>,
    pub(super) leave_free: Option<u64>,
    pub(super) address: Option<String>,
    pub(super) port_range: Option<String>,
    pub(super) size_mb: Option<f64>,
}

/// What `clock_skew` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClockParams {
    offset_seconds: f64,
}

/// How an interface goes down and up by turns. It begins with going down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRhythm {
    /// How long it is down.
    pub down: Duration,
    /// How long it is up in between.
    pub up: Duration,
    /// Uniform variation of both, either way.
    pub jitter: Duration,
    /// Of one seed, the same variation.
    pub seed: u64,
}

/// What `link_down` takes in `params`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkParams {
    down_ms: Option<f64>,
    up_ms: Option<f64>,
    jitter_ms: Option<f64>,
}

impl LinkParams {
    /// `None` when the interface is down all the time.
    pub(super) fn rhythm(&self, seed: Option<u64>) -> Result<Option<LinkRhythm>, SpecError> {
        let belongs = |field| SpecError::new(field, "belongs to down_ms and up_ms: give those as well");
        let phase = |field, value| millis(field, value, LINK_PHASE.0, LINK_PHASE.1);
        match (self.down_ms, self.up_ms) {
            (None, None) if self.jitter_ms.is_some() => Err(belongs("params.jitter_ms")),
            (None, None) if seed.is_some() => Err(belongs("target.seed")),
            (None, None) => Ok(None),
            (Some(_), None) => need("params.up_ms", None, "how long it is up in between"),
            (None, Some(_)) => need("params.down_ms", None, "how long it is down"),
            (Some(down), Some(up)) => {
                let (down, up) = (phase("params.down_ms", down)?, phase("params.up_ms", up)?);
                // No part may come out shorter than the shortest.
                let jitter = jitter(self.jitter_ms, down.min(up) - LINK_PHASE.0)?;
                Ok(Some(LinkRhythm { down, up, jitter, seed: seed.unwrap_or_default() }))
            }
        }
    }
}

/// `params` of a type that takes none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParams {}

impl ExhaustionParams {
    /// The resource that is named, with no parameter of another.
    pub(super) fn resource(&self) -> Result<&str, SpecError> {
        let resource = self.resource.as_deref().unwrap_or("cpu");
        if !RESOURCES.contains(&resource) {
            let problem = format!("{resource:?} is not known: give one of {}", RESOURCES.join(", "));
            return Err(SpecError::new("params.resource", problem));
        }
        self.only_fitting(resource)?;
        Ok(resource)
    }

    /// The limit that is asked for; `None` when something is to be used up instead.
    pub(super) fn limit(&self) -> Result<Option<Limit>, SpecError> {
        Ok(Some(match self.resource()? {
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
                Limit::Io { device, rates: self.rates()? }
            }
            _ => return Ok(None),
        }))
    }

    /// How fast a block device may still go: each way the same, or apart.
    fn rates(&self) -> Result<IoRates, SpecError> {
        let field = |name: &str| format!("params.{name}");
        let bounded = |name: &str, value: Option<u64>, (least, most): (u64, u64)| match value {
            Some(value) if !(least..=most).contains(&value) => {
                Err(SpecError::new(field(name), format!("{value} is out of bounds: give {least} to {most}")))
            }
            value => Ok(value),
        };
        let both = bounded("bytes_per_second", self.bytes_per_second, IO_BYTES)?;
        for (name, apart) in [("read_bps", self.read_bps), ("write_bps", self.write_bps)] {
            if both.is_some() && apart.is_some() {
                let problem = "bytes_per_second is each way: give that, or read_bps and write_bps";
                return Err(SpecError::new(field(name), problem));
            }
        }
        let rates = IoRates {
            read_bps: bounded("read_bps", self.read_bps, IO_BYTES)?.or(both),
            write_bps: bounded("write_bps", self.write_bps, IO_BYTES)?.or(both),
            read_iops: bounded("read_iops", self.read_iops, IO_OPERATIONS)?,
            write_iops: bounded("write_iops", self.write_iops, IO_OPERATIONS)?,
        };
        match rates == IoRates::default() {
            true => {
                let problem =
                    "missing: give it (each way), or some of read_bps, write_bps, read_iops, write_iops";
                Err(SpecError::new("params.bytes_per_second", problem))
            }
            false => Ok(rates),
        }
    }

    /// A parameter that means nothing for this resource is a mistake, not an extra.
    fn only_fitting(&self, resource: &str) -> Result<(), SpecError> {
        for (name, given, resources) in self.belonging() {
            if given && !resources.contains(&resource) {
                let problem = format!("belongs to resource {}, not to {resource:?}", resources.join(" and "));
                return Err(SpecError::new(format!("params.{name}"), problem));
            }
        }
        Ok(())
    }

    /// Every parameter but the resource itself, whether it is given, and the resources that take it.
    fn belonging(&self) -> [(&'static str, bool, &'static [&'static str]); 24] {
        [
            ("cpu_percent", self.cpu_percent.is_some(), &["cpu", "cpu_limit"]),
            ("cores", self.cores.is_some(), &["cpu"]),
            ("processors", self.processors.is_some(), &["cpu"]),
            (
                "ramp_seconds",
                self.ramp_seconds.is_some(),
                &["cpu", "memory", "disk_fill", "file_descriptors", "pids", "inodes", "ports"],
            ),
            ("path", self.path.is_some(), &["disk_fill", "inodes", "disk_io"]),
            ("megabytes", self.megabytes.is_some(), &["disk_fill"]),
            ("percent", self.percent.is_some(), &["disk_fill"]),
            ("leave_free_mb", self.leave_free_mb.is_some(), &["disk_fill"]),
            ("count", self.count.is_some(), &["file_descriptors", "pids", "inodes", "ports"]),
            ("leave_free", self.leave_free.is_some(), &["file_descriptors"]),
            ("address", self.address.is_some(), &["ports"]),
            ("port_range", self.port_range.is_some(), &["ports"]),
            ("size_mb", self.size_mb.is_some(), &["disk_io"]),
            ("memory_mb", self.memory_mb.is_some(), &["memory", "memory_limit"]),
            ("memory_percent", self.memory_percent.is_some(), &["memory"]),
            ("reserve_mb", self.reserve_mb.is_some(), &["memory"]),
            ("oom", self.oom.is_some(), &["memory"]),
            ("pids", self.pids.is_some(), &["pids_limit"]),
            ("device", self.device.is_some(), &["io_limit"]),
            ("bytes_per_second", self.bytes_per_second.is_some(), &["disk_io", "io_limit"]),
            ("read_bps", self.read_bps.is_some(), &["io_limit"]),
            ("write_bps", self.write_bps.is_some(), &["io_limit"]),
            ("read_iops", self.read_iops.is_some(), &["io_limit"]),
            ("write_iops", self.write_iops.is_some(), &["io_limit"]),
        ]
    }
}

/// The resources that take the parameter `name`; `None` if it belongs to none.
#[cfg(test)]
pub(super) fn resources_of(name: &str) -> Option<&'static [&'static str]> {
    let all = ExhaustionParams::default().belonging();
    all.into_iter().find(|(known, ..)| *known == name).map(|(.., resources)| resources)
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

/// The control group, or the processes with one of their own, that a target names, and nothing beside it.
pub(super) fn group(target: &TargetRequest) -> Result<Whose, SpecError> {
    let problem = "this fault goes to a cgroup: give target.cgroup, target.unit or what tells its processes, and nothing else";
    Whose::alone(target, TargetRequest::default(), problem)
}

/// The control group that a target names, whatever it names beside it.
pub(super) fn cgroup_of(target: &TargetRequest) -> Result<CgroupSelector, SpecError> {
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

/// The service that a target names, and nothing beside it.
pub(super) fn service(target: &TargetRequest) -> Result<String, SpecError> {
    let alone = TargetRequest { unit: None, ..target.clone() };
    if alone != TargetRequest::default() {
        return Err(SpecError::new(
            "target",
            "this fault goes to a service: give target.unit, and nothing else",
        ));
    }
    let unit = need("target.unit", target.unit.clone(), "the service, e.g. \"payment.service\"")?;
    match unit_name(&unit)? {
        CgroupSelector::Unit(name) if name.ends_with(".service") => Ok(name),
        _ => Err(SpecError::new(
            "target.unit",
            format!("{unit:?} is no service: give e.g. \"payment.service\""),
        )),
    }
}

/// The interface that a target names, with its namespace, and nothing beside them.
pub(super) fn link(target: &TargetRequest) -> Result<(String, Option<String>), SpecError> {
    let alone = TargetRequest { interface: None, netns: None, seed: None, ..target.clone() };
    if alone != TargetRequest::default() {
        return Err(SpecError::new(
            "target",
            "an interface goes down for everybody: give interface and netns only, and seed for a rhythm",
        ));
    }
    Ok((interface_name(target)?, target.netns.clone()))
}

/// The same, if a target names anything.
pub(super) fn group_if_any(target: &TargetRequest) -> Result<Option<Whose>, SpecError> {
    match *target == TargetRequest::default() {
        true => Ok(None),
        false => group(target).map(Some),
    }
}

/// The network namespace of ports that a target names, if it names one.
pub(super) fn netns_if_any(target: &TargetRequest) -> Result<Option<String>, SpecError> {
    let rest = TargetRequest { netns: None, protocol: None, ..target.clone() };
    match rest == TargetRequest::default() {
        true => Ok(target.netns.clone()),
        false => {
            let problem = "ports belong to a network namespace: give netns, or nothing, and maybe protocol";
            Err(SpecError::new("target", problem))
        }
    }
}

/// No target at all.
pub(super) fn nowhere(target: &TargetRequest, why: &str) -> Result<(), SpecError> {
    match *target == TargetRequest::default() {
        true => Ok(()),
        false => Err(SpecError::new("target", format!("{why}: leave the target out"))),
    }
}

pub(super) fn need<T>(field: &str, value: Option<T>, what: &str) -> Result<T, SpecError> {
    value.ok_or_else(|| SpecError::new(field, format!("missing: give {what}")))
}

pub(super) fn within(field: &str, value: f64, least: f64, most: f64) -> Result<f64, SpecError> {
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

    /// With these parameters of a limit of a disk.
    fn io(mut params: serde_json::Value) -> serde_json::Value {
        params["resource"] = json!("io_limit");
        params["device"] = json!("sda");
        params
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
        let rates = IoRates { read_bps: Some(4096), write_bps: Some(4096), ..IoRates::default() };
        let limited = |rates| Some(Limit::Io { device: "sda".into(), rates });
        assert_eq!(limit(io(json!({"bytes_per_second": 4096}))).unwrap(), limited(rates));
        let rates = IoRates { read_iops: Some(7), write_bps: Some(8192), ..IoRates::default() };
        assert_eq!(limit(io(json!({"read_iops": 7, "write_bps": 8192}))).unwrap(), limited(rates));
        for (params, field) in [
            (json!({"resource": "pids_limit"}), "params.pids"),
            (json!({"resource": "pids_limit", "pids": 5, "memory_mb": 1}), "params.memory_mb"),
            (json!({"resource": "cpu_limit", "cpu_percent": 0}), "params.cpu_percent"),
            (json!({"resource": "io_limit", "device": "sda"}), "params.bytes_per_second"),
            (io(json!({"bytes_per_second": 4096, "read_bps": 4096})), "params.read_bps"),
            (io(json!({"write_bps": 1000})), "params.write_bps"),
            (io(json!({"read_iops": 0})), "params.read_iops"),
            (io(json!({"write_iops": u32::MAX})), "params.write_iops"),
            (
                json!({"resource": "disk_io", "path": "/a", "bytes_per_second": 4096, "read_bps": 4096}),
                "params.read_bps",
            ),
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
    fn a_cgroup_is_named_once_and_alone_or_by_who_is_in_it() {
        let target = |json| serde_json::from_value::<TargetRequest>(json).unwrap();
        let unit = group(&target(json!({"unit": "a.service"}))).unwrap();
        assert_eq!(unit, Whose::Cgroup(CgroupSelector::Unit("a.service".into())));
        for processes in [json!({"container": "0123456789ab"}), json!({"pid": 71}), json!({"exe": "/a"})] {
            assert!(matches!(group(&target(processes)), Ok(Whose::Processes(_))));
        }
        for bad in [
            json!({}),
            json!({"unit": "a.service", "cgroup": "b"}),
            json!({"unit": "a"}),
            json!({"unit": "../a.service"}),
            json!({"unit": "a.service", "interface": "eth0"}),
            json!({"pid": 71, "interface": "eth0"}),
            json!({"pid": 71, "share": 0.5}),
        ] {
            assert!(group(&target(bad.clone())).is_err(), "{bad} was accepted");
        }
    }
}
