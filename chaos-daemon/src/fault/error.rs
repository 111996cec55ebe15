//! Error: matching packets are answered with a reset, or with a message that their destination cannot be reached.
//!
//! One fault type with the answer as a parameter, and not one for each: they are the same but for the bytes that come back,
//! and a caller who knows `error` finds the others there.
//!
//! - **Mechanism**: a packet program turns the packet into its own answer (a TCP header with RST, or ICMP's destination
//!   unreachable around the first bytes of the packet; addresses swapped) and sends it back where it came from. A connecting
//!   caller sees ECONNREFUSED, EHOSTUNREACH or ENETUNREACH. The kernel ignores the ICMP that a first SYN brings back, because
//!   connect(2) still has the socket; so the program answers a local caller's first SYN with an acknowledgement of nothing,
//!   which has it sent again two timer ticks later, and answers that one.
//! - **Kernel requirement**: as for a partition.
//! - **Lifetime class**: kernel. Connections that were reset stay reset: callers must connect again. Those that are there
//!   survive ICMP (RFC 1122 4.2.3.9), and go on when the fault is over, unless they have timed out.
//! - **Undo**: end the holder; with clsact, also delete the inert filter.
//! - **Blast radius**: the named device, prefixes, protocol and ports; protected traffic is spared. ICMP errors pass. What else
//!   nothing may answer (resets, fragments, multicast and broadcast) and what has IP options is dropped silently.
//! - **Reference**: RFC 9293 §3.10.7.1 (answers to a segment for a closed port), RFC 792, RFC 4443 §3.1, Linux
//!   `net/ipv4/tcp_ipv4.c` (`tcp_v4_err`), `net/ipv4/tcp_input.c` (`tcp_rcv_synsent_state_process`).

use super::Ready;
use super::{PacketAction, PacketWork, Place, Plan, Work, attach_steps, matching, traffic_words};
use crate::spec::LifetimeClass;
use crate::spec::{Probability, Refusal, Traffic};

/// Plans it as soon as its place is known.
pub(super) fn prepare(traffic: &Traffic, refusal: Refusal, packet_probability: Probability) -> Ready {
    let traffic = traffic.clone();
    Ready::on_device(move |place| plan(&traffic, refusal, packet_probability, place))
}

/// Plans it.
pub fn plan(traffic: &Traffic, refusal: Refusal, packet_probability: Probability, place: &Place<'_>) -> Plan {
    let packets = matching(traffic, packet_probability, place);
    let words = traffic_words(traffic, &packets);
    Plan {
        steps: attach_steps(&packets, place),
        lifetime: LifetimeClass::Kernel,
        description: match refusal {
            Refusal::Reset => format!("error: resets {words}"),
            _ => format!("error: answers {words} with {}", refusal.name()),
        },
        work: Work::Packets(PacketWork { packets, action: PacketAction::Refuse(refusal) }),
    }
}
