//! The file of a search: JSON, replaced as a whole and synced, since what comes next may take the host down. Files have numbers: the
//! server may neither make nor list folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Kept, MOST_KEPT};
use crate::server::registry::replace_synced;

/// Where the search of this place is kept.
pub(super) fn path_of(directory: &Path, place: usize) -> PathBuf {
    directory.join(format!("search-{place}.json"))
}

/// Writes one down; says what is wrong if that cannot be done.
pub(super) fn write(directory: &Path, place: usize, kept: &Kept) -> Result<(), String> {
    let path = path_of(directory, place);
    let written = serde_json::to_vec(kept).map_err(io::Error::other);
    written.and_then(|bytes| replace_synced(&path, &bytes)).map_err(|error| {
        tracing::warn!(path = %path.display(), %error, "cannot save a search");
        format!("{}: {error}", path.display())
    })
}

/// All that are there, with their places. What cannot be understood is moved aside.
pub(super) fn load(directory: &Path) -> Vec<(usize, Kept)> {
    (0..MOST_KEPT).filter_map(|place| Some((place, read(&path_of(directory, place))?))).collect()
}

fn read(path: &Path) -> Option<Kept> {
    let read = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        read => read,
    };
    match read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::other)) {
        Ok(kept) => Some(kept),
        Err(error) => {
            let moved = fs::rename(path, path.with_extension("broken")).is_ok();
            tracing::warn!(path = %path.display(), moved, %error, "cannot read a search: going on without it");
            None
        }
    }
}
