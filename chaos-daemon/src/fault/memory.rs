//! Resource exhaustion, memory: some of it is taken and held.
//!
//! - **Mechanism**: a holder of its own populates anonymous memory (`MADV_POPULATE_WRITE`), on huge pages where the kernel has
//!   some, in steps; before each it looks whether the reserve of the host, or the limit of the cgroup, is still far enough. It
//!   is what the kernel kills first when memory runs out all the same.
//! - **Kernel requirement**: none; Linux 5.14 for populating.
//! - **Lifetime class**: kernel: the memory is the process's. A stopped one is killed by its timer when the lease runs out.
//! - **Undo**: end the holder.
//! - **Blast radius**: the host, or the cgroup that the holder joins: less page cache, reclaim, swapping. Nobody is killed for it.
//! - **Reference**: madvise(2), proc(5) (`MemAvailable`, `oom_score_adj`).

use std::time::Duration;

use super::{Goal, Plan, held, share};
use crate::host::CgroupRef;
use crate::host::supply::Memory;
use crate::request::{ApiError, ErrorCode};
use crate::spec::MemorySize;

/// What stays available when nobody says, in bytes; on a large host, a tenth of it.
const LEAST_RESERVE: u64 = 512 << 20;

/// What is there to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryGround {
    /// Where it is taken; `None` is the daemon's own control group.
    pub cgroup: Option<CgroupRef>,
    /// The host's.
    pub memory: Memory,
    /// What the control group may have, if it or one above it is limited.
    pub limit: Option<u64>,
}

/// Plans it.
///
/// # Errors
/// [`ErrorCode::LimitReached`] when so much is not there to be taken.
pub fn plan(
    size: MemorySize,
    reserve: Option<u64>,
    ramp: Duration,
    ground: &MemoryGround,
) -> Result<Plan, ApiError> {
    let bytes = match size {
        MemorySize::Bytes(bytes) => bytes,
        MemorySize::Percent(percent) => share(percent, whole(ground)?),
    };
    let Memory { total, available } = ground.memory;
    let reserve = reserve.unwrap_or_else(|| self::reserve(total));
    let most = ground.limit.unwrap_or(u64::MAX).min(available.saturating_sub(reserve));
    if bytes > most {
        let message = format!(
            "memory: {} MiB asked, and at most {} MiB can be taken: {} MiB are available on the host, of which {} MiB are \
             its reserve{}",
            bytes >> 20,
            most >> 20,
            available >> 20,
            reserve >> 20,
            ground
                .limit
                .map_or(String::new(), |limit| format!(", and the cgroup may have {} MiB", limit >> 20)),
        );
        return Err(ApiError::new(ErrorCode::LimitReached, message)
            .hint("ask for less, or for a smaller reserve by params.reserve_mb"));
    }
    let what = format!("{} MiB of memory, {} MiB of the host's kept free", bytes >> 20, reserve >> 20);
    Ok(held(&what, Goal::Memory { bytes, reserve }, ramp, ground.cgroup.clone()))
}

/// What stays available of `total` when nobody says, in bytes.
pub(crate) fn reserve(total: u64) -> u64 {
    LEAST_RESERVE.max(total / 10)
}

/// What a percentage is of.
fn whole(ground: &MemoryGround) -> Result<u64, ApiError> {
    match (&ground.cgroup, ground.limit) {
        (None, _) => Ok(ground.memory.total),
        (Some(_), Some(limit)) => Ok(limit),
        (Some(cgroup), None) => Err(ApiError::new(
            ErrorCode::InvalidParameter,
            format!(
                "params.memory_percent: cgroup {} has no limit of memory to take a share of, nor has one above it",
                cgroup.path.display()
            ),
        )
        .hint("give params.memory_mb, or the unit a limit (`MemoryMax=`)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn ground(cgroup: bool, limit: Option<u64>) -> MemoryGround {
        let cgroup = cgroup.then(|| CgroupRef { path: "/sys/fs/cgroup/a".into(), id: 1 });
        MemoryGround { cgroup, memory: Memory { total: 16 * GIB, available: 8 * GIB }, limit }
    }

    fn bytes(plan: Result<Plan, ApiError>) -> u64 {
        match plan.unwrap().work {
            crate::fault::Work::Hoard(crate::fault::HoardWork {
                goal: Goal::Memory { bytes, .. }, ..
            }) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_share_is_of_the_host_or_of_the_limit_of_the_target() {
        let quarter = |ground| plan(MemorySize::Percent(25.0), None, Duration::ZERO, &ground);
        assert_eq!(bytes(quarter(ground(false, None))), 4 * GIB);
        assert_eq!(bytes(quarter(ground(true, Some(GIB)))), GIB / 4);
        assert_eq!(quarter(ground(true, None)).unwrap_err().code, ErrorCode::InvalidParameter);
    }

    #[test]
    fn the_reserve_of_the_host_and_the_limit_of_the_target_are_not_touched() {
        let take = |bytes, reserve, ground| plan(MemorySize::Bytes(bytes), reserve, Duration::ZERO, &ground);
        // A tenth of 16 GiB stays.
        assert_eq!(take(7 * GIB, None, ground(false, None)).unwrap_err().code, ErrorCode::LimitReached);
        assert_eq!(bytes(take(7 * GIB, Some(GIB), ground(false, None))), 7 * GIB);
        assert!(take(GIB + 1, None, ground(true, Some(GIB))).is_err());
    }
}
