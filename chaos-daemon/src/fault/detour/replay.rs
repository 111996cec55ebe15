//! Trace of a link: what a queue does from step to step, over and over.
//!
//! - **Mechanism**: the holder changes the netem of the near end at each step: delay and loss. A rate is that of an htb on the far
//!   end, which decides when a packet leaves, and not when it comes (`kernel/netlink/htb.rs`).
//! - **Kernel requirement**: that of the loop; with rates, `sch_htb`.
//! - **Lifetime class**: kernel.
//! - **Undo**: that of the loop; a removal lets out at once what waits for its turn.
//! - **Blast radius**: that of the loop. A segment that the stack hands over as one leaves as one, and is paid for afterwards.
//! - **Reference**: tc-netem(8), tc-htb(8), Linux `net/sched/sch_netem.c` (`netem_change`), `net/sched/sch_htb.c`
//!   (`htb_change_class`, `htb_charge_class`), mm-link(1) of Mahimahi.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bandwidth::{FRAME, LEAST_PACKETS, QUEUE, frames_per_second};
use super::queue::packets;
use crate::kernel::netlink::{Chance, Loss, Netem, Pace};
use crate::spec::impairment::RATE_KBIT;
use crate::spec::trace::{Step, Trace};

/// How the queue of one direction changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// One after the other, and then from the first again. At least one.
    pub moments: Vec<Moment>,
}

/// What a queue does for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// For how long.
    pub lasts: Duration,
    /// How late a packet is.
    pub delay: Duration,
    /// The most that this varies, either way.
    pub jitter: Duration,
    /// Share of the packets that are lost, of `u32::MAX`.
    pub loss: u32,
    /// How much gets through; without it, all.
    pub pace: Option<Pace>,
}

impl Moment {
    /// What netem does then, which is otherwise as in `base`.
    pub fn netem(&self, base: &Netem) -> Netem {
        let loss = Loss::Random(Chance { share: self.loss, correlation: 0 });
        Netem { delay: self.delay, jitter: self.jitter, loss, ..*base }
    }
}

impl Replay {
    /// That of a trace.
    pub(super) fn of(trace: &Trace) -> Self {
        let moment = |(step, after): (&Step, Option<u64>)| Moment {
            lasts: step.lasts,
            delay: step.way.delay,
            jitter: step.way.jitter,
            loss: step.way.loss.threshold(),
            pace: step.way.kbit.map(|kbit| pace(kbit, step.lasts, after)),
        };
        Self { moments: trace.steps.iter().zip(rates_after(&trace.steps)).map(moment).collect() }
    }

    /// Which moment it is so long after the beginning, and how long it still is.
    pub fn at(&self, elapsed: Duration) -> (usize, Duration) {
        let period = self.period().as_nanos().max(1);
        let mut left = elapsed.as_nanos() % period;
        for (index, moment) in self.moments.iter().enumerate() {
            let lasts = moment.lasts.as_nanos();
            if left < lasts {
                return (index, Duration::from_nanos(u64::try_from(lasts - left).unwrap_or(u64::MAX)));
            }
            left -= lasts;
        }
        (0, Duration::ZERO)
    }

    /// How long it takes until it begins anew.
    pub fn period(&self) -> Duration {
        self.moments.iter().map(|moment| moment.lasts).sum()
    }

    /// The paces that it has.
    fn paces(&self) -> impl Iterator<Item = Pace> + '_ {
        self.moments.iter().filter_map(|moment| moment.pace)
    }

    /// How long a full packet may be owed for when all that waits is let out.
    pub(super) fn longest_debt(&self) -> Duration {
        let slowest = self.paces().map(|pace| pace.rate).min();
        slowest.map(|rate| Duration::from_secs_f64(FRAME / per_second(rate))).unwrap_or_default()
    }

    /// The pace by which everything that waits is let out, of one that has paces.
    pub fn all_out(&self) -> Option<Pace> {
        let limit = self.paces().map(|pace| pace.limit).max()?;
        Some(Pace { rate: RATE_KBIT.1 * 1000 / 8, limit, least: 0 })
    }
}

/// The next rate above 0 behind each step, if there is one.
fn rates_after(steps: &[Step]) -> Vec<Option<u64>> {
    let mut all = vec![None; steps.len()];
    let mut next = None;
    // Twice, since the first comes after the last.
    for _ in 0..2 {
        for (after, step) in all.iter_mut().zip(steps).rev() {
            *after = next;
            next = step.way.kbit.filter(|kbit| *kbit > 0).or(next);
        }
    }
    all
}

