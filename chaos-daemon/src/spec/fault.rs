//! The list of faults: what a caller writes ([`FaultRequest`]) and what it means ([`Fault`]).

use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::answer::{ErrorParams, Refusal};
use super::calls::{ConnectParams, Connections, Failure};
use super::files::{FileCalls, FileParams};
use super::hoard::{Hoard, PortParams};
use super::impairment::{
    BandwidthParams, CorruptParams, DuplicateParams, Impairment, LatencyParams, LossParams, ReorderParams,
};
use super::load::CpuLoad;
use super::process::{KillParams, PauseParams, ProcessSelector, Rhythm, Volleys};
use super::sessions::{ConnectionLoad, LoadParams};
use super::settings::{
    self, CgroupSelector, ClockParams, ExhaustionParams, Limit, LinkParams, LinkRhythm, NoParams,
};
use super::target::{Direction, TargetRequest, Traffic};
use super::units::{
    DEFAULT_FAULT, LONGEST_FAULT, Probability, SHORTEST_FAULT, SpecError, packet_share, seconds,
};

/// The fault types: first those of the tool specification, then the daemon's own. The one list: command line, JSON schema, README table and
/// `doctor` derive from [`FAULT_TYPES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultType {
    /// Packets arrive late.
    Latency,
    /// Packets are answered with an error.
    Error,
    /// Packets vanish, so that callers wait until their own time-out.
    Timeout,
    /// CPU time is burned, or a cgroup gets less of something.
    ResourceExhaustion,
    /// Peers are cut off, in both directions.
    NetworkPartition,
    /// Packets are lost, by chance or in bursts.
    PacketLoss,
    /// Packets arrive twice.
    PacketDuplicate,
    /// Packets arrive with a wrong bit.
    PacketCorrupt,
    /// Packets overtake each other.
    PacketReorder,
    /// Only so much gets through.
    Bandwidth,
    /// The processes of a cgroup stand still.
    Pause,
    /// An interface is administratively down.
    LinkDown,
    /// The wall clock is wrong.
    ClockSkew,
    /// Processes get a signal.
    ProcessKill,
    /// Processes stand still.
    ProcessPause,
    /// A service's calls to others fail with an error.
    ConnectError,
    /// A port cannot be bound.
    PortInUse,
    /// A server's connections are used up.
    ConnectionLoad,
    /// What a service asks of files fails with an error.
    FileError,
    /// A service is stopped.
    ServiceStop,
    /// A service is stopped and started again.
    ServiceRestart,
}

