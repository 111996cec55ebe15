//! What is written down before this host goes down, so that it can be told afterwards by what, and for how long it was gone.
//!
//! One file below what outlives a boot, replaced as a whole and synced: the next boot has it, or the host never went down.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::host::BootId;
use crate::spec::{FaultType, QualifiedName};

/// The name of the file in the state directory.
pub const FILE: &str = "host-down.json";

/// What has taken the host down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownRecord {
    /// The boot that it has ended.
    pub boot: BootId,
    /// Name of the fault.
    pub name: QualifiedName,
    /// Its type.
    pub fault_type: FaultType,
    /// What it was, for people.
    pub description: String,
    /// When, by the wall clock, since 1970.
    pub at: Duration,
    /// What the daemon that started afterwards has found.
    #[serde(default)]
    pub back: Option<Back>,
}

/// The first start of a daemon afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Back {
    /// In which boot.
    pub boot: BootId,
    /// How long after the host went down, by the wall clock; `None` when the clock has been set back meanwhile.
    pub after: Option<Duration>,
    /// How long after the start of that boot's kernel.
    pub uptime: Duration,
}

/// What a record says to a daemon that starts.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Of this boot: the host did not go down.
    StillUp,
    /// Of the last boot: it did, and this is the first start since.
    Back(Back),
    /// It did, and an earlier start of this boot has found it.
    Known(Back),
    /// Of a boot before the last.
    Old,
}

impl DownRecord {
    /// What it says to a daemon that starts `now` (since 1970), `uptime` after the start of `boot`.
    pub fn judge(&self, boot: &BootId, now: Duration, uptime: Duration) -> Found {
        match &self.back {
            _ if self.boot == *boot => Found::StillUp,
            None => Found::Back(Back { boot: boot.clone(), after: now.checked_sub(self.at), uptime }),
            Some(back) if back.boot == *boot => Found::Known(back.clone()),
            Some(_) => Found::Old,
        }
    }

    /// The record in `path`, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts it into `path`. When this returns it is on disk.
    ///
    /// # Errors
    /// When it may not be.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        // OPENS: root, who starts the daemon | root | the state directory is root's, with all above it (`own`)
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }

    /// Takes the record in `path` away, if there is one.
    ///
    /// # Errors
    /// When it may still be there.
    pub fn forget(path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The wall clock, since 1970.
pub fn wall_clock() -> Duration {
    // A clock before 1970 is as good as none.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(name: &str) -> BootId {
        serde_json::from_value(name.into()).unwrap()
    }

    fn record() -> DownRecord {
        DownRecord {
            boot: boot("one"),
            name: QualifiedName::parse("a").unwrap(),
            fault_type: FaultType::HostReboot,
            description: "host_reboot: …".into(),
            at: Duration::from_secs(1000),
            back: None,
        }
    }

    #[test]
    fn the_first_start_after_it_tells_how_long_the_host_was_gone_and_later_ones_of_that_boot_the_same() {
        let (now, uptime) = (Duration::from_secs(1030), Duration::from_secs(9));
        assert_eq!(record().judge(&boot("one"), now, uptime), Found::StillUp);
        let Found::Back(back) = record().judge(&boot("two"), now, uptime) else { panic!("not told") };
        assert_eq!((back.after, back.uptime), (Some(Duration::from_secs(30)), uptime));
        let told = DownRecord { back: Some(back.clone()), ..record() };
        let later = (Duration::from_secs(9999), Duration::from_secs(8000));
        assert_eq!(told.judge(&boot("two"), later.0, later.1), Found::Known(back));
        assert_eq!(told.judge(&boot("three"), later.0, later.1), Found::Old);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_figure() {
        let found = record().judge(&boot("two"), Duration::from_secs(999), Duration::from_secs(9));
        assert!(matches!(found, Found::Back(Back { after: None, .. })), "{found:?}");
    }

    #[test]
    fn a_record_is_found_as_it_was_written_and_gone_when_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(DownRecord::read(&path).unwrap(), None);
        record().write(&path).unwrap();
        assert_eq!(DownRecord::read(&path).unwrap(), Some(record()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        DownRecord::forget(&path).unwrap();
        DownRecord::forget(&path).unwrap();
        assert_eq!(DownRecord::read(&path).unwrap(), None);
        fs::write(&path, "{").unwrap();
        assert!(DownRecord::read(&path).is_err());
    }
}
