//! A `chaos-daemon guard` of the test's own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use crate::Daemon;
use crate::daemon::binary;
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::{Process, wait_until};

/// A running guard.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    log: PathBuf,
}

impl Guard {
    /// Starts one for a daemon, and waits until it guards.
    ///
    /// # Errors
    /// When it does not.
    pub fn start(daemon: &Daemon) -> Result<Self> {
        Self::start_program(&binary("chaos-daemon")?, Vec::new(), daemon)
    }

    /// As [`Guard::start`], of another program than the daemon's, with these variables.
    ///
    /// # Errors
    /// As [`Guard::start`].
    pub fn start_program(
        program: &Path,
        environment: Vec<(&'static str, PathBuf)>,
        daemon: &Daemon,
    ) -> Result<Self> {
        let log = daemon.state_dir().join("guard.log");
        let file = File::create(&log).map_err(Error::io("create", log.display().to_string()))?;
        let mut command = Command::new(program);
        command.envs(environment);
        command.arg("guard").arg("--runtime-dir").arg(daemon.runtime_dir());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().map_err(Error::io("start", format!("{command:?}")))?;
        let guard = Self { child, log };
        match wait_until(HANG, || guard.log().contains("guarding")) {
            true => Ok(guard),
            false => Err(Error::Hung { what: format!("readiness of a guard; its log:\n{}", guard.log()) }),
        }
    }

    /// What it wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Whether it runs no more.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Whether it runs, by what the kernel lists. Nothing is collected, which would take from a tracer what it waits for.
    pub fn runs(&self) -> bool {
        Process::read(self.pid()).is_some_and(|process| process.runs())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(process) = Process::read(i32::try_from(self.child.id()).unwrap_or(i32::MAX)) {
            process.signal(signal);
        }
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.has_ended() {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the guard:\n{}", self.log());
        }
        self.kill();
    }
}
