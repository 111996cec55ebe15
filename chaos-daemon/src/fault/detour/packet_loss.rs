//! Packet loss: matching packets vanish, at random or in bursts.
//!
//! - **Mechanism**: netem in the veth loop (`detour/mod.rs`) drops packets. It does so on a device of ours, after the packet has
//!   left its sender's, so that the sender is told nothing. Models with states (Gilbert-Elliott, four states) move at each packet.
//! - **Kernel requirement**: that of the loop.
//! - **Lifetime class**: kernel.
//! - **Undo**: that of the loop; no packet waits in it.
//! - **Blast radius**: that of the loop. With a correlation, netem loses fewer than the share asked for (tc-netem(8)).
//! - **Reference**: tc-netem(8), Linux `net/sched/sch_netem.c` (`loss_gilb_ell`, `loss_4state`); S. Salsano and others,
//!   "Definition of a general and intuitive loss model for packet networks", 2009.

use std::time::Duration;

use super::queue::{Queue, passing, rolled, words};
use crate::kernel::netlink::{Loss as Model, Netem};
use crate::spec::Loss;
use crate::spec::impairment::{FourState, GilbertElliott};

/// The queue that does it.
pub(super) fn queue(loss: &Loss) -> Queue {
    let (model, what) = match loss {
        Loss::Random(chance) => (Model::Random(rolled(*chance)), words(*chance)),
        Loss::GilbertElliott(model) => gilbert_elliott(model),
        Loss::FourState(model) => four_state(model),
    };
    Queue {
        netem: Netem { loss: model, ..passing() },
        longest: Duration::ZERO,
        verb: format!("packet_loss: loses {what} of"),
    }
}

fn gilbert_elliott(model: &GilbertElliott) -> (Model, String) {
    let GilbertElliott { p, r, one_minus_h, one_minus_k } = *model;
    let words = format!(
        "{one_minus_h} % in bad times and {one_minus_k} % in good ones (they come with {p} % and go with {r} %)"
    );
    let netem = Model::GilbertElliott {
        p: share(p),
        r: share(r),
        h: u32::MAX - share(one_minus_h),
        k1: share(one_minus_k),
    };
    (netem, words)
}

fn four_state(model: &FourState) -> (Model, String) {
    let FourState { p13, p31, p32, p23, p14 } = *model;
    let words =
        format!("bursts (four states: p13 {p13} %, p31 {p31} %, p32 {p32} %, p23 {p23} %, p14 {p14} %)");
    let netem = Model::FourState {
        p13: share(p13),
        p31: share(p31),
        p32: share(p32),
        p14: share(p14),
        p23: share(p23),
    };
    (netem, words)
}

/// Percent, which the request's parser has checked, as the kernel counts.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to u32's range just before"
)]
fn share(percent: f64) -> u32 {
    (percent.clamp(0.0, 100.0) / 100.0 * f64::from(u32::MAX)).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_what_survives_in_bad_times() {
        let model = GilbertElliott { p: 1.0, r: 10.0, one_minus_h: 100.0, one_minus_k: 0.0 };
        let queue = queue(&Loss::GilbertElliott(model));
        assert_eq!(queue.netem.to_string(), "loss gemodel 1% 10% 100% 0% limit 1000");
        assert!(matches!(queue.netem.loss, Model::GilbertElliott { h: 0, k1: 0, .. }));
    }
}
