//! The veth loop: how matching packets get into a queue of ours and back, for every kind of fault that needs one.
//!
//! - **Mechanism**: a packet program on the device diverts matching packets into a veth pair of ours whose near end
//!   has netem as its root qdisc. The far end, in the holder's private network namespace, sends them back. On their
//!   return they are marked and leave through the device and its own, untouched qdisc.
//! - **Kernel requirement**: `sch_netem`, `veth`, and what a partition needs.
//! - **Lifetime class**: kernel. The namespace dies with the holder, and the pair and its queue with it.
//! - **Undo**: end the holder; with clsact, also delete the inert filter. What is in the queue when the holder is killed is
//!   lost; a removal lets it out first.
//! - **Blast radius**: the named device, prefixes, protocol and ports; bystanders pay one program that does not
//!   match. The socket mark of packets that take the detour is lost, as in any crossing of namespaces. netem sees what
//!   the stack hands over: segments that the device would have cut up (segmentation offload) count as one packet. On the
//!   loopback, IPv4 packets to 127.0.0.0/8 and all of IPv6: others do not find back.
//! - **Reference**: tc-netem(8), Linux `net/sched/sch_netem.c`, `drivers/net/veth.c`, `net/ipv4/route.c`.

mod bandwidth;
mod latency;
mod link_profile;
mod packet_corrupt;
mod packet_duplicate;
mod packet_loss;
mod packet_reorder;
mod queue;
mod replay;

pub(super) use self::link_profile::OF_RATES;
use self::queue::Queue;
pub use self::replay::{Moment, Replay};
use super::{LoopWork, Place, Plan, Ready, Work, attach_steps, matching, traffic_words};
use crate::kernel::step::Step;
use crate::spec::LifetimeClass;
use crate::spec::dns::{Names, about};
use crate::spec::{Direction, Impairment, Probability, Traffic};

/// Plans it as soon as its place is known.
pub(super) fn prepare(
    traffic: &Traffic,
    impairment: &Impairment,
    packet_probability: Probability,
    names: &[Names],
) -> Ready {
    let (traffic, impairment, names) = (traffic.clone(), impairment.clone(), names.to_vec());
    Ready::on_device(move |place| plan(&traffic, &impairment, packet_probability, &names, place))
}

/// Plans it.
pub fn plan(
    traffic: &Traffic,
    impairment: &Impairment,
    packet_probability: Probability,
    names: &[Names],
    place: &Place<'_>,
) -> Plan {
    let packets = matching(traffic, packet_probability, place);
    let queue = |direction: &Direction| match impairment {
        Impairment::Delay(delay) => latency::queue(delay),
        Impairment::Loss(loss) => packet_loss::queue(loss),
        Impairment::Duplicate(chance) => packet_duplicate::queue(*chance),
        Impairment::Corrupt(chance) => packet_corrupt::queue(*chance),
        Impairment::Reorder(reorder) => packet_reorder::queue(reorder),
        Impairment::Rate { kbit } => bandwidth::queue(*kbit),
        Impairment::Link(link) => link_profile::queue(link, *direction, &packets.directions),
    };
    let queues: Vec<_> = packets.directions.iter().map(|direction| (*direction, queue(direction))).collect();
    let replays = packets.directions.iter().filter_map(|direction| match impairment {
        Impairment::Link(link) => Some((*direction, Replay::of(link.trace(*direction)?))),
        _ => None,
    });
    let replays = replays.collect();
    let longest = queues.iter().map(|(_, queue)| queue.longest).max().unwrap_or_default();
    let verb = queues.first().map(|(_, queue)| queue.verb.clone()).unwrap_or_default();
    let netem = |(direction, queue): (Direction, Queue)| (direction, queue.netem);
    let mut words = traffic_words(traffic, &packets);
    if !names.is_empty() {
        words = format!("{}, among {words}", about(names).trim_start());
    }
    let near_ends = packets
        .directions
        .iter()
        .map(|direction| Step::NearEnd { netns: place.netns.clone(), id: loop_id(place.id, *direction) });
    Plan {
        steps: near_ends.chain(attach_steps(&packets, place)).collect(),
        lifetime: LifetimeClass::Kernel,
        description: format!("{verb} {words}"),
        work: Work::Loop(LoopWork {
            packets,
            id: place.id,
            queues: queues.into_iter().map(netem).collect(),
            replays,
            longest,
            counts_losses: matches!(impairment, Impairment::Loss(_)),
            names: names.to_vec(),
        }),
    }
}

/// The identity of the loop for one direction, from which its devices are named.
pub fn loop_id(id: u32, direction: Direction) -> u32 {
    match direction {
        Direction::Egress => id & !1,
        Direction::Ingress => id | 1,
    }
}
