//! Control groups (cgroups(7), version 2): found by path or by systemd unit, known by an id that the kernel gives once per
//! boot, read through an open directory. Nothing here changes one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::libc;
use serde::{Deserialize, Serialize};

use super::process::numbers;

/// A control group as the journal writes it: how to find it again, and how to know that it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupRef {
    /// Its directory. Control groups of version 2 cannot be renamed.
    pub path: PathBuf,
    /// The inode of the directory: the kernel's id of the group, never used again in this boot (`kernfs_id_ino`,
    /// include/linux/kernfs.h).
    pub id: u64,
}

/// An open control group: it stays this one even when its path is given to another.
#[derive(Debug)]
pub struct Cgroup {
    directory: File,
}

impl CgroupRef {
    /// The group whose directory this is; `None` when there is no such directory.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn find(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => Ok(Some(Self { path: path.to_owned(), id: found.ino() })),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens it, if it is still the same; `None` when it has gone, and with it everything that was set in it.
    ///
    /// # Errors
    /// When the directory cannot be opened for another reason.
    pub fn open(&self) -> io::Result<Option<Cgroup>> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        // OPENS: the caller | root | a folder of the control groups, known by its kernel id; only its own files are opened in it,
        // which the kernel has made
        let directory = match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        Ok((directory.metadata()?.ino() == self.id).then_some(Cgroup { directory }))
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl Cgroup {
    /// Reads one of its files, without the line's end.
    ///
    /// # Errors
    /// `NotFound` when the group has no such file, because its controller is not enabled or the group is gone.
    pub fn read(&self, file: &str) -> io::Result<String> {
        let mut text = String::new();
        match File::from(self.file(file, libc::O_RDONLY)?).read_to_string(&mut text) {
            // The group was removed between opening and reading (kernfs says ENODEV).
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                return Err(io::Error::new(io::ErrorKind::NotFound, error));
            }
            read => read?,
        };
        Ok(text.trim_end().to_owned())
    }

    /// Opens one of its files.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn file(&self, name: &str, flags: libc::c_int) -> io::Result<OwnedFd> {
        let name = std::ffi::CString::new(name)?;
        // OPENS: nobody: the names are the program's | root | a file that the kernel has made in the open folder of a control group
        // SAFETY: the descriptor and the text are valid for the call; the result is a new descriptor or -1.
        let fd = unsafe { libc::openat(self.directory.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC) };
        match fd {
            // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
            fd if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Where the whole of cgroup version 2 is mounted: `/sys/fs/cgroup` on most hosts. `None` when it is not.
///
/// # Errors
/// When procfs cannot be read.
pub fn mount() -> io::Result<Option<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    // Fields 4 and 5 are root and mount point; the type follows the lonely dash (proc(5)).
    let whole = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(3);
        let root = fields.next()?;
        (root == "/" && kind.starts_with("cgroup2 ")).then(|| fields.next().map(PathBuf::from)).flatten()
    };
    Ok(text.lines().find_map(whole))
}

/// The directory below `mount` that a caller names, as an absolute path or as one below the mount. `None` when the text
/// is no such path, or names the mount itself.
pub fn below(mount: &Path, text: &str) -> Option<PathBuf> {
    let text = Path::new(text);
    let inside = text.strip_prefix(mount).unwrap_or_else(|_| text.strip_prefix("/").unwrap_or(text));
    let plain = inside.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && inside.components().next().is_some()).then(|| mount.join(inside))
}

/// How many groups are above the one at `path`, which the kernel counts from the root of all. `None` when what is mounted is
/// not that root: in a cgroup namespace (cgroup_namespaces(7)) it only looks like it.
///
/// # Errors
/// When the mount cannot be looked at.
pub fn level(mount: &Path, path: &Path) -> io::Result<Option<u32>> {
    // The first node that the kernel makes in a hierarchy is its root (`kernfs_create_root`, fs/kernfs/dir.c).
    const ROOT: u64 = 1;
    let Ok(inside) = path.strip_prefix(mount) else { return Ok(None) };
    let (level, root) = (u32::try_from(inside.components().count()).ok(), fs::metadata(mount)?.ino());
    Ok(level.filter(|_| root == ROOT))
}

