//! What a fault finds that takes something: the target pinned, and how much is there. What each resource makes of it is in a file of
//! its own.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::disk_fill::DirectoryGround;
use super::look::Eyes;
use super::memory::MemoryGround;
use super::{Plan, Ready, Work};
use super::{descriptors, disk_fill, disk_io, inodes, memory, oom, pids, port_in_use, ports};
use crate::host::directory::{DirectoryRef, Space};
use crate::host::protected::line;
use crate::host::supply::{self, Descriptors, Memory, Tasks};
use crate::host::{CgroupRef, Identity, NetNs};
use crate::request::{ApiError, ErrorCode};
use crate::spec::{Hoard, LocalPort, Whose};
use crate::target;

/// Looks at what is to be taken, and plans it.
///
/// # Errors
/// Names what cannot be a target, and why.
pub(super) fn prepare(
    what: &Hoard,
    ramp: Duration,
    (whose, netns): (Option<&Whose>, Option<&String>),
    eyes: &Eyes<'_>,
) -> Result<Ready, ApiError> {
    let netns = netns.map(|name| eyes.entrance.open(name)).transpose()?;
    if let Hoard::Port(local) = what {
        refuse_protected(*local, eyes)?;
        refuse_closed(*local, netns.as_ref(), eyes)?;
    }
    let cgroup = whose.map(|whose| joined(whose, eyes)).transpose()?;
    let open = || Descriptors::read().map_err(|error| failed("the host's open files", &error));
    let plan = match what {
        Hoard::Memory { size, reserve } => {
            let own = supply::own_cgroup().map_err(|error| failed("the daemon's cgroup", &error))?;
            let place = cgroup.as_ref().map(|group| group.path.clone()).or(own);
            let limit = place.as_deref().and_then(supply::memory_limit);
            let memory = host_memory()?;
            let reserve = reserve_of(*reserve, &memory, eyes)?;
            memory::plan(*size, Some(reserve), ramp, &MemoryGround { cgroup, memory, limit })?
        }
        Hoard::Oom { reserve } => {
            let memory = host_memory()?;
            let reserve = reserve_of(*reserve, &memory, eyes)?;
            return oom::prepare(Some(reserve), ramp, cgroup, memory, eyes);
        }
        Hoard::Disk(fill) => in_directory(&fill.path, eyes, |ground| {
            refuse_below(fill.leave, ground.least, &ROOM)?;
            disk_fill::plan(fill, ramp, ground)
        })?,
        Hoard::Inodes { count, path } => {
            let most = open()?.process;
            in_directory(path, eyes, |ground| inodes::plan(*count, ramp, ground, most))?
        }
        Hoard::DiskIo { rate, bytes, path } => {
            in_directory(path, eyes, |ground| disk_io::plan(*rate, *bytes, cgroup, ground))?
        }
        Hoard::Descriptors { count, leave } => {
            let found = open()?;
            let least = eyes.permit.open().least_files(found.table);
            refuse_below(*leave, least, &FILES)?;
            let leave = leave.unwrap_or_else(|| descriptors::reserve(found.table)).max(least);
            descriptors::plan(*count, Some(leave), ramp, found)?
        }
        Hoard::Tasks { count } => {
            let tasks = Tasks::read().map_err(|error| failed("the host's processes", &error))?;
            let leave = eyes.permit.open().least_tasks(tasks.most);
            pids::plan(*count, ramp, cgroup, tasks, leave)?
        }
        Hoard::Ports { udp, address, range, count } => {
            ports::plan(*udp, *address, *range, *count, ramp, open()?.process)?
        }
        Hoard::Port(local) => port_in_use::plan(*local),
    };
    Ok(Ready { netns, ..plan.into() })
}

fn refuse_protected(local: LocalPort, eyes: &Eyes<'_>) -> Result<(), ApiError> {
    if local.udp || !eyes.permit.protected().tcp_ports.contains(&local.port) {
        return Ok(());
    }
    let problem = format!("target.local_port: {local} is protected: somebody may reach this host at it");
    Err(ApiError::new(ErrorCode::TargetProtected, problem)
        .hint("`protect.tcp_ports` of the daemon's policy file lists such ports"))
}

/// Ports of the host's own services, in the daemon's own network namespace.
fn refuse_closed(local: LocalPort, netns: Option<&NetNs>, eyes: &Eyes<'_>) -> Result<(), ApiError> {
    let port = local.port;
    let elsewhere = netns.is_some_and(|netns| netns.number().ok() != eyes.home.number().ok());
    if elsewhere || eyes.permit.open().has_port(port) {
        return Ok(());
    }
    let problem = format!("target.local_port: {local} is protected: services of this host may need it");
    let line = line("ports", &format!("[{port}]"));
    Err(ApiError::new(ErrorCode::TargetProtected, problem)
        .hint(format!("{line} of the daemon's policy file opens it; only the operator changes it")))
}

/// What stays of something, whoever asks.
struct Floor {
    /// The parameter by which a caller may ask for more of it.
    parameter: &'static str,
    /// The field of the policy.
    field: &'static str,
    /// How many of what is counted are one of what the parameter counts, as a power of two.
    unit: u32,
}

const MEMORY: Floor = Floor { parameter: "reserve_mb", field: "least_memory_mb", unit: 20 };
const ROOM: Floor = Floor { parameter: "leave_free_mb", field: "least_disk_mb", unit: 20 };
const FILES: Floor = Floor { parameter: "leave_free", field: "least_files", unit: 0 };

