//! File errors: what a service asks of the files at or below one place answers with an error at once.
//!
//! - **Mechanism**: programs at security hooks (BPF LSM) of one control group: `file_open`, `inode_create`, `file_permission`
//!   (each read and write) and `mmap_file`, which set what the call returns (`bpf_set_retval`). No file system is touched.
//! - **Kernel requirement**: `CONFIG_BPF_LSM` with `bpf` in the list of security modules, `CONFIG_DEBUG_INFO_BTF`, no lockdown;
//!   programs at security hooks of a control group are of Linux 6.0.
//! - **Lifetime class**: kernel. The links die with the holder.
//! - **Undo**: end the holder. What has failed stays failed; an open(2) that was to make a file and failed at `open` has made it.
//! - **Blast radius**: processes that are in the named control group, or below it, when they call, and files at or below the named
//!   place in its file system, by whichever path or mount they are reached.
//! - **Reference**: Linux `security/security.c`, `kernel/bpf/bpf_lsm.c`, `kernel/bpf/cgroup.c` (`__cgroup_bpf_run_lsm_current`).

use super::{FileWork, Plan, Work, failure_words};
use crate::host::{CgroupRef, KernelFiles, PlaceRef, Requirement};
use crate::request::LifetimeClass;
use crate::spec::{Failure, FileCalls};

/// What it needs of the kernel.
pub const REQUIREMENTS: &[Requirement] = &[Requirement::CgroupV2, Requirement::FilePrograms];

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
        lifetime: LifetimeClass::Kernel,
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
