//! A process for tests to aim at: `chaos-worker FILE THREADS [WORDS…]`. Each thread counts in its own eight bytes of FILE for as
//! long as it runs; one more starts and ends threads all the time, and counts those. Without any THREADS, it only counts.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Between two counts: fast enough to be seen to stop, and no load.
const STEP: Duration = Duration::from_millis(1);

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(threads)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("usage: chaos-worker FILE THREADS [WORDS...]"));
    };
    let threads: u64 = threads.parse().map_err(io::Error::other)?;
    let file = Arc::new(OpenOptions::new().write(true).create(true).truncate(false).open(path)?);
    for slot in 0..threads {
        let file = Arc::clone(&file);
        thread::spawn(move || count(&file, slot, || ()));
    }
    let starts = || {
        if threads > 0 {
            drop(thread::spawn(|| ()).join());
        }
    };
    count(&file, threads, starts);
    Ok(())
}

fn count(file: &File, slot: u64, each: impl Fn()) {
    for number in 1_u64.. {
        each();
        if file.write_all_at(&number.to_le_bytes(), slot * 8).is_err() {
            return;
        }
        thread::sleep(STEP);
    }
}