/// A rate of 0 is less than one packet in the step, however short that is, or the lowest rate there is. The packet that leaves at the
/// beginning is paid for until the end, and is the first of what may leave after it. As many may wait as when it goes on.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a frame in at least a tenth of a second is a small number"
)]
fn pace(kbit: u64, lasts: Duration, after: Option<u64>) -> Pace {
    if kbit > 0 {
        let frames = frames_per_second(kbit);
        let limit = packets(QUEUE.as_secs_f64() * frames, LEAST_PACKETS);
        return Pace { rate: kbit * 1000 / 8, limit, least: 0 };
    }
    let next = pace(after.unwrap_or(RATE_KBIT.0).max(RATE_KBIT.0), lasts, None);
    let until = lasts.as_secs_f64() + FRAME / per_second(next.rate);
    let rate = ((FRAME / until) as u64).max(RATE_KBIT.0 * 1000 / 8);
    Pace { rate, limit: next.limit, least: FRAME as u16 }
}

#[expect(clippy::cast_precision_loss, reason = "bounded by the request's parser far below 2^53")]
fn per_second(rate: u64) -> f64 {
    rate.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Probability;
    use crate::spec::link::OneWay;

    fn way(kbit: Option<u64>) -> OneWay {
        OneWay { delay: Duration::from_millis(20), jitter: Duration::ZERO, loss: Probability::NEVER, kbit }
    }

    fn replay(steps: &[(u64, Option<u64>)]) -> Replay {
        let steps =
            steps.iter().map(|(ms, kbit)| Step { lasts: Duration::from_millis(*ms), way: way(*kbit) });
        Replay::of(&Trace { steps: steps.collect() })
    }

    #[test]
    fn a_moment_is_found_by_the_time_since_the_beginning_over_and_over() {
        let replay = replay(&[(1000, Some(8)), (500, Some(9)), (250, Some(10))]);
        let at = |ms| replay.at(Duration::from_millis(ms));
        let ms = Duration::from_millis;
        assert_eq!((at(0), at(999), at(1000)), ((0, ms(1000)), (0, ms(1)), (1, ms(500))));
        assert_eq!((at(1500), at(1749), at(1750)), ((2, ms(250)), (2, ms(1)), (0, ms(1000))));
        assert_eq!(at(1_750_000_000 + 1499), (1, ms(1)), "errors do not add up");
    }

    #[test]
    fn each_step_has_a_rate_and_room_of_its_own() {
        let paces: Vec<_> = replay(&[(1000, Some(8000)), (1000, Some(100))]).paces().collect();
        let pace = |rate, limit| Pace { rate, limit, least: 0 };
        assert_eq!(paces, [pace(1_000_000, 165), pace(12_500, 10)]);
        assert!(replay(&[(1000, None)]).paces().next().is_none());
        assert_eq!(replay(&[(1000, None)]).all_out(), None);
    }

    #[test]
    fn a_rate_of_0_is_one_packet_however_short_which_is_the_first_of_the_next_step() {
        let paces: Vec<_> = replay(&[(200, Some(0)), (1000, Some(1000))]).paces().collect();
        // 1514 bytes in 200 ms, and in the 12.1 ms that one takes after that.
        assert_eq!(paces[0], Pace { rate: 7137, limit: 21, least: 1514 });
        let long: Vec<_> = replay(&[(60_000, Some(0)), (1000, Some(1000))]).paces().collect();
        assert_eq!(long[0].rate, 1000, "and not so long that a removal waits for it");
        let never: Vec<_> = replay(&[(1000, Some(0))]).paces().collect();
        assert_eq!(never[0].rate, 1000);
        let after = |steps: &[(u64, Option<u64>)]| {
            let way = |kbit| OneWay { kbit, ..way(None) };
            let step =
                |(ms, kbit): &(u64, Option<u64>)| Step { lasts: Duration::from_millis(*ms), way: way(*kbit) };
            rates_after(&steps.iter().map(step).collect::<Vec<_>>())
        };
        assert_eq!(
            after(&[(1, Some(0)), (1, Some(8)), (1, Some(0)), (1, Some(0))]),
            [Some(8), Some(8), Some(8), Some(8)]
        );
        assert_eq!(after(&[(1, Some(9)), (1, Some(8))]), [Some(8), Some(9)]);
    }

    #[test]
    fn what_waits_is_let_out_within_what_the_slowest_packet_takes() {
        let replay = replay(&[(1000, Some(0)), (1000, Some(8000))]);
        assert!(replay.longest_debt() < Duration::from_millis(1515), "{:?}", replay.longest_debt());
        assert_eq!(replay.all_out(), Some(Pace { rate: 12_500_000_000, limit: 165, least: 0 }));
    }
}
