//! Resource exhaustion, CPU: a share of some processors is burned.
//!
//! - **Mechanism**: one thread per processor, pinned, in a holder of its own, which joins a cgroup first if one is named. Each
//!   period it burns until its own CPU clock has reached the share asked for, then sleeps; periods are dithered (3.7 to 16.3
//!   ms), for a fixed period beats with the 4 ms scheduler tick and misleads monitoring.
//! - **Kernel requirement**: none.
//! - **Lifetime class**: kernel: the load is the process. Stopped, it burns nothing.
//! - **Undo**: end the holder.
//! - **Blast radius**: the named number of processors; other processes keep their fair share. In a cgroup with a quota, whoever
//!   else is in it: the quota is shared.
//! - **Reference**: sched_setaffinity(2), clock_gettime(2) (`CLOCK_THREAD_CPUTIME_ID`).

use super::{CpuWork, Plan, Work};
use crate::host::{CgroupRef, Requirement};
use crate::request::{ApiError, ErrorCode, LifetimeClass};
use crate::spec::CpuLoad;

/// What it needs of the kernel.
pub const REQUIREMENTS: &[Requirement] = &[];

/// What is there to burn on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorGround {
    /// The processors that the daemon may use.
    pub usable: Vec<u32>,
    /// The control group to join.
    pub cgroup: Option<CgroupRef>,
    /// Its quota, if it has one: microseconds, and the period in which they may be used.
    pub quota: Option<(u64, u64)>,
}

/// Plans it. More cores than there are processors means all of them.
///
/// # Errors
/// [`ErrorCode::InvalidParameter`] when a processor that is named cannot be used.
pub fn plan(load: &CpuLoad, ground: &ProcessorGround) -> Result<Plan, ApiError> {
    let ProcessorGround { usable, cgroup, quota } = ground;
    let all = u32::try_from(usable.len()).unwrap_or(u32::MAX);
    if let Some(missing) = load.processors.iter().find(|processor| !usable.contains(processor)) {
        let message = format!("params.processors: processor {missing} cannot be used");
        return Err(ApiError::new(ErrorCode::InvalidParameter, message)
            .hint(format!("the daemon may use {usable:?}")));
    }
    let named = u32::try_from(load.processors.len()).unwrap_or(u32::MAX);
    let cores = if named > 0 { named } else { load.cores.unwrap_or(all).min(all) };
    let (percent, of) = match quota {
        None => (load.percent, format!("{cores} of {all} processors")),
        Some((time, period)) => {
            // Spread evenly: one processor may be less than the quota, and no thread can burn more than one.
            let processors = ratio(*time, *period);
            let each = (load.percent * processors / f64::from(cores.max(1))).min(100.0);
            (each, format!("its quota of {processors} processors, on {cores}"))
        }
    };
    let mut description = format!("resource_exhaustion: burns {} % of {of}", load.percent);
    if let Some(cgroup) = cgroup {
        description.push_str(&format!(", in cgroup {}", cgroup.path.display()));
    }
    if !load.ramp.is_zero() {
        description.push_str(&format!(", all of it after {:?}", load.ramp));
    }
    let (processors, ramp, cgroup) = (load.processors.clone(), load.ramp, cgroup.clone());
    Ok(Plan {
        work: Work::Cpu(CpuWork { percent, cores, processors, ramp, cgroup }),
        steps: Vec::new(),
        lifetime: LifetimeClass::Kernel,
        description,
    })
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of some periods")]
fn ratio(time: u64, period: u64) -> f64 {
    time as f64 / period.max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn work(cores: Option<u32>, processors: &[u32], quota: Option<(u64, u64)>) -> Result<CpuWork, ApiError> {
        let (ramp, processors) = (Duration::ZERO, processors.to_vec());
        let load = CpuLoad { percent: 50.0, cores, processors, ramp, whose: None };
        match plan(&load, &ProcessorGround { usable: vec![0, 1, 2, 3], cgroup: None, quota })?.work {
            Work::Cpu(work) => Ok(work),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_share_is_of_each_core_or_of_the_quota() {
        let of = |cores, processors: &[u32], quota| {
            work(cores, processors, quota).map(|work| (work.percent, work.cores)).unwrap()
        };
        assert_eq!(of(None, &[], None), (50.0, 4));
        assert_eq!(of(Some(9), &[], None), (50.0, 4));
        assert_eq!(of(None, &[1, 3], None), (50.0, 2));
        assert_eq!(of(Some(2), &[], Some((40_000, 100_000))), (10.0, 2));
        assert_eq!(of(Some(1), &[], Some((800_000, 100_000))), (100.0, 1));
        assert_eq!(work(None, &[4], None).unwrap_err().code, ErrorCode::InvalidParameter);
    }
}
