//! Error: matching TCP segments are answered with a reset.
//!
//! - **Mechanism**: a packet program turns the segment into its own answer (addresses and ports swapped, flags
//!   RST) and sends it back where it came from. A connecting caller sees ECONNREFUSED, a connected one ECONNRESET.
//! - **Kernel requirement**: as for a partition.
//! - **Lifetime class**: kernel. Connections that were reset stay reset: callers must connect again.
//! - **Undo**: end the holder; with clsact, also delete the inert filter.
//! - **Blast radius**: TCP on the named device, prefixes and ports; protected traffic is spared.
//! - **Reference**: RFC 9293 §3.10.7.1 (answers to a segment for a closed port).

use super::{PacketAction, PacketWork, Place, Plan, Work, attach_steps, matching, traffic_words};
use crate::host::Requirement;
use crate::request::LifetimeClass;
use crate::spec::{Probability, Traffic};

/// What it needs of the kernel.
pub const REQUIREMENTS: &[Requirement] = &[Requirement::PacketPrograms];

/// Plans it.
pub fn plan(traffic: &Traffic, packet_probability: Probability, place: &Place<'_>) -> Plan {
    let packets = matching(traffic, packet_probability, place);
    Plan {
        steps: attach_steps(&packets, place),
        lifetime: LifetimeClass::Kernel,
        description: format!("error: resets {}", traffic_words(traffic, &packets)),
        work: Work::Packets(PacketWork { packets, action: PacketAction::Reset }),
    }
}
