//! The file that tells a daemon with fail points where to stumble.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chaos_daemon::fail_point::{SPRUNG, Trap, VARIABLE};
use chaos_daemon::host::boot_time_ns;
use tempfile::TempDir;

use super::PROGRAM;
use crate::kernel::Attach;
use crate::process::look_patiently;
use crate::sweep::bench::Bench;
use crate::{Error, Result};

/// A trap, to be set and cleared while the daemon runs.
pub(crate) struct TrapFile {
    folder: TempDir,
}

impl TrapFile {
    pub(crate) fn new() -> Result<Self> {
        let folder = TempDir::with_prefix("chaos-trap-").map_err(Error::io("create", "a folder"))?;
        Ok(Self { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("trap")
    }

    /// What a daemon's environment needs.
    pub(crate) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        vec![(VARIABLE, self.path())]
    }

    /// A place for a daemon that minds this file.
    pub(crate) fn bench(&self, attach: Attach) -> Result<Bench> {
        Bench::of(PROGRAM, self.environment(), attach)
    }

    pub(crate) fn set(&self, trap: &Trap) -> Result<()> {
        let path = self.path();
        let new = path.with_extension("new");
        let failed = || Error::io("write", path.display().to_string());
        // At once: nobody reads half of it.
        fs::write(&new, serde_json::json!(trap).to_string()).map_err(failed())?;
        fs::rename(&new, &path).map_err(failed())
    }

    /// Takes the trap away; returns when somebody ran into it last, if anybody did.
    pub(crate) fn clear(&self) -> Result<Option<Instant>> {
        let path = self.path();
        let failed = || Error::io("remove", path.display().to_string());
        fs::remove_file(&path).or_else(ignore_missing).map_err(failed())?;
        let Ok(sprung) = fs::read_to_string(self.sprung_path()) else { return Ok(None) };
        fs::remove_file(self.sprung_path()).map_err(failed())?;
        let time = sprung.lines().last().and_then(|line| line.split(' ').next()?.parse().ok());
        let time: u64 = time.ok_or_else(|| Error::Different(format!("no time of a trap: {sprung}")))?;
        Ok(Instant::now().checked_sub(Duration::from_nanos(boot_time_ns().saturating_sub(time))))
    }

    /// What is found before somebody runs into it; of what is found after that nothing is said.
    pub(crate) fn unless_sprung(&self, find: impl FnOnce() -> Result<()>) -> Result<()> {
        let found = if self.has_sprung() { Ok(()) } else { find() };
        if self.has_sprung() { Ok(()) } else { found }
    }

    /// Whether somebody has.
    pub(crate) fn has_sprung(&self) -> bool {
        self.sprung_path().exists()
    }

    /// Waits until somebody has, patiently, for so long: it may be that nobody will.
    pub(crate) fn wait_sprung(&self, patience: Duration) {
        look_patiently(patience, |nap| {
            std::thread::sleep(nap);
            self.has_sprung().then_some(())
        });
    }

    fn sprung_path(&self) -> PathBuf {
        let mut path = self.path().into_os_string();
        path.push(SPRUNG);
        path.into()
    }
}

fn ignore_missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
