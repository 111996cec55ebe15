//! A control group (v2) of the test's own, gone when the guard is.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::libc;

use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::wait_until;

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A control group for processes that a test starts.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    processes: Arc<OwnedFd>,
    /// Whether it is the test's own.
    is_ours: bool,
}

impl Cgroup {
    /// Makes one below the root of the cgroup2 mount.
    ///
    /// # Errors
    /// When there is no such mount, or the kernel refuses.
    pub fn new() -> Result<Self> {
        Self::make(root()?.join(unused_name()))
    }

    /// Makes one as a container engine does, and returns the container's id.
    ///
    /// # Errors
    /// As [`Cgroup::new`].
    pub fn of_container() -> Result<(Self, String)> {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:032x}{number:032x}", std::process::id());
        Ok((Self::make(root()?.join(format!("docker-{id}.scope")))?, id))
    }

    /// Makes one that is found as a unit is, and looks like no fault's.
    ///
    /// # Errors
    /// As [`Cgroup::new`].
    pub fn of_unit() -> Result<Self> {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        Self::make(root()?.join(format!("ct{}-{number}.service", std::process::id())))
    }

    /// Makes the one whose folder this is.
    ///
    /// # Errors
    /// As [`Cgroup::new`].
    pub fn at(path: PathBuf) -> Result<Self> {
        Self::make(path)
    }

    fn make(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path).map_err(Error::io("create", path.display().to_string()))?;
        Self::open(path, true)
    }

    /// One that somebody else has made and will remove, such as a unit's.
    ///
    /// # Errors
    /// When there is none.
    pub fn of_others(path: &Path) -> Result<Self> {
        Self::open(path.to_owned(), false)
    }

    fn open(path: PathBuf, is_ours: bool) -> Result<Self> {
        let processes = File::options().write(true).open(path.join("cgroup.procs"));
        let processes = processes.map_err(Error::io("open cgroup.procs of", path.display().to_string()))?;
        Ok(Self { path, processes: Arc::new(processes.into()), is_ours })
    }

    /// Takes it away, with everything in it, and makes another one of the same name, as a service manager does at a restart.
    ///
    /// # Errors
    /// As [`Cgroup::new`].
    pub fn anew(self) -> Result<Self> {
        let path = self.path.clone();
        self.kill()?;
        drop(self);
        Self::make(path)
    }

    /// Makes one below this one, which has to live longer.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn below(&self) -> Result<Self> {
        Self::make(self.path.join("below"))
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name; for one directly below the mount, its path from there.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Has a command run in it.
    pub fn place(&self, command: &mut Command) {
        let processes = Arc::clone(&self.processes);
        // SAFETY: the closure makes one system call, which is safe between fork and exec; "0" means whoever writes.
        unsafe {
            command.pre_exec(move || match libc::write(processes.as_raw_fd(), c"0".as_ptr().cast(), 1) {
                1 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
    }

    /// Writes one of its files.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value).map_err(Error::io("write", path.display().to_string()))
    }

    /// Reads one of its files.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn get(&self, file: &str) -> Result<String> {
        let path = self.path.join(file);
        fs::read_to_string(&path).map_err(Error::io("read", path.display().to_string()))
    }

    /// Kills everything in it at once (SIGKILL by the kernel; from 5.14 on).
    ///
    /// # Errors
    /// As the kernel says.
    pub fn kill(&self) -> Result<()> {
        self.set("cgroup.kill", "1")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(error) = remove(&self.path)
        {
            eprintln!("clean up: {error}");
        }
    }
}

/// A name for a group below the root that nobody else here has.
pub(crate) fn unused_name() -> String {
    format!("chaos-test-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// What the name of a group of a process begins with that looks like a fault's: the residue oracle is shown such a one.
pub(crate) fn like_a_faults(pid: u32) -> String {
    format!("chaos1{pid:06x}")
}

/// The groups directly below the root that a process made and left behind: plain ones, those of containers, those of units, those
/// that look like a fault's.
pub(crate) fn left_by(pid: u32) -> Vec<PathBuf> {
    let prefixes =
        [format!("chaos-test-{pid}-"), format!("docker-{pid:032x}"), format!("ct{pid}-"), like_a_faults(pid)];
    let is_its = |entry: &fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let entries = root().ok().and_then(|root| fs::read_dir(root).ok()).into_iter().flatten().flatten();
    entries.filter(is_its).map(|entry| entry.path()).collect()
}

/// Removes a group of ours, with all that is in it.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let _ = fs::write(path.join("cgroup.kill"), "1");
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    let mut last = Ok(());
    wait_until(HANG, || {
        last = fs::remove_dir(path);
        last.is_ok()
    });
    last.map_err(Error::io("remove", path.display().to_string()))
}

/// Gives the groups below the root a controller's files. For a VM only: the root is everybody's.
///
/// # Errors
/// When the kernel has no such controller.
pub fn enable(controller: &str) -> Result<()> {
    let path = root()?.join("cgroup.subtree_control");
    fs::write(&path, format!("+{controller}")).map_err(Error::io("write", path.display().to_string()))
}

/// Where cgroup2 is mounted.
///
/// # Errors
/// When it is not.
pub fn root() -> Result<PathBuf> {
    let text = fs::read_to_string("/proc/self/mounts").map_err(Error::io("read", "/proc/self/mounts"))?;
    let mount = text
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|words| words.get(2) == Some(&"cgroup2"));
    let path = mount.and_then(|words| words.get(1).map(Path::new).map(Path::to_path_buf));
    path.ok_or_else(|| Error::Different("cgroup2 is not mounted".into()))
}
