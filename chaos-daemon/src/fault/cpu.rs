//! Resource exhaustion, CPU: a share of some processors is burned.
//!
//! - **Mechanism**: one thread per processor, pinned, in a holder of its own. Each period it burns until its own
//!   CPU clock has reached the share asked for, then sleeps; periods are dithered (3.7 to 16.3 ms), for a fixed
//!   period beats with the 4 ms scheduler tick and misleads monitoring.
//! - **Kernel requirement**: none.
//! - **Lifetime class**: kernel: the load is the process. Stopped, it burns nothing.
//! - **Undo**: end the holder.
//! - **Blast radius**: the named number of processors; other processes keep their fair share.
//! - **Reference**: sched_setaffinity(2), clock_gettime(2) (`CLOCK_THREAD_CPUTIME_ID`).

use super::{CpuWork, Plan, Work};
use crate::host::{Facts, Requirement};
use crate::request::LifetimeClass;

/// What it needs of the kernel.
pub const REQUIREMENTS: &[Requirement] = &[];

/// Plans it. More cores than there are processors means all of them.
pub fn plan(percent: f64, cores: Option<u32>, facts: &Facts) -> Plan {
    let cores = cores.unwrap_or(facts.processors).min(facts.processors);
    Plan {
        work: Work::Cpu(CpuWork { percent, cores }),
        steps: Vec::new(),
        lifetime: LifetimeClass::Kernel,
        description: format!(
            "resource_exhaustion: burns {percent} % of {cores} of {} processors",
            facts.processors
        ),
    }
}
