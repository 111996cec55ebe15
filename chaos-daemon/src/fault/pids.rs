//! Resource exhaustion, processes: places for processes and threads are taken and held.
//!
//! - **Mechanism**: threads of the holder, which sleep. The kernel counts threads where it counts processes: for
//!   `kernel.threads-max` and `kernel.pid_max`, and for `pids.max` of the cgroup that the holder has joined. Before every few it
//!   looks how many more there can be.
//! - **Kernel requirement**: none; cgroup v2 with the controller `pids` to exhaust a cgroup.
//! - **Lifetime class**: kernel: they are the process's. A stopped one is killed by its timer when the lease runs out.
//! - **Undo**: end the holder.
//! - **Blast radius**: whoever starts a process or thread, in the cgroup if one is named. On the host the larger of 512 and
//!   10 % stays.
//! - **Reference**: cgroup-v2.rst (`pids.max`), proc(5) (`threads-max`, `pid_max`, `loadavg`).

use std::time::Duration;

use super::{Goal, Plan, held};
use crate::host::CgroupRef;
use crate::host::supply::Tasks;
use crate::request::{ApiError, ErrorCode};

/// How many stay in the daemon's own control group.
const LEAST_RESERVE: u64 = 512;

/// Plans it; so many are left on the host.
///
/// # Errors
/// [`ErrorCode::LimitReached`] when so many are not there to be taken.
pub fn plan(
    count: u64,
    ramp: Duration,
    cgroup: Option<CgroupRef>,
    found: Tasks,
    leave: u64,
) -> Result<Plan, ApiError> {
    let free = found.most.saturating_sub(found.used);
    if count > free.saturating_sub(leave) {
        return Err(ApiError::new(
            ErrorCode::LimitReached,
            format!("pids: {count} asked, and there is room for {free} on the host, of which {leave} stays"),
        )
        .hint("ask for fewer"));
    }
    if cgroup.is_none() && found.own_room.is_some_and(|room| count + LEAST_RESERVE > room) {
        let room = found.own_room.unwrap_or_default();
        return Err(ApiError::new(
            ErrorCode::LimitReached,
            format!("pids: {count} asked, and the daemon's own cgroup has room for {room}, of which {LEAST_RESERVE} stays"),
        )
        .hint("ask for fewer, raise TasksMax= of the daemon's unit, or name a target"));
    }
    let own_leave = cgroup.is_none().then_some(LEAST_RESERVE);
    let goal = Goal::Tasks { count, leave, own_leave };
    Ok(held(&format!("{count} processes and threads"), goal, ramp, cgroup))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_and_the_daemon_itself_can_start_something_still() {
        let cgroup = || Some(CgroupRef { path: "/sys/fs/cgroup/a".into(), id: 1 });
        let found = Tasks { used: 1_000, most: 10_000, own_room: Some(2_000) };
        let take = |count, cgroup| plan(count, Duration::ZERO, cgroup, found, 1_000);
        assert!(take(1_488, None).is_ok() && take(1_489, None).is_err());
        assert!(take(8_000, cgroup()).is_ok() && take(8_001, cgroup()).is_err());
    }

    #[test]
    fn what_stays_is_told_to_whoever_takes_and_a_target_may_be_full() {
        let found = Tasks { used: 1_000, most: 10_000, own_room: Some(2_000) };
        let reserves = |cgroup| match plan(1, Duration::ZERO, cgroup, found, 1_000).unwrap().work {
            crate::fault::Work::Hoard(crate::fault::HoardWork {
                goal: Goal::Tasks { leave, own_leave, .. },
                ..
            }) => (leave, own_leave),
            other => panic!("{other:?}"),
        };
        assert_eq!(reserves(None), (1_000, Some(512)));
        assert_eq!(reserves(Some(CgroupRef { path: "/sys/fs/cgroup/a".into(), id: 1 })), (1_000, None));
    }
}
