//! Room and inodes of a file system, counted as df(1) does (statvfs(3)): what is used, of that and what users without privileges can
//! still have. No file is opened, and nothing is told but how much there is of both.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::{Seen, blocking, mebibytes, number, percent};
use crate::host::directory::Space;

/// How many file systems are asked at once. One that does not answer (of a server that is gone) keeps its place until it does, for its
/// thread cannot be called back.
const AT_ONCE: usize = 8;

static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);

/// What of it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disk {
    /// Room that is used, in percent.
    UsedPercent,
    /// Room that users without privileges can still have.
    AvailableBytes,
    /// Inodes that are used, in percent.
    InodesUsedPercent,
}

impl Disk {
    pub(super) async fn take(self, path: &str, limit: Duration) -> Result<Seen, String> {
        let path = path.to_owned();
        in_place(&PLACES, limit, move || self.read(&path)).await?
    }

    pub(super) fn read(self, path: &str) -> Result<Seen, String> {
        let space = look(Path::new(path)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("there is no {path}"),
            io::ErrorKind::PermissionDenied => format!("whoever takes the sample may not go to {path}"),
            _ => format!("{path}: {error}"),
        })?;
        self.find(&space)
    }

    pub(super) fn find(self, space: &Space) -> Result<Seen, String> {
        let left = format!("{} of {} available", mebibytes(space.available), mebibytes(space.bytes));
        let (used, left, nothing) = match self {
            Self::UsedPercent | Self::AvailableBytes => {
                let used = percent(space.used, space.used.saturating_add(space.available));
                (used, left, "no file system with room of its own")
            }
            Self::InodesUsedPercent => {
                let (all, left) = (space.inodes, space.available_inodes);
                let used = percent(all.saturating_sub(left), all);
                (used, format!("{left} of {all} available"), "a file system without a fixed number of inodes")
            }
        };
        match (self, used) {
            (_, None) => Err(format!("it is {nothing}")),
            (Self::AvailableBytes, Some(_)) => Ok(Seen::measured(number(space.available), left)),
            (_, Some(used)) => Ok(Seen::measured(used, format!("{used:.1} %, {left}"))),
        }
    }
}

/// What there is at `path`. A directory that nobody may enter is what a unit with ProtectHome= has in place of another, on a file
/// system of its own.
fn look(path: &Path) -> io::Result<Space> {
    let found = fs::metadata(path)?;
    if found.is_dir() && found.permissions().mode() & 0o777 == 0 {
        let problem =
            "nobody may enter it (mode 000): the unit of the daemon may hide what is there (ProtectHome=)";
        return Err(io::Error::other(problem));
    }
    Space::at(path)
}

/// Does what may block and cannot be called back, if it gets one of so many places within `limit`.
pub(super) async fn in_place<T: Send + 'static>(
    places: &'static Semaphore,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let place = places.acquire().await.map_err(|error| error.to_string())?;
    let work = move || {
        let _place = place;
        work()
    };
    blocking(limit, work).await
}
