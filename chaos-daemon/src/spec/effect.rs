//! What a fault does, and where: the parsed half of a request.

use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::answer::Refusal;
use super::calls::{Connections, Failure};
use super::dns::{Names, Questions};
use super::files::FileCalls;
use super::hoard::Hoard;
use super::host::HostDown;
use super::impairment::Impairment;
use super::load::CpuLoad;
use super::mcp::Spoiling;
use super::process::{ProcessSelector, Rhythm, Volleys, Whose};
use super::service::ServicePackets;
use super::sessions::ConnectionLoad;
use super::settings::{Limit, LinkRhythm};
use super::sockets::SocketCalls;
use super::target::Protocol;
use super::traffic::Traffic;
use super::units::Probability;

/// What a fault does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Packets take a queue of ours: see `latency`, and the other types that [`Impairment`] knows.
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
    /// See `error`.
    Refuse {
        /// Which packets; only TCP segments for a reset.
        traffic: Traffic,
        /// What they are answered with.
        refusal: Refusal,
        /// Share of the matching packets that is answered.
        packet_probability: Probability,
    },
    /// See `dns_error`.
    Names {
        /// Which packets may be questions.
        traffic: Traffic,
        /// Which questions, and what they are answered with.
        questions: Questions,
        /// Share of the matching questions that is answered so.
        packet_probability: Probability,
    },
    /// See `timeout` and `network_partition`.
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
    /// See `resource_exhaustion`.
    Cpu(CpuLoad),
    /// See `resource_exhaustion` and `port_in_use`.
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
    /// See `resource_exhaustion`.
    Limit {
        /// Whom it limits.
        whose: Whose,
        /// To what.
        limit: Limit,
    },
    /// See `pause`.
    Pause {
        /// Who stands still.
        whose: Whose,
    },
    /// See `link_down`.
    LinkDown {
        /// Interface name.
        interface: String,
        /// Network namespace, as the caller named it; `None` is the daemon's own.
        netns: Option<String>,
        /// How it goes up and down by turns; `None` is down all the time.
        rhythm: Option<LinkRhythm>,
    },
    /// See `clock_skew`.
    ClockSkew {
        /// By how many nanoseconds, forwards or back.
        offset_ns: i64,
    },
    /// See `process_kill`.
    ProcessKill {
        /// Who gets the signal.
        processes: ProcessSelector,
        /// Which one, and how often.
        volleys: Volleys,
    },
    /// See `process_pause`.
    ProcessPause {
        /// Who stands still.
        processes: ProcessSelector,
        /// How it alternates; `None` is all the time.
        rhythm: Option<Rhythm>,
    },
    /// See `service_stop`.
    ServiceStop {
        /// Name of the unit.
        unit: String,
    },
    /// See `service_restart`.
    ServiceRestart {
        /// Name of the unit.
        unit: String,
    },
    /// See `connect_error`.
    Connect {
        /// Which calls.
        calls: Connections,
        /// How they fail.
        failure: Failure,
    },
    /// See `connection_load`.
    Load(ConnectionLoad),
    /// See `file_error`.
    Files {
        /// Which calls.
        calls: FileCalls,
        /// How they fail.
        failure: Failure,
    },
    /// See `socket_error`.
    Sockets {
        /// Which calls.
        calls: SocketCalls,
        /// How they fail.
        failure: Failure,
    },
    /// See `mcp_error`.
    Spoil {
        /// Which proxies.
        processes: ProcessSelector,
        /// What becomes of which calls.
        spoiling: Spoiling,
    },
    /// See `host_reboot` and `host_panic`.
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

    /// Whether it acts on one target that is known by its identity, and can go while the fault goes on: a control group or a device.
    /// Of what a holder takes in a group, the group cannot go without the holder.
    pub fn is_pinned(&self) -> bool {
        match self {
            Self::Sever { .. }
            | Self::Connect { .. }
            | Self::Files { .. }
            | Self::Sockets { .. }
            | Self::Limit { .. }
            | Self::Pause { .. }
            | Self::LinkDown { .. } => true,
            _ => self.traffic().is_some(),
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

    /// The interface it goes to, if it goes to one, and that is known.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::LinkDown { interface, .. } => Some(interface),
            _ => self.traffic().and_then(|traffic| traffic.interface.as_deref()),
        }
    }

    /// The peers that it names by their addresses.
    pub fn fixed_peers(&self) -> Vec<IpNet> {
        match self {
            Self::Connect { calls, .. } => calls.peers.clone(),
            Self::Sever { packets, .. } => packets.peers.clone(),
            effect => effect.traffic().map_or_else(Vec::new, |traffic| traffic.peers.clone()),
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
}