/// The group of a unit of the system's service manager, which keeps units in slices and nowhere else (systemd.slice(5)).
/// What users' own service managers keep is not searched.
///
/// # Errors
/// When a slice cannot be listed.
pub fn of_unit(mount: &Path, unit: &str) -> io::Result<Option<PathBuf>> {
    let here = mount.join(unit);
    if here.is_dir() {
        return Ok(Some(here));
    }
    for entry in fs::read_dir(mount)?.flatten() {
        let slice = entry.path().extension().is_some_and(|kind| kind == "slice");
        if slice
            && entry.file_type()?.is_dir()
            && let Some(found) = of_unit(&entry.path(), unit)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The numbers of the processes in the group at `path`, below `mount`, or in groups below it.
///
/// # Errors
/// When procfs cannot be read.
pub fn members(mount: &Path, path: &Path) -> io::Result<Vec<i32>> {
    let Ok(group) = path.strip_prefix(mount) else { return Ok(Vec::new()) };
    // Whoever has ended meanwhile is in no group.
    let is_in = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .is_ok_and(|membership| is_member(&membership, group))
    };
    Ok(numbers()?.into_iter().filter(is_in).collect())
}

/// Whether `/proc/PID/cgroup` says that the process is in `group`, or below it.
fn is_member(membership: &str, group: &Path) -> bool {
    let path = membership.lines().find_map(|line| line.strip_prefix("0::/"));
    path.is_some_and(|path| Path::new(path).starts_with(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_the_mount_is_a_path() {
        let mount = Path::new("/sys/fs/cgroup");
        for (text, path) in [
            ("a.slice/b.service", Some("/sys/fs/cgroup/a.slice/b.service")),
            ("/a", Some("/sys/fs/cgroup/a")),
            ("/sys/fs/cgroup/a", Some("/sys/fs/cgroup/a")),
            ("/sys/fs/cgroup", None),
            ("/", None),
            ("", None),
            ("../a", None),
            ("a/../..", None),
            ("/sys/fs/cgroup/../../../etc", None),
        ] {
            assert_eq!(below(mount, text), path.map(PathBuf::from), "{text:?}");
        }
    }

    #[test]
    fn a_process_belongs_to_its_group_and_to_every_one_above() {
        let membership = "12:cpu:/x\n0::/system.slice/a.service\n";
        for group in ["system.slice/a.service", "system.slice", ""] {
            assert!(is_member(membership, Path::new(group)), "{group:?}");
        }
        for group in ["system.slice/a", "system.slice/a.service/b", "x"] {
            assert!(!is_member(membership, Path::new(group)), "{group:?}");
        }
    }

    #[test]
    fn a_unit_is_found_in_slices_and_not_in_what_users_run() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("system.slice/system-a.slice/b.service")).unwrap();
        fs::create_dir_all(root.path().join("user.slice/user@1.service/app.slice/c.service")).unwrap();
        let found = of_unit(root.path(), "b.service").unwrap();
        assert_eq!(found, Some(root.path().join("system.slice/system-a.slice/b.service")));
        assert_eq!(of_unit(root.path(), "c.service").unwrap(), None);
    }

    #[test]
    fn a_directory_made_anew_under_the_same_path_is_another_group() {
        let folder = tempfile::tempdir().unwrap();
        let found = CgroupRef::find(folder.path()).unwrap().unwrap();
        assert!(found.open().unwrap().is_some());
        assert!(CgroupRef { id: found.id + 1, ..found.clone() }.open().unwrap().is_none());
        assert!(CgroupRef { path: folder.path().join("x"), id: 1 }.open().unwrap().is_none());
    }

    #[test]
    fn everybody_is_in_the_root_or_below_it() {
        let mount = Path::new("/m");
        let all = members(mount, mount).unwrap();
        assert!(all.contains(&1) && all.contains(&std::process::id().cast_signed()));
    }
}
