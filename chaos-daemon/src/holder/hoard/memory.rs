//! Memory, taken by populating a mapping of our own.

use std::ffi::c_void;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;

use super::{Step, Store};
use crate::host::supply;
use crate::request::{Evidence, Shortfall, evidence};

/// No step is longer for each thread that takes part, in bytes: some 100 ms without huge pages. At its end the threads wait for each
/// other, so that it is not much shorter either.
const STEP: u64 = 256 << 20;
/// What a thread populates at a time, in bytes: so little that none waits long for the last.
const PIECE: u64 = HUGE;
/// No more threads take at once: most of the time goes into clearing pages, which a few do as fast as the memory is.
const MOST_THREADS: u64 = 4;
/// The size of a huge page where Linux runs on 4 KiB pages.
const HUGE: u64 = 2 << 20;
/// How often what is resident is read back when it has not changed.
const READ_BACK: Duration = Duration::from_secs(5);
/// The kernel looks at every page for it: it is asked so seldom that this takes at most a twentieth of the time.
const READ_BACK_SHARE: u32 = 20;

/// A mapping, of which the first `populated` bytes have been written to.
#[derive(Debug)]
pub(super) struct Memory {
    /// Of the whole mapping.
    base: usize,
    length: usize,
    /// Of the part that is used: aligned for huge pages, with at least a page that cannot be used on either side, so that
    /// the kernel does not merge it with a neighbour.
    start: usize,
    bytes: u64,
    populated: u64,
    reserve: u64,
    /// The control group that it counts for.
    group: Option<PathBuf>,
    /// How many threads take at once.
    threads: u64,
    read_back: Option<ReadBack>,
}

#[derive(Debug)]
struct ReadBack {
    when: Instant,
    took: Duration,
    populated: u64,
    resident: evidence::Memory,
}

