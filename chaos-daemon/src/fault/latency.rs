//! Latency: matching packets arrive late.
//!
//! - **Mechanism**: the veth loop. A packet program on the device diverts matching packets into a veth pair of
//!   ours whose near end has netem as its root qdisc; the far end, in the holder's private network namespace,
//!   sends them back; on their return they are marked and leave through the device and its own, untouched qdisc.
//! - **Kernel requirement**: `sch_netem`, `veth`, and what a partition needs.
//! - **Lifetime class**: kernel. The namespace dies with the holder, and the pair and its queue with it.
//! - **Undo**: end the holder; with clsact, also delete the inert filter. Up to one delay's worth of packets that
//!   are in the queue when the holder is killed are lost; a removal lets them out first.
//! - **Blast radius**: the named device, prefixes, protocol and ports; bystanders pay one program that does not
//!   match. The socket mark of delayed packets is lost, as in any crossing of namespaces.
//! - **Reference**: tc-netem(8), Linux `net/sched/sch_netem.c`, `drivers/net/veth.c`.

use super::{LoopWork, Place, Plan, Work, attach_steps, matching, traffic_words};
use crate::host::Requirement;
use crate::kernel::step::Step;
use crate::request::LifetimeClass;
use crate::spec::fault::Queue;
use crate::spec::{Probability, Traffic};

/// What it needs of the kernel.
pub const REQUIREMENTS: &[Requirement] =
    &[Requirement::PacketPrograms, Requirement::Veth, Requirement::Netem];

/// Packets per second that the queue is sized for when nobody says.
const DEFAULT_PACKET_RATE: u32 = 200_000;
/// netem's own default: never less.
const LEAST_LIMIT: u32 = 1_000;
/// Bounds the memory that queued packets can take.
const MOST_LIMIT: u32 = 1_000_000;

/// Plans it.
pub fn plan(traffic: &Traffic, queue: &Queue, packet_probability: Probability, place: &Place<'_>) -> Plan {
    let packets = matching(traffic, packet_probability, place);
    let jitter = match queue.jitter.is_zero() {
        true => String::new(),
        false => format!(" ± {:?}", queue.jitter),
    };
    let words = traffic_words(traffic, &packets);
    let near_ends = packets
        .directions
        .iter()
        .map(|direction| Step::NearEnd { netns: place.netns.clone(), id: loop_id(place.id, *direction) });
    Plan {
        steps: near_ends.chain(attach_steps(&packets, place)).collect(),
        lifetime: LifetimeClass::Kernel,
        description: format!("latency: delays by {:?}{jitter} {words}", queue.delay),
        work: Work::Loop(LoopWork {
            packets,
            id: place.id,
            delay: queue.delay,
            jitter: queue.jitter,
            limit: limit(queue),
        }),
    }
}

/// The identity of the loop for one direction, from which its devices are named.
pub fn loop_id(id: u32, direction: crate::spec::Direction) -> u32 {
    match direction {
        crate::spec::Direction::Egress => id & !1,
        crate::spec::Direction::Ingress => id | 1,
    }
}

/// A queue that holds one and a half times what arrives during the longest delay: with netem's default of
/// 1,000 packets, a delay at rate turns into loss.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to u32's range just before"
)]
fn limit(queue: &Queue) -> u32 {
    let longest = (queue.delay + queue.jitter).as_secs_f64();
    let rate = f64::from(queue.packet_rate.unwrap_or(DEFAULT_PACKET_RATE));
    (1.5 * longest * rate).round().clamp(f64::from(LEAST_LIMIT), f64::from(MOST_LIMIT)) as u32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_queue_is_sized_from_rate_and_delay_within_bounds() {
        let queue = |delay, packet_rate| Queue {
            delay: Duration::from_millis(delay),
            jitter: Duration::ZERO,
            packet_rate,
        };
        assert_eq!(limit(&queue(100, Some(14_000))), 2_100);
        assert_eq!(limit(&queue(1, Some(10))), LEAST_LIMIT);
        assert_eq!(limit(&queue(60_000, Some(u32::MAX))), MOST_LIMIT);
        assert_eq!(limit(&queue(100, None)), 30_000);
    }
}
