//! A daemon of the test's own: its own socket, its own state, and no process of it left when the guard goes.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::Signal;
use tempfile::{NamedTempFile, TempDir};

use crate::error::{Error, Result};
use crate::late::HANG;
use crate::mcp::Mcp;
use crate::process::{self, Process, wait_until};

/// Where hosts of today have one.
pub(crate) const TMPFS: &str = "/dev/shm";
/// A variable by which a test says that its daemon is not told what this host is.
const UNSAID: &str = "CHAOS_TEST_ENVIRONMENT_UNSAID";
/// Where nobody but root can put anything.
const ROOTS: &str = "/run";

/// A policy that lets faults take room where tests have their folders: that may be the file system of the host's root.
pub(crate) const ROOM: &str = "[open]\nfile_systems = [\"/tmp\"]\n";

/// A policy in a file of its own, which a daemon reads once, when it starts.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn policy_file(policy: &str) -> Result<NamedTempFile> {
    let file = NamedTempFile::with_prefix("chaos-test-").map_err(Error::io("create", "a policy"))?;
    fs::write(file.path(), policy).map_err(Error::io("write", "a policy"))?;
    Ok(file)
}

/// A running `chaos-daemon`.
#[derive(Debug)]
pub struct Daemon {
    injector: Child,
    folder: TempDir,
    /// On tmpfs, as on an installed host: the journal is synced to it on the way of every fault.
    runtime: TempDir,
}

impl Daemon {
    /// Starts one and waits until it accepts connections.
    ///
    /// # Errors
    /// When it ends or is not ready in time; with its log.
    pub fn start() -> Result<Self> {
        Self::start_with(|_| {})
    }

