//! Room, inodes and bandwidth of a file system: a tmpfs that only the test and its daemon see.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Context, Outcome, TestResult, tests};
use super::{ENDS, LEASE_ENDS, Taking, evidence, holder};
use crate::cgroup::Cgroup;
use crate::daemon::{NOBODY, run_as_nobody};
use crate::fault::Fault;
use crate::late::HANG;
use crate::mounts::{Disk, with_tmpfs};
use crate::process::{Process, wait_until};
use crate::rate::reaches;
use crate::skip::Environment;
use crate::victim::{Victim, has_controllers};
use crate::{Daemon, Error, Reason, Result};

tests![
    room_of_a_file_system_is_missing_while_the_fault_lasts_and_there_again_when_it_ends,
    room_is_given_back_when_the_lease_runs_out,
    a_file_system_filled_to_the_brim_takes_no_more_and_no_file_is_seen,
    inodes_of_a_file_system_are_missing_while_the_fault_lasts,
    a_disk_is_read_and_written_as_fast_as_asked_for,
    what_is_read_and_written_reaches_the_disk_and_stops_with_the_fault,
    a_file_system_is_read_and_written_from_within_the_cgroup_or_the_container_that_is_named,
    what_a_cgroup_reads_and_writes_of_a_disk_is_in_its_own_books,
    what_cannot_be_filled_is_refused_by_name,
    a_user_fills_only_what_he_could_fill_himself_or_the_policy_names,
];

const MIB: u64 = 1 << 20;
const OPTIONS: &str = "size=64m,nr_inodes=4000,mode=1777";

/// Runs a closure with a file system of its own.
fn on_a_file_system(work: impl FnOnce(&Path) -> Result<Outcome> + Send) -> TestResult {
    let folder = TempDir::new()?;
    Ok(with_tmpfs(folder.path(), OPTIONS, || work(folder.path()))?)
}

/// Likewise with one that is on a disk of its own.
fn on_a_disk(context: &Context, work: impl FnOnce(&Path) -> Result<Outcome> + Send) -> TestResult {
    if context.environment == Environment::Host && !Path::new("/dev/loop-control").exists() {
        return Ok(Outcome::Skip(Reason::NoLoop, "/dev/loop-control is not there".into()));
    }
    on_a_file_system(|path| {
        let folder = path.join("disk");
        fs::create_dir(&folder).map_err(Error::io("create", folder.display().to_string()))?;
        let _disk = Disk::mount_on(&folder, 64)?;
        work(&folder)
    })
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
        let daemon = Daemon::start_under("[open]\nleast_disk_mb = 0\n")?;
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
fn counted(pid: i32, counts: [&str; 2]) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let number = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    counts.map(number).iter().sum()
}

/// By calls.
fn moved(pid: i32) -> u64 {
    counted(pid, ["rchar:", "wchar:"])
}

/// From and to a device.
fn transferred(pid: i32) -> u64 {
    counted(pid, ["read_bytes:", "write_bytes:"])
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
        reaches(rate as f64, || Ok(moved(holder.pid) as f64))?;
        assert!(evidence(&fault, &mcp)?["bytes_moved"].as_u64() > Some(rate));
        fault.remove(&mcp)?;
        assert!(!holder.runs());
        assert!(wait_until(HANG, || used(path).is_ok_and(|now| now == before)));
        Ok(Outcome::Pass)
    })
}

fn what_is_read_and_written_reaches_the_disk_and_stops_with_the_fault(context: &Context) -> TestResult {
    on_a_disk(context, |folder| {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let before = used(folder)?;
        let rate = 4 * MIB;
        let fault = fault(folder, json!({"resource": "disk_io", "bytes_per_second": rate, "size_mb": 8}));
        fault.inject(&mcp)?;
        let holder = holder(&daemon)?;
        // No page cache is in between: what it says that it moves, the device moves.
        reaches(rate as f64, || Ok(transferred(holder.pid) as f64))?;
        fault.remove(&mcp)?;
        assert!(!holder.runs());
        assert!(wait_until(HANG, || used(folder).is_ok_and(|now| now == before)));
        Ok(Outcome::Pass)
    })
}

/// How long nothing is moved where nobody moves anything, and how much may be that is little.
const QUIET: Duration = Duration::from_millis(500);
const LITTLE: f64 = 65_536.0;

/// Fails if this count grows by itself.
fn assert_quiet(when: &str, counter: impl Fn() -> Result<f64>) -> Result<()> {
    let start = counter()?;
    std::thread::sleep(QUIET);
    let more = counter()? - start;
    assert!(more < LITTLE, "{more} bytes in {QUIET:?} {when}");
    Ok(())
}

