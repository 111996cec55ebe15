//! Faults that change a setting of the node: limits of a cgroup, a pause, an interface down, a clock that is wrong.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cgroup::{CgroupSelector, unit_name};
use super::hoard::{MOST_MB, mebibytes};
use super::parameter::part;
use super::process::{Whose, jitter};
use super::target::{TargetRequest, interface_name};
use super::units::{SpecError, time};

/// The least and the largest step of the clock, in seconds: less than the least could be mistaken for the work of a time
/// service, and more than a day shows nothing that a day does not.
pub const CLOCK_SKEW: (f64, f64) = (1.0, 86_400.0);

/// The shortest part of a link's rhythm: the kernel is not done with one change when the next one comes sooner.
const SHORTEST_PHASE: Duration = Duration::from_millis(50);

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

/// What `resource_exhaustion` takes for a limit of processor time.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct CpuLimitParams {
    /// Share of one processor.
    #[schemars(range(min = 1.0, max = 100_000.0))]
    cpu_percent: f64,
}

/// What `resource_exhaustion` takes for a limit of memory.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct MemoryLimitParams {
    /// MiB beyond which the cgroup is throttled: more than it cannot do without.
    #[schemars(range(min = 1.0, max = MOST_MB))]
    memory_mb: f64,
}

/// What `resource_exhaustion` takes for a limit of processes.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PidsLimitParams {
    /// Most processes and threads.
    #[schemars(range(min = 1, max = 4_194_304))]
    pids: u32,
}

/// What `resource_exhaustion` takes for a limit of a block device.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct IoLimitParams {
    /// Block device, e.g. sda or 8:0.
    device: String,
    /// Bytes per second, each way.
    #[schemars(range(min = IO_BYTES.0, max = IO_BYTES.1))]
    bytes_per_second: Option<u64>,
    /// Bytes read per second. What is not limited stays as it is.
    #[schemars(range(min = IO_BYTES.0, max = IO_BYTES.1))]
    read_bps: Option<u64>,
    /// Bytes written per second.
    #[schemars(range(min = IO_BYTES.0, max = IO_BYTES.1))]
    write_bps: Option<u64>,
    /// Reads per second.
    #[schemars(range(min = IO_OPERATIONS.0, max = IO_OPERATIONS.1))]
    read_iops: Option<u64>,
    /// Writes per second.
    #[schemars(range(min = IO_OPERATIONS.0, max = IO_OPERATIONS.1))]
    write_iops: Option<u64>,
}

/// What `clock_skew` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ClockParams {
    /// By how much the clock is wrong, forwards or back; at least 1 either way.
    #[schemars(range(min = -CLOCK_SKEW.1, max = CLOCK_SKEW.1))]
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
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LinkParams {
    /// How long the link is down, in a rhythm; all the time unless it is given.
    #[schemars(range(min = SHORTEST_PHASE.as_secs_f64() * 1e3, max = 600_000.0))]
    down_ms: Option<f64>,
    /// How long the link is up in between.
    #[schemars(range(min = SHORTEST_PHASE.as_secs_f64() * 1e3, max = 600_000.0))]
    up_ms: Option<f64>,
    /// Variation of both, either way, by target.seed.
    #[schemars(range(min = 0.0, max = 600_000.0))]
    jitter_ms: Option<f64>,
}

impl LinkParams {
    /// `None` when the interface is down all the time.
    pub(super) fn rhythm(&self, seed: Option<u64>) -> Result<Option<LinkRhythm>, SpecError> {
        let belongs = |field| SpecError::new(field, "belongs to down_ms and up_ms: give those as well");
        match (self.down_ms, self.up_ms) {
            (None, None) if self.jitter_ms.is_some() => Err(belongs("params.jitter_ms")),
            (None, None) if seed.is_some() => Err(belongs("target.seed")),
            (None, None) => Ok(None),
            (Some(_), None) => need("params.up_ms", None, "how long it is up in between"),
            (None, Some(_)) => need("params.down_ms", None, "how long it is down"),
            (Some(down), Some(up)) => {
                let (down, up) = (time(down), time(up));
                // No part may come out shorter than the shortest.
                let jitter = jitter(self.jitter_ms, down.min(up).saturating_sub(SHORTEST_PHASE))?;
                Ok(Some(LinkRhythm { down, up, jitter, seed: seed.unwrap_or_default() }))
            }
        }
    }
}

