//! Resource exhaustion, inodes: files of a file system are taken and held, empty and without a name.
//!
//! - **Mechanism**: files without a name (`O_TMPFILE`) in the directory that is named, one after the other; before every few it
//!   looks how many are left.
//! - **Kernel requirement**: a file system with files without a name and a fixed number of inodes: ext4, XFS, tmpfs.
//! - **Lifetime class**: kernel: the files are gone with their descriptors. A stopped holder is killed by its timer when the
//!   lease runs out.
//! - **Undo**: end the holder.
//! - **Blast radius**: whoever makes files in that file system. The less of 10,000 and 5 % stays.
//! - **Reference**: open(2) (`O_TMPFILE`), statvfs(3) (`f_favail`).

use std::time::Duration;

use super::disk_fill::DirectoryGround;
use super::{Goal, Plan, descriptors, held};
use crate::request::{ApiError, ErrorCode};

/// The most that are kept when nobody says.
const MOST_RESERVE: u64 = 10_000;

/// Plans it; the process may have `most` descriptors.
///
/// # Errors
/// [`ErrorCode::LimitReached`] when so many are not there to be taken.
pub fn plan(count: u64, ramp: Duration, ground: &DirectoryGround, most: u64) -> Result<Plan, ApiError> {
    let DirectoryGround { directory, space, .. } = ground;
    let path = directory.path.display();
    if space.inodes == 0 {
        let message = format!("inodes: the file system of {path} has no fixed number of them");
        return Err(ApiError::new(ErrorCode::InvalidParameter, message));
    }
    descriptors::fits_process(count, most)?;
    let leave = MOST_RESERVE.min(space.inodes / 20);
    if count > space.available_inodes.saturating_sub(leave) {
        return Err(ApiError::new(
            ErrorCode::LimitReached,
            format!(
                "inodes: {count} asked, and the file system of {path} has {} left, of which {leave} stay free",
                space.available_inodes
            ),
        )
        .hint("ask for fewer"));
    }
    let what = format!("{count} inodes of the file system of {path}, {leave} of it kept free");
    Ok(held(&what, Goal::Inodes { directory: directory.clone(), count, leave }, ramp, None))
}
