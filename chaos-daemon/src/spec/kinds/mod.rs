//! The types of fault, each in a file of its own that says all that is known of it whatever a caller gives. The list is at the end of
//! this file: command line, JSON Schema, README table and `doctor` derive from it.

mod bandwidth;
mod clock_skew;
mod connect_error;
mod connection_load;
mod dns_error;
mod error;
mod file_error;
mod host_panic;
mod host_reboot;
mod latency;
mod link_down;
mod link_profile;
mod mcp_error;
mod network_partition;
mod packet_corrupt;
mod packet_duplicate;
mod packet_loss;
mod packet_reorder;
mod pause;
mod port_in_use;
mod process_kill;
mod process_pause;
mod resource_exhaustion;
mod service_restart;
mod service_stop;
mod socket_error;
mod timeout;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::blast::{Of, Severity};
use super::category::Category;
use super::effect::Effect;
use super::fault::FaultRequest;
use super::lifetime::LifetimeClass;
use super::parameter::{self, Parameter};
use super::requirement::Requirement;
use super::resource;
use super::units::SpecError;

/// A type of fault.
struct Kind {
    summary: &'static str,
    categories: &'static [Category],
    lifetimes: &'static [(LifetimeClass, Option<&'static str>)],
    severities: &'static [Severity],
    share: Option<(Of, &'static str)>,
    needs: &'static [Requirement],
    /// The structs whose fields are its parameters.
    parameters: &'static [fn() -> Vec<Parameter>],
    /// Whether its target may say whose processes, packets, calls or resources are meant ([`GROUP`]).
    group: bool,
    /// The other fields of a target that have a place in it.
    target: &'static [&'static str],
    /// Target and parameters of the shortest request, as JSON.
    example: (&'static str, &'static str),
    /// What a fault that lasts so long does. The parameters were checked.
    effect: fn(&FaultRequest, Duration) -> Result<Effect, SpecError>,
}

/// What tells whose processes, packets, calls or resources are meant.
const GROUP: [&str; 7] = ["unit", "cgroup", "pid", "exe", "command", "below", "container"];

/// What tells which packets are meant.
const TRAFFIC: &[&str] = &[
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
    "on_target_gone",
];

/// What a detour of packets needs of the kernel.
const DETOUR: &[Requirement] = &[Requirement::PacketPrograms, Requirement::Veth, Requirement::Netem];

