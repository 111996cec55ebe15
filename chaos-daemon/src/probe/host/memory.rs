//! Memory and swap, as `/proc/meminfo` has them (proc_meminfo(5)).

use serde::{Deserialize, Serialize};

use super::{Seen, mebibytes, number, percent, read};

const PATH: &str = "/proc/meminfo";

/// What of it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// Memory that is not available, in percent of all.
    UsedPercent,
    /// What programs can still get without swapping, by the kernel's estimate (`MemAvailable`): caches count, for they give way.
    AvailableBytes,
    /// Swap that is not free, in percent of all.
    SwapUsedPercent,
}

impl Memory {
    pub(super) fn read(self) -> Result<Seen, String> {
        self.find(&read(PATH)?)
    }

    pub(super) fn find(self, text: &str) -> Result<Seen, String> {
        let bytes = |name| line(text, name).ok_or_else(|| format!("this kernel says no {name} in {PATH}"));
        let (left, all, what) = match self {
            Self::UsedPercent | Self::AvailableBytes => {
                (bytes("MemAvailable")?, bytes("MemTotal")?, "available")
            }
            Self::SwapUsedPercent => (bytes("SwapFree")?, bytes("SwapTotal")?, "free"),
        };
        let said = format!("{} of {} {what}", mebibytes(left), mebibytes(all));
        let used = percent(all.saturating_sub(left), all);
        match (self, used) {
            (Self::AvailableBytes, _) => Ok(Seen::measured(number(left), said)),
            (_, Some(used)) => Ok(Seen::measured(used, format!("{used:.1} %, {said}"))),
            // Nothing of it is used, which is what a bound is about.
            (Self::SwapUsedPercent, None) => Ok(Seen::measured(0.0, "0 %, this host has no swap".to_owned())),
            (Self::UsedPercent, None) => Err(format!("this kernel says a MemTotal of 0 in {PATH}")),
        }
    }
}

/// The bytes in a line such as `MemTotal:       24684084 kB`, where kB are KiB.
fn line(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}
