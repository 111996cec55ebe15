//! Room, inodes and bandwidth of a file system: a tmpfs that only the test and its daemon see.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use nix::sys::statvfs::statvfs;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Context, Outcome, TestResult, tests};
use super::{ENDS, LEASE_ENDS, PROMPT, Taking, evidence, holder};
use crate::fault::Fault;
use crate::mounts::{Disk, with_tmpfs};
use crate::process::{Process, wait_until};
use crate::rate::reaches;
use crate::skip::Environment;
use crate::{Daemon, Error, Reason, Result};

tests![
    room_of_a_file_system_is_missing_while_the_fault_lasts_and_there_again_when_it_ends,
    room_is_given_back_when_the_lease_runs_out,
    a_file_system_filled_to_the_brim_takes_no_more_and_no_file_is_seen,
    inodes_of_a_file_system_are_missing_while_the_fault_lasts,
    a_disk_is_read_and_written_as_fast_as_asked_for,
    what_is_read_and_written_reaches_the_disk_and_stops_with_the_fault,
    what_cannot_be_filled_is_refused_by_name,
];

const MIB: u64 = 1 << 20;
const OPTIONS: &str = "size=64m,nr_inodes=4000,mode=1777";

/// Runs a closure with a file system of its own.
fn on_a_file_system(work: impl FnOnce(&Path) -> Result<Outcome> + Send) -> TestResult {
    let folder = TempDir::new()?;
    Ok(with_tmpfs(folder.path(), OPTIONS, || work(folder.path()))?)
}

fn fault(path: &Path, params: Value) -> Fault {
    let mut all = json!({"path": path});
    if let (Value::Object(all), Value::Object(params)) = (&mut all, params) {
        all.extend(params);
    }
    Fault::new("resource_exhaustion").with(all)
}

fn used(path: &Path) -> Result<(u64, u64)> {
    let found = statvfs(path).map_err(Error::sys("statvfs", path.display().to_string()))?;
    let bytes = (found.blocks() - found.blocks_free()) * found.fragment_size();
    Ok((bytes, found.files() - found.files_free()))
}

fn filled(path: &Path, ends: &[super::End]) -> Result<Outcome> {
    let bytes = |_: Option<&Process>| Ok(used(path)?.0);
    let fault = fault(path, json!({"resource": "disk_fill", "megabytes": 32}));
    Taking { fault, used: &bytes, asked: 32 * MIB, give: MIB / 16 }.ends(ends)
}

fn room_of_a_file_system_is_missing_while_the_fault_lasts_and_there_again_when_it_ends(
    _: &Context,
) -> TestResult {
    on_a_file_system(|path| filled(path, ENDS))
}

fn room_is_given_back_when_the_lease_runs_out(_: &Context) -> TestResult {
    on_a_file_system(|path| filled(path, LEASE_ENDS))
}

fn a_file_system_filled_to_the_brim_takes_no_more_and_no_file_is_seen(_: &Context) -> TestResult {
    on_a_file_system(|path| {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let file = path.join("a file");
        let write = || File::create(&file).and_then(|mut file| file.write_all(&[1; 65_536]));
        write().map_err(Error::io("write", "before"))?;
        let half = fault(path, json!({"resource": "disk_fill", "percent": 50})).named("half");
        half.inject(&mcp)?;
        let share = used(path)?.0 as f64 / (64 * MIB) as f64;
        assert!((share - 0.5).abs() < 0.01, "asked for half, and it is filled to {share:.3}");
        let brim = fault(path, json!({"resource": "disk_fill", "leave_free_mb": 0})).named("brim");
        brim.inject(&mcp)?;
        let error = File::create(path.join("another")).and_then(|mut file| file.write_all(&[1; 65_536]));
        assert!(matches!(&error, Err(error) if error.kind() == ErrorKind::StorageFull), "{error:?}");
        fs::remove_file(path.join("another")).map_err(Error::io("remove", "a file"))?;
        assert_eq!(fs::read_dir(path).map_err(Error::io("list", "a folder"))?.count(), 1);
        brim.remove(&mcp)?;
        half.remove(&mcp)?;
        write().map_err(Error::io("write", "after"))?;
        Ok(Outcome::Pass)
    })
}

