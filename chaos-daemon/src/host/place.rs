//! A file or folder whose calls fail: known by device and inode when it is named, and kept open by who watches it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use serde::{Deserialize, Serialize};

/// A file or folder, pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRef {
    /// As it was named.
    pub path: PathBuf,
    /// The number of its file system, as stat(2) has it.
    pub device: u64,
    /// Its number there, likewise.
    pub inode: u64,
    /// Whether it is a folder.
    pub is_folder: bool,
}

impl PlaceRef {
    /// What is at this path, links followed; `None` when nothing is.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn find(path: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(found) => Ok(Some(Self {
                path: path.to_owned(),
                device: found.dev(),
                inode: found.ino(),
                is_folder: found.is_dir(),
            })),
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes hold of it, if it is still the same: neither to read nor to write, which would need rights to it.
    ///
    /// # Errors
    /// When it cannot be reached, or another is in its place.
    pub fn open(&self) -> io::Result<File> {
        let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&self.path)?;
        let found = place.metadata()?;
        match (found.dev(), found.ino()) == (self.device, self.inode) {
            true => Ok(place),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "something else is in its place")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_anew_under_the_same_path_is_another() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, "").unwrap();
        let found = PlaceRef::find(&path).unwrap().unwrap();
        assert!(!found.is_folder && found.open().is_ok());
        // Both are there at once, so that they are two.
        fs::write(root.path().join("b"), "").unwrap();
        fs::rename(root.path().join("b"), &path).unwrap();
        assert!(found.open().is_err());
        assert!(PlaceRef::find(root.path()).unwrap().unwrap().is_folder);
        assert_eq!(PlaceRef::find(&root.path().join("none")).unwrap(), None);
        assert_eq!(PlaceRef::find(&path.join("below-a-file")).unwrap(), None);
    }
}
