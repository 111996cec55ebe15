//! Resource exhaustion, disk: room of a file system is taken and held.
//!
//! - **Mechanism**: a file without a name (`O_TMPFILE`) in the directory that is named, grown by fallocate(2) in steps; before
//!   each it looks how much is left. Nothing is written, and nobody finds the file.
//! - **Kernel requirement**: a file system with files without a name and with fallocate(2): ext4, XFS, Btrfs, tmpfs have both.
//! - **Lifetime class**: kernel: the file is gone with the descriptor, after a reset of the host, too. A stopped holder is
//!   killed by its timer when the lease runs out.
//! - **Undo**: end the holder.
//! - **Blast radius**: whoever writes to that file system. A reserve stays: `leave_free_mb`, or the less of 1 GiB and 5 %.
//! - **Reference**: open(2) (`O_TMPFILE`), fallocate(2), statvfs(3).

use std::time::Duration;

use super::{Goal, Plan, held, share};
use crate::host::Identity;
use crate::host::directory::{DirectoryRef, Space};
use crate::host::supply::Memory;
use crate::request::{ApiError, ErrorCode};
use crate::spec::DiskFill;

/// The most that is kept free when nobody says, in bytes.
const MOST_RESERVE: u64 = 1 << 30;

/// What is there to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryGround {
    /// In which file system.
    pub directory: DirectoryRef,
    /// As whom it is opened.
    pub identity: Identity,
    /// What it has left.
    pub space: Space,
    /// The host's memory, of which a file system in memory takes.
    pub memory: Memory,
    /// How many bytes stay free of it at least.
    pub least: u64,
    /// Why no file can be made there, as far as rights go.
    pub closed: Option<String>,
}

/// Plans it.
///
/// # Errors
/// [`ErrorCode::LimitReached`] when so much is not there to be taken.
pub fn plan(fill: &DiskFill, ramp: Duration, ground: &DirectoryGround) -> Result<Plan, ApiError> {
    let DirectoryGround { directory, space, memory, .. } = ground;
    let leave = fill.leave.unwrap_or(MOST_RESERVE.min(space.bytes / 20)).max(ground.least);
    let most = space.available.saturating_sub(leave);
    let path = directory.path.display();
    let bytes = match (fill.bytes, fill.percent) {
        (Some(bytes), _) => bytes,
        (None, Some(percent)) => share(percent, space.bytes).saturating_sub(space.used),
        (None, None) => most,
    };
    let refused = |why: String| {
        ApiError::new(ErrorCode::LimitReached, format!("disk_fill: {why}"))
            .hint("ask for less, or give params.leave_free_mb for what is to stay free")
    };
    if bytes == 0 {
        return Err(refused(format!("the file system of {path} is as full as that already")));
    }
    if bytes > most {
        return Err(refused(format!(
            "{} MiB asked, and the file system of {path} has {} MiB left, of which {} MiB stay free",
            bytes >> 20,
            space.available >> 20,
            leave >> 20
        )));
    }
    let spare = memory.available.saturating_sub(super::memory::reserve(memory.total));
    if space.in_memory && bytes > spare {
        let why =
            format!("the file system of {path} is in memory, of which {} MiB can be taken", spare >> 20);
        return Err(refused(why));
    }
    let what =
        format!("{} MiB of the file system of {path}, {} MiB of it kept free", bytes >> 20, leave >> 20);
    Ok(held(&what, Goal::Disk { directory: directory.clone(), bytes, leave }, ramp, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn bytes(bytes: Option<u64>, percent: Option<f64>, leave: Option<u64>) -> Result<(u64, u64), ApiError> {
        let directory = DirectoryRef { path: "/data".into(), device: 1, inode: 2 };
        let (used, available) = (40 * GIB, 55 * GIB);
        let space =
            Space { bytes: 100 * GIB, used, available, inodes: 0, available_inodes: 0, in_memory: false };
        let memory = Memory { total: GIB, available: GIB };
        let fill = DiskFill { path: "/data".into(), bytes, percent, leave };
        let ground =
            DirectoryGround { directory, identity: Identity::ROOT, space, memory, least: 0, closed: None };
        match plan(&fill, Duration::ZERO, &ground)?.work {
            crate::fault::Work::Hoard(crate::fault::HoardWork {
                goal: Goal::Disk { bytes, leave, .. },
                ..
            }) => Ok((bytes, leave)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_percentage_is_how_full_it_gets_and_what_root_alone_may_use_is_not_taken() {
        assert_eq!(bytes(None, Some(90.0), None).unwrap(), (50 * GIB, GIB));
        assert_eq!(bytes(None, None, Some(3 * GIB)).unwrap(), (52 * GIB, 3 * GIB));
        assert_eq!(bytes(Some(GIB), None, None).unwrap(), (GIB, GIB));
        assert_eq!(bytes(Some(55 * GIB), None, Some(0)).unwrap().0, 55 * GIB);
        for refused in [
            bytes(Some(55 * GIB), None, None),
            bytes(None, Some(100.0), None),
            bytes(None, Some(40.0), None),
            bytes(None, None, Some(60 * GIB)),
        ] {
            assert_eq!(refused.unwrap_err().code, ErrorCode::LimitReached);
        }
    }
}
