//! A process for tests to aim at: `chaos-worker FILE THREADS [WORDS…]`. It and each thread count in
//! eight bytes of FILE of their own for as long as they run; the last starts and ends threads all the time, and counts those.
//! `chaos-worker FILE --weak WEAKNESS [WORD]` is a service with a weakness, and `chaos-worker FILE --shop ADDRESS DATABASE` one with a
//! database; each writes its port into FILE.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Between two counts: fast enough to be seen to stop, and no load, also where the processor is emulated.
const STEP: Duration = Duration::from_millis(10);

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(threads)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("usage: chaos-worker FILE THREADS [WORDS...]"));
    };
    if threads == "--weak" {
        let weakness = arguments.next().unwrap_or_default();
        return chaos_tests::weak::serve(&path, &weakness, arguments.next().as_deref());
    }
    if threads == "--shop" {
        let (address, database) =
            (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
        return chaos_tests::shop::serve(&path, &address, &database);
    }
    let threads: u64 = threads.parse().map_err(io::Error::other)?;
    let file = Arc::new(OpenOptions::new().write(true).create(true).truncate(false).open(path)?);
    for slot in 1..=threads {
        let file = Arc::clone(&file);
        let starts = move || {
            if slot == threads {
                drop(thread::spawn(|| ()).join());
            }
        };
        thread::spawn(move || count(&file, slot, starts));
    }
    count(&file, 0, || ());
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
