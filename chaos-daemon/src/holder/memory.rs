//! The holder's own code, brought into memory before it is needed: when work comes, it waits for no page fault, nor for the
//! disk when memory is short.

use std::ffi::c_void;
use std::ptr;

use nix::libc;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

/// `MADV_POPULATE_READ` (madvise(2), Linux 5.14): fills the page tables without touching the pages' contents.
const POPULATE_READ: libc::c_int = libc::MADV_POPULATE_READ;

/// Brings the code of this program and of its libraries into memory. It is the same without, only slower.
pub(super) fn populate_code() {
    let maps = Process::myself().and_then(|process| process.maps());
    let maps = match maps {
        Ok(maps) => maps,
        Err(error) => return tracing::debug!(%error, "cannot read where this program lies in memory"),
    };
    for map in maps.iter().filter(|map| is_code(map)) {
        let (start, end) = map.address;
        let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(end - start)) else {
            continue;
        };
        // SAFETY: this advice changes nothing that a program can see; a range that is gone is an error.
        if unsafe { libc::madvise(ptr::without_provenance_mut::<c_void>(start), length, POPULATE_READ) } != 0
        {
            let error = std::io::Error::last_os_error();
            tracing::debug!(%error, "cannot populate a program's pages");
        }
    }
}

fn is_code(map: &MemoryMap) -> bool {
    map.perms.contains(MMPermissions::EXECUTE) && matches!(map.pathname, MMapPath::Path(_))
}