/// Processor time of a control group.
pub(super) fn cpu_limit(params: &Map<String, Value>) -> Result<Limit, SpecError> {
    let CpuLimitParams { cpu_percent: percent } = part(params)?;
    Ok(Limit::Cpu { percent })
}

/// Memory of a control group.
pub(super) fn memory_limit(params: &Map<String, Value>) -> Result<Limit, SpecError> {
    let MemoryLimitParams { memory_mb } = part(params)?;
    Ok(Limit::Memory { bytes: mebibytes(memory_mb) })
}

/// Processes of a control group.
pub(super) fn pids_limit(params: &Map<String, Value>) -> Result<Limit, SpecError> {
    let PidsLimitParams { pids: most } = part(params)?;
    Ok(Limit::Pids { most })
}

/// What a control group may ask of a block device.
pub(super) fn io_limit(params: &Map<String, Value>) -> Result<Limit, SpecError> {
    let params: IoLimitParams = part(params)?;
    let rates = params.rates()?;
    Ok(Limit::Io { device: params.device, rates })
}

impl IoLimitParams {
    /// How fast a block device may still go: each way the same, or apart.
    fn rates(&self) -> Result<IoRates, SpecError> {
        let both = self.bytes_per_second;
        for (name, apart) in [("read_bps", self.read_bps), ("write_bps", self.write_bps)] {
            if both.is_some() && apart.is_some() {
                let problem = "bytes_per_second is each way: give that, or read_bps and write_bps";
                return Err(SpecError::new(format!("params.{name}"), problem));
            }
        }
        let rates = IoRates {
            read_bps: self.read_bps.or(both),
            write_bps: self.write_bps.or(both),
            read_iops: self.read_iops,
            write_iops: self.write_iops,
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
}

impl ClockParams {
    /// The step in nanoseconds, forwards or back.
    pub(super) fn offset_ns(&self) -> Result<i64, SpecError> {
        if self.offset_seconds.abs() < CLOCK_SKEW.0 {
            let problem =
                format!("{} s is less than {} either way: give more", self.offset_seconds, CLOCK_SKEW.0);
            return Err(SpecError::new("params.offset_seconds", problem));
        }
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

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::effect::Effect;
    use crate::spec::fault;
    use crate::spec::{FaultRequest, FaultType, Probability};

    /// What `resource_exhaustion` with these parameters is, of a unit where it needs one.
    pub(in super::super) fn exhaustion(params: Value) -> Result<Effect, SpecError> {
        let limit = params["resource"].as_str().is_some_and(|resource| resource.ends_with("_limit"));
        let unit = (limit || params["oom"] == true).then(|| "a.service".to_owned());
        let request = FaultRequest {
            fault_type: FaultType::ResourceExhaustion,
            probability: Probability::CERTAIN,
            duration_seconds: None,
            error_message: None,
            target: TargetRequest { unit, ..TargetRequest::default() },
            params: params.as_object().unwrap().clone(),
        };
        request.parse().map(|fault| fault.effect)
    }

    fn limit(params: Value) -> Result<Option<Limit>, SpecError> {
        exhaustion(params).map(|effect| match effect {
            Effect::Limit { limit, .. } => Some(limit),
            _ => None,
        })
    }

    /// With these parameters of a limit of a disk.
    fn io(mut params: Value) -> Value {
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
        let offset = |seconds: f64| {
            let params = json!({"offset_seconds": seconds});
            match fault::tests::parse(FaultType::ClockSkew, "{}", params)?.effect {
                Effect::ClockSkew { offset_ns } => Ok::<_, SpecError>(offset_ns),
                other => panic!("{other:?}"),
            }
        };
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
