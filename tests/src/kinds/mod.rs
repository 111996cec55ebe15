//! Every kind of fault, each in a file of its own, after which it is called. The file says all that the tests know of the kind. That is
//! who sees it act, how matrix and sweep strike it, how its end is measured, and what strangers and dry runs ask for. The list is at the
//! end of this file; whoever goes through all kinds takes it from there.

pub(crate) mod aims;
pub(crate) mod ended;
pub(crate) mod limited;
pub(crate) mod needs;
pub(crate) mod sign;
pub(crate) mod struck;
mod table;

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

use chaos_daemon::spec::FaultType;

use aims::{Aim, ToRequest};
use ended::Ended;
use needs::Needs;
use struck::Struck;
use table::Table;

pub use needs::Machine;
pub(crate) use resource_exhaustion::LIMITED;
pub use table::{Refused, Row, rows};
pub(crate) use table::{impossible, untried};

/// A kind of fault.
pub(crate) struct Kind {
    /// What of it there is, and the tests that see it act.
    table: Table,
    /// What every fault of it needs of the machine. For want of that a dry run is refused, too.
    pub(crate) needs: Needs,
    /// What matrix and sweep strike, or leave out for a reason that shows as a skip.
    pub(crate) struck: &'static [Struck],
    /// What is measured of its end: nothing of what outlives the processes.
    pub(crate) ended: &'static [Ended],
    /// A request that is right, and hurts nobody: for strangers.
    pub(crate) harmless: ToRequest,
    /// Where a dry run aims the daemon's own example, so that it could be injected.
    pub(crate) planned: Aim,
}

/// Makes the way from each type to its file: a type that is not in the list does not compile.
macro_rules! kinds {
    ($($kind:ident = $file:ident,)+) => {
        /// All that is known of a type.
        pub(crate) const fn of(kind: FaultType) -> &'static Kind {
            match kind {
                $(FaultType::$kind => &$file::KIND,)+
            }
        }
    };
}

kinds! {
    Latency = latency,
    Error = error,
    Timeout = timeout,
    ResourceExhaustion = resource_exhaustion,
    NetworkPartition = network_partition,
    PacketLoss = packet_loss,
    PacketDuplicate = packet_duplicate,
    PacketCorrupt = packet_corrupt,
    PacketReorder = packet_reorder,
    Bandwidth = bandwidth,
    LinkProfile = link_profile,
    Pause = pause,
    LinkDown = link_down,
    ClockSkew = clock_skew,
    ProcessKill = process_kill,
    ProcessPause = process_pause,
    ConnectError = connect_error,
    PortInUse = port_in_use,
    ConnectionLoad = connection_load,
    FileError = file_error,
    SocketError = socket_error,
    ServiceStop = service_stop,
    ServiceRestart = service_restart,
    DnsError = dns_error,
    McpError = mcp_error,
    HostReboot = host_reboot,
    HostPanic = host_panic,
}
