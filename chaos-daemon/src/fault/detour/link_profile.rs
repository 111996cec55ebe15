//! Link profile: matching packets go over a link with a delay, a loss and a rate of its own, each way for itself.
//!
//! - **Mechanism**: one netem in the veth loop (`detour/mod.rs`) of each direction. With a rate, netem keeps packets in order, however their
//!   delay varies. Without one, they overtake each other. What waits for its turn is bounded as in a small router. It is a quarter of
//!   a second of full frames beyond what is under way, and at least ten packets.
//! - **Kernel requirement**: that of the loop.
//! - **Lifetime class**: kernel.
//! - **Undo**: that of the loop; a removal lets out first what waits.
//! - **Blast radius**: that of the loop. All matching packets of a direction share its rate.
//! - **Reference**: tc-netem(8), Linux `net/sched/sch_netem.c` (`netem_enqueue`).

use std::time::Duration;

use super::bandwidth::{LEAST_PACKETS, QUEUE, frames_per_second};
use super::queue::{Queue, limit, packets};
use crate::kernel::netlink::{Chance, Loss, Netem};
use crate::spec::link::{Link, OneWay};
use crate::spec::{Direction, Probability};

/// As many packets per second as a link without a rate has room for.
const PACKET_RATE: u32 = 200_000;
/// The queue that does it, of one of the directions that are met.
pub(super) fn queue(link: &Link, direction: Direction, met: &[Direction]) -> Queue {
    let way = link.way(direction);
    let under_way = way.delay + way.jitter;
    let (limit, waits) = match way.kbit {
        None => (limit(under_way, PACKET_RATE), Duration::ZERO),
        Some(kbit) => {
            let frames = frames_per_second(kbit);
            let most = packets((QUEUE + under_way).as_secs_f64() * frames, LEAST_PACKETS);
            (most, Duration::from_secs_f64(f64::from(most) / frames))
        }
    };
    let loss = Loss::Random(Chance { share: way.loss.threshold(), correlation: 0 });
    let rate = way.kbit.map_or(0, |kbit| kbit * 1000 / 8);
    Queue {
        netem: Netem { rate, loss, ..Netem::delay(way.delay, way.jitter, limit) },
        longest: under_way + waits,
        verb: verb(link, met),
    }
}

fn verb(link: &Link, met: &[Direction]) -> String {
    let way = |direction: &Direction| {
        let name = if *direction == Direction::Egress { "up" } else { "down" };
        format!("{name} {}", words(link.way(*direction)))
    };
    let ways = met.iter().map(way).collect::<Vec<_>>().join("; ");
    match link.preset {
        Some(preset) => format!("link_profile: {} ({ways}) for", preset.name()),
        None => format!("link_profile: {ways} for"),
    }
}

fn words(way: OneWay) -> String {
    let OneWay { delay, jitter, loss, kbit } = way;
    let mut words = Vec::new();
    if !delay.is_zero() {
        let varies = if jitter.is_zero() { String::new() } else { format!(" ± {jitter:?}") };
        words.push(format!("{delay:?}{varies}"));
    }
    if loss != Probability::NEVER {
        words.push(format!("{} % lost", (loss.get() * 1e6).round() / 1e4));
    }
    words.extend(kbit.map(|kbit| format!("{kbit} kbit/s")));
    if words.is_empty() { "unchanged".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_way(ms: u64, loss: f64, kbit: Option<u64>) -> OneWay {
        let loss = Probability::new("loss", loss).unwrap();
        OneWay { delay: Duration::from_millis(ms), jitter: Duration::ZERO, loss, kbit }
    }

    #[test]
    fn the_service_has_longer_to_stop_than_packets_may_wait() {
        let unit = include_str!("../../../../systemd/chaos-daemon.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
        let jitter = Duration::from_millis(2147);
        for kbit in [None, Some(8), Some(1000), Some(100_000_000)] {
            let worst = OneWay { jitter, ..one_way(20_000, 0.0, kbit) };
            let longest =
                queue(&Link { preset: None, up: worst, down: worst }, Direction::Egress, &[]).longest;
            assert!(
                Duration::from_secs(limit.parse().unwrap()) > longest + Duration::from_secs(10),
                "{longest:?}"
            );
        }
    }

    #[test]
    fn each_direction_has_a_queue_of_its_own_with_room_for_what_is_under_way_and_what_waits() {
        let link = Link { preset: None, up: one_way(100, 0.0, Some(1000)), down: one_way(40, 0.02, None) };
        let both = [Direction::Egress, Direction::Ingress];
        let [up, down] = both.map(|direction| queue(&link, direction, &both));
        assert_eq!((up.netem.rate, up.netem.delay), (125_000, Duration::from_millis(100)));
        // 350 ms of 82.6 frames per second.
        assert_eq!(up.netem.limit, 29);
        assert_eq!((down.netem.rate, down.netem.limit), (0, 12_000));
        assert_eq!(down.longest, Duration::from_millis(40));
        assert_eq!(up.verb, "link_profile: up 100ms, 1000 kbit/s; down 40ms, 2 % lost for");
        assert_eq!(up.verb, down.verb);
        let alone = queue(&link, Direction::Egress, &[Direction::Egress]);
        assert_eq!(
            alone.verb, "link_profile: up 100ms, 1000 kbit/s for",
            "of what is not met nothing is said"
        );
    }
}
