//! Finding a network namespace again that has lost its name: deleted under `/run/netns` while a process, a descriptor
//! or a mount elsewhere still keeps it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::netns::{NetNs, NetNsIdentity};

/// Looks for the namespace wherever procfs shows one. `None`: nobody is in it any more, no descriptor that we may see
/// refers to it, and it is not mounted. What is left of it then, if a forgotten socket keeps it at all, nobody can
/// reach.
///
/// # Errors
/// When procfs cannot be read.
pub fn find(id: NetNsIdentity) -> io::Result<Option<NetNs>> {
    let link = format!("net:[{}]", id.inode);
    let same = |path: &Path| {
        // Inodes are used again; the cookie is not.
        let opened = NetNs::open(path.to_str()?).ok()?;
        (opened.identity().ok()? == id).then_some(opened)
    };
    for mount in mounts(&link)? {
        if let Some(found) = same(&mount) {
            return Ok(Some(found));
        }
    }
    for process in fs::read_dir("/proc")?.flatten() {
        if !process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // Each thread has a namespace of its own.
        let threads = entries(&process.path().join("task")).map(|thread| thread.join("ns/net"));
        for path in threads.chain(entries(&process.path().join("fd"))) {
            // A descriptor whose mount is gone shows as "/". Other files are not looked at: one may be on a file system
            // that does not answer.
            if fs::read_link(&path).is_ok_and(|to| to.as_os_str() == link.as_str() || to.as_os_str() == "/")
                && let Some(found) = same(&path)
            {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// What is in a directory of a process; nothing when the process has ended meanwhile or is not ours to see.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Where a namespace is mounted: fields 4 and 5 of `/proc/PID/mountinfo` (proc(5)).
fn mounts(link: &str) -> io::Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    let place = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        (fields.next() == Some(link)).then(|| fields.next().map(PathBuf::from)).flatten()
    };
    Ok(text.lines().filter_map(place).collect())
}
