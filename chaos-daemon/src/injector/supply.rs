//! What a fault that takes something finds: the target pinned, and how much is there.

use std::io;
use std::path::Path;

use super::oom;
use crate::fault::{DirectoryGround, Ground, MemoryGround, ProcessorGround};
use crate::host::directory::{DirectoryRef, Space};
use crate::host::supply::{self, Descriptors, Memory, Tasks};
use crate::host::{CgroupRef, Identity};
use crate::policy::Permit;
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::{CpuLoad, DiskFill, Hoard, Whose};
use crate::target;

/// Looks. `runtime_dir` is the daemon's own.
///
/// # Errors
/// Names what cannot be a target, and why.
pub(super) fn look(
    what: &Hoard,
    whose: Option<&Whose>,
    permit: &Permit,
    runtime_dir: &Path,
    (caller, identity): (Caller, &Identity),
) -> Result<Ground, ApiError> {
    let cgroup = whose.map(|whose| joined(whose, identity)).transpose()?;
    let open = || Descriptors::read().map_err(|error| failed("the host's open files", &error));
    match what {
        Hoard::Memory { .. } => {
            let own = supply::own_cgroup().map_err(|error| failed("the daemon's cgroup", &error))?;
            let place = cgroup.as_ref().map(|group| group.path.clone()).or(own);
            let limit = place.as_deref().and_then(supply::memory_limit);
            Ok(Ground::Memory(MemoryGround { cgroup, memory: memory()?, limit }))
        }
        Hoard::Oom { .. } => oom::look(cgroup, memory()?, caller),
        Hoard::Disk(DiskFill { path, .. }) | Hoard::Inodes { path, .. } | Hoard::DiskIo { path, .. } => {
            Ok(Ground::Directory(
                Box::new(directory(path, permit, runtime_dir, identity)?),
                cgroup,
                open()?.process,
            ))
        }
        Hoard::Descriptors { .. } | Hoard::Ports { .. } | Hoard::Port(_) => Ok(Ground::Descriptors(open()?)),
        Hoard::Tasks { .. } => {
            let tasks = Tasks::read().map_err(|error| failed("the host's processes", &error))?;
            Ok(Ground::Tasks(tasks, cgroup))
        }
    }
}

/// Looks for what burns CPU time.
///
/// # Errors
/// As [`look`].
pub(super) fn processors(load: &CpuLoad, identity: &Identity) -> Result<Ground, ApiError> {
    let cgroup = load.whose.as_ref().map(|whose| joined(whose, identity)).transpose()?;
    let usable = supply::usable_processors().map_err(|error| failed("the processors", &error))?;
    let quota = cgroup.as_ref().and_then(|group| supply::cpu_quota(&group.path));
    Ok(Ground::Processors(ProcessorGround { usable, cgroup, quota }))
}

/// The control group that the holder is to join.
fn joined(whose: &Whose, identity: &Identity) -> Result<CgroupRef, ApiError> {
    target::cgroup::resolve_to_join(&target::scope::group(whose, identity)?)
}

fn memory() -> Result<Memory, ApiError> {
    Memory::read().map_err(|error| failed("the host's memory", &error))
}

/// A directory, as the caller reaches it, or as the policy names it; but not one of the file system that has the journal by which
/// faults are undone.
fn directory(
    path: &Path,
    permit: &Permit,
    runtime_dir: &Path,
    identity: &Identity,
) -> Result<DirectoryGround, ApiError> {
    let look = |error: io::Error| unreached(path, &error);
    let (found, identity) = match permit.names(path) {
        true => (DirectoryRef::find_without_links(path), Identity::ROOT),
        false => (identity.act(|| DirectoryRef::find(path)), identity.clone()),
    };
    let directory = found.map_err(look)?.ok_or_else(|| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.path: no directory {}", path.display()))
    })?;
    let ours = DirectoryRef::find(runtime_dir).map_err(look)?;
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
    Ok(DirectoryGround { directory, identity, space, memory: memory()?, closed })
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

fn failed(what: &str, error: &io::Error) -> ApiError {
    ApiError::new(ErrorCode::InjectionFailed, format!("look at {what}: {error}"))
}
