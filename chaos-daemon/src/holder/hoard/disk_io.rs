//! Disk bandwidth: a file without a name is written and read in turn, as fast as asked for.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};

use super::files::{allocate, nameless};
use super::{Step, Store};
use crate::host::directory::DirectoryRef;
use crate::request::Evidence;
use crate::request::evidence::Moved;

/// Bytes of one request; a multiple of every block size.
const CHUNK: usize = 256 << 10;
/// What `O_DIRECT` needs of the memory it reads into and writes from.
const ALIGN: usize = 4096;
/// A load that was prevented is made up for, but no more than of so long, so that it never bursts.
const MOST_DEBT: Duration = Duration::from_millis(100);
/// No step sleeps longer: an order to end is to be heard.
const NAP: Duration = Duration::from_millis(50);

/// The load.
#[derive(Debug)]
pub(super) struct DiskIo {
    file: File,
    /// Whether the page cache is passed by.
    direct: bool,
    bytes: u64,
    rate: u64,
    buffer: Vec<u8>,
    offset: u64,
    writes: bool,
    moved: u64,
    due: Option<Instant>,
}

impl DiskIo {
    /// Opens the file, past the page cache where the file system can, and takes room for it.
    pub(super) fn open(directory: &DirectoryRef, bytes: u64, rate: u64) -> io::Result<Self> {
        let (file, direct) = match nameless(directory, OFlag::O_DIRECT) {
            Ok(file) => (file, true),
            Err(_) => (nameless(directory, OFlag::empty())?, false),
        };
        allocate(&file, 0, bytes)?;
        let buffer = vec![0x5a; CHUNK + ALIGN];
        Ok(Self { file, direct, bytes, rate, buffer, offset: 0, writes: true, moved: 0, due: None })
    }

    /// One request at the next place; at the end of the file it goes on at its beginning.
    fn request(&mut self) -> io::Result<()> {
        let skip = self.buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
        let buffer = &mut self.buffer[skip..skip + CHUNK];
        if self.writes {
            self.file.write_all_at(buffer, self.offset)?;
            if !self.direct {
                // To the device, and out of the page cache, so that the next reading is one.
                self.file.sync_data()?;
                posix_fadvise(self.file.as_fd(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
            }
        } else {
            self.file.read_exact_at(buffer, self.offset)?;
            self.offset = (self.offset + CHUNK as u64) % self.bytes;
        }
        self.writes = !self.writes;
        self.moved += CHUNK as u64;
        Ok(())
    }
}

impl Store for DiskIo {
    fn goal(&self) -> u64 {
        self.bytes
    }

    fn take(&mut self, _: u64) -> io::Result<Step> {
        let now = Instant::now();
        let due = self.due.map_or(now, |due| due.max(now.checked_sub(MOST_DEBT).unwrap_or(now)));
        if due > now {
            thread::sleep((due - now).min(NAP));
        } else {
            self.request()?;
            let takes = Duration::from_nanos((CHUNK as u64).saturating_mul(1_000_000_000) / self.rate);
            self.due = Some(due + takes);
        }
        Ok(Step::Acting)
    }

    /// The room stays until the process ends: what lapses is the load.
    fn give_back(&mut self) {
        self.due = None;
    }

    fn held(&mut self) -> Evidence {
        Evidence::Moved(Moved { bytes_moved: self.moved, shortfall: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_and_read_no_faster_than_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DirectoryRef::find(folder.path()).unwrap().unwrap();
        let rate = 8 << 20;
        let mut load = DiskIo::open(&directory, 1 << 20, rate).unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(400) {
            load.take(0).unwrap();
        }
        // How much less it is depends on the disk, and on who else wants it.
        let most = (start.elapsed() + MOST_DEBT).as_secs_f64() * rate as f64 + CHUNK as f64;
        assert!(load.moved > 0 && (load.moved as f64) < most, "{} bytes", load.moved);
    }
}
