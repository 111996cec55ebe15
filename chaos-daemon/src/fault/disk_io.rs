//! Resource exhaustion, disk bandwidth: a file system is read and written.
//!
//! - **Mechanism**: a file without a name (`O_TMPFILE`) of a bounded size in the directory that is named, written and read in
//!   turn, past the page cache where the file system can (`O_DIRECT`), as fast as asked for: closed loop, with little to be
//!   made up for when the device was slower.
//! - **Kernel requirement**: a file system with files without a name and with fallocate(2).
//! - **Lifetime class**: kernel: the load is the process. Stopped, it reads and writes nothing.
//! - **Undo**: end the holder.
//! - **Blast radius**: whoever uses the device below that file system; with a cgroup as target, within what it may use (`io.max`).
//! - **Reference**: open(2) (`O_TMPFILE`, `O_DIRECT`), cgroup-v2.rst (`io`).

use std::time::Duration;

use super::disk_fill::{self, DirectoryGround};
use super::{Goal, Plan, Work};
use crate::host::CgroupRef;
use crate::request::ApiError;
use crate::spec::DiskFill;

/// Plans it: so many bytes a second, half of them written, of a file of `bytes`.
///
/// # Errors
/// [`crate::request::ErrorCode::LimitReached`] when there is no room for the file.
pub fn plan(
    rate: u64,
    bytes: u64,
    cgroup: Option<CgroupRef>,
    ground: &DirectoryGround,
) -> Result<Plan, ApiError> {
    let path = ground.directory.path.clone();
    let fill = DiskFill { path, bytes: Some(bytes), percent: None, leave: None };
    // The same room, with the same reserve.
    let mut plan = disk_fill::plan(&fill, Duration::ZERO, ground)?;
    let path = ground.directory.path.display();
    plan.description = format!(
        "resource_exhaustion: reads and writes {rate} bytes per second of the file system of {path}, in a file of {} MiB",
        bytes >> 20
    );
    if let Some(cgroup) = &cgroup {
        plan.description.push_str(&format!(", in cgroup {}", cgroup.path.display()));
    }
    if let Work::Hoard(work) = &mut plan.work {
        work.goal = Goal::DiskIo { directory: ground.directory.clone(), bytes, rate };
        work.cgroup = cgroup;
    }
    Ok(plan)
}
