//! A service of a test's own, with a file of its own; both gone when the guard is.

use std::fs;
use std::time::{Duration, Instant};

use super::unit::{log, property, systemctl};
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::{Process, wait_until};

/// A service that was started.
#[derive(Debug)]
pub(crate) struct Service {
    /// What it is called.
    pub(crate) name: &'static str,
}

impl Service {
    /// Starts one by what its file says.
    ///
    /// # Errors
    /// When systemd does not.
    pub(crate) fn start(name: &'static str, text: &str) -> Result<Self> {
        let service = Self { name };
        let file = service.file();
        fs::write(&file, text).map_err(Error::io("write", file))?;
        systemctl(&["daemon-reload"])?;
        systemctl(&["start", name])?;
        Ok(service)
    }

    /// Where its file is.
    pub(crate) fn file(&self) -> String {
        format!("/run/systemd/system/{}", self.name)
    }

    /// Its main process; 0 when there is none.
    pub(crate) fn pid(&self) -> i32 {
        property(self.name, "MainPID").ok().and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// "active", "inactive" and so on.
    pub(crate) fn state(&self) -> String {
        property(self.name, "ActiveState").unwrap_or_default()
    }

    /// Some of its properties, one a line as `NAME=VALUE`, in the order of their names.
    ///
    /// # Errors
    /// When systemd does not say.
    pub(crate) fn properties(&self, names: &str) -> Result<String> {
        let text = systemctl(&["show", "--property", names, self.name])?;
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        Ok(lines.join("\n"))
    }

    /// How long from now until it runs again, as another process: by what is in its control group, since asking systemd takes
    /// seconds on an emulated machine. That systemd agrees is waited for beyond that.
    ///
    /// # Errors
    /// When it does not within `limit`.
    pub(crate) fn time_to_normal(&self, before: i32, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        let late =
            |after| Error::in_vain(format!("{} active, not {}; {}", self.name, self.state(), log()), after);
        if !wait_until(limit, || self.main_processes().any(|pid| pid != before)) {
            return Err(late(limit));
        }
        let took = start.elapsed();
        let agrees = || self.state() == "active" && !matches!(self.pid(), 0) && self.pid() != before;
        if wait_until(HANG, agrees) { Ok(took) } else { Err(late(HANG)) }
    }

    /// What runs in its control group and is what such services run once they are started: `sleep`.
    fn main_processes(&self) -> impl Iterator<Item = i32> {
        let members = format!("/sys/fs/cgroup/system.slice/{}/cgroup.procs", self.name);
        let members = fs::read_to_string(members).unwrap_or_default();
        let pids: Vec<i32> = members.lines().filter_map(|line| line.parse().ok()).collect();
        let sleeps = |pid: &i32| {
            let process = Process::read(*pid);
            process
                .is_some_and(|process| process.arguments.first().is_some_and(|word| word.ends_with("sleep")))
        };
        pids.into_iter().filter(sleeps)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = systemctl(&["unmask", "--runtime", self.name]);
        let _ = systemctl(&["stop", self.name]);
        let _ = fs::remove_file(self.file());
        let _ = systemctl(&["daemon-reload"]);
        let _ = systemctl(&["reset-failed", self.name]);
    }
}
