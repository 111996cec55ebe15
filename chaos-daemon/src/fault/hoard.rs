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
use crate::host::supply::{self, Descriptors, Memory, Tasks};
use crate::host::{CgroupRef, Identity};
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
    }
    let cgroup = whose.map(|whose| joined(whose, eyes)).transpose()?;
    let open = || Descriptors::read().map_err(|error| failed("the host's open files", &error));
    let plan = match what {
        Hoard::Memory { size, reserve } => {
            let own = supply::own_cgroup().map_err(|error| failed("the daemon's cgroup", &error))?;
            let place = cgroup.as_ref().map(|group| group.path.clone()).or(own);
            let limit = place.as_deref().and_then(supply::memory_limit);
            memory::plan(*size, *reserve, ramp, &MemoryGround { cgroup, memory: host_memory()?, limit })?
        }
        Hoard::Oom { reserve } => return oom::prepare(*reserve, ramp, cgroup, host_memory()?, eyes),
        Hoard::Disk(fill) => in_directory(&fill.path, eyes, |ground| disk_fill::plan(fill, ramp, ground))?,
        Hoard::Inodes { count, path } => {
            let most = open()?.process;
            in_directory(path, eyes, |ground| inodes::plan(*count, ramp, ground, most))?
        }
        Hoard::DiskIo { rate, bytes, path } => {
            in_directory(path, eyes, |ground| disk_io::plan(*rate, *bytes, cgroup, ground))?
        }
        Hoard::Descriptors { count, leave } => descriptors::plan(*count, *leave, ramp, open()?)?,
        Hoard::Tasks { count } => {
            let tasks = Tasks::read().map_err(|error| failed("the host's processes", &error))?;
            pids::plan(*count, ramp, cgroup, tasks)?
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
    target::cgroup::resolve_to_join(&target::scope::group(whose, eyes.identity())?)
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
    let closed = identity.act(|| directory.check_writable()).err().map(|error| error.to_string());
    let space = identity.act(|| directory.open().and_then(Space::of)).map_err(look)?;
    Ok(DirectoryGround { directory, identity, space, memory: host_memory()?, closed })
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
