//! Injector and guard watch each other: each writes the boot time into a file of the runtime directory, again and again, and
//! reads the other's. A process that is dead, stopped or hung writes nothing.
//!
//! ```text
//! RUNTIME_DIR/lock         who serves or recovers; locked by it       injector, recover, guard while it recovers
//! RUNTIME_DIR/turn         locked while one claims `lock`             the same
//! RUNTIME_DIR/beat         the injector's last beat
//! RUNTIME_DIR/guard        who guards; locked by it                   guard
//! RUNTIME_DIR/guard.beat   the guard's last beat
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::host::boot_time_ns;
use crate::kernel::process::ProcessId;
use crate::request::{ApiError, ErrorCode};
use crate::spec::LifetimeClass;

/// How often each beats.
pub const BEAT: Duration = Duration::from_millis(250);
/// After so long without a beat the other is taken for dead. A second shorter than a lease, so that what the guard has to
/// undo is undone when the lease is over, also on a node that has little time for the guard.
pub const SILENCE: Duration = Duration::from_secs(2);

/// A file with the time of the last beat.
#[derive(Debug)]
pub struct Heartbeat {
    file: File,
}

impl Heartbeat {
    /// Of the process that serves in `runtime_dir`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn of_injector(runtime_dir: &Path) -> io::Result<Self> {
        Self::open(&runtime_dir.join("beat"))
    }

    /// Of the process that guards in `runtime_dir`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn of_guard(runtime_dir: &Path) -> io::Result<Self> {
        Self::open(&runtime_dir.join("guard.beat"))
    }

    fn open(path: &Path) -> io::Result<Self> {
        let file =
            // OPENS: root, who starts the daemon | root | the folder is root's, with all above it (`own`)
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        Ok(Self { file })
    }

    /// Beats. Eight bytes of a file that is there already: no memory and no space is asked for.
    pub fn beat(&self) {
        if let Err(error) = self.file.write_all_at(&boot_time_ns().to_le_bytes(), 0) {
            tracing::warn!(%error, "cannot write a heartbeat");
        }
    }

    /// The boot time of the last beat, in nanoseconds; 0 when there was none.
    pub fn last(&self) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes))
    }

    /// How long ago it beat last; very long when it never did.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(boot_time_ns().saturating_sub(self.last()))
    }
}

/// What was seen of the guard: its process, if it lived and beat; otherwise what was wrong, in words.
pub type Sight = Result<i32, String>;

/// The guard, as the injector sees it.
#[derive(Debug, Clone)]
pub struct GuardPost {
    runtime_dir: PathBuf,
}

impl GuardPost {
    /// The guard of `runtime_dir`, whether there is one or not.
    pub fn new(runtime_dir: &Path) -> Self {
        Self { runtime_dir: runtime_dir.to_owned() }
    }

    /// Looks at the guard. Blocks.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn watchful(&self) -> Sight {
        let said = fs::read_to_string(self.runtime_dir.join("guard")).ok();
        let id: Option<ProcessId> = said.and_then(|text| serde_json::from_str(&text).ok());
        let id = id.ok_or("no guard is running")?;
        match id.open() {
            Ok(Some(_)) => {}
            Ok(None) => return Err(format!("the guard (process {}) has ended", id.pid)),
            Err(error) => return Err(format!("the guard (process {}) cannot be looked at: {error}", id.pid)),
        }
        let age = Heartbeat::of_guard(&self.runtime_dir).map_or(Duration::MAX, |beat| beat.age());
        match age > SILENCE {
            true => Err(format!("the guard (process {}) is silent", id.pid)),
            false => Ok(id.pid),
        }
    }

    /// As [`watchful`](Self::watchful), away from the thread that beats.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn look_aside(&self) -> Sight {
        let post = self.clone();
        let look = tokio::task::spawn_blocking(move || post.watchful());
        look.await.unwrap_or_else(|error| Err(format!("the guard cannot be looked at: {error}")))
    }

    /// Refuses a fault that needs a guard when none was seen.
    ///
    /// # Errors
    /// Says how to start one.
    pub fn require(&self, sight: &Sight) -> Result<(), ApiError> {
        sight.as_ref().map(drop).map_err(|problem| {
            let message =
                format!("this fault outlives the daemon's processes and needs a guard, but {problem}");
            ApiError::new(ErrorCode::GuardMissing, message).hint(format!(
                "start one: `systemctl start chaos-daemon-guard`, or `chaos-daemon guard --runtime-dir {}`",
                self.runtime_dir.display()
            ))
        })
    }
}

/// Who sees to the end of a fault of this class when the daemon cannot, for people, by what was seen of the guard.
pub fn words(sight: &Sight, class: LifetimeClass) -> String {
    match class {
        LifetimeClass::Kernel | LifetimeClass::Irreversible => class.undone_by().to_owned(),
        LifetimeClass::Supervised => match sight {
            Ok(pid) => format!("chaos-daemon guard (process {pid}), then recovery at the next start"),
            Err(problem) => format!("none: {problem}"),
        },
    }
}

/// Beats: it is by this that the guard knows this process lives, so nothing that takes its time is done on the way.
pub(super) async fn beat(heartbeat: Heartbeat) {
    let mut due = interval(BEAT);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        heartbeat.beat();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_young_after_a_beat_and_old_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let heartbeat = Heartbeat::of_injector(folder.path()).unwrap();
        assert!(heartbeat.age() > SILENCE);
        heartbeat.beat();
        assert!(Heartbeat::of_injector(folder.path()).unwrap().age() < SILENCE);
    }

    #[test]
    fn without_a_guard_a_fault_that_needs_one_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let post = GuardPost::new(folder.path());
        let refusal = post.require(&post.watchful()).unwrap_err();
        assert!(refusal.message.contains("no guard is running"), "{refusal}");
        assert!(refusal.hint.unwrap().contains("systemctl start chaos-daemon-guard"));
        let me = ProcessId::of(std::process::id().cast_signed()).unwrap();
        fs::write(folder.path().join("guard"), serde_json::to_string(&me).unwrap()).unwrap();
        assert!(post.watchful().unwrap_err().contains("silent"));
        Heartbeat::of_guard(folder.path()).unwrap().beat();
        assert_eq!(post.watchful(), Ok(me.pid));
    }
}
