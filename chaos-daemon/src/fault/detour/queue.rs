//! The queue of a fault that delays, loses or changes packets: what netem does in it, and in words.

use std::time::Duration;

use crate::kernel::netlink::{Chance, Netem};
use crate::spec::{Probability, impairment as spec};

/// netem's own default: never less for a queue that is to lose nothing.
const LEAST_LIMIT: u32 = 1_000;
/// Bounds the memory that queued packets can take.
const MOST_LIMIT: u32 = 1_000_000;

/// The queue of one kind of fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Queue {
    /// What it does.
    pub(super) netem: Netem,
    /// How long it may hold a packet.
    pub(super) longest: Duration,
    /// "latency: delays by 100ms", before the words for the traffic.
    pub(super) verb: String,
}

/// As netem wants it.
pub(super) fn rolled(chance: spec::Chance) -> Chance {
    Chance { share: chance.share.threshold(), correlation: chance.correlation.threshold() }
}

/// "10 %", or "10 % (correlation 25 %)".
pub(super) fn words(chance: spec::Chance) -> String {
    let percent = |value: Probability| (value.get() * 1e6).round() / 1e4;
    match chance.correlation == Probability::NEVER {
        true => format!("{} %", percent(chance.share)),
        false => format!("{} % (correlation {} %)", percent(chance.share), percent(chance.correlation)),
    }
}

/// A queue in which no packet waits.
pub(super) fn passing() -> Netem {
    Netem { limit: LEAST_LIMIT, ..Netem::default() }
}

/// Packets in a queue that holds one and a half times what arrives while it holds one: with netem's default of
/// 1,000 packets, a delay at rate turns into loss.
pub(super) fn limit(longest: Duration, packet_rate: u32) -> u32 {
    packets(1.5 * longest.as_secs_f64() * f64::from(packet_rate), LEAST_LIMIT)
}

/// A number of packets within bounds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to u32's range just before"
)]
pub(super) fn packets(count: f64, least: u32) -> u32 {
    count.round().clamp(f64::from(least), f64::from(MOST_LIMIT)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_sized_from_rate_and_delay_within_bounds() {
        let ms = Duration::from_millis;
        assert_eq!(limit(ms(100), 14_000), 2_100);
        assert_eq!(limit(ms(1), 10), LEAST_LIMIT);
        assert_eq!(limit(ms(60_000), u32::MAX), MOST_LIMIT);
        assert_eq!(limit(ms(100), 200_000), 30_000);
    }
}
