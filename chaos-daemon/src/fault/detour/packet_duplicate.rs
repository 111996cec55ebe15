//! Packet duplicate: matching packets arrive twice.
//!
//! - **Mechanism**: netem in the veth loop (`detour/mod.rs`) puts a copy of the packet into its own queue. Both go round the loop
//!   and are marked on their own, so that each leaves once.
//! - **Kernel requirement**: that of the loop.
//! - **Lifetime class**: kernel.
//! - **Undo**: that of the loop; no packet waits in it.
//! - **Blast radius**: that of the loop.
//! - **Reference**: tc-netem(8), Linux `net/sched/sch_netem.c` (`netem_enqueue`).

use std::time::Duration;

use super::queue::{Queue, passing, rolled, words};
use crate::kernel::netlink::Netem;
use crate::spec::impairment::Chance;

/// The queue that does it.
pub(super) fn queue(chance: Chance) -> Queue {
    Queue {
        netem: Netem { duplicate: rolled(chance), ..passing() },
        longest: Duration::ZERO,
        verb: format!("packet_duplicate: sends twice {} of", words(chance)),
    }
}
