//! Packet reorder: matching packets overtake each other.
//!
//! - **Mechanism**: netem in the veth loop (`detour/mod.rs`) delays all packets but some, which leave at once and so before those that
//!   came earlier. With `gap` only every so many packets may be one of them.
//! - **Kernel requirement**: that of the loop.
//! - **Lifetime class**: kernel.
//! - **Undo**: that of the loop; a removal lets out first what is delayed.
//! - **Blast radius**: that of the loop. Packets further apart than the delay stay in order, late.
//! - **Reference**: tc-netem(8), Linux `net/sched/sch_netem.c` (`netem_enqueue`).

use super::queue::{Queue, limit, rolled, words};
use crate::kernel::netlink::Netem;
use crate::spec::impairment::Reorder;

/// The queue that does it.
pub(super) fn queue(reorder: &Reorder) -> Queue {
    let turn = match reorder.gap {
        1 => String::new(),
        gap => format!(" (every {gap} packets)"),
    };
    Queue {
        netem: Netem {
            delay: reorder.delay,
            reorder: rolled(reorder.chance),
            gap: reorder.gap,
            limit: limit(reorder.delay, reorder.packet_rate),
            ..Netem::default()
        },
        longest: reorder.delay,
        verb: format!(
            "packet_reorder: {}{turn} overtake, the others are late by {:?}, of",
            words(reorder.chance),
            reorder.delay
        ),
    }
}