fn inodes_of_a_file_system_are_missing_while_the_fault_lasts(_: &Context) -> TestResult {
    on_a_file_system(|path| {
        let inodes = |_: Option<&Process>| Ok(used(path)?.1);
        let fault = fault(path, json!({"resource": "inodes", "count": 3000}));
        Taking { fault, used: &inodes, asked: 3000, give: 2 }.ends(ENDS)
    })
}

/// What a process has read and written, by two of the kernel's counts (proc(5)).
fn counted(process: &Process, counts: [&str; 2]) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/io", process.pid)).unwrap_or_default();
    let number = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    counts.map(number).iter().sum()
}

/// By calls.
fn moved(process: &Process) -> u64 {
    counted(process, ["rchar:", "wchar:"])
}

/// From and to a device.
fn transferred(process: &Process) -> u64 {
    counted(process, ["read_bytes:", "write_bytes:"])
}

fn a_disk_is_read_and_written_as_fast_as_asked_for(_: &Context) -> TestResult {
    on_a_file_system(|path| {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let before = used(path)?;
        let rate = 8 * MIB;
        let params = json!({"resource": "disk_io", "bytes_per_second": rate, "size_mb": 8});
        let fault = fault(path, params);
        fault.inject(&mcp)?;
        let holder = holder(&daemon)?;
        assert_eq!(used(path)?.0 - before.0, 8 * MIB);
        reaches(rate as f64, || Ok(moved(&holder) as f64))?;
        assert!(evidence(&fault, &mcp)?["bytes_moved"].as_u64() > Some(rate));
        fault.remove(&mcp)?;
        assert!(!holder.runs());
        assert!(wait_until(PROMPT, || used(path).is_ok_and(|now| now == before)));
        Ok(Outcome::Pass)
    })
}

fn what_is_read_and_written_reaches_the_disk_and_stops_with_the_fault(context: &Context) -> TestResult {
    if context.environment == Environment::Host && !Path::new("/dev/loop-control").exists() {
        return Ok(Outcome::Skip(Reason::NoLoop, "/dev/loop-control is not there".into()));
    }
    on_a_file_system(|path| {
        let folder = path.join("disk");
        fs::create_dir(&folder).map_err(Error::io("create", folder.display().to_string()))?;
        let _disk = Disk::mount_on(&folder, 64)?;
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let before = used(&folder)?;
        let rate = 4 * MIB;
        let fault = fault(&folder, json!({"resource": "disk_io", "bytes_per_second": rate, "size_mb": 8}));
        fault.inject(&mcp)?;
        let holder = holder(&daemon)?;
        // No page cache is in between: what it says that it moves, the device moves.
        reaches(rate as f64, || Ok(transferred(&holder) as f64))?;
        fault.remove(&mcp)?;
        assert!(!holder.runs());
        assert!(wait_until(PROMPT, || used(&folder).is_ok_and(|now| now == before)));
        Ok(Outcome::Pass)
    })
}

fn what_cannot_be_filled_is_refused_by_name(_: &Context) -> TestResult {
    on_a_file_system(|path| {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let fill = |path: &Path, megabytes: u64| {
            fault(path, json!({"resource": "disk_fill", "megabytes": megabytes})).inject(&mcp)
        };
        let runtime = daemon.runtime_dir();
        for (answer, words) in [
            (fill(&runtime, 1), "TARGET_PROTECTED"),
            (fill(&path.join("none"), 1), "TARGET_NOT_FOUND"),
            (fill(path, 64), "LIMIT_REACHED"),
            (fault(path, json!({"resource": "inodes", "count": 3999})).inject(&mcp), "LIMIT_REACHED"),
            (
                fault(Path::new("/proc"), json!({"resource": "inodes", "count": 1})).inject(&mcp),
                "no fixed number",
            ),
        ] {
            let named = matches!(&answer, Err(Error::Mcp { problem, .. }) if problem.contains(words));
            assert!(named, "expected {words}, got {answer:?}");
        }
        assert!(holder(&daemon).is_err(), "a holder is left");
        Ok(Outcome::Pass)
    })
}