impl Memory {
    /// Maps room for so many bytes; takes none.
    pub(super) fn open(bytes: u64, reserve: u64) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(HUGE);
        let length = usize::try_from(bytes + 2 * HUGE).map_err(io::Error::other)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = base.addr();
        let start = (base + 1).next_multiple_of(1 << 21);
        let threads =
            supply::usable_processors().map_or(1, |usable| (usable.len() as u64).clamp(1, MOST_THREADS));
        let group = supply::own_cgroup()?;
        let memory =
            Self { base, length, start, bytes, populated: 0, reserve, group, threads, read_back: None };
        let used = usize::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: the range lies within the mapping just made, which nobody else knows.
        if unsafe { libc::mprotect(memory.at(0), used, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above. A kernel without huge pages refuses, and it goes on with small ones.
        unsafe { libc::madvise(memory.at(0), used, libc::MADV_HUGEPAGE) };
        Ok(memory)
    }

    fn at(&self, offset: u64) -> *mut c_void {
        ptr::without_provenance_mut(self.start + usize::try_from(offset).unwrap_or(0))
    }

    /// What can be taken without touching the reserve of the host, or coming too near to the limit of the control group.
    fn room(&self) -> io::Result<u64> {
        let available = supply::Memory::read()?.available.saturating_sub(self.reserve);
        let group = self.group.as_deref().and_then(supply::memory_room);
        Ok(available.min(group.unwrap_or(u64::MAX)))
    }

    /// Populates so many bytes more, by several threads: who is done with a piece goes on with the next.
    fn populate(&self, bytes: u64) -> io::Result<()> {
        let end = self.populated + bytes;
        let next = AtomicU64::new(self.populated);
        let pieces = || loop {
            let from = next.fetch_add(PIECE, Ordering::Relaxed);
            if from >= end {
                return Ok(());
            }
            self.populate_piece(from, end.min(from + PIECE))?;
        };
        thread::scope(|scope| {
            // Fewer do it, too, as where a control group may have no more threads.
            let others =
                (1..self.threads).map_while(|_| thread::Builder::new().spawn_scoped(scope, pieces).ok());
            let others: Vec<_> = others.collect();
            let broken = |_| Err(io::Error::other("a thread that populates memory has panicked"));
            others.into_iter().fold(pieces(), |done, other| done.and(other.join().unwrap_or_else(broken)))
        })
    }

    fn populate_piece(&self, from: u64, to: u64) -> io::Result<()> {
        let length = usize::try_from(to - from).map_err(io::Error::other)?;
        // SAFETY: the range lies within our own mapping, and nobody else uses it.
        match unsafe { libc::madvise(self.at(from), length, libc::MADV_POPULATE_WRITE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// What is resident, and on which pages, as the kernel counts it (proc(5), `smaps`).
    fn resident(&self) -> io::Result<evidence::Memory> {
        let smaps = fs::read_to_string("/proc/self/smaps")?;
        Ok(counted(&smaps, self.start))
    }
}

impl Store for Memory {
    fn goal(&self) -> u64 {
        self.bytes
    }

    fn take(&mut self, wanted: u64) -> io::Result<Step> {
        let wanted = wanted.next_multiple_of(HUGE).min(self.bytes);
        let missing = wanted.saturating_sub(self.populated);
        if missing == 0 {
            return Ok(Step::Enough);
        }
        let room = self.room()?;
        // Others take some meanwhile: near the reserve in small steps.
        let step = missing.min(STEP * self.threads).min((room / 4).next_multiple_of(HUGE));
        if room < step + HUGE {
            return Ok(Step::Short(Shortfall::Reserve));
        }
        if let Err(error) = self.populate(step) {
            return match error.raw_os_error() {
                Some(libc::ENOMEM) if self.populated > 0 => Ok(Step::Short(Shortfall::Exhausted)),
                _ => Err(error),
            };
        }
        self.populated += step;
        Ok(if self.populated < wanted { Step::More } else { Step::Enough })
    }

    fn give_back(&mut self) {
        let length = usize::try_from(self.bytes).unwrap_or(0);
        // SAFETY: our own mapping, in which nothing is kept.
        unsafe { libc::madvise(self.at(0), length, libc::MADV_DONTNEED) };
        self.populated = 0;
        self.read_back = None;
    }

    fn held(&mut self) -> Evidence {
        if let Some(last) = &self.read_back {
            let (changed, done) = (last.populated != self.populated, self.populated == self.bytes);
            let due = if changed { last.took * READ_BACK_SHARE } else { READ_BACK };
            if last.when.elapsed() < due && !(changed && done) {
                return Evidence::Memory(last.resident);
            }
        }
        let start = Instant::now();
        let resident = self.resident().unwrap_or_default();
        let (took, populated) = (start.elapsed(), self.populated);
        self.read_back = Some(ReadBack { when: Instant::now(), took, populated, resident });
        Evidence::Memory(resident)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses after this.
        unsafe { libc::munmap(ptr::without_provenance_mut(self.base), self.length) };
    }
}

/// `Rss` and `AnonHugePages` of the mapping that begins at `start`.
fn counted(smaps: &str, start: usize) -> evidence::Memory {
    let first = format!("{start:x}-");
    let ours = smaps.lines().skip_while(|line| !line.starts_with(&first)).skip(1);
    // Until the next mapping, whose line begins with an address.
    let ours: Vec<&str> =
        ours.take_while(|line| line.starts_with(|c: char| c.is_ascii_uppercase())).collect();
    let bytes = |name: &str| {
        let line = ours.iter().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
        line.and_then(|number| number.parse::<u64>().ok()).map_or(0, |number| number << 10)
    };
    evidence::Memory {
        bytes_held: bytes("Rss:"),
        bytes_on_huge_pages: bytes("AnonHugePages:"),
        shortfall: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_resident_when_it_is_taken_and_gone_when_it_is_given_back() {
        let mut memory = Memory::open(8 << 20, 0).unwrap();
        assert_eq!(memory.held().held(), 0);
        while matches!(memory.take(memory.goal()).unwrap(), Step::More) {}
        assert_eq!(memory.held().held(), 8 << 20);
        memory.give_back();
        assert_eq!(memory.held().held(), 0);
    }

    #[test]
    fn what_several_threads_take_at_once_is_all_there() {
        let mut memory = Memory::open(160 << 20, 0).unwrap();
        memory.threads = 3;
        assert!(matches!(memory.take(memory.goal()).unwrap(), Step::Enough));
        assert_eq!((memory.populated, memory.held().held()), (160 << 20, 160 << 20));
    }

    #[test]
    fn nothing_is_taken_of_the_reserve() {
        let mut memory = Memory::open(8 << 20, u64::MAX).unwrap();
        assert!(matches!(memory.take(memory.goal()).unwrap(), Step::Short(Shortfall::Reserve)));
    }

    #[test]
    fn the_lines_of_one_mapping_are_counted() {
        let smaps = "7f00-7f10 ---p 0\nRss: 4 kB\n7f10-8000 rw-p 0\nSize: 9 kB\nRss:    8 kB\nAnonHugePages:   6 kB\n\
                     8000-9000 r-xp 0\nRss: 1 kB\n";
        let resident = counted(smaps, 0x7f10);
        assert_eq!((resident.bytes_held, resident.bytes_on_huge_pages), (8192, 6144));
    }
}
