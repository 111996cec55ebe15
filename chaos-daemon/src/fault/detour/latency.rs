//! Latency: matching packets arrive late.
//!
//! - **Mechanism**: netem in the veth loop (`detour/mod.rs`) holds packets back. With a distribution, the variation comes from a
//!   table that the daemon computes, and jitter is its standard deviation.
//! - **Kernel requirement**: that of the loop.
//! - **Lifetime class**: kernel.
//! - **Undo**: that of the loop. Up to one delay's worth of packets that are in the queue when the holder is killed are
//!   lost; a removal lets them out first.
//! - **Blast radius**: that of the loop. Packets whose delay varies overtake each other. The kernel correlates rolls of 32 bits
//!   and then takes them modulo the width of the variation, so that a correlation shows only where that is some seconds.
//! - **Reference**: tc-netem(8), Linux `net/sched/sch_netem.c` (`tabledist`).

use super::queue::{Queue, limit};
use crate::kernel::netlink::Netem;
use crate::spec::{Delay, Distribution, Probability};

/// How far out a table of the kernel goes, in standard deviations: 16 bits, of which 13 are one.
const FARTHEST: u32 = 4;

/// The queue that does it.
pub(super) fn queue(delay: &Delay) -> Queue {
    let most = match delay.distribution {
        Distribution::Uniform => delay.jitter,
        Distribution::Normal | Distribution::Pareto | Distribution::ParetoNormal => delay.jitter * FARTHEST,
    };
    let longest = delay.delay + most;
    let netem = Netem {
        delay_correlation: delay.correlation.threshold(),
        distribution: delay.distribution,
        ..Netem::delay(delay.delay, delay.jitter, limit(longest, delay.packet_rate))
    };
    Queue { netem, longest, verb: format!("latency: delays by {:?}{}", delay.delay, variation(delay)) }
}

fn variation(delay: &Delay) -> String {
    if delay.jitter.is_zero() {
        return String::new();
    }
    let mut words = format!(" ± {:?}", delay.jitter);
    if delay.distribution != Distribution::Uniform {
        words.push_str(&format!(" ({})", delay.distribution.name()));
    }
    if delay.correlation != Probability::NEVER {
        words.push_str(&format!(" (correlation {} %)", delay.correlation.get() * 100.0));
    }
    words
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_queue_waits_for_the_latest_that_its_distribution_can_make() {
        let delay = |distribution| Delay {
            delay: Duration::from_millis(100),
            jitter: Duration::from_millis(10),
            correlation: Probability::NEVER,
            distribution,
            packet_rate: 200_000,
        };
        let uniform = queue(&delay(Distribution::Uniform));
        assert_eq!((uniform.longest, uniform.netem.limit), (Duration::from_millis(110), 33_000));
        assert_eq!(uniform.verb, "latency: delays by 100ms ± 10ms");
        let normal = queue(&delay(Distribution::Normal));
        assert_eq!((normal.longest, normal.netem.limit), (Duration::from_millis(140), 42_000));
        assert_eq!(normal.verb, "latency: delays by 100ms ± 10ms (normal)");
    }

    #[test]
    fn the_service_has_longer_to_stop_than_packets_may_be_delayed() {
        let unit = include_str!("../../../../systemd/chaos-daemon.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
        let (delay, jitter) = (Duration::from_secs(60), Duration::from_millis(2147));
        let (correlation, distribution) = (Probability::NEVER, Distribution::Normal);
        let longest =
            queue(&Delay { delay, jitter, correlation, distribution, packet_rate: 200_000 }).longest;
        assert!(
            Duration::from_secs(limit.parse().unwrap()) > longest + Duration::from_secs(10),
            "{longest:?}"
        );
    }
}
