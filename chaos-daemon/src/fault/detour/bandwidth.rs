//! Bandwidth: matching packets get through at a rate.
//!
//! - **Mechanism**: netem in the veth loop (`detour/mod.rs`) holds each packet for as long as it takes at the rate, with its Ethernet
//!   header. What waits is bounded to a quarter of a second, as in a small router; what comes on top of it is lost.
//! - **Kernel requirement**: that of the loop.
//! - **Lifetime class**: kernel.
//! - **Undo**: that of the loop; a removal lets out first what waits.
//! - **Blast radius**: that of the loop. All matching packets of a direction share the rate. A burst of segments that the stack
//!   hands over as one goes out as one, after its time.
//! - **Reference**: tc-netem(8), Linux `net/sched/sch_netem.c` (`packet_time_ns`).

use std::time::Duration;

use super::queue::{Queue, packets};
use crate::kernel::netlink::Netem;

/// What may wait, at full frames.
pub(super) const QUEUE: Duration = Duration::from_millis(250);
/// The first packets of a TCP connection, which come at once, find room at any rate.
pub(super) const LEAST_PACKETS: u32 = 10;
/// An Ethernet frame of the usual length.
pub(super) const FRAME: f64 = 1514.0;

/// The queue that does it.
pub(super) fn queue(kbit: u64) -> Queue {
    let rate = kbit * 1000 / 8;
    let frames_per_second = frames_per_second(kbit);
    let limit = packets(QUEUE.as_secs_f64() * frames_per_second, LEAST_PACKETS);
    Queue {
        netem: Netem { rate, limit, ..Netem::default() },
        longest: Duration::from_secs_f64(f64::from(limit) / frames_per_second),
        verb: format!("bandwidth: {kbit} kbit/s for"),
    }
}

/// How many full frames go over a link of this rate.
#[expect(clippy::cast_precision_loss, reason = "bounded by the request's parser far below 2^53")]
pub(super) fn frames_per_second(kbit: u64) -> f64 {
    (kbit * 1000 / 8) as f64 / FRAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_is_a_quarter_of_a_second_and_never_less_than_ten_packets() {
        let fast = queue(100_000);
        assert_eq!((fast.netem.rate, fast.netem.limit), (12_500_000, 2064));
        assert!(fast.longest.abs_diff(QUEUE) < Duration::from_millis(1), "{:?}", fast.longest);
        let slow = queue(8);
        assert_eq!((slow.netem.rate, slow.netem.limit), (1000, 10));
        assert!(slow.longest < Duration::from_secs(16), "{:?}", slow.longest);
    }
}