    /// As [`Daemon::start`], with more arguments or environment.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_with(configure: impl FnOnce(&mut Command)) -> Result<Self> {
        Self::start_program("chaos-daemon", configure)
    }

    /// As [`Daemon::start_with`], without being told what this host is, unless by its policy.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_unsaid(configure: impl FnOnce(&mut Command)) -> Result<Self> {
        Self::start_with(|command| {
            command.env(UNSAID, "");
            configure(command);
        })
    }

    /// As [`Daemon::start`], under a policy, which is read once.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_under(policy: &str) -> Result<Self> {
        let file = policy_file(policy)?;
        Self::start_with(|command| {
            command.arg("--policy").arg(file.path());
        })
    }

    /// As [`Daemon::start_with`], by another name: a build of the daemon for tests.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_program(program: &str, configure: impl FnOnce(&mut Command)) -> Result<Self> {
        let folder = TempDir::with_prefix("chaos-test-").map_err(Error::io("create", "a folder"))?;
        let (prefix, tmpfs) = (prefix(std::process::id()), tmpfs());
        let runtime = TempDir::with_prefix_in(prefix, tmpfs).map_err(Error::io("create", TMPFS))?;
        // The server drops its privileges, and has to get to its socket still.
        set_mode(folder.path(), 0o755)?;
        set_mode(runtime.path(), 0o755)?;
        for dir in [runtime.path().join("run"), folder.path().join("state")] {
            fs::create_dir(&dir).map_err(Error::io("create", dir.display().to_string()))?;
        }
        let injector = spawn(program, &folder, &runtime, configure)?;
        let mut daemon = Self { injector, folder, runtime };
        daemon.wait_ready()?;
        Ok(daemon)
    }

    /// Starts another in the same directories, when the one that was is dead.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_again(&mut self, configure: impl FnOnce(&mut Command)) -> Result<()> {
        self.start_program_again("chaos-daemon", configure)
    }

    /// As [`Daemon::start_again`], by another name: a build of the daemon for tests.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_program_again(&mut self, program: &str, configure: impl FnOnce(&mut Command)) -> Result<()> {
        self.injector = spawn(program, &self.folder, &self.runtime, configure)?;
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<()> {
        let socket = self.socket();
        let mut ended = None;
        let ready = wait_until(HANG, || {
            ended = self.injector.try_wait().ok().flatten();
            ended.is_some() || UnixStream::connect(&socket).is_ok()
        });
        match ended {
            Some(status) => Err(Error::Command {
                command: "chaos-daemon run".into(),
                output: format!("{status} before it was ready; its log:\n{}", self.log()),
            }),
            None if ready => Ok(()),
            None => Err(Error::Hung { what: format!("readiness of a daemon; its log:\n{}", self.log()) }),
        }
    }

    /// The socket on which it speaks MCP.
    pub fn socket(&self) -> PathBuf {
        self.runtime_dir().join("mcp.sock")
    }

    /// Its `--runtime-dir`.
    pub fn runtime_dir(&self) -> PathBuf {
        self.runtime.path().join("run")
    }

    /// Its `--state-dir`.
    pub fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// What it wrote so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// An MCP client connected to it.
    ///
    /// # Errors
    /// When the handshake fails.
    pub fn mcp(&self) -> Result<Mcp> {
        Mcp::connect(&self.socket())
    }

    /// As [`Daemon::mcp`], waiting for a server that is being started again: none begins until it listens.
    ///
    /// # Errors
    /// As [`Daemon::mcp`].
    pub fn mcp_again(&self) -> Result<Mcp> {
        let mut mcp = self.mcp();
        wait_until(HANG, || {
            if mcp.is_err() {
                mcp = self.mcp();
            }
            mcp.is_ok()
        });
        mcp
    }

    /// Process id of the injector, which is the parent of all others.
    pub fn injector_pid(&self) -> i32 {
        i32::try_from(self.injector.id()).unwrap_or(i32::MAX)
    }

    /// The injector.
    pub fn injector(&self) -> Option<Process> {
        Process::read(self.injector_pid())
    }

    /// The unprivileged server, by its first argument.
    pub fn server(&self) -> Option<Process> {
        self.children("server").into_iter().next()
    }

    /// The process that takes samples for the server, by its first argument.
    pub fn prober(&self) -> Option<Process> {
        self.children("prober").into_iter().next()
    }

    /// The process that runs programs for the server, by its first argument.
    pub fn runner(&self) -> Option<Process> {
        let is_own = |process: &Process| process.parent == self.injector_pid();
        self.children("runner").into_iter().find(is_own)
    }

    /// The process that keeps the packet hooks switched on, by its first argument.
    pub fn keeper(&self) -> Option<Process> {
        self.children("keeper").into_iter().next()
    }

    /// The holders, one per active fault, by their first argument.
    pub fn holders(&self) -> Vec<Process> {
        self.children("holder")
    }

    /// Waits until a holder has loaded its programs, and has nothing to do until it is told.
    ///
    /// # Errors
    /// When none has in time.
    pub fn wait_until_warm(&self) -> Result<()> {
        match wait_until(HANG, || self.holders().iter().any(|holder| waits_for_orders(holder.pid))) {
            true => Ok(()),
            false => Err(Error::Hung { what: format!("warm holder; log:\n{}", self.log()) }),
        }
    }

    fn children(&self, role: &str) -> Vec<Process> {
        let mut found = process::descendants(self.injector_pid());
        found.retain(|process| {
            process.state != 'Z' && process.arguments.get(1).is_some_and(|word| word.contains(role))
        });
        found
    }

    /// The injector and everything below it.
    pub fn processes(&self) -> Vec<Process> {
        let mut all: Vec<_> = self.injector().into_iter().collect();
        all.extend(process::descendants(self.injector_pid()));
        all
    }

    /// Kills every process of it at once, as an out-of-memory killer on a bad day would.
    pub fn kill_everything(&mut self) {
        let all = self.processes();
        all.iter().for_each(|process| process.signal(Signal::SIGKILL));
        let _ = self.injector.wait();
        wait_until(HANG, || !all.iter().any(Process::runs));
    }

    /// Ends it as systemd would, and waits for it to go.
    ///
    /// # Errors
    /// When it does not go in time, or leaves a process behind.
    pub fn stop(&mut self) -> Result<()> {
        let all = self.processes();
        if let Some(injector) = self.injector() {
            injector.signal(Signal::SIGTERM);
        }
        let (reaped, gone) = (
            wait_until(HANG, || matches!(self.injector.try_wait(), Ok(Some(_)) | Err(_))),
            wait_until(HANG, || !all.iter().any(Process::runs)),
        );
        let hung = |what: &str| Error::Hung { what: format!("end of {what}; log:\n{}", self.log()) };
        match (reaped, gone) {
            (true, true) => Ok(()),
            (false, _) => Err(hung("the injector")),
            (true, false) => Err(hung("children of the injector")),
        }
    }
}