/// By what those have moved who are in the group: its idle process, and meanwhile the holder.
fn a_file_system_is_read_and_written_from_within_the_cgroup_or_the_container_that_is_named(
    _: &Context,
) -> TestResult {
    let ((container, id), victim, contained) =
        (Cgroup::of_container()?, Victim::new(&[])?, Victim::new(&[])?);
    container.set("cgroup.procs", &contained.pid().to_string())?;
    on_a_file_system(|path| {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let (rate, before) = (8 * MIB, used(path)?);
        for (target, group) in [
            (json!({"cgroup": victim.name()}), victim.path()),
            (json!({"container": &id[..40]}), container.path()),
        ] {
            let members = || -> Result<Vec<i32>> {
                let text = fs::read_to_string(group.join("cgroup.procs"))
                    .map_err(Error::io("read cgroup.procs of", group.display().to_string()))?;
                Ok(text.lines().filter_map(|pid| pid.parse().ok()).collect())
            };
            let in_it = || Ok(members()?.into_iter().map(moved).sum::<u64>() as f64);
            let fault = fault(path, json!({"resource": "disk_io", "bytes_per_second": rate, "size_mb": 8}));
            let fault = fault.aimed(target.clone());
            assert_quiet(&format!("before {target}"), in_it)?;
            fault.inject(&mcp)?;
            assert_eq!(members()?.len(), 2, "the holder is not in it: {target}");
            reaches(rate as f64, in_it)?;
            fault.remove(&mcp)?;
            let gone = || members().is_ok_and(|members| members.len() == 1);
            assert!(wait_until(HANG, || gone() && used(path).is_ok_and(|now| now == before)), "{target}");
            assert_quiet(&format!("after {target}"), in_it)?;
        }
        Ok(Outcome::Pass)
    })
}

/// By what the kernel counts of the group (cgroup-v2.rst, `io.stat`): a file system without a disk is not in it.
fn what_a_cgroup_reads_and_writes_of_a_disk_is_in_its_own_books(context: &Context) -> TestResult {
    if !has_controllers(&["io"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "io is not there".into()));
    }
    let victim = Victim::new(&["io"])?;
    on_a_disk(context, |folder| {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let counted = || -> Result<f64> {
            let text = victim.read("io.stat")?;
            let bytes = |word: &str| {
                let number = word.strip_prefix("rbytes=").or_else(|| word.strip_prefix("wbytes="));
                number.and_then(|number| number.parse::<f64>().ok())
            };
            Ok(text.split_whitespace().filter_map(bytes).sum())
        };
        let rate = 4 * MIB;
        let fault = fault(folder, json!({"resource": "disk_io", "bytes_per_second": rate, "size_mb": 8}));
        let fault = fault.aimed(json!({"cgroup": victim.name()}));
        assert_quiet("before", counted)?;
        fault.inject(&mcp)?;
        reaches(rate as f64, counted)?;
        fault.remove(&mcp)?;
        assert_quiet("after", counted)?;
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

/// Folders of root's and of another user's, and a policy that names one of root's.
fn folders_of_several(path: &Path) -> std::io::Result<PathBuf> {
    let at = |name: &str| path.join(name);
    for (name, mode) in
        [("roots", 0o755), ("shut", 0o700), ("named", 0o755), ("his", 0o700), ("shut/deep", 0o777)]
    {
        fs::create_dir(at(name))?;
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode))?;
    }
    chown(at("his"), Some(NOBODY), Some(NOBODY))?;
    symlink("../shut/deep", at("his/link"))?;
    fs::write(at("policy"), format!("fault_paths = [{:?}]", at("named")))?;
    Ok(at("policy"))
}

fn a_user_fills_only_what_he_could_fill_himself_or_the_policy_names(_: &Context) -> TestResult {
    on_a_file_system(|path| {
        let at = |name: &str| path.join(name);
        let policy = folders_of_several(path).map_err(Error::io("prepare", path.display().to_string()))?;
        let daemon = Daemon::start_with(|command| {
            command.args(["--socket-group", "nogroup", "--policy"]).arg(&policy);
        })?;
        let mcp = daemon.mcp()?;
        let socket = format!("--socket={}", daemon.socket().display());
        for (name, fills) in [
            ("his", true),
            ("named", true),
            ("roots", false),
            ("shut", false),
            ("shut/deep", false),
            ("his/link", false),
            ("named/../roots", false),
        ] {
            let (name, before) = (at(name).display().to_string(), used(path)?.0);
            let fill = [
                "inject",
                "resource_exhaustion",
                "--resource=disk_fill",
                "--megabytes=8",
                "--name=f",
                "--for=20s",
            ];
            let dry = ["--path", &*name, "--dry-run"];
            let planned = run_as_nobody("chaosctl", &[&[&*socket], &fill[..], &dry].concat())?;
            let text = String::from_utf8_lossy(&planned.stderr);
            assert_eq!(planned.status.success(), fills, "{name}, planned: {text}");
            let output = run_as_nobody("chaosctl", &[&[&*socket], &fill[..], &["--path", &name]].concat())?;
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), fills, "{name}: {text}");
            let taken = used(path)?.0.saturating_sub(before);
            assert_eq!(taken >= 8 * MIB, fills, "{name}: {taken} bytes");
            mcp.call_tool("chaos_stop", json!({}))?.ok()?;
            assert!(wait_until(HANG, || used(path).is_ok_and(|used| used.0 < before + MIB)), "{name}");
        }
        assert!(holder(&daemon).is_err(), "a holder is left");
        Ok(Outcome::Pass)
    })
}
