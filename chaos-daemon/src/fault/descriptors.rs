//! Resource exhaustion, file descriptors: open files of the host's table are taken and held.
//!
//! - **Mechanism**: the null device is opened again and again in one process: each time is an entry of the kernel's table of
//!   open files (`fs.file-max`), and a descriptor of the process. Before every few it looks how many entries are left.
//! - **Kernel requirement**: none. One process may have as many as its hard limit (`RLIMIT_NOFILE`) allows.
//! - **Lifetime class**: kernel: they are closed with the process. A stopped one is killed by its timer when the lease runs out.
//! - **Undo**: end the holder.
//! - **Blast radius**: programs without CAP_SYS_ADMIN: those that have it may open files beyond the table's size. A reserve
//!   stays: `leave_free`, or the larger of 1024 and 10 %.
//! - **Reference**: proc(5) (`/proc/sys/fs/file-nr`, `file-max`), getrlimit(2).

use std::time::Duration;

use super::{Goal, Plan, held};
use crate::host::supply::Descriptors;
use crate::request::{ApiError, ErrorCode};

/// How many entries stay when nobody says; of a large table, a tenth.
const LEAST_RESERVE: u64 = 1024;
/// What a holder has open itself, and some more.
const OWN: u64 = 64;

/// Plans it: so many, or all but `leave`.
///
/// # Errors
/// [`ErrorCode::LimitReached`] when so many are not there to be taken.
pub fn plan(
    count: Option<u64>,
    leave: Option<u64>,
    ramp: Duration,
    found: Descriptors,
) -> Result<Plan, ApiError> {
    let leave = leave.unwrap_or_else(|| reserve(found.table));
    let free = found.table.saturating_sub(found.used);
    let most = free.saturating_sub(leave);
    let count = count.unwrap_or(most);
    fits_process(count, found.process)?;
    if count == 0 || count > most {
        return Err(ApiError::new(
            ErrorCode::LimitReached,
            format!("file_descriptors: {count} asked, and {free} are free, of which {leave} stay so"),
        )
        .hint("ask for fewer, or give params.leave_free for how many are to stay free"));
    }
    let what = format!("{count} open files, {leave} of the host's kept free");
    Ok(held(&what, Goal::Descriptors { count, leave }, ramp, None))
}

/// How many entries of a table of so many stay when nobody says.
pub(super) fn reserve(table: u64) -> u64 {
    LEAST_RESERVE.max(table / 10)
}

/// Whether one process may have so many descriptors.
///
/// # Errors
/// [`ErrorCode::LimitReached`] when it may not.
pub(super) fn fits_process(count: u64, most: u64) -> Result<(), ApiError> {
    match count <= most.saturating_sub(OWN) {
        true => Ok(()),
        false => Err(ApiError::new(
            ErrorCode::LimitReached,
            format!("{count} descriptors are more than a process of the daemon may have, which is {most}"),
        )
        .hint("ask for fewer, or raise the hard limit: LimitNOFILE= of the daemon's unit, or `ulimit -Hn`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_of_the_table_stays_and_a_process_has_its_limit() {
        let found = Descriptors { used: 10_000, table: 100_000, process: 50_000 };
        let take = |count, leave| plan(count, leave, Duration::ZERO, found).map(|plan| plan.description);
        assert!(take(Some(5_000), None).unwrap().contains("holds 5000 open files, 10000"));
        assert!(take(None, Some(80_000)).unwrap().contains("holds 10000 open files, 80000"));
        for refused in [take(Some(49_990), None), take(None, None), take(None, Some(90_000))] {
            assert_eq!(refused.unwrap_err().code, ErrorCode::LimitReached);
        }
    }
}
