//! Which control group this process is in. It leaves the group by ending, so that nothing has to be undone.
//!
//! Reference: Linux `Documentation/admin-guide/cgroup-v2.rst`, `cgroup.procs`.

use std::fs::File;
use std::io::{self, Write};

use nix::libc;

use crate::host::{CgroupRef, supply};

/// Moves the calling process, with all its threads, into a control group, and reads back that it is there.
///
/// # Errors
/// Says which group, and why not.
pub fn enter(group: &CgroupRef) -> io::Result<()> {
    let path = group.path.display();
    let failed = |error: io::Error| {
        let why = match error.raw_os_error() {
            // "No internal processes": groups with controllers for those below have none themselves.
            Some(libc::EBUSY) => "it has groups below it: name one of those",
            Some(libc::EOPNOTSUPP) => "it takes threads only, or a group below it does",
            Some(libc::EACCES) => "it is not root's: its owner has been given the group",
            Some(libc::EROFS) => "the unit of the daemon may write in other slices only",
            _ => return io::Error::new(error.kind(), format!("enter cgroup {path}: {error}")),
        };
        io::Error::new(error.kind(), format!("enter cgroup {path}: {error}: {why}"))
    };
    let open = group.open().map_err(failed)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let mut file = File::from(open.file("cgroup.procs", libc::O_WRONLY).map_err(failed)?);
    // "0" is whoever writes.
    file.write_all(b"0").map_err(failed)?;
    match supply::own_cgroup().map_err(failed)? {
        Some(now) if now == group.path => Ok(()),
        now => Err(io::Error::other(format!("enter cgroup {path}: read back {now:?}"))),
    }
}

/// Has the kernel choose this process first when memory runs out (proc(5), `oom_score_adj`).
///
/// # Errors
/// When procfs cannot be written.
pub fn offer_to_oom_killer() -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "1000")
        .map_err(|error| io::Error::new(error.kind(), format!("write oom_score_adj: {error}")))
}
