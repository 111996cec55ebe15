//! Taking this host down. There is no undo; what comes before, and prevents it, is `holder/countdown.rs`.

use std::fs::OpenOptions;
use std::io::{self, Write};

use crate::host::panic::SYSRQ;
use crate::kernel::node::Kernel;
use crate::kernel::node::talk;
use crate::kernel::systemd::SystemdError;
use crate::spec::Way;

/// Why the host is still there.
#[derive(Debug, thiserror::Error)]
pub enum DownError {
    /// systemd refused.
    #[error(transparent)]
    Systemd(#[from] SystemdError),
    /// The kernel refused.
    #[error("write to {SYSRQ}")]
    Panic(#[source] io::Error),
    /// A unit test of this crate: it must not take its host down.
    #[error("this is a test, and not its host to take down")]
    Test,
}

/// A host that can be taken down: the one that the [`Kernel`] runs, or in tests a fake.
pub trait Machine: Send + Sync + 'static {
    /// Puts on disk what programs have written.
    fn sync(&self);

    /// Takes it down. Of a reboot this returns when it is under way, of a panic not at all.
    ///
    /// # Errors
    /// When it was refused: the host stays up.
    fn go_down(&self, way: Way) -> Result<(), DownError>;
}

impl Machine for Kernel {
    fn sync(&self) {
        nix::unistd::sync();
    }

    fn go_down(&self, way: Way) -> Result<(), DownError> {
        if cfg!(test) {
            return Err(DownError::Test);
        }
        match way {
            Way::Reboot { forced } => Ok(talk(async |systemd| systemd.reboot(forced).await)?),
            Way::Panic { .. } => {
                let mut trigger = OpenOptions::new().write(true).open(SYSRQ).map_err(DownError::Panic)?;
                trigger.write_all(b"c").map_err(DownError::Panic)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_test_takes_no_host_down() {
        for way in [Way::Reboot { forced: true }, Way::Panic { sync: false, stay_down: true }] {
            assert!(matches!(Kernel.go_down(way), Err(DownError::Test)));
        }
    }
}
