//! A network namespace with a name below `/run/netns`, gone when the guard is.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::ioctl_write_ptr_bad;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::{Error, Result};

const FOLDER: &str = "/run/netns";

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A private network namespace, with its loopback up.
#[derive(Debug)]
pub struct NetNs {
    name: String,
    file: File,
}

impl NetNs {
    /// Makes one, under a name that no other test has.
    ///
    /// # Errors
    /// When the kernel refuses, usually for want of root.
    pub fn new() -> Result<Self> {
        Self::named(format!("{}{}", prefix(std::process::id()), COUNTER.fetch_add(1, Ordering::Relaxed)))
    }

    fn named(name: String) -> Result<Self> {
        let path = Path::new(FOLDER).join(&name);
        fs::create_dir_all(FOLDER).map_err(Error::io("create", FOLDER))?;
        File::create_new(&path).map_err(Error::io("create", path.display().to_string()))?;
        let file = match std::thread::scope(|scope| scope.spawn(|| unshare_into(&path)).join()) {
            Ok(Ok(file)) => file,
            Ok(Err(error)) => {
                remove(&path)?;
                return Err(error);
            }
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(Self { name, file })
    }

    /// The name, as `ip netns` and `target.netns` take it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a text tells of it, and not of another whose name begins like this one's.
    pub fn is_named_in(&self, text: &str) -> bool {
        names(text, &self.name)
    }

    /// The file that the namespace is mounted on.
    pub fn path(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.name)
    }

    /// Takes its name away, as `ip netns delete` does. The namespace itself stays while something is in it or, as
    /// this guard, refers to it.
    ///
    /// # Errors
    /// When it has none.
    pub fn lose_name(&self) -> Result<()> {
        remove(&self.path())
    }

    /// Another namespace under the name of this one, which goes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn anew(self) -> Result<Self> {
        let name = self.name.clone();
        drop(self);
        Self::named(name)
    }

    /// Runs a closure inside, on a thread of its own (a namespace belongs to a thread). Panics go through.
    ///
    /// # Panics
    /// When the closure does, or when the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let result = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let entered = setns(&self.file, CloneFlags::CLONE_NEWNET);
                    assert!(entered.is_ok(), "enter namespace {}: {entered:?}", self.name);
                    work()
                })
                .join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A way in for a thread that will outlive this borrow.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn entrance(&self) -> Result<Entrance> {
        self.file.try_clone().map(Entrance).map_err(Error::io("share", self.path().display().to_string()))
    }

    /// A command that will run inside.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.place(&mut command);
        command
    }

    /// Has a command run inside.
    pub fn place(&self, command: &mut Command) {
        let fd = self.file.as_raw_fd();
        // SAFETY: the closure makes one system call, which is safe between fork and exec; the descriptor stays
        // open in the child because exec, which closes it, comes later. Commands do not outlive their guard.
        unsafe {
            command.pre_exec(move || {
                let fd = std::os::fd::BorrowedFd::borrow_raw(fd);
                setns(fd, CloneFlags::CLONE_NEWNET).map_err(Into::into)
            });
        }
    }

    /// Runs `ip` inside.
    ///
    /// # Errors
    /// With what it wrote.
    pub fn ip(&self, args: &[&str]) -> Result<String> {
        output(self.command("ip").args(args))
    }

    /// Runs several `ip` commands inside, one a line, as one program.
    ///
    /// # Errors
    /// With what it wrote; the commands before the failing one have been done.
    pub fn ip_batch(&self, commands: &str) -> Result<()> {
        let path = self.path();
        let subject = || format!("commands for {}", path.display());
        let mut file = tempfile::tempfile().map_err(Error::io("create", subject()))?;
        file.write_all(commands.as_bytes())
            .and_then(|()| file.rewind())
            .map_err(Error::io("write", subject()))?;
        output(self.command("ip").args(["-batch", "-"]).stdin(file)).map(drop)
    }

    /// Runs `tc` inside.
    ///
    /// # Errors
    /// With what it wrote.
    pub fn tc(&self, args: &[&str]) -> Result<String> {
        output(self.command("tc").args(args))
    }
}

/// A way into a namespace.
#[derive(Debug)]
pub struct Entrance(File);

impl Entrance {
    /// Moves the calling thread inside, for good.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self) -> std::io::Result<()> {
        Ok(setns(&self.0, CloneFlags::CLONE_NEWNET)?)
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        let path = self.path();
        if let (true, Err(error)) = (path.exists(), remove(&path)) {
            eprintln!("clean up: {error}");
        }
    }
}

/// What the names of a process's namespaces begin with.
pub(crate) fn prefix(pid: u32) -> String {
    format!("ct{pid}-")
}

/// Names of the namespaces that a process made and left behind.
pub(crate) fn left_by(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(FOLDER) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with(&prefix(pid)));
    names
}

/// Removes a namespace of ours by name.
pub(crate) fn remove_by_name(name: &str) -> Result<()> {
    remove(&Path::new(FOLDER).join(name))
}

fn unshare_into(path: &Path) -> Result<File> {
    let subject = || path.display().to_string();
    unshare(CloneFlags::CLONE_NEWNET).map_err(Error::sys("unshare for", subject()))?;
    mount(Some("/proc/thread-self/ns/net"), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(Error::sys("mount on", subject()))?;
    loopback_up().map_err(Error::sys("set up lo of", subject()))?;
    File::open(path).map_err(Error::io("open", subject()))
}

ioctl_write_ptr_bad!(
    /// Sets the flags of an interface (netdevice(7)).
    set_interface_flags,
    libc::SIOCSIFFLAGS,
    libc::ifreq
);

/// In the current namespace. Not with `ip`: starting a program takes a tenth of a second in the VM.
fn loopback_up() -> nix::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = from.cast_signed();
    }
    // IFF_UP is the lowest bit.
    request.ifr_ifru.ifru_flags = 1;
    // SAFETY: the kernel reads one ifreq, which lives until the call is over.
    unsafe { set_interface_flags(socket.as_raw_fd(), &raw const request) }.map(drop)
}

fn remove(path: &Path) -> Result<()> {
    // Nothing is mounted when making the namespace failed half way: EINVAL.
    let _ = umount2(path, MntFlags::MNT_DETACH);
    fs::remove_file(path).map_err(Error::io("remove", path.display().to_string()))
}

/// Runs a command to its end and returns what it wrote.
///
/// # Errors
/// When it cannot be started or does not succeed.
pub fn output(command: &mut Command) -> Result<String> {
    let words = format!("{command:?}");
    let output = command.output().map_err(Error::io("start", words.clone()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    Err(Error::Command { command: words, output: text })
}

/// Whether a name with a number at its end is in a text, as a whole.
fn names(text: &str, name: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|next: char| next.is_ascii_digit());
    text.match_indices(name).any(|(at, _)| !goes_on(&text[at + name.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_another_namespace_that_begins_alike_is_another() {
        assert!(names("eth0 in ct7-4, and in ct7-49", "ct7-4"));
        assert!(!names("eth0 ingress in network namespace ct7-49", "ct7-4"));
        assert!(names("ct7-49", "ct7-49"));
    }
}
