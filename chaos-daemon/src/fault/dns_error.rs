//! DNS error: questions to name servers are answered wrongly, or not at all.
//!
//! Slowness is not among the answers: `latency` with `names` makes questions late, and on port 53 all of them.
//!
//! - **Mechanism**: a packet program reads the question, looks its name up in a trie in which names stand backwards, and makes
//!   the packet itself into the answer: the same question with a code or an address, addresses and ports swapped, sent back
//!   where it came from. A wrong address is told with a time to live of 0, so that nobody keeps it. Of `timeout` the question
//!   vanishes. A question over TCP cannot be answered by one packet: its connection is reset, or the question vanishes.
//! - **Kernel requirement**: as for a partition.
//! - **Lifetime class**: kernel. What a resolver on the way keeps of an error is the resolver's: errors come without the record
//!   that allows that (RFC 2308, 5), but some keep a failed server in mind for seconds.
//! - **Undo**: end the holder; with clsact, also delete the inert filter.
//! - **Blast radius**: questions in UDP datagrams on the named device, to or from the port (53), for the names that are given;
//!   and connections of TCP that bring one. Not seen: questions that are encrypted (DNS over TLS or HTTPS), names that somebody
//!   knows already, and of TCP a question that does not begin a segment. Protected traffic is spared.
//! - **Reference**: RFC 1035 §4.1 (messages), RFC 6891 §7 (who knows EDNS gets it back), Linux `kernel/bpf/lpm_trie.c`.

use super::Ready;
use super::{PacketAction, PacketWork, Place, Plan, Work, attach_steps, matching, traffic_words};
use crate::spec::LifetimeClass;
use crate::spec::{Probability, Questions, Traffic};

/// Plans it as soon as its place is known.
pub(super) fn prepare(traffic: &Traffic, questions: &Questions, packet_probability: Probability) -> Ready {
    let (traffic, questions) = (traffic.clone(), questions.clone());
    Ready::on_device(move |place| plan(&traffic, &questions, packet_probability, place))
}

/// Plans it.
pub fn plan(
    traffic: &Traffic,
    questions: &Questions,
    packet_probability: Probability,
    place: &Place<'_>,
) -> Plan {
    let packets = matching(traffic, packet_probability, place);
    let words = traffic_words(traffic, &packets);
    Plan {
        steps: attach_steps(&packets, place),
        lifetime: LifetimeClass::Kernel,
        description: format!("dns_error: {questions}, among {words}"),
        work: Work::Packets(PacketWork { packets, action: PacketAction::Answer(questions.clone()) }),
    }
}