/// Every fault type; those of the tool specification first, in its order.
pub const FAULT_TYPES: &[FaultType] = &[
    FaultType::Latency,
    FaultType::Error,
    FaultType::Timeout,
    FaultType::ResourceExhaustion,
    FaultType::NetworkPartition,
    FaultType::PacketLoss,
    FaultType::PacketDuplicate,
    FaultType::PacketCorrupt,
    FaultType::PacketReorder,
    FaultType::Bandwidth,
    FaultType::Pause,
    FaultType::LinkDown,
    FaultType::ClockSkew,
    FaultType::ProcessKill,
    FaultType::ProcessPause,
    FaultType::ConnectError,
    FaultType::PortInUse,
    FaultType::ConnectionLoad,
    FaultType::FileError,
    FaultType::ServiceStop,
    FaultType::ServiceRestart,
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
            Self::PacketLoss => "packet_loss",
            Self::PacketDuplicate => "packet_duplicate",
            Self::PacketCorrupt => "packet_corrupt",
            Self::PacketReorder => "packet_reorder",
            Self::Bandwidth => "bandwidth",
            Self::Pause => "pause",
            Self::LinkDown => "link_down",
            Self::ClockSkew => "clock_skew",
            Self::ProcessKill => "process_kill",
            Self::ProcessPause => "process_pause",
            Self::ConnectError => "connect_error",
            Self::PortInUse => "port_in_use",
            Self::ConnectionLoad => "connection_load",
            Self::FileError => "file_error",
            Self::ServiceStop => "service_stop",
            Self::ServiceRestart => "service_restart",
        }
    }

    /// What it does to the node, in one sentence for a table.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Latency => "delays matching packets with netem on a device of ours",
            Self::Error => {
                "answers matching packets with an error, so that callers fail at once: TCP segments with a reset, or any \
                 packet with a message that its destination cannot be reached"
            }
            Self::Timeout => "drops matching packets silently on their way out, so that callers wait",
            Self::ResourceExhaustion => {
                "burns CPU time, closed loop, at a percentage of some cores or of the quota of a cgroup or unit; or takes memory, room or inodes of \
                 a file system, open files, processes, TCP ports or disk bandwidth and holds them; or limits the CPU \
                 time, memory, processes or disk bandwidth of a cgroup or unit (supervised)"
            }
            Self::NetworkPartition => "drops matching packets silently, both ways",
            Self::PacketLoss => {
                "loses matching packets with netem, unseen by their sender: at random, or in bursts by a model with states"
            }
            Self::PacketDuplicate => "sends matching packets twice",
            Self::PacketCorrupt => "turns over one bit of matching packets, anywhere in them",
            Self::PacketReorder => "delays matching packets, but for some that overtake them",
            Self::Bandwidth => "lets matching packets through at a rate, each direction for itself",
            Self::Pause => "freezes every process of a cgroup or unit (supervised)",
            Self::LinkDown => {
                "sets a network interface down, all the time or in a rhythm, and restores what going down has cost it (supervised)"
            }
            Self::ClockSkew => "sets the wall clock wrong by an offset, if the policy allows it (supervised)",
            Self::ProcessKill => {
                "sends processes a signal, once or again and again, and watches whether somebody starts them anew \
                 (irreversible)"
            }
            Self::ProcessPause => {
                "has processes stand still, all the time or in a rhythm; they go on when the process that holds the fault ends"
            }
            Self::ConnectError => {
                "fails connections that a cgroup or unit opens, and UDP that it sends, with an error of choice"
            }
            Self::PortInUse => {
                "takes a TCP or UDP port of this host and holds it, so that no service can bind it"
            }
            Self::ConnectionLoad => {
                "opens connections to a server of this host (TCP, HTTP or MCP) and holds them, so that its pool is used up, or opens and closes \
                 them at a rate; counts those that are refused, late, or answered with nothing, and times them"
            }
            Self::FileError => {
                "fails what a cgroup or unit asks of the files at or below a path (opening, making, reading, writing, \
                 mapping them) with an error of choice"
            }
            Self::ServiceStop => "stops a systemd service, and starts it again at the end (supervised)",
            Self::ServiceRestart => {
                "restarts a systemd service once, and watches how long it is gone (irreversible)"
            }
        }
    }

    /// The parameters it takes, as `name (unit, default)`.
    pub fn parameters(self) -> &'static str {
        match self {
            Self::Latency => {
                "delay_ms (100), jitter_ms (0), distribution (uniform; normal, pareto, paretonormal: jitter_ms is its standard \
                 deviation), correlation_percent (0; of uniform), packet_rate (per second, 200000), packet_probability (1)"
            }
            Self::Error => {
                "answer (reset; or host_unreachable, network_unreachable, port_unreachable, admin_prohibited), \
                 packet_probability (1)"
            }
            Self::Timeout | Self::NetworkPartition => "packet_probability (1)",
            Self::ResourceExhaustion => {
                "resource (cpu); cpu: cpu_percent (80), cores (all) or processors (such as 0-1,3); memory: memory_mb or memory_percent, reserve_mb \
                 (the larger of 512 and 10 %); disk_fill: path, megabytes or percent (how full), leave_free_mb (the less of 1024 and \
                 5 %); file_descriptors: count or leave_free; pids: count; inodes: path, count; ports: count, address (all \
                 of IPv4), port_range (that of connections); disk_io: path, bytes_per_second, size_mb (64); all of these \
                 but disk_io: ramp_seconds (0); cpu_limit: cpu_percent (of one processor); \
                 memory_limit: memory_mb; pids_limit: pids; io_limit: device, bytes_per_second"
            }
            Self::PacketLoss => {
                "in percent: loss_percent, correlation_percent (0); or gilbert_elliott: p, r, one_minus_h (100), one_minus_k (0); \
                 or four_state: p13, p31, p32 (0), p23 (100), p14 (0)"
            }
            Self::PacketDuplicate => "duplicate_percent, correlation_percent (0)",
            Self::PacketCorrupt => "corrupt_percent, correlation_percent (0)",
            Self::PacketReorder => {
                "reorder_percent, correlation_percent (0), delay_ms (100), gap (1: any packet; 5: every fifth), \
                 packet_rate (per second, 200000)"
            }
            Self::Bandwidth => "rate_kbit (1000 bits per second, with Ethernet headers)",
            Self::Pause | Self::ServiceStop | Self::ServiceRestart => "none",
            Self::LinkDown => "down_ms and up_ms (no rhythm: down all the time), jitter_ms (0)",
            Self::ClockSkew => "offset_seconds (forwards or back)",
            Self::ProcessKill => "signal (SIGKILL), times (1), interval_seconds (5), jitter_ms (0)",
            Self::ProcessPause => "pause_ms and run_ms (no rhythm: paused all the time), jitter_ms (0)",
            Self::ConnectError => {
                "errno (connection_refused; or connection_reset, timed_out, host_unreachable, network_unreachable, \
                 network_down, address_not_available, permission_denied), call_probability (1), after_calls (0), times (no limit)"
            }
            Self::FileError => {
                "path, operations (all of open, create, read, write, mmap), errno (io_error; or no_space, quota_exceeded, \
                 read_only, permission_denied, not_permitted, not_found, too_many_open_files, too_many_open_files_in_system, \
                 no_memory, timed_out, busy), call_probability (1), after_calls (0), times (no limit)"
            }
            Self::PortInUse => "address (every one, IPv4 and IPv6)",
            Self::ConnectionLoad => {
                "url (tcp://ADDRESS:PORT, unix:/PATH, http://ADDRESS:PORT/PATH, mcp+http://ADDRESS:PORT/PATH or \
                 mcp+unix:/PATH), sessions (how many to hold, at most 20000) or connections_per_second (at most 2000), \
                 timeout_ms (1000; of opening, and of each answer), ramp_seconds (0)"
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
    /// Packets take a queue of ours: see [`FaultType::Latency`], and the other types that [`Impairment`] knows.
    Impair {
        /// Which packets.
        traffic: Traffic,
        /// What the queue does to them.
        impairment: Impairment,
        /// Share of the matching packets that takes the queue.
        packet_probability: Probability,
    },
    /// See [`FaultType::Error`].
    Refuse {
        /// Which packets; only TCP segments for a reset.
        traffic: Traffic,
        /// What they are answered with.
        refusal: Refusal,
        /// Share of the matching packets that is answered.
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
    Cpu(CpuLoad),
    /// See [`FaultType::ResourceExhaustion`] and [`FaultType::PortInUse`].
    Hoard {
        /// What is taken and held.
        what: Hoard,
        /// How long it takes until all of it is taken.
        ramp: Duration,
        /// In which control group it is taken; `None` is the daemon's own.
        cgroup: Option<CgroupSelector>,
        /// Network namespace of ports, as the caller named it; `None` is the daemon's own.
        netns: Option<String>,
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
        /// How it goes up and down by turns; `None` is down all the time.
        rhythm: Option<LinkRhythm>,
    },
    /// See [`FaultType::ClockSkew`].
    ClockSkew {
        /// By how many nanoseconds, forwards or back.
        offset_ns: i64,
    },
    /// See [`FaultType::ProcessKill`].
    ProcessKill {
        /// Who gets the signal.
        processes: ProcessSelector,
        /// Which one, and how often.
        volleys: Volleys,
    },
    /// See [`FaultType::ProcessPause`].
    ProcessPause {
        /// Who stands still.
        processes: ProcessSelector,
        /// How it alternates; `None` is all the time.
        rhythm: Option<Rhythm>,
    },
    /// See [`FaultType::ServiceStop`].
    ServiceStop {
        /// Name of the unit.
        unit: String,
    },
    /// See [`FaultType::ServiceRestart`].
    ServiceRestart {
        /// Name of the unit.
        unit: String,
    },
    /// See [`FaultType::ConnectError`].
    Connect {
        /// Which calls.
        calls: Connections,
        /// How they fail.
        failure: Failure,
    },
    /// See [`FaultType::ConnectionLoad`].
    Load(ConnectionLoad),
    /// See [`FaultType::FileError`].
    Files {
        /// Which calls.
        calls: FileCalls,
        /// How they fail.
        failure: Failure,
    },
}

impl Effect {
    /// The traffic a network fault selects.
    pub fn traffic(&self) -> Option<&Traffic> {
        match self {
            Self::Impair { traffic, .. } | Self::Refuse { traffic, .. } | Self::Drop { traffic, .. } => {
                Some(traffic)
            }
            Self::Cpu(_)
            | Self::Hoard { .. }
            | Self::Limit { .. }
            | Self::Pause { .. }
            | Self::LinkDown { .. }
            | Self::ClockSkew { .. }
            | Self::ProcessKill { .. }
            | Self::ProcessPause { .. }
            | Self::ServiceStop { .. }
            | Self::ServiceRestart { .. } => None,
            Self::Connect { .. } | Self::Load(_) | Self::Files { .. } => None,
        }
    }

    /// The interface it goes to, if it goes to one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::LinkDown { interface, .. } => Some(interface),
            _ => self.traffic().map(|traffic| traffic.interface.as_str()),
        }
    }

    /// The processes it goes to, if it goes to some.
    pub fn processes(&self) -> Option<&ProcessSelector> {
        match self {
            Self::ProcessKill { processes, .. } | Self::ProcessPause { processes, .. } => Some(processes),
            _ => None,
        }
    }

    /// The type of fault this effect belongs to.
    pub fn fault_type(&self) -> FaultType {
        match self {
            Self::Impair { impairment, .. } => match impairment {
                Impairment::Delay(_) => FaultType::Latency,
                Impairment::Loss(_) => FaultType::PacketLoss,
                Impairment::Duplicate(_) => FaultType::PacketDuplicate,
                Impairment::Corrupt(_) => FaultType::PacketCorrupt,
                Impairment::Reorder(_) => FaultType::PacketReorder,
                Impairment::Rate { .. } => FaultType::Bandwidth,
            },
            Self::Refuse { .. } => FaultType::Error,
            Self::Drop { partition: true, .. } => FaultType::NetworkPartition,
            Self::Drop { partition: false, .. } => FaultType::Timeout,
            Self::Hoard { what: Hoard::Port(_), .. } => FaultType::PortInUse,
            Self::Cpu(_) | Self::Hoard { .. } | Self::Limit { .. } => FaultType::ResourceExhaustion,
            Self::Pause { .. } => FaultType::Pause,
            Self::LinkDown { .. } => FaultType::LinkDown,
            Self::ClockSkew { .. } => FaultType::ClockSkew,
            Self::ProcessKill { .. } => FaultType::ProcessKill,
            Self::ProcessPause { .. } => FaultType::ProcessPause,
            Self::Connect { .. } => FaultType::ConnectError,
            Self::Load(_) => FaultType::ConnectionLoad,
            Self::Files { .. } => FaultType::FileError,
            Self::ServiceStop { .. } => FaultType::ServiceStop,
            Self::ServiceRestart { .. } => FaultType::ServiceRestart,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DropParams {
    packet_probability: Option<f64>,
}

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
        self.target.check_resolving()?;
        let effect = match self.fault_type {
            FaultType::Latency => {
                let params: LatencyParams = self.params()?;
                self.impair(params.impairment()?, packet_share(params.packet_probability)?)?
            }
            FaultType::PacketLoss => self.impair_all(self.params::<LossParams>()?.impairment()?)?,
            FaultType::PacketDuplicate => self.impair_all(self.params::<DuplicateParams>()?.impairment()?)?,
            FaultType::PacketCorrupt => self.impair_all(self.params::<CorruptParams>()?.impairment()?)?,
            FaultType::PacketReorder => self.impair_all(self.params::<ReorderParams>()?.impairment()?)?,
            FaultType::Bandwidth => self.impair_all(self.params::<BandwidthParams>()?.impairment()?)?,
            FaultType::Error => self.refuse(&self.params()?)?,
            FaultType::Timeout => self.lose(&[Direction::Egress], false)?,
            FaultType::NetworkPartition => self.lose(Direction::BOTH, true)?,
            FaultType::ResourceExhaustion => self.exhaustion()?,
            FaultType::Pause => {
                let NoParams {} = self.params()?;
                Effect::Pause { cgroup: settings::cgroup(&self.target)? }
            }
            FaultType::LinkDown => {
                let rhythm = self.params::<LinkParams>()?.rhythm(self.target.seed)?;
                let (interface, netns) = settings::link(&self.target)?;
                Effect::LinkDown { interface, netns, rhythm }
            }
            FaultType::ClockSkew => {
                settings::nowhere(&self.target, "the clock is the whole host's")?;
                Effect::ClockSkew { offset_ns: self.params::<ClockParams>()?.offset_ns()? }
            }
            FaultType::ProcessKill => Effect::ProcessKill {
                processes: ProcessSelector::parse(&self.target)?,
                volleys: self.params::<KillParams>()?.volleys()?,
            },
            FaultType::ProcessPause => Effect::ProcessPause {
                processes: ProcessSelector::parse(&self.target)?,
                rhythm: self.params::<PauseParams>()?.rhythm()?,
            },
            FaultType::ConnectError => {
                let failure = self.params::<ConnectParams>()?.failure()?;
                Effect::Connect { calls: Connections::parse(&self.target)?, failure }
            }
            FaultType::ServiceStop => {
                let NoParams {} = self.params()?;
                Effect::ServiceStop { unit: settings::service(&self.target)? }
            }
            FaultType::ServiceRestart => {
                let NoParams {} = self.params()?;
                Effect::ServiceRestart { unit: settings::service(&self.target)? }
            }
            FaultType::PortInUse => {
                let what = self.params::<PortParams>()?.port(&self.target)?;
                let netns = self.target.netns.clone();
                Effect::Hoard { what: Hoard::Port(what), ramp: Duration::ZERO, cgroup: None, netns }
            }
            FaultType::ConnectionLoad => Effect::Load(self.params::<LoadParams>()?.load(&self.target)?),
            FaultType::FileError => {
                let params: FileParams = self.params()?;
                Effect::Files { calls: params.calls(&self.target)?, failure: params.failure()? }
            }
        };
        Ok(Fault { duration, effect })
    }

    fn refuse(&self, params: &ErrorParams) -> Result<Effect, SpecError> {
        let (traffic, refusal) = (Traffic::parse(&self.target, &[Direction::Egress])?, params.refusal()?);
        let traffic = refusal.narrow(traffic)?;
        Ok(Effect::Refuse { traffic, refusal, packet_probability: params.share()? })
    }

    fn lose(&self, directions: &[Direction], partition: bool) -> Result<Effect, SpecError> {
        let params: DropParams = self.params()?;
        let traffic = Traffic::parse(&self.target, directions)?;
        Ok(Effect::Drop { traffic, packet_probability: packet_share(params.packet_probability)?, partition })
    }

    /// What says itself which share of the packets it is about.
    fn impair_all(&self, impairment: Impairment) -> Result<Effect, SpecError> {
        self.impair(impairment, Probability::CERTAIN)
    }

    fn impair(&self, impairment: Impairment, packet_probability: Probability) -> Result<Effect, SpecError> {
        let traffic = Traffic::parse(&self.target, &[Direction::Egress])?;
        Ok(Effect::Impair { traffic, impairment, packet_probability })
    }

    fn exhaustion(&self) -> Result<Effect, SpecError> {
        let params: ExhaustionParams = self.params()?;
        if let Some(limit) = params.limit()? {
            return Ok(Effect::Limit { cgroup: settings::cgroup(&self.target)?, limit });
        }
        if let Some(what) = params.hoard()? {
            let (mut cgroup, mut netns) = (None, None);
            match what {
                _ if what.fits_cgroup() => cgroup = settings::cgroup_if_any(&self.target)?,
                Hoard::Ports { .. } => netns = settings::netns_if_any(&self.target)?,
                _ => settings::nowhere(&self.target, "this resource is the whole host's")?,
            }
            return Ok(Effect::Hoard { what, ramp: params.ramp()?, cgroup, netns });
        }
        Ok(Effect::Cpu(params.cpu(settings::cgroup_if_any(&self.target)?)?))
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

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
