//! The list of faults: what a caller writes ([`FaultRequest`]) and what it means ([`Fault`]).

use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::calls::{ConnectParams, Connections, Failure};
use super::settings::{self, CgroupSelector, ClockParams, ExhaustionParams, Limit, NoParams};
use super::target::{Direction, TargetRequest, Traffic};
use super::units::{
    DEFAULT_FAULT, LONGEST_DELAY, LONGEST_FAULT, LONGEST_JITTER, Probability, SHORTEST_FAULT, SpecError,
    millis, seconds,
};

/// The fault types: first those of the tool specification, then the daemon's own. The one list: command line, JSON schema, README table and
/// `doctor` derive from [`FAULT_TYPES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultType {
    /// Packets arrive late.
    Latency,
    /// Connections are answered with a reset.
    Error,
    /// Packets vanish, so that callers wait until their own time-out.
    Timeout,
    /// CPU time is burned, or a cgroup gets less of something.
    ResourceExhaustion,
    /// Peers are cut off, in both directions.
    NetworkPartition,
    /// The processes of a cgroup stand still.
    Pause,
    /// An interface is administratively down.
    LinkDown,
    /// The wall clock is wrong.
    ClockSkew,
    /// A service's calls to others fail with an error.
    ConnectError,
}

/// Every fault type; those of the tool specification first, in its order.
pub const FAULT_TYPES: &[FaultType] = &[
    FaultType::Latency,
    FaultType::Error,
    FaultType::Timeout,
    FaultType::ResourceExhaustion,
    FaultType::NetworkPartition,
    FaultType::Pause,
    FaultType::LinkDown,
    FaultType::ClockSkew,
    FaultType::ConnectError,
];

impl FaultType {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::ResourceExhaustion => "resource_exhaustion",
            Self::NetworkPartition => "network_partition",
            Self::Pause => "pause",
            Self::LinkDown => "link_down",
            Self::ClockSkew => "clock_skew",
            Self::ConnectError => "connect_error",
        }
    }

    /// What it does to the node, in one sentence for a table.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Latency => "delays matching packets with netem on a device of ours",
            Self::Error => {
                "answers matching TCP segments with a reset, so that callers see a refused or reset connection"
            }
            Self::Timeout => "drops matching packets silently on their way out, so that callers wait",
            Self::ResourceExhaustion => {
                "burns CPU time, closed loop, at a percentage of some cores; or limits the CPU time, memory, processes or \
                 disk bandwidth of a cgroup or unit (supervised)"
            }
            Self::NetworkPartition => "drops matching packets silently, both ways",
            Self::Pause => "freezes every process of a cgroup or unit (supervised)",
            Self::LinkDown => {
                "sets a network interface down, and restores what going down has cost it (supervised)"
            }
            Self::ClockSkew => "sets the wall clock wrong by an offset, if the policy allows it (supervised)",
            Self::ConnectError => {
                "fails connections that a cgroup or unit opens, and UDP that it sends, with an error of choice"
            }
        }
    }

    /// The parameters it takes, as `name (unit, default)`.
    pub fn parameters(self) -> &'static str {
        match self {
            Self::Latency => {
                "delay_ms (100), jitter_ms (0), packet_rate (per second, 200000), packet_probability (1)"
            }
            Self::Error => "packet_probability (1)",
            Self::Timeout | Self::NetworkPartition => "packet_probability (1)",
            Self::ResourceExhaustion => {
                "resource (cpu); cpu: cpu_percent (80), cores (all); cpu_limit: cpu_percent (of one processor); \
                 memory_limit: memory_mb; pids_limit: pids; io_limit: device, bytes_per_second"
            }
            Self::Pause | Self::LinkDown => "none",
            Self::ClockSkew => "offset_seconds (forwards or back)",
            Self::ConnectError => {
                "errno (connection_refused; or connection_reset, timed_out, host_unreachable, network_unreachable, \
                 network_down, address_not_available, permission_denied), call_probability (1), after_calls (0)"
            }
        }
    }

    /// Parses a name on the wire.
    ///
    /// # Errors
    /// Names the known types.
    pub fn parse(name: &str) -> Result<Self, SpecError> {
        FAULT_TYPES.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
            let known: Vec<_> = FAULT_TYPES.iter().map(|kind| kind.name()).collect();
            SpecError::new("fault_type", format!("{name:?} is not known: give one of {}", known.join(", ")))
        })
    }
}

