//! A fault: what a caller writes ([`FaultRequest`]) and what it means ([`Fault`]).

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::answer::{ErrorParams, Refusal};
use super::calls::{ConnectParams, Connections, Failure};
use super::dns::{DnsParams, Names, Questions};
use super::fault_type::FaultType;
use super::files::{FileCalls, FileParams};
use super::hoard::{Hoard, PortParams};
use super::host::{HostDown, PanicParams, RebootParams, Way};
use super::impairment::{
    BandwidthParams, CorruptParams, DuplicateParams, Impairment, LatencyParams, LossParams, ReorderParams,
};
use super::load::CpuLoad;
use super::mcp::Spoiling;
use super::netns;
use super::parameter;
use super::parts::{Countdown, PacketShare, Ramp};
use super::process::{KillParams, PauseParams, ProcessSelector, Rhythm, Volleys, Whose};
use super::resource;
use super::service::ServicePackets;
use super::sessions::{ConnectionLoad, LoadParams};
use super::settings::{self, ClockParams, Limit, LinkParams, LinkRhythm};
use super::sockets::{SocketCalls, SocketParams};
use super::takes;
use super::target::{Direction, Protocol, TargetRequest};
use super::traffic::Traffic;
use super::units::{DEFAULT_FAULT, LONGEST_FAULT, Probability, SHORTEST_FAULT, SpecError, seconds};

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
        /// Questions about these names alone; none is every packet.
        names: Vec<Names>,
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
    /// See [`FaultType::DnsError`].
    Names {
        /// Which packets may be questions.
        traffic: Traffic,
        /// Which questions, and what they are answered with.
        questions: Questions,
        /// Share of the matching questions that is answered so.
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
    /// Likewise, of one service on every interface.
    Sever {
        /// Which packets.
        packets: ServicePackets,
        /// Share of the matching packets that is lost.
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
        /// In whose control group it is taken; `None` is the daemon's own.
        whose: Option<Whose>,
        /// Network namespace of ports, as the caller named it; `None` is the daemon's own.
        netns: Option<String>,
    },
    /// See [`FaultType::ResourceExhaustion`].
    Limit {
        /// Whom it limits.
        whose: Whose,
        /// To what.
        limit: Limit,
    },
    /// See [`FaultType::Pause`].
    Pause {
        /// Who stands still.
        whose: Whose,
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
    /// See [`FaultType::SocketError`].
    Sockets {
        /// Which calls.
        calls: SocketCalls,
        /// How they fail.
        failure: Failure,
    },
    /// See [`FaultType::McpError`].
    Spoil {
        /// Which proxies.
        processes: ProcessSelector,
        /// What becomes of which calls.
        spoiling: Spoiling,
    },
    /// See [`FaultType::HostReboot`] and [`FaultType::HostPanic`].
    Down(HostDown),
}

/// How soon it has to be known by which TCP ports of this node an operator comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaysIn {
    /// The fault is not in their way.
    Never,
    /// Before anything happens: it ends connections, or is refused for their sake.
    Before,
    /// As soon as it acts: what a connection has lost until then is sent again.
    Soon,
}

impl Effect {
    /// The traffic a network fault selects on its interface.
    pub fn traffic(&self) -> Option<&Traffic> {
        match self {
            Self::Impair { traffic, .. }
            | Self::Refuse { traffic, .. }
            | Self::Names { traffic, .. }
            | Self::Drop { traffic, .. } => Some(traffic),
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
            Self::Sever { .. }
            | Self::Connect { .. }
            | Self::Load(_)
            | Self::Files { .. }
            | Self::Sockets { .. }
            | Self::Spoil { .. }
            | Self::Down(_) => None,
        }
    }

    /// How soon it has to be known by which TCP ports of this node an operator comes in.
    pub fn ways_in(&self) -> WaysIn {
        let lost = |protocol: Protocol| match protocol {
            Protocol::Any | Protocol::Tcp => WaysIn::Soon,
            Protocol::Udp | Protocol::Icmp => WaysIn::Never,
        };
        match self {
            Self::Impair { traffic, .. } | Self::Drop { traffic, .. } => lost(traffic.protocol),
            Self::Sever { packets, .. } => lost(packets.protocol),
            Self::Refuse { .. } | Self::Names { .. } | Self::Load(_) | Self::LinkDown { .. } => {
                WaysIn::Before
            }
            Self::Cpu(_)
            | Self::Hoard { .. }
            | Self::Limit { .. }
            | Self::Pause { .. }
            | Self::ClockSkew { .. }
            | Self::ProcessKill { .. }
            | Self::ProcessPause { .. }
            | Self::ServiceStop { .. }
            | Self::ServiceRestart { .. }
            | Self::Connect { .. }
            | Self::Files { .. }
            | Self::Sockets { .. }
            | Self::Spoil { .. }
            | Self::Down(_) => WaysIn::Never,
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
            Self::ProcessKill { processes, .. }
            | Self::ProcessPause { processes, .. }
            | Self::Spoil { processes, .. } => Some(processes),
            _ => None,
        }
    }

