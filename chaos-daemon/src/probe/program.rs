//! A program that a probe runs: without a shell, in a session of its own, with nothing of ours but its standard streams; and its
//! end, which is that of all processes of its group.

use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;

use nix::libc;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, setsid};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, Interest};
use tokio::process::{Child, Command};

use crate::host::inherited::close_at_exec;
use crate::host::program::is_plain;
use crate::spec::SpecError;

/// The most of an output that is kept, in bytes; the rest is read and thrown away.
pub const KEPT: usize = 64 << 10;
/// The first descriptor that is no standard stream.
const FIRST_OTHER: u32 = 3;
/// Where the program finds others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    path: String,
    arguments: Vec<String>,
    /// The file that is executed, if that was found out.
    file: Option<PathBuf>,
}

impl Program {
    /// Understands a command line, which stands at `field`: the absolute path of a program, and its arguments.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn parse(field: &str, mut words: Vec<String>) -> Result<Self, SpecError> {
        if words.is_empty() {
            return Err(SpecError::new(
                field,
                "missing: give the absolute path of a program, and its arguments",
            ));
        }
        let path = words.remove(0);
        if !is_plain(&path) {
            let problem = format!(
                "{path:?} is not the absolute path of a program: nobody's PATH is searched; give e.g. \
                 \"/usr/lib/payment/check\""
            );
            return Err(SpecError::new(field, problem));
        }
        if let Some(odd) = words.iter().find(|word| word.contains('\0')) {
            return Err(SpecError::new(field, format!("{odd:?} cannot be an argument: it has a NUL in it")));
        }
        Ok(Self { path, arguments: words, file: None })
    }

    /// Its path, as it was given.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The same, of which this file is executed, whatever else its path may lead to by then.
    #[must_use]
    pub fn found(self, file: PathBuf) -> Self {
        Self { file: Some(file), ..self }
    }

    /// Starts it.
    pub(super) fn start(&self, stdin: Stdio) -> Result<Running, String> {
        let mut command = match &self.file {
            Some(file) => Command::new(file),
            None => Command::new(&self.path),
        };
        command.arg0(&self.path).args(&self.arguments).current_dir("/");
        command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8");
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let parent = nix::unistd::getpid();
        // SAFETY: between fork and exec only async-signal-safe calls are made: setsid, prctl, getppid, those of `close_at_exec`.
        unsafe {
            command.pre_exec(move || {
                setsid()?;
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
                // 0 is a parent in another namespace, who is still there.
                match nix::unistd::getppid() {
                    now if now == parent || now.as_raw() == 0 => close_at_exec(FIRST_OTHER),
                    _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
                }
            });
        }
        let child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
        Running::of(child).map_err(|error| format!("cannot be watched: {error}"))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

/// A program that runs, with the processes of its session. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) child: Child,
    /// Number of its process, which is that of its group: nobody else's until the process is collected.
    number: Option<Pid>,
    ended: AsyncFd<OwnedFd>,
}

impl Running {
    fn of(child: Child) -> io::Result<Self> {
        let number = child.id().map(|id| Pid::from_raw(id.cast_signed()));
        let number = number.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: plain system call without memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number.as_raw(), 0) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to nobody else.
        let pidfd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the descriptor is open, and is neither replaced nor closed while it is watched.
        let ended = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE)? };
        Ok(Self { child, number: Some(number), ended })
    }

    /// Returns once its process has ended, which is not collected.
    pub(super) async fn ended(&self) -> io::Result<()> {
        self.ended.readable().await.map(drop)
    }

    /// Kills every process of its group.
    pub(super) fn kill(&self) {
        if let Some(number) = self.number {
            // Fails when all of them have ended.
            let _ = killpg(number, Signal::SIGKILL);
        }
    }

    /// Kills what is left of its group, and says how its process has ended: its status, or the negative number of the signal.
    pub(super) async fn collect(mut self) -> io::Result<i32> {
        self.kill();
        self.number = None;
        let status = self.child.wait().await?;
        Ok(status.code().unwrap_or_else(|| -status.signal().unwrap_or_default()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads to the end, and keeps the first [`KEPT`] bytes.
pub(super) async fn keep(reader: &mut (impl AsyncRead + Unpin), kept: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = reader.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let room = KEPT - kept.len();
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
}
