//! Memory of a control group that is nobody's: a file in memory, filled until the kernel has killed somebody for want of it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{Step, Store};
use crate::host::{oom, supply};
use crate::request::{Evidence, Shortfall, evidence};

/// No step is longer, in bytes.
const STEP: u64 = 16 << 20;
/// None is shorter: what is taken in one step at the limit, so that one strike is not followed by another.
const LEAST: u64 = 64 << 10;
/// So long nothing more than a first step is taken: who has asked is answered before the kernel kills, maybe the holder as well.
const NOTICE: Duration = Duration::from_millis(300);

/// A file, of which the first `taken` bytes are there.
#[derive(Debug)]
pub(super) struct Oom {
    file: File,
    group: PathBuf,
    bytes: u64,
    reserve: u64,
    taken: u64,
    /// How many the kernel had killed there before.
    before: u64,
    since: Instant,
    strike: Option<Strike>,
}

/// What has come of it.
#[derive(Debug)]
struct Strike {
    when: Instant,
    /// Who was in the group just after it.
    inside: Vec<i32>,
    back_after: Option<Duration>,
}

impl Oom {
    /// Makes a file in memory; takes none. The holder is in the group already.
    pub(super) fn open(bytes: u64, reserve: u64) -> io::Result<Self> {
        let missing = |what: &str| io::Error::new(io::ErrorKind::NotFound, format!("read {what}"));
        let group = supply::own_cgroup()?.ok_or_else(|| missing("the cgroup of this process"))?;
        let before = oom::kills(&group).ok_or_else(|| missing("memory.events of the cgroup"))?;
        let file = File::from(memfd_create(c"chaos-oom", MFdFlags::MFD_CLOEXEC)?);
        let since = Instant::now();
        Ok(Self { file, group, bytes, reserve, taken: 0, before, since, strike: None })
    }

    fn kills(&self) -> u64 {
        oom::kills(&self.group).unwrap_or(self.before).saturating_sub(self.before)
    }

    fn inside(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Whether the kernel has killed; the first to see it gives everything back.
    fn struck(&mut self) -> bool {
        if self.strike.is_none() && self.kills() > 0 {
            self.give_back();
            self.strike = Some(Strike { when: Instant::now(), inside: self.inside(), back_after: None });
        }
        let inside = self.inside();
        let Some(strike) = &mut self.strike else { return false };
        if strike.back_after.is_none() && inside.iter().any(|pid| !strike.inside.contains(pid)) {
            strike.back_after = Some(strike.when.elapsed());
        }
        true
    }

    /// What can be taken without touching the reserve of the host, or coming too near to the limit of a group above.
    fn room(&self) -> io::Result<u64> {
        let available = supply::Memory::read()?.available.saturating_sub(self.reserve);
        let above = self.group.parent().and_then(supply::memory_room);
        Ok(available.min(above.unwrap_or(u64::MAX)))
    }

    /// Large far from the limit, small at it.
    fn step(&self, missing: u64) -> u64 {
        let oom::Books { most, used, .. } = oom::Books::read(&self.group);
        let left = most.map_or(0, |most| most.saturating_sub(used));
        (left / 4).clamp(LEAST, STEP).min(missing)
    }
}

impl Store for Oom {
    fn goal(&self) -> u64 {
        self.bytes
    }

    fn take(&mut self, wanted: u64) -> io::Result<Step> {
        if self.struck() {
            return Ok(Step::Short(Shortfall::Struck));
        }
        let early = self.since.elapsed() < NOTICE;
        if early && self.taken > 0 {
            return Ok(Step::Short(Shortfall::Growing));
        }
        let missing = wanted.saturating_sub(self.taken);
        if missing == 0 {
            return Ok(Step::Enough);
        }
        let step = if early { LEAST.min(missing) } else { self.step(missing) };
        if self.room()? < step {
            return Ok(Step::Short(Shortfall::Reserve));
        }
        let number = |bytes| libc::off_t::try_from(bytes).map_err(io::Error::other);
        // SAFETY: a descriptor of ours, and numbers.
        let done = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, number(self.taken)?, number(step)?) };
        if done != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EINTR) => Ok(Step::More),
                Some(libc::ENOMEM | libc::ENOSPC) if self.taken > 0 => Ok(Step::Short(Shortfall::Exhausted)),
                _ => Err(error),
            };
        }
        self.taken += step;
        Ok(match self.struck() {
            true => Step::Short(Shortfall::Struck),
            false if early => Step::Short(Shortfall::Growing),
            false => Step::More,
        })
    }

    fn give_back(&mut self) {
        if let Err(error) = self.file.set_len(0) {
            tracing::warn!(%error, "cannot empty a file in memory");
        }
        self.taken = 0;
    }

    fn held(&mut self) -> Evidence {
        // In blocks of 512 bytes (stat(2)).
        let blocks = self.file.metadata().map_or(0, |file| file.blocks());
        let back_after = self.strike.as_ref().and_then(|strike| strike.back_after);
        Evidence::Oom(evidence::Oom {
            bytes_held: blocks * 512,
            oom_kills: self.kills(),
            back_after_seconds: back_after.map(evidence::Seconds),
            shortfall: None,
        })
    }
}