/// A fault as a caller registers it: the tool specification's fields, and the node's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRequest {
    /// Kind of fault.
    pub fault_type: FaultType,
    /// Rolled once per `inject`.
    pub probability: Probability,
    /// How long each injection lasts, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<f64>,
    /// Text reported when the fault is injected, for `error` and `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Where it goes.
    #[serde(default)]
    pub target: TargetRequest,
    /// How much, depending on the type.
    #[serde(default)]
    pub params: Map<String, Value>,
}

/// A fault, parsed: every value within its bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// How long it lasts.
    pub duration: Duration,
    /// What it does, and where.
    pub effect: Effect,
}

/// What a fault does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// See [`FaultType::Latency`].
    Latency {
        /// Which packets.
        traffic: Traffic,
        /// How late, and how long the queue.
        queue: Queue,
        /// Share of the matching packets that is delayed.
        packet_probability: Probability,
    },
    /// See [`FaultType::Error`].
    Reset {
        /// Which segments.
        traffic: Traffic,
        /// Share of the matching segments that is answered.
        packet_probability: Probability,
    },
    /// See [`FaultType::Timeout`] and [`FaultType::NetworkPartition`].
    Drop {
        /// Which packets.
        traffic: Traffic,
        /// Share of the matching packets that is dropped.
        packet_probability: Probability,
        /// Which of the two types this is.
        partition: bool,
    },
    /// See [`FaultType::ResourceExhaustion`].
    Cpu {
        /// Percentage of each core, 1 to 100.
        percent: f64,
        /// Number of cores; `None` is all that are online.
        cores: Option<u32>,
    },
    /// See [`FaultType::ResourceExhaustion`].
    Limit {
        /// Whom it limits.
        cgroup: CgroupSelector,
        /// To what.
        limit: Limit,
    },
    /// See [`FaultType::Pause`].
    Pause {
        /// Who stands still.
        cgroup: CgroupSelector,
    },
    /// See [`FaultType::LinkDown`].
    LinkDown {
        /// Interface name.
        interface: String,
        /// Network namespace, as the caller named it; `None` is the daemon's own.
        netns: Option<String>,
    },
    /// See [`FaultType::ClockSkew`].
    ClockSkew {
        /// By how many nanoseconds, forwards or back.
        offset_ns: i64,
    },
    /// See [`FaultType::ConnectError`].
    Connect {
        /// Which calls.
        calls: Connections,
        /// How they fail.
        failure: Failure,
    },
}

/// A queue that delays packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// How late a packet leaves.
    pub delay: Duration,
    /// Uniform variation of the delay, either way.
    pub jitter: Duration,
    /// Packets per second to size the queue for; `None` is a generous default.
    pub packet_rate: Option<u32>,
}

impl Effect {
    /// The traffic a network fault selects.
    pub fn traffic(&self) -> Option<&Traffic> {
        match self {
            Self::Latency { traffic, .. } | Self::Reset { traffic, .. } | Self::Drop { traffic, .. } => {
                Some(traffic)
            }
            Self::Cpu { .. }
            | Self::Limit { .. }
            | Self::Pause { .. }
            | Self::LinkDown { .. }
            | Self::ClockSkew { .. }
            | Self::Connect { .. } => None,
        }
    }

