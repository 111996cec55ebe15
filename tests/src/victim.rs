//! A control group of the test's own, with a process in it that answers as long as it can; both gone when the guard is.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cgroup::{enable, unused_name};
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::{look_patiently, wait_until};
use crate::skip::Environment;

/// A shell that does what each line says and then writes the line's first word.
const SCRIPT: &str =
    "while read -r number command; do eval \"$command\" 2>/dev/null; echo \"$number $?\"; done";

/// A control group with one process.
#[derive(Debug)]
pub struct Victim {
    path: PathBuf,
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    asked: u32,
}

impl Victim {
    /// Makes one, with these controllers, of which [`has_controllers`] says whether it can have them.
    ///
    /// # Errors
    /// When there is no cgroup v2, or no such controller.
    pub fn new(controllers: &[&str]) -> Result<Self> {
        let mount = mount()?;
        // On a host they are enabled already: its root is not ours to change.
        if Environment::detect() == Environment::Vm {
            controllers.iter().try_for_each(|controller| enable(controller))?;
        }
        let path = mount.join(unused_name());
        fs::create_dir(&path).map_err(Error::io("create", path.display().to_string()))?;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(Error::io("start", "a shell"))?;
        let (orders, answers) = (process.stdin.take(), process.stdout.take());
        let (Some(orders), Some(answers)) = (orders, answers) else {
            return Err(Error::Different("a shell without pipes".into()));
        };
        let victim = Self { path, process, orders, answers: BufReader::new(answers), asked: 0 };
        victim.write("cgroup.procs", &victim.process.id().to_string())?;
        Ok(victim)
    }

    /// Its name, which is its path below the mount.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Starts another process in it, which the caller has to end.
    ///
    /// # Errors
    /// When it cannot be started, or the kernel refuses.
    pub fn join(&self, command: &mut Command) -> Result<Child> {
        let process = command.spawn().map_err(Error::io("start", "a process in a cgroup"))?;
        self.write("cgroup.procs", &process.id().to_string())?;
        Ok(process)
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What one of its files says.
    ///
    /// # Errors
    /// When it has no such file.
    pub fn read(&self, file: &str) -> Result<String> {
        let path = self.path.join(file);
        let text = fs::read_to_string(&path).map_err(Error::io("read", path.display().to_string()))?;
        Ok(text.trim_end().to_owned())
    }

    /// Writes one of its files.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn write(&self, file: &str, value: &str) -> Result<()> {
        write(&self.path.join(file), value)
    }

    /// Has the process run a command; its exit status, or `None` when it has not answered in time.
    ///
    /// # Errors
    /// When its pipes fail.
    pub fn ask(&mut self, command: &str, limit: Duration) -> Result<Option<i32>> {
        self.asked += 1;
        let io = |op| Error::io(op, "a shell in a cgroup");
        writeln!(self.orders, "{} {command}", self.asked).map_err(io("ask"))?;
        loop {
            let is_heard = |nap| {
                let timeout = PollTimeout::try_from(nap).unwrap_or(PollTimeout::MAX);
                let mut fds = [PollFd::new(self.answers.get_ref().as_fd(), PollFlags::POLLIN)];
                Some(poll(&mut fds, timeout)).filter(|found| *found != Ok(0))
            };
            if self.answers.buffer().is_empty() {
                match look_patiently(limit, is_heard) {
                    None => return Ok(None),
                    Some(found) => found.map_err(Error::sys("poll", "a pipe"))?,
                };
            }
            let mut line = String::new();
            if self.answers.read_line(&mut line).map_err(io("hear"))? == 0 {
                return Err(Error::Different("the shell in a cgroup has ended".into()));
            }
            // An answer to an earlier question may still have been under way.
            if let Some(status) = line.trim().strip_prefix(&format!("{} ", self.asked)) {
                return Ok(status.parse().ok());
            }
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Frozen processes die, too, but a thawed group is quicker to go.
        let _ = self.write("cgroup.freeze", "0");
        let _ = self.process.kill();
        let _ = self.process.wait();
        let gone = wait_until(HANG, || fs::remove_dir(&self.path).is_ok());
        if !gone {
            eprintln!("cgroup {} could not be removed", self.path.display());
        }
    }
}

fn mount() -> Result<PathBuf> {
    let text = fs::read_to_string("/proc/mounts").map_err(Error::io("read", "/proc/mounts"))?;
    let found = text.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let path = found.and_then(|line| line.split(' ').nth(1)).map(PathBuf::from);
    path.ok_or_else(|| Error::Different("no cgroup v2 is mounted".into()))
}

/// Whether a [`Victim`] can have these controllers: on a host only those that are enabled for the groups below its root.
pub fn has_controllers(controllers: &[&str]) -> bool {
    match Environment::detect() {
        Environment::Vm => are_there(controllers),
        Environment::Host => are_listed("cgroup.subtree_control", controllers),
    }
}

/// Whether the kernel has these controllers for cgroup v2, enabled or not.
pub fn are_there(controllers: &[&str]) -> bool {
    are_listed("cgroup.controllers", controllers)
}

/// Whether a file of the root lists these controllers.
fn are_listed(file: &str, controllers: &[&str]) -> bool {
    let listed = mount().ok().and_then(|mount| fs::read_to_string(mount.join(file)).ok());
    let listed = listed.unwrap_or_default();
    controllers.iter().all(|wanted| listed.split_whitespace().any(|there| there == *wanted))
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).map_err(Error::io("write", path.display().to_string()))
}
