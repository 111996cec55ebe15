//! Link profile: matching packets go over a link with a delay, a loss and a rate of its own, each way for itself.
//!
//! - **Mechanism**: one netem in the veth loop (`detour/mod.rs`) of each direction. With a rate, netem keeps packets in order, however their
//!   delay varies. Without one, they overtake each other. What waits for its turn is bounded as in a small router. It is a quarter of
//!   a second of full frames beyond what is under way, and at least ten packets.
//! - **Kernel requirement**: that of the loop.
//! - **Lifetime class**: kernel. A way that changes is replayed (`replay.rs`).
//! - **Undo**: that of the loop; a removal lets out first what waits.
//! - **Blast radius**: that of the loop. All matching packets of a direction share its rate.
//! - **Reference**: tc-netem(8), Linux `net/sched/sch_netem.c` (`netem_enqueue`).

use std::time::Duration;

use super::bandwidth::{LEAST_PACKETS, QUEUE, frames_per_second};
use super::queue::{Queue, limit, packets};
use super::replay::Replay;
use crate::kernel::netlink::{Chance, Loss, Netem};
use crate::spec::link::{Link, OneWay};
use crate::spec::trace::Trace;
use crate::spec::{Direction, Probability, Requirement};

/// As many packets per second as a link without a rate has room for.
const PACKET_RATE: u32 = 200_000;
/// What a trace of rates needs of the kernel.
pub(in crate::fault) const OF_RATES: &[Requirement] =
    &[Requirement::PacketPrograms, Requirement::Veth, Requirement::Netem, Requirement::Htb];

/// The queue that does it, of one of the directions that are met.
pub(super) fn queue(link: &Link, direction: Direction, met: &[Direction]) -> Queue {
    let (netem, longest) = match link.trace(direction) {
        None => constant(link.way(direction)),
        Some(trace) => beginning(trace),
    };
    Queue { netem, longest, verb: verb(link, met) }
}

/// Of a way that stays as it is.
fn constant(way: OneWay) -> (Netem, Duration) {
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
    (Netem { rate, loss, ..Netem::delay(way.delay, way.jitter, limit) }, under_way + waits)
}

/// Of one that changes, how it begins. A rate is not netem's then: the highest that there is only keeps packets in order.
fn beginning(trace: &Trace) -> (Netem, Duration) {
    let under_way = trace.steps.iter().map(|step| step.way.delay + step.way.jitter).max().unwrap_or_default();
    let replay = Replay::of(trace);
    let rate = replay.all_out().map_or(0, |pace| pace.rate);
    let base = Netem { rate, ..Netem::delay(Duration::ZERO, Duration::ZERO, limit(under_way, PACKET_RATE)) };
    let netem = replay.moments.first().map_or(base, |moment| moment.netem(&base));
    (netem, under_way + replay.longest_debt())
}

fn verb(link: &Link, met: &[Direction]) -> String {
    let way = |direction: &Direction| {
        let name = if *direction == Direction::Egress { "up" } else { "down" };
        let words = link.trace(*direction).map_or_else(|| words(link.way(*direction)), words_of);
        format!("{name} {words}")
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
        words.push(format!("{} % lost", percent(loss)));
    }
    words.extend(kbit.map(|kbit| format!("{kbit} kbit/s")));
    if words.is_empty() { "unchanged".to_owned() } else { words.join(", ") }
}

/// "trace of 12s, 3 steps: 20ms, 1000 to 8000 kbit/s".
fn words_of(trace: &Trace) -> String {
    let steps = || trace.steps.iter().map(|step| step.way);
    let range = |of: fn(OneWay) -> f64, words: fn(OneWay) -> String| {
        let least = steps().min_by(|one, other| of(*one).total_cmp(&of(*other)));
        let most = steps().max_by(|one, other| of(*one).total_cmp(&of(*other)));
        let (least, most) = (least.map(words).unwrap_or_default(), most.map(words).unwrap_or_default());
        if least == most { most } else { format!("{least} to {most}") }
    };
    let jitter = steps().map(|way| way.jitter).max().unwrap_or_default();
    let mut words = vec![];
    if steps().any(|way| !way.delay.is_zero()) {
        let varies = if jitter.is_zero() { String::new() } else { format!(" ± {jitter:?}") };
        words.push(range(|way| way.delay.as_secs_f64(), |way| format!("{:?}", way.delay)) + &varies);
    }
    if steps().any(|way| way.loss != Probability::NEVER) {
        words.push(range(|way| way.loss.get(), |way| percent(way.loss)) + " % lost");
    }
    if trace.has_rates() {
        #[expect(clippy::cast_precision_loss, reason = "bounded by the request's parser far below 2^53")]
        let rates =
            range(|way| way.kbit.unwrap_or_default() as f64, |way| way.kbit.unwrap_or_default().to_string());
        words.push(rates + " kbit/s");
    }
    format!("trace of {:?}, {} steps: {}", trace.period(), trace.steps.len(), words.join(", "))
}

fn percent(share: Probability) -> String {
    ((share.get() * 1e6).round() / 1e4).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::trace::Step;

    fn one_way(ms: u64, loss: f64, kbit: Option<u64>) -> OneWay {
        let loss = Probability::new("loss", loss).unwrap();
        OneWay { delay: Duration::from_millis(ms), jitter: Duration::ZERO, loss, kbit }
    }

    fn still(up: OneWay, down: OneWay) -> Link {
        Link { preset: None, up, down, up_trace: None, down_trace: None }
    }

    #[test]
    fn the_service_has_longer_to_stop_than_packets_may_wait() {
        let unit = include_str!("../../../../systemd/chaos-daemon.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
        let jitter = Duration::from_millis(2147);
        for kbit in [None, Some(8), Some(1000), Some(100_000_000)] {
            let worst = OneWay { jitter, ..one_way(20_000, 0.0, kbit) };
            let longest = queue(&still(worst, worst), Direction::Egress, &[]).longest;
            assert!(
                Duration::from_secs(limit.parse().unwrap()) > longest + Duration::from_secs(10),
                "{longest:?}"
            );
        }
    }

    #[test]
    fn each_direction_has_a_queue_of_its_own_with_room_for_what_is_under_way_and_what_waits() {
        let link = still(one_way(100, 0.0, Some(1000)), one_way(40, 0.02, None));
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

    #[test]
    fn a_way_that_changes_has_room_for_the_longest_delay_and_leaves_its_rate_to_another_queue() {
        let step = |ms, loss, kbit| Step { lasts: Duration::from_secs(1), way: one_way(ms, loss, kbit) };
        let trace = Trace { steps: vec![step(20, 0.0, Some(1000)), step(400, 0.1, Some(0))] };
        let quiet = one_way(0, 0.0, None);
        let link = Link { up_trace: Some(trace), ..still(one_way(20, 0.0, Some(1000)), quiet) };
        let both = [Direction::Egress, Direction::Ingress];
        let up = queue(&link, Direction::Egress, &both);
        assert_eq!((up.netem.delay, up.netem.rate), (Duration::from_millis(20), 12_500_000_000));
        assert_eq!(up.netem.limit, limit(Duration::from_millis(400), PACKET_RATE));
        assert!(
            up.longest > Duration::from_millis(1400) && up.longest < Duration::from_secs(2),
            "{:?}",
            up.longest
        );
        assert_eq!(
            up.verb,
            "link_profile: up trace of 2s, 2 steps: 20ms to 400ms, 0 to 10 % lost, 0 to 1000 kbit/s; down unchanged for"
        );
    }
}