    /// The interface it goes to, if it goes to one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::LinkDown { interface, .. } => Some(interface),
            _ => self.traffic().map(|traffic| traffic.interface.as_str()),
        }
    }

    /// The type of fault this effect belongs to.
    pub fn fault_type(&self) -> FaultType {
        match self {
            Self::Latency { .. } => FaultType::Latency,
            Self::Reset { .. } => FaultType::Error,
            Self::Drop { partition: true, .. } => FaultType::NetworkPartition,
            Self::Drop { partition: false, .. } => FaultType::Timeout,
            Self::Cpu { .. } | Self::Limit { .. } => FaultType::ResourceExhaustion,
            Self::Pause { .. } => FaultType::Pause,
            Self::LinkDown { .. } => FaultType::LinkDown,
            Self::ClockSkew { .. } => FaultType::ClockSkew,
            Self::Connect { .. } => FaultType::ConnectError,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LatencyParams {
    #[serde(default = "default_delay_ms")]
    delay_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
    packet_rate: Option<u32>,
    packet_probability: Option<f64>,
}

fn default_delay_ms() -> f64 {
    100.0
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DropParams {
    packet_probability: Option<f64>,
}

/// How much of each core is burned when nobody says.
const DEFAULT_CPU_PERCENT: f64 = 80.0;

impl FaultRequest {
    /// Parses the request into a fault whose every value is within its bounds.
    ///
    /// # Errors
    /// Names the first field that is missing or wrong.
    pub fn parse(&self) -> Result<Fault, SpecError> {
        let duration = match self.duration_seconds {
            None => DEFAULT_FAULT,
            Some(value) => seconds("duration_seconds", value, SHORTEST_FAULT, LONGEST_FAULT)?,
        };
        if self.error_message.as_ref().is_some_and(|text| text.len() > 512) {
            return Err(SpecError::new("error_message", "longer than 512 bytes"));
        }
        let effect = match self.fault_type {
            FaultType::Latency => self.latency()?,
            FaultType::Error => {
                let params: DropParams = self.params()?;
                let traffic = Traffic::parse(&self.target, &[Direction::Egress])?;
                Effect::Reset {
                    traffic: tcp_only(traffic)?,
                    packet_probability: share(params.packet_probability)?,
                }
            }
            FaultType::Timeout | FaultType::NetworkPartition => {
                let params: DropParams = self.params()?;
                let partition = self.fault_type == FaultType::NetworkPartition;
                let directions = if partition { Direction::BOTH } else { &[Direction::Egress] };
                Effect::Drop {
                    traffic: Traffic::parse(&self.target, directions)?,
                    packet_probability: share(params.packet_probability)?,
                    partition,
                }
            }
            FaultType::ResourceExhaustion => self.exhaustion()?,
            FaultType::Pause => {
                let NoParams {} = self.params()?;
                Effect::Pause { cgroup: settings::cgroup(&self.target)? }
            }
            FaultType::LinkDown => {
                let NoParams {} = self.params()?;
                let (interface, netns) = settings::link(&self.target)?;
                Effect::LinkDown { interface, netns }
            }
            FaultType::ClockSkew => {
                settings::nowhere(&self.target, "the clock is the whole host's")?;
                Effect::ClockSkew { offset_ns: self.params::<ClockParams>()?.offset_ns()? }
            }
            FaultType::ConnectError => {
                let failure = self.params::<ConnectParams>()?.failure()?;
                Effect::Connect { calls: Connections::parse(&self.target)?, failure }
            }
        };
        Ok(Fault { duration, effect })
    }

    fn latency(&self) -> Result<Effect, SpecError> {
        let params: LatencyParams = self.params()?;
        let delay = millis("params.delay_ms", params.delay_ms, Duration::from_micros(1), LONGEST_DELAY)?;
        let jitter = millis("params.jitter_ms", params.jitter_ms, Duration::ZERO, delay.min(LONGEST_JITTER))?;
        if params.packet_rate == Some(0) {
            return Err(SpecError::new("params.packet_rate", "0 packets per second leave nothing to delay"));
        }
        Ok(Effect::Latency {
            traffic: Traffic::parse(&self.target, &[Direction::Egress])?,
            queue: Queue { delay, jitter, packet_rate: params.packet_rate },
            packet_probability: share(params.packet_probability)?,
        })
    }

    fn exhaustion(&self) -> Result<Effect, SpecError> {
        let params: ExhaustionParams = self.params()?;
        if let Some(limit) = params.limit()? {
            return Ok(Effect::Limit { cgroup: settings::cgroup(&self.target)?, limit });
        }
        settings::nowhere(&self.target, "resource_exhaustion of resource \"cpu\" burns the host's CPU")?;
        let percent = params.cpu_percent.unwrap_or(DEFAULT_CPU_PERCENT);
        if !(1.0..=100.0).contains(&percent) {
            return Err(SpecError::new(
                "params.cpu_percent",
                format!("{percent} is out of bounds: give 1 to 100"),
            ));
        }
        if params.cores.is_some_and(|cores| !(1..=4096).contains(&cores)) {
            return Err(SpecError::new("params.cores", "give 1 to 4096 cores"));
        }
        Ok(Effect::Cpu { percent, cores: params.cores })
    }

    fn params<T: DeserializeOwned>(&self) -> Result<T, SpecError> {
        serde_json::from_value(Value::Object(self.params.clone())).map_err(|error| {
            SpecError::new(
                "params",
                format!("{error}; {} takes {}", self.fault_type.name(), self.fault_type.parameters()),
            )
        })
    }
}

fn share(value: Option<f64>) -> Result<Probability, SpecError> {
    value.map_or(Ok(Probability::CERTAIN), |value| Probability::new("params.packet_probability", value))
}

fn tcp_only(mut traffic: Traffic) -> Result<Traffic, SpecError> {
    use super::target::Protocol;
    match traffic.protocol {
        Protocol::Any | Protocol::Tcp => {
            traffic.protocol = Protocol::Tcp;
            Ok(traffic)
        }
        Protocol::Udp | Protocol::Icmp => Err(SpecError::new(
            "target.protocol",
            "only tcp can be reset: leave the protocol out, or use timeout",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(fault_type: FaultType, target: &str, params: &str) -> Result<Fault, SpecError> {
        FaultRequest {
            fault_type,
            probability: Probability::CERTAIN,
            duration_seconds: None,
            error_message: None,
            target: serde_json::from_str(target).unwrap(),
            params: serde_json::from_str(params).unwrap(),
        }
        .parse()
    }

    #[test]
    fn every_type_is_found_by_its_wire_name() {
        for kind in FAULT_TYPES {
            assert_eq!(FaultType::parse(kind.name()).unwrap(), *kind);
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert!(FaultType::parse("meteor").unwrap_err().problem.contains("network_partition"));
    }

    #[test]
    fn a_partition_goes_both_ways_and_a_timeout_only_out() {
        let partition = parse(FaultType::NetworkPartition, r#"{"interface":"e"}"#, "{}").unwrap();
        assert_eq!(partition.effect.traffic().unwrap().directions, Direction::BOTH);
        let timeout = parse(FaultType::Timeout, r#"{"interface":"e"}"#, "{}").unwrap();
        assert_eq!(timeout.effect.traffic().unwrap().directions, [Direction::Egress]);
        for kind in FAULT_TYPES {
            let (target, params) = match kind {
                FaultType::ResourceExhaustion => ("{}", "{}"),
                FaultType::Pause | FaultType::ConnectError => (r#"{"unit":"a.service"}"#, "{}"),
                FaultType::ClockSkew => ("{}", r#"{"offset_seconds":-60}"#),
                _ => (r#"{"interface":"e"}"#, "{}"),
            };
            assert_eq!(parse(*kind, target, params).unwrap().effect.fault_type(), *kind);
        }
    }

    #[test]
    fn unknown_and_absurd_parameters_are_named() {
        let target = r#"{"interface":"e"}"#;
        let unknown = parse(FaultType::Latency, target, r#"{"delay":5}"#).unwrap_err();
        assert!(unknown.to_string().contains("unknown field `delay`"), "{unknown}");
        for params in [r#"{"delay_ms":-1}"#, r#"{"delay_ms":1e18}"#, r#"{"jitter_ms":101}"#] {
            assert!(parse(FaultType::Latency, target, params).is_err(), "{params} was accepted");
        }
        assert!(parse(FaultType::ResourceExhaustion, "{}", r#"{"cpu_percent":101}"#).is_err());
        assert!(parse(FaultType::ResourceExhaustion, target, "{}").is_err());
    }

    #[test]
    fn only_tcp_can_be_reset() {
        let error = parse(FaultType::Error, r#"{"interface":"e","protocol":"udp"}"#, "{}").unwrap_err();
        assert_eq!(error.field, "target.protocol");
    }
}
