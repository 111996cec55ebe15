//! The picture of the node beside its networks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use chaos_daemon::host::Part;
use nix::time::{ClockId, clock_gettime};

use crate::bpf::{self, Kind, Object};
use crate::error::{Error, Result};
use crate::process;
use crate::skip::Environment;

/// Limits of a control group, of both hierarchies; those that it does not have are left out.
const LIMITS: [&str; 12] = [
    "cpu.max",
    "memory.high",
    "memory.max",
    "pids.max",
    "io.max",
    "cgroup.freeze",
    "freezer.state",
    "cpu.cfs_quota_us",
    "cpu.weight",
    "memory.limit_in_bytes",
    "cpuset.cpus",
    "cgroup.max.descendants",
];

/// Takes it.
pub(super) fn picture(cgroups: &[PathBuf], lines: &mut BTreeMap<String, String>) -> Result<()> {
    let in_vm = Environment::detect() == Environment::Vm;
    processes(lines);
    mounts(in_vm, lines)?;
    for cgroup in cgroups {
        tree(cgroup, true, lines);
    }
    if in_vm {
        // A service manager makes and removes groups all the time, also for the daemon.
        if !Path::new("/run/systemd/system").exists() {
            tree(Path::new("/sys/fs/cgroup"), true, lines);
        }
        objects(lines)?;
    }
    Ok(())
}

/// How often two clocks are read.
const READINGS: usize = 5;

/// Wall clock less boot time, in nanoseconds: what a step of the clock changes, and time does not.
pub(super) fn clock_offset() -> Result<i128> {
    let read = |clock: ClockId| -> Result<i128> {
        let now = clock_gettime(clock).map_err(Error::sys("read", "a clock"))?;
        Ok(i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec()))
    };
    // Who reads is taken off the processor between two readings now and then: the quickest reading of several counts.
    let readings = (0..READINGS).map(|_| {
        let (before, wall, after) =
            (read(ClockId::CLOCK_BOOTTIME)?, read(ClockId::CLOCK_REALTIME)?, read(ClockId::CLOCK_BOOTTIME)?);
        Ok((after - before, wall - before))
    });
    let readings = readings.collect::<Result<Vec<_>>>()?;
    Ok(readings.iter().min().map_or(0, |(_, offset)| *offset))
}

/// A name of ours: `chaos` and eight digits, and then nothing, a dash or a dot. Written anew, as a second opinion.
fn is_marked(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("memfd:").unwrap_or(name).strip_prefix("chaos") else { return false };
    let digits = rest.bytes().take_while(|byte| byte.is_ascii_hexdigit()).count();
    digits == 8 && (rest.len() == 8 || rest[8..].starts_with(['-', '.']))
}

/// Processes below this one that are ours and neither run nor are run by a daemon, but for guards, and the files of ours that
/// any has open and that have no name. One that has ended waits for its parent, and is left over only if that is the daemon.
fn processes(lines: &mut BTreeMap<String, String>) {
    let below = process::descendants(std::process::id().cast_signed());
    let name =
        |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
    let named: BTreeMap<i32, String> = below.iter().map(|process| (process.pid, name(process.pid))).collect();
    let part = |pid: i32| named.get(&pid).and_then(|name| Part::named(name));
    for process in &below {
        let (pid, parent) = (process.pid, part(process.parent));
        if let Some(part) = part(pid) {
            let left = match process.state {
                'Z' => parent == Some(Part::Injector),
                'T' | 't' => true,
                // A runner starts another for each program.
                _ => {
                    !matches!(part, Part::Injector | Part::Guard)
                        && !matches!(parent, Some(Part::Injector | Part::Runner))
                }
            };
            if left {
                lines.insert(format!("process {} {pid}", part.name()), format!("state {}", process.state));
            }
        }
        for fd in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(fd.path()) else { continue };
            let target = target.display().to_string();
            let Some(file) = target.strip_suffix(" (deleted)") else { continue };
            if is_marked(file.rsplit('/').next().unwrap_or_default()) {
                lines.insert(format!("file of process {pid}"), target.clone());
            }
        }
    }
}

