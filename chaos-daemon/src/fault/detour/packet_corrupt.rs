//! Packet corrupt: matching packets arrive with a wrong bit.
//!
//! - **Mechanism**: netem in the veth loop (`detour/mod.rs`) turns over one bit of a packet, anywhere in its headers or data.
//!   Before that it completes the checksums that the device would have made. What hits a header may be lost on the way.
//! - **Kernel requirement**: that of the loop.
//! - **Lifetime class**: kernel.
//! - **Undo**: that of the loop; no packet waits in it.
//! - **Blast radius**: that of the loop. On the way in, a device that has found the checksum right has done so before: then
//!   nothing looks at it again, and the wrong bit reaches the program.
//! - **Reference**: tc-netem(8), Linux `net/sched/sch_netem.c` (`netem_enqueue`).

use std::time::Duration;

use super::queue::{Queue, passing, rolled, words};
use crate::kernel::netlink::Netem;
use crate::spec::impairment::Chance;

/// The queue that does it.
pub(super) fn queue(chance: Chance) -> Queue {
    Queue {
        netem: Netem { corrupt: rolled(chance), ..passing() },
        longest: Duration::ZERO,
        verb: format!("packet_corrupt: turns over a bit in {} of", words(chance)),
    }
}