fn spawn(
    program: &str,
    folder: &TempDir,
    runtime: &TempDir,
    configure: impl FnOnce(&mut Command),
) -> Result<Child> {
    let mut command = Command::new(binary(program)?);
    command.arg("run").arg("--runtime-dir").arg(runtime.path().join("run"));
    command.arg("--state-dir").arg(folder.path().join("state"));
    let log = folder.path().join("log");
    let log_file = File::options().create(true).append(true).open(&log);
    let log_file = log_file.map_err(Error::io("open", log.display().to_string()))?;
    let log_copy = log_file.try_clone().map_err(Error::io("share", log.display().to_string()))?;
    command.stdin(Stdio::null()).stdout(log_file).stderr(log_copy);
    configure(&mut command);
    if !command.get_envs().any(|(name, _)| name == UNSAID) {
        command.args(["--environment", "test"]);
    }
    command.spawn().map_err(Error::io("start", format!("{command:?}")))
}

/// Where runtime directories are: their journals must not outlive the boot.
fn tmpfs() -> PathBuf {
    let tmpfs = Path::new(TMPFS);
    if tmpfs.is_dir() { tmpfs.to_path_buf() } else { std::env::temp_dir() }
}

/// A folder for files that the daemon takes from root alone, so that nobody else may have been able to put them there.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn folder_of_roots(what: &str) -> Result<TempDir> {
    fs::create_dir_all(ROOTS).map_err(Error::io("create", ROOTS))?;
    let prefix = format!("{}{what}-", prefix(std::process::id()));
    TempDir::with_prefix_in(prefix, ROOTS).map_err(Error::io("create a folder in", ROOTS))
}

/// What the names of the folders begin with that a process makes here.
fn prefix(pid: u32) -> String {
    format!("chaos-test-{pid}-")
}

/// The folders that a process made here and left behind.
pub(crate) fn left_by(pid: u32) -> Vec<PathBuf> {
    let is_its = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix(pid));
    let entries =
        [tmpfs(), ROOTS.into()].into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    entries.flatten().filter(is_its).map(|entry| entry.path()).collect()
}

/// Whether a process sits in recvmsg(2).
fn waits_for_orders(pid: i32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    call.split(' ').next().is_some_and(|number| number.parse() == Ok(nix::libc::SYS_recvmsg))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let all = self.processes();
        if std::thread::panicking() {
            eprintln!("log of the daemon:\n{}", self.log());
        }
        if self.stop().is_err() {
            all.iter().for_each(|process| process.signal(Signal::SIGKILL));
            self.kill_everything();
        }
    }
}

/// One of the project's programs: in `CHAOS_BIN_DIR`, next to this executable, or one folder up (where cargo puts
/// programs, seen from test executables).
///
/// # Errors
/// When it is in none of them.
pub fn binary(name: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe().map_err(Error::io("find", "this executable"))?;
    let near = executable.parent().map(Path::to_path_buf).unwrap_or_default();
    let above = near.parent().map(Path::to_path_buf).unwrap_or_default();
    let named = std::env::var_os("CHAOS_BIN_DIR").map(PathBuf::from);
    let folders: Vec<PathBuf> = named.map_or_else(|| vec![near, above], |dir| vec![dir]);
    folders.iter().map(|dir| dir.join(name)).find(|path| path.is_file()).ok_or_else(|| Error::Command {
        command: name.to_owned(),
        output: format!("not in {folders:?}: build it, or set CHAOS_BIN_DIR"),
    })
}

/// The user and group without rights, 65534, which every system has.
pub const NOBODY: u32 = 65_534;

/// Runs one of the project's programs to its end as user and group [`NOBODY`].
///
/// # Errors
/// When it cannot be started.
pub fn run_as_nobody(name: &str, args: &[&str]) -> Result<Output> {
    run_as((NOBODY, NOBODY), name, args)
}

/// The same as this user and group.
///
/// # Errors
/// When it cannot be started.
pub fn run_as((user, group): (u32, u32), name: &str, args: &[&str]) -> Result<Output> {
    let path = binary(name)?;
    let file = File::open(&path).map_err(Error::io("open", path.display().to_string()))?;
    // By descriptor: that user need not be able to get to where the programs were built.
    let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    command.arg0(name).args(args).stdin(Stdio::null()).current_dir("/").uid(user).gid(group);
    command.output().map_err(Error::io("start", format!("{name} as user {user}")))
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(Error::io("set the mode of", path.display().to_string()))
}
