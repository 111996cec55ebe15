//! What this kernel does after a panic, and whether it can be made to panic.

use std::fs;
use std::io;

use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

/// What is written there is done by the kernel at once (the kernel's admin-guide/sysrq.rst).
pub const SYSRQ: &str = "/proc/sysrq-trigger";
/// Seconds until the kernel reboots after a panic: 0 is never, less is at once (admin-guide/sysctl/kernel.rst).
const TIMEOUT: &str = "/proc/sys/kernel/panic";
/// Whether another kernel is loaded, which is started at a panic (kdump).
const CRASH_KERNEL: &str = "/sys/kernel/kexec_crash_loaded";

/// What the kernel does after a panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterPanic {
    /// After so many seconds it reboots: 0 is never, less is at once.
    pub timeout: i64,
    /// Whether another kernel takes over instead, which writes down what it finds and does what it was set up for.
    pub crash_kernel: bool,
}

impl AfterPanic {
    /// Reads it.
    ///
    /// # Errors
    /// When procfs does not say.
    pub fn read() -> io::Result<Self> {
        let timeout = fs::read_to_string(TIMEOUT)?.trim().parse().map_err(io::Error::other)?;
        // A kernel without kexec has no such file.
        let crash_kernel = fs::read_to_string(CRASH_KERNEL).is_ok_and(|text| text.trim() == "1");
        Ok(Self { timeout, crash_kernel })
    }

    /// For people: what becomes of the host.
    pub fn words(self) -> String {
        let own = match self.timeout {
            0 => "it stays down until somebody resets it (kernel.panic is 0)".to_owned(),
            ..0 => format!("it reboots at once (kernel.panic is {})", self.timeout),
            seconds => format!("it reboots {seconds} s later (kernel.panic)"),
        };
        match self.crash_kernel {
            false => own,
            true => format!(
                "a crash kernel is loaded (kdump), which takes over, and does afterwards what it was set up for; without it, {own}"
            ),
        }
    }
}

/// Why there is no file by which the kernel can be made to panic; `None` where there is one, whoever may write to it.
pub fn no_trigger() -> Option<String> {
    match fs::symlink_metadata(SYSRQ) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(format!("there is no {SYSRQ}")),
        _ => None,
    }
}

/// Whether this process may make the kernel panic. Nothing is opened, let alone written.
///
/// # Errors
/// What is in the way: `EROFS` where a unit has `ProtectKernelTunables=`.
pub fn may_panic() -> io::Result<()> {
    Ok(access(SYSRQ, AccessFlags::W_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_panic_is_said_of_every_setting() {
        let words = |timeout, crash_kernel| AfterPanic { timeout, crash_kernel }.words();
        assert!(words(0, false).contains("stays down"));
        assert!(words(10, false).contains("10 s later") && words(-1, false).contains("at once"));
        assert!(words(10, true).contains("kdump") && words(10, true).contains("10 s later"));
    }

    #[test]
    fn the_setting_of_this_kernel_can_be_read() {
        AfterPanic::read().unwrap();
    }
}