/// Mounts, in the VM all but those of namespaces that tests make; pins in every bpffs that has our mark in its path, in the
/// VM in every one.
fn mounts(all: bool, lines: &mut BTreeMap<String, String>) -> Result<()> {
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(Error::io("read", "mountinfo"))?;
    for line in text.lines() {
        let point = line.split(' ').nth(4).unwrap_or_default();
        let marked = point.split('/').any(is_marked);
        if !marked && (!all || point.starts_with("/run/netns")) {
            continue;
        }
        let kind = line.split_once(" - ").map(|(_, right)| right).unwrap_or_default();
        lines.insert(format!("mount {point}"), kind.to_owned());
        if kind.starts_with("bpf ") {
            tree(Path::new(point), false, lines);
        }
    }
    Ok(())
}

/// Everything below a folder, and the limits of each, and the programs that are attached to it, if they are control groups.
fn tree(root: &Path, cgroups: bool, lines: &mut BTreeMap<String, String>) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        if cgroups {
            let limits = LIMITS.iter().filter_map(|name| {
                let text = fs::read_to_string(folder.join(name)).ok()?;
                Some(format!("{name}={}", text.trim().replace('\n', ",")))
            });
            // One that has gone meanwhile has none.
            let programs = bpf::cgroup_programs(&folder).unwrap_or_default();
            let programs = programs.iter().map(|(hook, count)| format!("{hook}={count} programs"));
            lines.insert(
                format!("cgroup {}", folder.display()),
                limits.chain(programs).collect::<Vec<_>>().join(" "),
            );
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ if cgroups => {}
                _ => {
                    lines.insert(format!("pin {}", entry.path().display()), String::new());
                }
            }
        }
    }
}

/// How the lines of eBPF objects begin.
const OBJECT: &str = "bpf ";

/// Whether a line is of an eBPF object.
pub(super) fn is_object(line: &str) -> bool {
    line.starts_with(OBJECT)
}

/// eBPF objects of ours that no process has open: kept by a pin, a filter, another object. By name, as ids are never used
/// again.
fn objects(lines: &mut BTreeMap<String, String>) -> Result<()> {
    let ours = |object: &Object| object.name.starts_with("chaos_");
    let found: Vec<Object> = bpf::objects()?.into_iter().filter(ours).collect();
    if found.is_empty() {
        return Ok(());
    }
    let open = open_objects();
    // What has gone since it was listed has not been left.
    let still: Vec<Object> = bpf::objects()?;
    for object in
        found.iter().filter(|object| still.contains(object) && !open.contains(&(object.kind, object.id)))
    {
        lines.insert(
            format!("{OBJECT}{:?} {} {}", object.kind, object.id, object.name),
            "that nobody holds".to_owned(),
        );
    }
    Ok(())
}

/// What processes have open, by `fdinfo` (proc(5)).
fn open_objects() -> BTreeSet<(Kind, u32)> {
    let mut open = BTreeSet::new();
    for process in process::all() {
        let folder = format!("/proc/{}/fd", process.pid);
        for fd in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !fs::read_link(fd.path()).is_ok_and(|target| target.display().to_string().contains("bpf")) {
                continue;
            }
            let info = Path::new("/proc").join(process.pid.to_string()).join("fdinfo").join(fd.file_name());
            for line in fs::read_to_string(info).unwrap_or_default().lines() {
                let (key, value) = line.split_once(':').unwrap_or_default();
                let kind = match key {
                    "prog_id" => Kind::Program,
                    "map_id" => Kind::Map,
                    "link_id" => Kind::Link,
                    _ => continue,
                };
                open.extend(value.trim().parse().map(|id| (kind, id)));
            }
        }
    }
    open
}
