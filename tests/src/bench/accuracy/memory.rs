//! Memory: how much is held of what was asked for, and how long taking it lasts beside a loop that only populates it.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use serde_json::json;

use crate::bench::Options;
use crate::bench::figures::{Report, median, row};
use crate::bench::processors::Processors;
use crate::fault::Fault;
use crate::process::{Process, wait_until};
use crate::{Daemon, Error, Mcp, Result};

const MIB: u64 = 1 << 20;
/// How far what is held may be from what was asked for.
const GOAL_HELD: (f64, f64) = (0.99, 1.01);
/// How long it may take, of what the loop takes.
const GOAL_TIME: f64 = 1.2;
/// How much is held, and how soon.
const GOALS: usize = 2;
/// What has to be free beside what is taken.
const SPARE: u64 = 4096 * MIB;
const LIMIT: Duration = Duration::from_secs(60);
/// How often Linux tells a hypervisor which memory is free.
const REPORTING: Duration = Duration::from_secs(2);
/// How often it is looked: seldom enough not to take a processor from who takes memory.
const POLL: Duration = Duration::from_millis(1);

pub(super) fn measure(options: &Options, processors: Processors, report: &mut Report) -> Result<()> {
    println!("== memory: until all of it is there (ms, median of rounds)");
    row("MiB asked for", &["held, MiB", "ours", "bare loop", "ratio"].map(str::to_owned));
    processors.keep_to_both()?;
    let mut daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    // The one that waits for a fault of packets is not to be taken for the one that takes memory.
    wait_until(Duration::from_secs(5), || !daemon.holders().is_empty());
    for mebibytes in options.pick(&[1024, 2048, 4096][..], &[1024][..]) {
        let free = available()?;
        if free < mebibytes * MIB + SPARE {
            report.skip(format!("{mebibytes} MiB of memory: only {} MiB are available", free / MIB), GOALS);
            continue;
        }
        let (mut held, mut ours, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..options.pick(15, 3) {
            settle(round, *mebibytes)?;
            let (bytes, took) = taken(&daemon, &mcp, *mebibytes)?;
            held.push(bytes as f64 / MIB as f64);
            ours.push(took.as_secs_f64() * 1e3);
            settle(round, *mebibytes)?;
            bare.push(populate(mebibytes * MIB)?.as_secs_f64() * 1e3);
        }
        let (held, ours, bare) = (median(&held), median(&ours), median(&bare));
        row(&mebibytes.to_string(), &[held, ours, bare, ours / bare].map(|value| format!("{value:.2}")));
        report.keep(
            "memory",
            &format!("{mebibytes} MiB"),
            json!({"held_mib": held, "ours_ms": ours, "bare_ms": bare}),
        );
        report.within(
            format!("{mebibytes} MiB held, of what was asked for"),
            held / *mebibytes as f64,
            GOAL_HELD,
            "",
        );
        report.at_most(
            format!("{mebibytes} MiB taken, of the time of a bare loop"),
            ours / bare,
            GOAL_TIME,
            "",
        );
    }
    daemon.stop()?;
    processors.keep_to_actions()
}

/// Has what is taken next be there at once. A hypervisor takes back what is free, and whoever is given that waits for it; it does so
/// every two seconds (Linux `mm/page_reporting.c`), so that each round begins at another moment of them.
fn settle(round: usize, mebibytes: u64) -> Result<()> {
    const GOLDEN: f64 = 0.618_034;
    std::thread::sleep(REPORTING.mul_f64((round as f64 * GOLDEN).fract()));
    populate(mebibytes * MIB).map(drop)
}

/// Resident bytes, and the time from the call until they were.
fn taken(daemon: &Daemon, mcp: &Mcp, mebibytes: u64) -> Result<(u64, Duration)> {
    let params = json!({"resource": "memory", "memory_mb": mebibytes, "reserve_mb": 512});
    let fault = Fault::new("resource_exhaustion").with(params);
    let before = daemon.holders();
    fault.register(mcp)?;
    let start = Instant::now();
    let (bytes, took) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let Some(holder) = new_holder(daemon, &before, start) else { return LIMIT };
            while holder.status("RssAnon") < mebibytes * MIB && start.elapsed() < LIMIT {
                std::thread::sleep(POLL);
            }
            start.elapsed()
        });
        fault.inject(mcp)?;
        let took = watcher.join().unwrap_or(LIMIT);
        let held = daemon.holders().iter().map(|holder| holder.status("RssAnon")).max().unwrap_or(0);
        Ok::<_, Error>((held, took))
    })?;
    fault.remove(mcp)?;
    Ok((bytes, took))
}

/// The holder that is none of those of before, as soon as there is one.
fn new_holder(daemon: &Daemon, before: &[Process], start: Instant) -> Option<Process> {
    loop {
        let mut holders = daemon.holders().into_iter().filter(|holder| !before.contains(holder));
        match holders.next() {
            None if start.elapsed() < LIMIT => std::thread::sleep(POLL),
            found => return found,
        }
    }
}

fn available() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(Error::io("read", "/proc/meminfo"))?;
    let kibibytes =
        |line: &str| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse::<u64>().ok();
    Ok(text.lines().find_map(kibibytes).unwrap_or(0) * 1024)
}

/// What taking so many bytes costs at least: one call that populates them, on huge pages where there are some.
fn populate(bytes: u64) -> Result<Duration> {
    let failed = |what| Error::sys(what, format!("{bytes} bytes"));
    let length = usize::try_from(bytes).ok().and_then(NonZeroUsize::new);
    let length = length.ok_or_else(|| Error::Different("no memory to populate".into()))?;
    let start = Instant::now();
    // SAFETY: a mapping of its own, which nothing refers to, and which is unmapped below.
    unsafe {
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        let address = mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)
            .map_err(failed("map"))?;
        let populated = madvise(address, length.get(), MmapAdvise::MADV_HUGEPAGE)
            .and_then(|()| madvise(address, length.get(), MmapAdvise::MADV_POPULATE_WRITE));
        let took = start.elapsed();
        munmap(address, length.get()).map_err(failed("unmap"))?;
        populated.map(|()| took).map_err(failed("populate"))
    }
}
