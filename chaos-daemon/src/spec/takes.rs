//! What each type of fault takes: its parameters, of the structs by which [`FaultRequest::parse`] reads them, and the fields of its
//! target.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

#[cfg(doc)]
use super::FaultRequest;
use super::answer::ErrorParams;
use super::calls::ConnectParams;
use super::dns::DnsParams;
use super::fault_type::{FAULT_TYPES, FaultType};
use super::files::FileParams;
use super::hoard::PortParams;
use super::host::{PanicParams, RebootParams};
use super::impairment::{
    BandwidthParams, CorruptParams, DuplicateParams, LatencyParams, LossParams, ReorderParams,
};
use super::mcp::McpParams;
use super::parameter::{self, Parameter, fields_of};
use super::parts::{CallShare, CallSignal, Correlated, Countdown, PacketShare, Ramp};
use super::process::{KillParams, PauseParams};
use super::resource;
use super::sessions::LoadParams;
use super::settings::{ClockParams, LinkParams};
use super::sockets::SocketParams;
use super::units::SpecError;

impl FaultType {
    /// Its parameters, read off their structs.
    fn read_parameters(self) -> Vec<Parameter> {
        let parts = match self {
            Self::Latency => {
                vec![fields_of::<LatencyParams>(), fields_of::<Correlated>(), fields_of::<PacketShare>()]
            }
            Self::Error => vec![fields_of::<ErrorParams>(), fields_of::<PacketShare>()],
            Self::Timeout | Self::NetworkPartition => vec![fields_of::<PacketShare>()],
            Self::ResourceExhaustion => vec![resource::parameters()],
            Self::PacketLoss => vec![fields_of::<LossParams>(), fields_of::<Correlated>()],
            Self::PacketDuplicate => vec![fields_of::<DuplicateParams>(), fields_of::<Correlated>()],
            Self::PacketCorrupt => vec![fields_of::<CorruptParams>(), fields_of::<Correlated>()],
            Self::PacketReorder => vec![fields_of::<ReorderParams>(), fields_of::<Correlated>()],
            Self::Bandwidth => vec![fields_of::<BandwidthParams>()],
            Self::Pause | Self::ServiceStop | Self::ServiceRestart => Vec::new(),
            Self::LinkDown => vec![fields_of::<LinkParams>()],
            Self::ClockSkew => vec![fields_of::<ClockParams>()],
            Self::ProcessKill => vec![fields_of::<KillParams>()],
            Self::ProcessPause => vec![fields_of::<PauseParams>()],
            Self::ConnectError => vec![fields_of::<ConnectParams>(), fields_of::<CallShare>()],
            Self::PortInUse => vec![fields_of::<PortParams>()],
            Self::ConnectionLoad => vec![fields_of::<LoadParams>(), fields_of::<Ramp>()],
            Self::FileError => {
                vec![fields_of::<FileParams>(), fields_of::<CallShare>(), fields_of::<CallSignal>()]
            }
            Self::SocketError => {
                vec![fields_of::<SocketParams>(), fields_of::<CallShare>(), fields_of::<CallSignal>()]
            }
            Self::DnsError => vec![fields_of::<DnsParams>(), fields_of::<PacketShare>()],
            Self::McpError => vec![fields_of::<McpParams>()],
            Self::HostReboot => vec![fields_of::<RebootParams>(), fields_of::<Countdown>()],
            Self::HostPanic => vec![fields_of::<PanicParams>(), fields_of::<Countdown>()],
        };
        parts.into_iter().flatten().collect()
    }
}

/// What tells whose processes, packets, calls or resources are meant.
const GROUP: [&str; 7] = ["unit", "cgroup", "pid", "exe", "command", "below", "container"];

impl FaultType {
    /// The fields of a target that have a place in it, as [`FaultRequest::parse`] reads them.
    pub fn target_fields(self) -> Vec<&'static str> {
        let (group, more): (bool, &[&str]) = match self {
            Self::Latency
            | Self::Error
            | Self::Timeout
            | Self::NetworkPartition
            | Self::PacketLoss
            | Self::PacketDuplicate
            | Self::PacketCorrupt
            | Self::PacketReorder
            | Self::Bandwidth
            | Self::DnsError => (
                true,
                &[
                    "interface",
                    "netns",
                    "cidr",
                    "cidrs",
                    "host",
                    "resolve_seconds",
                    "port",
                    "local_port",
                    "remote_port",
                    "protocol",
                    "direction",
                ],
            ),
            Self::ResourceExhaustion => (true, &["netns", "protocol"]),
            Self::Pause | Self::FileError => (true, &[]),
            Self::LinkDown => (false, &["interface", "netns", "seed"]),
            Self::ProcessKill | Self::ProcessPause | Self::McpError => (true, &["share", "seed"]),
            Self::ConnectError => {
                (true, &["cidr", "cidrs", "host", "resolve_seconds", "port", "remote_port", "protocol"])
            }
            Self::SocketError => (true, &["port", "local_port", "remote_port", "protocol"]),
            Self::PortInUse => (false, &["local_port", "protocol", "netns"]),
            Self::ConnectionLoad => (false, &["netns"]),
            Self::ServiceStop | Self::ServiceRestart => (false, &["unit"]),
            Self::ClockSkew | Self::HostReboot | Self::HostPanic => (false, &[]),
        };
        GROUP.into_iter().filter(|_| group).chain(more.iter().copied()).collect()
    }
}

/// Every type's parameters. They are read once.
static ALL: LazyLock<BTreeMap<FaultType, Vec<Parameter>>> =
    LazyLock::new(|| FAULT_TYPES.iter().map(|kind| (*kind, kind.read_parameters())).collect());

impl FaultType {
    /// The parameters that it takes, in the order in which people are told of them.
    pub fn parameters(self) -> &'static [Parameter] {
        ALL.get(&self).map_or(&[], Vec::as_slice)
    }

    /// The same in a line.
    pub fn parameter_line(self) -> String {
        let line = |parameter: &Parameter| match parameter.resources.is_empty() {
            true => parameter.line(),
            false => format!("{} of {}", parameter.line(), parameter.resources.join(", ")),
        };
        match self.parameters() {
            [] => "none".to_owned(),
            all => all.iter().map(line).collect::<Vec<_>>().join("; "),
        }
    }
}

/// Refuses parameters that this type does not take, that lack one, or that are out of bounds.
///
/// # Errors
/// Names the parameter.
pub(super) fn check(kind: FaultType, given: &Map<String, Value>) -> Result<(), SpecError> {
    if kind != FaultType::ResourceExhaustion {
        return parameter::check(kind.name(), kind.parameters(), given);
    }
    resource::check(given, kind.parameters())
}
