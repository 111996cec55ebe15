//! What an operator sets: drop-ins of the units, and the policy. Each is gone, and the service as before, when its value is.

use std::fs;
use std::path::PathBuf;

use super::unit::{SERVICE, systemctl};
use crate::error::{Error, Result};

pub(super) const POLICY: &str = "/etc/chaos-daemon/policy.toml";
/// What the policy says of a host for tests.
pub(super) const HERE: &str = "environment = \"test\"\n";

/// One drop-in, for one unit or for several.
pub(super) struct DropIn {
    files: Vec<PathBuf>,
}

impl DropIn {
    /// Writes `text` below `[Service]`, and restarts the service.
    pub(super) fn install(units: &[&str], text: &str) -> Result<Self> {
        let files = units.iter().map(|unit| PathBuf::from(format!("/etc/systemd/system/{unit}.d/test.conf")));
        let drop_in = Self { files: files.collect() };
        for file in &drop_in.files {
            let folder = file.parent().unwrap_or(file);
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(file, format!("[Service]\n{text}")))
                .map_err(Error::io("write", file.display().to_string()))?;
        }
        restart(SERVICE)?;
        Ok(drop_in)
    }
}

impl Drop for DropIn {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
        let _ = restart(SERVICE);
    }
}

/// Another policy than the one before.
pub(super) struct OtherPolicy(String);

impl OtherPolicy {
    /// Writes it, of a host for tests, and restarts the service.
    pub(super) fn of(text: &str) -> Result<Self> {
        let before = fs::read_to_string(POLICY).map_err(Error::io("read", POLICY))?;
        fs::write(POLICY, format!("{HERE}{text}")).map_err(Error::io("write", POLICY))?;
        let policy = Self(before);
        restart(SERVICE)?;
        Ok(policy)
    }
}

impl Drop for OtherPolicy {
    fn drop(&mut self) {
        let _ = fs::write(POLICY, &self.0);
        let _ = restart(SERVICE);
    }
}

/// However often it was started within the last minute.
fn restart(unit: &str) -> Result<()> {
    systemctl(&["daemon-reload"])?;
    let _ = systemctl(&["reset-failed", unit]);
    systemctl(&["restart", unit]).map(drop)
}