/// Refuses to leave less than a floor.
fn refuse_below(asked: Option<u64>, least: u64, floor: &Floor) -> Result<(), ApiError> {
    let Floor { parameter, field, unit } = floor;
    match asked {
        Some(asked) if asked < least => {
            let (asked, least) = (asked >> unit, least.div_ceil(1 << unit));
            let text = format!("params.{parameter}: {asked} is less than the {least} that stay on this host");
            let line = line(field, &asked.to_string());
            Err(ApiError::new(ErrorCode::PolicyDenied, text).hint(format!(
                "ask for {least} or more; {line} of the daemon's policy file opens it; only the operator changes it"
            )))
        }
        _ => Ok(()),
    }
}

/// The plan of what takes something in a directory, which is opened there as whoever could name it.
fn in_directory(
    path: &Path,
    eyes: &Eyes<'_>,
    plan: impl FnOnce(&DirectoryGround) -> Result<Plan, ApiError>,
) -> Result<Plan, ApiError> {
    let ground = directory(path, eyes)?;
    let mut plan = plan(&ground)?;
    if let Some(why) = &ground.closed {
        return Err(ApiError::new(ErrorCode::TargetProtected, format!("params.path: {why}")));
    }
    if let Work::Hoard(work) = &mut plan.work {
        work.identity = ground.identity;
    }
    Ok(plan)
}

/// The control group that the holder is to join.
pub(super) fn joined(whose: &Whose, eyes: &Eyes<'_>) -> Result<CgroupRef, ApiError> {
    let group = target::scope::group(whose, eyes.identity(), eyes.spared)?;
    target::cgroup::resolve_to_join(&group, eyes.spared)
}

/// How much memory stays available on the host: what is asked for, or what stays when nobody says.
fn reserve_of(asked: Option<u64>, memory: &Memory, eyes: &Eyes<'_>) -> Result<u64, ApiError> {
    let least = eyes.permit.open().least_memory(memory.total);
    refuse_below(asked, least, &MEMORY)?;
    Ok(asked.unwrap_or_else(|| memory::reserve(memory.total)).max(least))
}

fn host_memory() -> Result<Memory, ApiError> {
    Memory::read().map_err(|error| failed("the host's memory", &error))
}

/// A directory, as the caller reaches it, or as the policy names it; but not one of the file system that has the journal by which
/// faults are undone.
fn directory(path: &Path, eyes: &Eyes<'_>) -> Result<DirectoryGround, ApiError> {
    let look = |error: io::Error| unreached(path, &error);
    let (found, identity) = match eyes.permit.names(path) {
        true => (DirectoryRef::find_without_links(path), Identity::ROOT),
        false => (eyes.identity().act(|| DirectoryRef::find(path)), eyes.identity().clone()),
    };
    let directory = found.map_err(look)?.ok_or_else(|| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.path: no directory {}", path.display()))
    })?;
    let ours = DirectoryRef::find(eyes.runtime_dir).map_err(look)?;
    if ours.is_some_and(|ours| ours.device == directory.device) {
        let path = path.display();
        return Err(ApiError::new(
            ErrorCode::TargetProtected,
            format!("params.path: {path} is protected: the daemon's journal is in the same file system"),
        )
        .hint("name a directory of another file system, or run the daemon with another --runtime-dir"));
    }
    if !eyes.permit.names(path) {
        refuse_system(path, &directory, eyes)?;
    }
    let closed = identity.act(|| directory.check_writable()).err().map(|error| error.to_string());
    let space = identity.act(|| directory.open().and_then(Space::of)).map_err(look)?;
    let least = if eyes.permit.names(path) { 0 } else { eyes.permit.open().least_room(space.bytes) };
    Ok(DirectoryGround { directory, identity, space, memory: host_memory()?, least, closed })
}

/// Refuses file systems without which the host does not go on: its root, that of its logs, and that of the daemon's state.
fn refuse_system(path: &Path, directory: &DirectoryRef, eyes: &Eyes<'_>) -> Result<(), ApiError> {
    let state = eyes.down_record.parent().unwrap_or(eyes.down_record);
    let open = &eyes.permit.open().file_systems;
    let is_of = |place: &Path| {
        DirectoryRef::find(place).ok().flatten().is_some_and(|found| found.device == directory.device)
    };
    let kept = [
        (Path::new("/"), "this host's root"),
        (Path::new("/var/log"), "its logs"),
        (state, "the daemon's state"),
    ];
    let Some((_, what)) = kept.into_iter().find(|(place, _)| is_of(place)) else { return Ok(()) };
    if open.iter().any(|opened| is_of(Path::new(opened))) {
        return Ok(());
    }
    let shown = path.display();
    let text = format!("params.path: {shown} is protected: {what} is in the same file system");
    let line = line("file_systems", &format!("[{:?}]", path));
    Err(ApiError::new(ErrorCode::TargetProtected, text).hint(format!(
        "name a directory of another file system; {line} of the daemon's policy file opens it, for whoever may write there"
    )))
}

/// Why a directory cannot be looked at as the caller.
fn unreached(path: &Path, error: &io::Error) -> ApiError {
    let code = match error.kind() {
        io::ErrorKind::PermissionDenied => ErrorCode::TargetProtected,
        io::ErrorKind::NotFound => ErrorCode::TargetNotFound,
        _ if error.raw_os_error() == Some(nix::libc::ELOOP) => ErrorCode::TargetNotFound,
        _ => ErrorCode::InjectionFailed,
    };
    ApiError::new(code, format!("params.path: look at {}: {error}", path.display()))
}

pub(super) fn failed(what: &str, error: &io::Error) -> ApiError {
    ApiError::new(ErrorCode::InjectionFailed, format!("look at {what}: {error}"))
}
