//! Mounts that only a test sees: in a mount namespace of the test's own, which goes with its thread and children.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::{ioctl_readwrite, libc};
use tempfile::NamedTempFile;

use crate::daemon::TMPFS;
use crate::error::{Error, Result};
use crate::netns::output;
use crate::process::Process;

/// Thaws a file system, whose root is its standard output, when nobody has the other end of its standard input any more.
const THAWER: &str = "read -r _; fsfreeze --unfreeze /proc/self/fd/1";

ioctl_readwrite!(
    /// Holds every write to a file system until [`thaw`] (ioctl_fsfreeze; `include/uapi/linux/fs.h`).
    freeze,
    b'X',
    119,
    libc::c_int
);
ioctl_readwrite!(
    /// Undoes [`freeze`].
    thaw,
    b'X',
    120,
    libc::c_int
);

/// Runs a closure on a thread with mounts of its own, where the folder of the daemons' runtime directories is a tmpfs
/// of so many KiB. Whatever processes it starts see the same.
///
/// # Errors
/// When the kernel refuses the mounts, or the closure fails.
///
/// # Panics
/// When the closure does.
pub fn with_tiny_tmpfs<T: Send>(kibibytes: u32, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    with_tmpfs(Path::new(TMPFS), &format!("size={kibibytes}k,mode=1777"), work)
}

/// As [`with_tiny_tmpfs`], with a tmpfs on another folder, with these options.
///
/// # Errors
/// As [`with_tiny_tmpfs`].
///
/// # Panics
/// When the closure does.
pub fn with_tmpfs<T: Send>(
    folder: &Path,
    options: &str,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let cover = || {
        mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some(options))
            .map_err(Error::sys("mount a tmpfs on", folder.display().to_string()))
    };
    with_own_mounts(cover, work)
}

/// As [`with_tiny_tmpfs`], without what is mounted on a folder.
///
/// # Errors
/// As [`with_tiny_tmpfs`].
///
/// # Panics
/// When the closure does.
pub fn without<T: Send>(folder: &Path, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let unmount =
        || umount2(folder, MntFlags::MNT_DETACH).map_err(Error::sys("unmount", folder.display().to_string()));
    with_own_mounts(unmount, work)
}

/// Runs `work` on a thread with mounts of its own, after `change` has changed them.
fn with_own_mounts<T: Send>(
    change: impl FnOnce() -> Result<()> + Send,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let result = std::thread::scope(|scope| {
        let run = || {
            unshare(CloneFlags::CLONE_NEWNS).map_err(Error::sys("unshare", "the mounts"))?;
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
                .map_err(Error::sys("make private", "the mounts"))?;
            change()?;
            work()
        };
        scope.spawn(run).join()
    });
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A file system that is mounted below a folder of the test's own, until the guard goes.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts one of a kind, which need not have a device, on a folder that is made for it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(kind: &str, on: &Path, options: &str) -> Result<Self> {
        std::fs::create_dir(on).map_err(Error::io("create", on.display().to_string()))?;
        Self::over(kind, on, options)
    }

    /// As [`Mounted::new`], over a folder that is there: for a thread with mounts of its own, see [`with_tmpfs`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn over(kind: &str, on: &Path, options: &str) -> Result<Self> {
        mount(Some(kind), on, Some(kind), MsFlags::empty(), Some(options))
            .map_err(Error::sys("mount on", on.display().to_string()))?;
        Ok(Self(on.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0) {
            eprintln!("clean up: {error}");
        }
    }
}

/// Unmounts lazily: whoever still has it open, or a fault on it, lets go of it later.
pub(crate) fn unmount(path: &Path) -> Result<()> {
    umount2(path, MntFlags::MNT_DETACH).map_err(Error::sys("unmount", path.display().to_string()))
}