    /// Whose packets, calls or resources it is about, if it is not about processes as such.
    pub fn whose(&self) -> Option<&Whose> {
        match self {
            Self::Cpu(load) => load.whose.as_ref(),
            Self::Hoard { whose, .. } => whose.as_ref(),
            Self::Limit { whose, .. } | Self::Pause { whose } => Some(whose),
            Self::Sever { packets, .. } => Some(&packets.whose),
            Self::Connect { calls, .. } => Some(&calls.whose),
            Self::Files { calls, .. } => Some(&calls.whose),
            Self::Sockets { calls, .. } => Some(&calls.whose),
            _ => self.traffic().and_then(|traffic| traffic.whose.as_ref()),
        }
    }

    /// Whether a control group has to be found for it: one that is named, or that of processes.
    pub fn names_cgroup(&self) -> bool {
        match self.whose() {
            Some(Whose::Cgroup(_)) => true,
            // Their packets are told by a network namespace where it is theirs alone.
            Some(Whose::Processes(processes)) => processes.cgroup.is_some() || self.traffic().is_none(),
            None => self.processes().is_some_and(|processes| processes.cgroup.is_some()),
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
            Self::Names { .. } => FaultType::DnsError,
            Self::Drop { partition: true, .. } | Self::Sever { partition: true, .. } => {
                FaultType::NetworkPartition
            }
            Self::Drop { partition: false, .. } | Self::Sever { partition: false, .. } => FaultType::Timeout,
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
            Self::Sockets { .. } => FaultType::SocketError,
            Self::Spoil { .. } => FaultType::McpError,
            Self::Down(HostDown { way: Way::Reboot { .. }, .. }) => FaultType::HostReboot,
            Self::Down(HostDown { way: Way::Panic { .. }, .. }) => FaultType::HostPanic,
            Self::ServiceStop { .. } => FaultType::ServiceStop,
            Self::ServiceRestart { .. } => FaultType::ServiceRestart,
        }
    }
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
        self.target.check_resolving().and_then(|()| netns::check(self.target.netns.as_deref()))?;
        takes::check(self.fault_type, &self.params)?;
        Ok(Fault { duration, effect: self.effect(duration)? })
    }

    /// What a fault that lasts so long does. The parameters were checked.
    fn effect(&self, duration: Duration) -> Result<Effect, SpecError> {
        Ok(match self.fault_type {
            FaultType::Latency => {
                let params: LatencyParams = self.part()?;
                self.impair(params.impairment(self.part()?)?, self.packet_share()?, params.names()?)?
            }
            FaultType::PacketLoss => self.impair_all(self.part::<LossParams>()?.impairment(self.part()?)?)?,
            FaultType::PacketDuplicate => {
                self.impair_all(self.part::<DuplicateParams>()?.impairment(self.part()?)?)?
            }
            FaultType::PacketCorrupt => {
                self.impair_all(self.part::<CorruptParams>()?.impairment(self.part()?)?)?
            }
            FaultType::PacketReorder => {
                self.impair_all(self.part::<ReorderParams>()?.impairment(self.part()?)?)?
            }
            FaultType::Bandwidth => self.impair_all(self.part::<BandwidthParams>()?.impairment())?,
            FaultType::Error => self.refuse(&self.part()?)?,
            FaultType::DnsError => self.answer(&self.part()?)?,
            FaultType::Timeout => self.lose(&[Direction::Egress], false)?,
            FaultType::NetworkPartition => self.lose(Direction::BOTH, true)?,
            FaultType::ResourceExhaustion => resource::effect(&self.params, &self.target)?,
            FaultType::Pause => Effect::Pause { whose: settings::group(&self.target)? },
            FaultType::LinkDown => {
                let rhythm = self.part::<LinkParams>()?.rhythm(self.target.seed)?;
                let (interface, netns) = settings::link(&self.target)?;
                Effect::LinkDown { interface, netns, rhythm }
            }
            FaultType::ClockSkew => {
                settings::nowhere(&self.target, "the clock is the whole host's")?;
                Effect::ClockSkew { offset_ns: self.part::<ClockParams>()?.offset_ns()? }
            }
            FaultType::ProcessKill => Effect::ProcessKill {
                processes: ProcessSelector::parse(&self.target)?,
                volleys: self.part::<KillParams>()?.volleys()?,
            },
            FaultType::ProcessPause => Effect::ProcessPause {
                processes: ProcessSelector::parse(&self.target)?,
                rhythm: self.part::<PauseParams>()?.rhythm()?,
            },
            FaultType::ConnectError => {
                let failure = self.part::<ConnectParams>()?.failure(self.part()?)?;
                Effect::Connect { calls: Connections::parse(&self.target)?, failure }
            }
            FaultType::ServiceStop => Effect::ServiceStop { unit: settings::service(&self.target)? },
            FaultType::ServiceRestart => Effect::ServiceRestart { unit: settings::service(&self.target)? },
            FaultType::PortInUse => {
                let what = self.part::<PortParams>()?.port(&self.target)?;
                let netns = self.target.netns.clone();
                Effect::Hoard { what: Hoard::Port(what), ramp: Duration::ZERO, whose: None, netns }
            }
            FaultType::ConnectionLoad => {
                let ramp = self.part::<Ramp>()?.duration();
                Effect::Load(self.part::<LoadParams>()?.load(ramp, &self.target)?)
            }
            FaultType::FileError => {
                let params: FileParams = self.part()?;
                let failure = params.failure(self.part()?, &self.part()?)?;
                Effect::Files { calls: params.calls(&self.target)?, failure }
            }
            FaultType::SocketError => {
                let params: SocketParams = self.part()?;
                let failure = params.failure(self.part()?, &self.part()?)?;
                Effect::Sockets { calls: params.calls(&self.target)?, failure }
            }
            FaultType::McpError => self.spoil()?,
            FaultType::HostReboot => {
                settings::nowhere(&self.target, "it is the whole host that is rebooted")?;
                self.down(self.part::<RebootParams>()?.way(), duration)?
            }
            FaultType::HostPanic => {
                settings::nowhere(&self.target, "it is the whole host that panics")?;
                self.down(self.part::<PanicParams>()?.way(), duration)?
            }
        })
    }

    fn refuse(&self, params: &ErrorParams) -> Result<Effect, SpecError> {
        let (traffic, refusal) = (Traffic::parse(&self.target, &[Direction::Egress])?, params.refusal()?);
        let traffic = refusal.narrow(traffic)?;
        Ok(Effect::Refuse { traffic, refusal, packet_probability: self.packet_share()? })
    }

    fn answer(&self, params: &DnsParams) -> Result<Effect, SpecError> {
        let traffic = Questions::narrow(Traffic::parse(&self.target, &[Direction::Egress])?)?;
        Ok(Effect::Names {
            traffic,
            questions: params.questions()?,
            packet_probability: self.packet_share()?,
        })
    }

    fn spoil(&self) -> Result<Effect, SpecError> {
        let (processes, spoiling) = (ProcessSelector::parse(&self.target)?, Spoiling::parse(&self.params)?);
        if spoiling.affected() <= 0.0 {
            let problem =
                "nothing would happen: give delay_ms, or a share above 0 of fail, drop, truncate or corrupt";
            return Err(SpecError::new("params.fail", problem));
        }
        Ok(Effect::Spoil { processes, spoiling })
    }

    fn lose(&self, directions: &[Direction], partition: bool) -> Result<Effect, SpecError> {
        let packet_probability = self.packet_share()?;
        if let Some(packets) = ServicePackets::parse(&self.target, directions)? {
            return Ok(Effect::Sever { packets, packet_probability, partition });
        }
        let traffic = Traffic::parse(&self.target, directions)?;
        Ok(Effect::Drop { traffic, packet_probability, partition })
    }

    /// What says itself which share of the packets it is about.
    fn impair_all(&self, impairment: Impairment) -> Result<Effect, SpecError> {
        self.impair(impairment, Probability::CERTAIN, Vec::new())
    }

    fn impair(
        &self,
        impairment: Impairment,
        packet_probability: Probability,
        names: Vec<Names>,
    ) -> Result<Effect, SpecError> {
        let mut traffic = Traffic::parse(&self.target, &[Direction::Egress])?;
        if !names.is_empty() {
            traffic = Questions::narrow(traffic)?;
        }
        if traffic.interface == "lo" {
            finds_back_on_loopback(&traffic)?;
        }
        Ok(Effect::Impair { traffic, impairment, packet_probability, names })
    }

    fn down(&self, way: Way, lasts: Duration) -> Result<Effect, SpecError> {
        Ok(Effect::Down(HostDown { way, countdown: self.part::<Countdown>()?.within(lasts)? }))
    }

    fn packet_share(&self) -> Result<Probability, SpecError> {
        self.part::<PacketShare>()?.probability()
    }

    fn part<T: for<'de> Deserialize<'de>>(&self) -> Result<T, SpecError> {
        parameter::part(&self.params)
    }
}

/// Refuses what cannot be sent on a detour from the loopback.
fn finds_back_on_loopback(traffic: &Traffic) -> Result<(), SpecError> {
    const LOCAL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
    if traffic.directions.contains(&Direction::Ingress) {
        let problem = "whatever leaves on the loopback arrives there: give \"egress\"";
        return Err(SpecError::new("target.direction", problem));
    }
    let lost = |net: &&IpNet| matches!(net, IpNet::V4(net) if !net.contains(&LOCAL) && !LOCAL.contains(net));
    match traffic.peers.iter().find(lost) {
        None => Ok(()),
        Some(net) => Err(SpecError::new(
            "target.cidr",
            format!(
                "on the loopback this fault finds IPv4 packets to {LOCAL} only, and none to {net}: use that, or IPv6"
            ),
        )),
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
pub(super) mod tests;
