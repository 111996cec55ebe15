//! Files of users that are replaced as a whole: a reader, or a crash, sees what was there or what is there now.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Replaces what is at `path`, or makes it, with its folder. A link is followed, and rights stay.
///
/// # Errors
/// When it cannot be written. What was there is there then.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mode = fs::metadata(&path).map_or(0o644, |found| found.permissions().mode() & 0o777);
    let new = beside(&path);
    let written = write(&new, mode, bytes).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        // It may not be there at all.
        let _ = fs::remove_file(&new);
    }
    written
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{:08x}", std::process::id(), rand::random::<u32>()))
}

fn write(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_rights_and_behind_its_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("a/real"), folder.path().join("link"));
        replace(&real, b"one").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        replace(&link, b"two").unwrap();
        assert_eq!(fs::read(&real).unwrap(), b"two");
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
    }
}
