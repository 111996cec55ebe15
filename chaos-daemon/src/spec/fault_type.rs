//! The list of faults: their names, and what they do, in words.

use serde::{Deserialize, Serialize};

use super::units::SpecError;

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
    /// What a service asks of sockets fails with an error.
    SocketError,
    /// A service is stopped.
    ServiceStop,
    /// A service is stopped and started again.
    ServiceRestart,
    /// Questions about names are answered wrongly, or not at all.
    DnsError,
    /// Calls to an MCP server behind `chaosctl mcp-proxy` fail, are late, or are answered wrongly.
    McpError,
    /// The host is rebooted.
    HostReboot,
    /// The host's kernel panics.
    HostPanic,
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
    FaultType::SocketError,
    FaultType::ServiceStop,
    FaultType::ServiceRestart,
    FaultType::DnsError,
    FaultType::McpError,
    FaultType::HostReboot,
    FaultType::HostPanic,
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
            Self::SocketError => "socket_error",
            Self::ServiceStop => "service_stop",
            Self::ServiceRestart => "service_restart",
            Self::DnsError => "dns_error",
            Self::McpError => "mcp_error",
            Self::HostReboot => "host_reboot",
            Self::HostPanic => "host_panic",
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
            Self::Timeout => {
                "drops matching packets silently on their way out, so that callers wait; of an interface, or of a unit, cgroup or \
                 processes on every interface"
            }
            Self::ResourceExhaustion => {
                "burns CPU time, closed loop, at a percentage of some cores or of the quota of a cgroup or unit; or takes memory, room or inodes of \
                 a file system, open files, processes, ports or disk bandwidth and holds them; or limits the CPU \
                 time, memory, processes or disk bandwidth of a cgroup or unit (supervised)"
            }
            Self::NetworkPartition => {
                "drops matching packets silently, both ways; of an interface, or of a unit, cgroup or \
                 processes on every interface"
            }
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
                "fails what a cgroup, unit or process asks of the files at or below a path (opening, making, reading, writing, \
                 mapping them) with an error of choice"
            }
            Self::SocketError => {
                "fails what a cgroup, unit or process asks of sockets of IPv4 and IPv6 (binding, listening, accepting, sending, \
                 receiving) with an error of choice"
            }
            Self::ServiceStop => "stops a systemd service, and starts it again at the end (supervised)",
            Self::ServiceRestart => {
                "restarts a systemd service once, and watches how long it is gone (irreversible)"
            }
            Self::DnsError => {
                "answers questions to name servers, about all names or given ones, with an error or a wrong address, or has \
                 them vanish"
            }
            Self::McpError => {
                "delays, fails, drops, truncates or corrupts a share of the calls to an MCP server that speaks over stdio, behind \
                 `chaosctl mcp-proxy`"
            }
            Self::HostReboot => {
                "reboots this host, in order or at once, if the policy allows it, and says afterwards how long it was gone (irreversible)"
            }
            Self::HostPanic => {
                "has this host's kernel panic, if the policy allows it, and says afterwards how long it was gone (irreversible)"
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