/// Where something is mounted in a folder, the latest first. Of names with spaces and the like nothing is known, see proc(5).
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut below: Vec<_> = points.filter(|point| point.starts_with(folder) && point != folder).collect();
    below.reverse();
    below
}

/// A file that takes all the room that is left, until the guard goes.
#[derive(Debug)]
pub struct Ballast(PathBuf);

impl Ballast {
    /// Fills the file system that `folder` is on: only for one of the test's own, see [`with_tiny_tmpfs`].
    ///
    /// # Errors
    /// When writing fails for another reason than want of room.
    pub fn fill(folder: &Path) -> Result<Self> {
        let path = folder.join("ballast");
        let mut file = File::create_new(&path).map_err(Error::io("create", path.display().to_string()))?;
        let ballast = Self(path);
        loop {
            match file.write(&[0; 4096]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(ballast),
                Err(error) => return Err(Error::io("fill", ballast.0.display().to_string())(error)),
            }
        }
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            eprintln!("clean up: remove {}: {error}", self.0.display());
        }
    }
}

/// An ext4 file system in a file of the test's own, mounted as a disk over a folder until the guard goes: for a thread with mounts
/// of its own, see [`with_tmpfs`].
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    _file: NamedTempFile,
}

impl Disk {
    /// Makes one of this size.
    ///
    /// # Errors
    /// When a tool refuses.
    pub(crate) fn mount_on(folder: &Path, mebibytes: u64) -> Result<Self> {
        // Not yet known to /dev, where nobody else loads it; nor to modprobe, where it is built in.
        let _ = output(Command::new("modprobe").arg("loop"));
        let file = NamedTempFile::new().map_err(Error::io("create", "an image"))?;
        file.as_file().set_len(mebibytes << 20).map_err(Error::io("size", "an image"))?;
        output(Command::new("mkfs.ext4").args(["-q", "-F", "-O", "^has_journal"]).arg(file.path()))?;
        output(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(file.path()).arg(folder))?;
        Ok(Self { folder: folder.to_owned(), _file: file })
    }

    /// Holds every write until the guard goes, or the test.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn freeze(&self) -> Result<Frozen> {
        let subject = || self.folder.display().to_string();
        let root = File::open(&self.folder).map_err(Error::io("open", subject()))?;
        let shared = root.try_clone().map_err(Error::io("share", subject()))?;
        let mut thawer = Command::new("sh");
        // In a group of its own: what interrupts the test does not end it.
        thawer.args(["-c", THAWER]).stdin(Stdio::piped()).stdout(shared).process_group(0);
        let thawer = thawer.spawn().map_err(Error::io("start", "a shell"))?;
        let frozen = Frozen { root, thawer };
        // SAFETY: the kernel ignores the argument.
        unsafe { freeze(frozen.root.as_raw_fd(), std::ptr::null_mut()) }
            .map_err(Error::sys("freeze", subject()))?;
        Ok(frozen)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = umount2(&self.folder, MntFlags::MNT_DETACH) {
            eprintln!("clean up: unmount {}: {error}", self.folder.display());
        }
    }
}

/// A file system to which nobody can write, until this goes. One that stays frozen when its last mount point has gone cannot be
/// thawed any more, so that a process of its own does it, also when the test is killed.
#[derive(Debug)]
pub(crate) struct Frozen {
    root: File,
    thawer: Child,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // This closes the standard input first.
        let thawed = self.thawer.wait();
        if !thawed.as_ref().is_ok_and(ExitStatus::success) {
            // SAFETY: the kernel ignores the argument.
            let instead = unsafe { thaw(self.root.as_raw_fd(), std::ptr::null_mut()) };
            eprintln!("clean up: thaw: {thawed:?}, and then {instead:?}");
        }
    }
}

/// Whether a process is there to thaw what a test has frozen. It ends by itself when the test has, and is not to be killed.
pub(crate) fn thaws(process: &Process) -> bool {
    process.arguments.iter().any(|word| word.contains("fsfreeze"))
}
