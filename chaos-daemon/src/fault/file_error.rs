//! File errors: what a service asks of the files at or below one place answers with an error at once.
//!
//! - **Mechanism**: programs at security hooks (BPF LSM) of one control group: `file_open`, `inode_create`, `file_permission`
//!   (each read and write) and `mmap_file`, which set what the call returns (`bpf_set_retval`), and send the caller a signal where
//!   one is asked for (`bpf_send_signal`). No file system is touched.
//! - **Kernel requirement**: `CONFIG_BPF_LSM` with `bpf` in the list of security modules, `CONFIG_DEBUG_INFO_BTF`, no lockdown;
//!   programs at security hooks of a control group are of Linux 6.0.
//! - **Lifetime class**: kernel. The links die with the holder. With a signal: irreversible, since what it has ended stays so.
//! - **Undo**: end the holder. What has failed stays failed; an open(2) that was to make a file and failed at `open` has made it.
//! - **Blast radius**: processes that are in the named control group, or below it, when they call, and files at or below the named
//!   place in its file system, by whichever path or mount they are reached.
//! - **Reference**: Linux `security/security.c`, `kernel/bpf/bpf_lsm.c`, `kernel/bpf/cgroup.c` (`__cgroup_bpf_run_lsm_current`).

use super::Ready;
use super::look::{Eyes, group, refuse_to_end_who_is_needed};
use super::requirements::refusal;
use super::{FileWork, Plan, Work, failure_lifetime, failure_words};
use crate::host::place::where_it_leads;
use crate::host::protected::line;
use crate::host::{CgroupRef, KernelFiles, PlaceRef};
use crate::request::{ApiError, ErrorCode};
use crate::spec::{Failure, FileCalls};
use std::path::Path;

/// Looks at the group and at the file, and plans it.
///
/// # Errors
/// When there is no such group or file, or somebody in the group is needed and would be ended.
pub(super) fn prepare(calls: &FileCalls, failure: &Failure, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    let (group, place) = (group(&calls.whose, eyes)?, place(&calls.path, eyes)?);
    refuse_to_end_who_is_needed(&group, failure, eyes.spared)?;
    refuse_to_end_by_what_all_use(&place, failure, eyes)?;
    let kernel = eyes.facts.files.get().map_err(|lack| refusal("file_error", &[lack], eyes.facts))?;
    Ok(plan(calls, failure, &group, &place, *kernel).into())
}

/// Folders of a host that every program of it uses, some before it does anything: whoever is ended there does not come up again.
const USED_BY_ALL: &[&str] =
    &["/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr"];

/// A signal at what every program uses ends whoever starts.
fn refuse_to_end_by_what_all_use(
    place: &PlaceRef,
    failure: &Failure,
    eyes: &Eyes<'_>,
) -> Result<(), ApiError> {
    let path = where_it_leads(&place.path).unwrap_or_else(|_| place.path.clone());
    let named =
        |path: &Path| path.to_str().is_some_and(|path| eyes.permit.open().signal_paths.contains(path));
    let is_named = eyes.permit.names(&place.path) || [&*place.path, &*path].into_iter().any(named);
    if failure.signal.is_none() || is_named || ![&*place.path, &*path].into_iter().any(is_used_by_all) {
        return Ok(());
    }
    let text = format!("params.path: {} is protected from signals: every program uses it", path.display());
    let line = line("signal_paths", &format!("[{:?}]", place.path));
    Err(ApiError::new(ErrorCode::TargetProtected, text)
        .hint(format!("leave the signal out, or name a folder of the service's own; {line} of the daemon's policy file opens it")))
}

fn is_used_by_all(path: &Path) -> bool {
    path.parent().is_none() || USED_BY_ALL.iter().any(|folder| path.starts_with(folder))
}