impl FaultType {
    /// What it does to the node, in one sentence for a table.
    pub fn summary(self) -> &'static str {
        self.kind().summary
    }

    /// What it is about, the most important first.
    pub fn categories(self) -> &'static [Category] {
        self.kind().categories
    }

    /// What binds it to its end, with the part of the type of which that is true; of all of it without one.
    pub fn lifetimes(self) -> &'static [(LifetimeClass, Option<&'static str>)] {
        self.kind().lifetimes
    }

    /// How badly those may be off that it affects, the mildest first: which of these it is depends on what it is told, see
    /// [`Effect::blast`].
    pub fn severities(self) -> &'static [Severity] {
        self.kind().severities
    }

    /// What it can be told to affect a share of, and the field that says so; `None` when it is all or nothing, or has a
    /// measure of its own.
    pub fn shared(self) -> Option<(Of, &'static str)> {
        self.kind().share
    }

    /// Whether it is calls that it fails, and not packets.
    pub fn fails_calls(self) -> bool {
        self.kind().share.is_some_and(|(of, _)| of == Of::Calls)
    }

    /// What it needs of the kernel, whatever it is told.
    pub fn needs(self) -> &'static [Requirement] {
        self.kind().needs
    }

    /// The fields of a target that have a place in it, as [`FaultRequest::parse`] reads them.
    pub fn target_fields(self) -> Vec<&'static str> {
        let Kind { group, target, .. } = self.kind();
        GROUP.into_iter().filter(|_| *group).chain(target.iter().copied()).collect()
    }

    /// The parameters that it takes, in the order in which people are told of them.
    pub fn parameters(self) -> &'static [Parameter] {
        /// Every type's. They are read once.
        static ALL: LazyLock<BTreeMap<FaultType, Vec<Parameter>>> = LazyLock::new(|| {
            let read = |kind: &FaultType| kind.kind().parameters.iter().flat_map(|read| read()).collect();
            FAULT_TYPES.iter().map(|kind| (*kind, read(kind))).collect()
        });
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

    /// Target and parameters of the shortest request that is one of this type.
    pub fn example(self) -> (Value, Value) {
        let (target, params) = self.kind().example;
        let read = |text| serde_json::from_str(text).unwrap_or_default();
        (read(target), read(params))
    }

    /// Refuses parameters that this type does not take, that lack one, or that are out of bounds.
    ///
    /// # Errors
    /// Names the parameter.
    pub(super) fn check(self, given: &Map<String, Value>) -> Result<(), SpecError> {
        if self != Self::ResourceExhaustion {
            return parameter::check(self.name(), self.parameters(), given);
        }
        resource::check(given, self.parameters())
    }

    /// What a fault of this type does that lasts so long.
    ///
    /// # Errors
    /// Names the first field that is missing or wrong. The parameters were checked.
    pub(super) fn effect(self, request: &FaultRequest, lasts: Duration) -> Result<Effect, SpecError> {
        (self.kind().effect)(request, lasts)
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

/// Makes the enum of the types, the list of all, and the way from each to its file, after which it is called.
macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident = $file:ident,)+) => {
        /// The fault types: first those of the tool specification, in its order, then the daemon's own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum FaultType {
            $($(#[$doc])+ $kind,)+
        }

        /// Every fault type.
        pub const FAULT_TYPES: &[FaultType] = &[$(FaultType::$kind,)+];

        impl FaultType {
            fn kind(self) -> &'static Kind {
                match self {
                    $(Self::$kind => &$file::KIND,)+
                }
            }

            /// The name on the wire.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($file),)+
                }
            }
        }
    };
}

kinds! {
    /// Packets arrive late.
    Latency = latency,
    /// Packets are answered with an error.
    Error = error,
    /// Packets vanish, so that callers wait until their own time-out.
    Timeout = timeout,
    /// CPU time is burned, or a cgroup gets less of something.
    ResourceExhaustion = resource_exhaustion,
    /// Peers are cut off, in both directions.
    NetworkPartition = network_partition,
    /// Packets are lost, by chance or in bursts.
    PacketLoss = packet_loss,
    /// Packets arrive twice.
    PacketDuplicate = packet_duplicate,
    /// Packets arrive with a wrong bit.
    PacketCorrupt = packet_corrupt,
    /// Packets overtake each other.
    PacketReorder = packet_reorder,
    /// Only so much gets through.
    Bandwidth = bandwidth,
    /// A whole link, each way for itself.
    LinkProfile = link_profile,
    /// The processes of a cgroup stand still.
    Pause = pause,
    /// An interface is administratively down.
    LinkDown = link_down,
    /// The wall clock is wrong.
    ClockSkew = clock_skew,
    /// Processes get a signal.
    ProcessKill = process_kill,
    /// Processes stand still.
    ProcessPause = process_pause,
    /// A service's calls to others fail with an error.
    ConnectError = connect_error,
    /// A port cannot be bound.
    PortInUse = port_in_use,
    /// A server's connections are used up.
    ConnectionLoad = connection_load,
    /// What a service asks of files fails with an error.
    FileError = file_error,
    /// What a service asks of sockets fails with an error.
    SocketError = socket_error,
    /// A service is stopped.
    ServiceStop = service_stop,
    /// A service is stopped and started again.
    ServiceRestart = service_restart,
    /// Questions about names are answered wrongly, or not at all.
    DnsError = dns_error,
    /// Calls to an MCP server behind `chaosctl mcp-proxy` fail, are late, or are answered wrongly.
    McpError = mcp_error,
    /// The host is rebooted.
    HostReboot = host_reboot,
    /// The host's kernel panics.
    HostPanic = host_panic,
}