/// The file or folder that is named, as the caller reaches it, or as the policy names it.
fn place(path: &Path, eyes: &Eyes<'_>) -> Result<PlaceRef, ApiError> {
    let shown = path.display();
    let found = match eyes.permit.names(path) {
        true => PlaceRef::find_without_links(path),
        false => eyes.identity().act(|| PlaceRef::find(path)),
    };
    let found = found.map_err(|error| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.path: look at {shown}: {error}"))
            .hint("name a folder above, which the caller and the daemon can reach")
    })?;
    found.ok_or_else(|| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.path: no file or folder {shown}")).hint(
            "of files that do not exist yet, name their folder; an installed daemon sees none of /tmp, /var/tmp, /home, \
             /root and /run/user",
        )
    })
}

/// Plans it.
pub fn plan(
    calls: &FileCalls,
    failure: &Failure,
    cgroup: &CgroupRef,
    place: &PlaceRef,
    kernel: KernelFiles,
) -> Plan {
    let names: Vec<_> = calls.operations.iter().map(|operation| operation.name()).collect();
    let below = if place.is_folder { " and below" } else { "" };
    let description = format!(
        "file_error: cgroup {} gets {} from {} at {}{below}{}",
        cgroup.path.display(),
        failure.errno.symbol(),
        names.join(", "),
        place.path.display(),
        failure_words(failure)
    );
    Plan {
        steps: Vec::new(),
        lifetime: failure_lifetime(failure),
        description,
        work: Work::Files(FileWork {
            cgroup: cgroup.clone(),
            place: place.clone(),
            operations: calls.operations.clone(),
            failure: *failure,
            kernel,
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::FaultRequest;
    use crate::spec::LifetimeClass;
    use crate::spec::effect::Effect;

    #[test]
    fn the_root_and_what_every_program_uses_is_told_from_folders_of_services() {
        for path in
            ["/", "/etc", "/etc/ld.so.cache", "/lib64/ld-linux-x86-64.so.2", "/usr/lib/x", "/dev/null"]
        {
            assert!(is_used_by_all(Path::new(path)), "{path}");
        }
        for path in ["/srv/data", "/var/lib/shop", "/etcetera", "/opt/shop", "/usrlocal"] {
            assert!(!is_used_by_all(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_plan_says_whose_calls_fail_where_and_how() {
        let request: FaultRequest = serde_json::from_value(json!({
            "fault_type": "file_error", "probability": 1.0, "target": {"cgroup": "a"},
            "params": {"path": "/var/lib/a", "operations": ["write", "create"], "errno": "no_space", "after_calls": 2, "times": 1},
        }))
        .unwrap();
        let Effect::Files { calls, mut failure } = request.parse().unwrap().effect else { panic!() };
        let cgroup = CgroupRef { path: "/sys/fs/cgroup/a".into(), id: 7 };
        let place = PlaceRef { path: calls.path.clone(), device: 1, inode: 2, is_folder: true };
        let kernel: KernelFiles = serde_json::from_value(json!({
            "file_open": 1, "file_permission": 2, "inode_create": 3, "mmap_file": 4, "inode_getattr": 5,
            "file_dentry": 6, "path_dentry": 7, "dentry_inode": 8, "dentry_parent": 9,
        }))
        .unwrap();
        let of = |failure: &Failure| plan(&calls, failure, &cgroup, &place, kernel);
        let plan = of(&failure);
        assert_eq!(
            plan.description,
            "file_error: cgroup /sys/fs/cgroup/a gets ENOSPC from write, create at /var/lib/a and below, after the first 2, \
             1 times at most"
        );
        assert_eq!(plan.lifetime, LifetimeClass::Kernel);
        let words = plan.work.words().join("; ");
        assert!(
            words.ends_with("programs file_permission, inode_create to cgroup /sys/fs/cgroup/a by links"),
            "{words}"
        );
        failure.signal = Some(9);
        let hard = of(&failure);
        assert!(
            hard.description.ends_with("; whoever makes the call is sent SIGKILL"),
            "{}",
            hard.description
        );
        assert_eq!(hard.lifetime, LifetimeClass::Irreversible);
    }
}
