//! What a holder has taken of this host beside eBPF objects: it is given back when the process ends, and missing until then.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::libc;

use super::places::is_our_file;
use crate::host::part::HELD_THREAD;
use crate::host::proxy::in_force;
use crate::kernel::process::ProcessId;
use crate::kernel::proxy::held;
use crate::spec::mcp::page::LINK;

/// A holder that has taken no memory has less of its own.
const OWN_MEMORY_KIB: u64 = 16 << 10;
/// Standard streams, which every process has.
const STREAMS: i32 = 2;
/// Descriptors of nothing that whoever started the daemon may have left open.
const INHERITED: usize = 4;

/// Counted by what only a fault takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holdings {
    /// Memory that is no file's, in KiB.
    pub(super) memory_kib: u64,
    /// Descriptors of nothing.
    pub(super) descriptors: usize,
    /// Files without a name.
    pub(super) files: usize,
    /// Threads that only sleep.
    pub(super) threads: usize,
    /// TCP and UDP sockets.
    pub(super) sockets: usize,
    /// Proxies of MCP servers that obey it.
    pub(super) proxies: usize,
}

impl Holdings {
    /// Of the process whose folder in procfs this is. What cannot be read is none: it ends meanwhile.
    pub(super) fn read(folder: &Path) -> Self {
        let mut held = Self::default();
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        held.memory_kib = memory.and_then(|text| text.trim().split(' ').next()?.parse().ok()).unwrap_or(0);
        let is_held = |thread: &fs::DirEntry| {
            fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim_end() == HELD_THREAD)
        };
        held.threads =
            fs::read_dir(folder.join("task")).into_iter().flatten().flatten().filter(is_held).count();
        for entry in fs::read_dir(folder.join("fd")).into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            if number.is_none_or(|number| number <= STREAMS) {
                continue;
            }
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let target = target.to_string_lossy();
            if target == "/dev/null" {
                held.descriptors += 1;
            } else if target.starts_with("socket:[") {
                held.sockets += usize::from(is_of_network(&entry.path()));
            } else if target == LINK {
                held.proxies += usize::from(number.is_none_or(|number| is_obeyed(folder, number)));
            } else if let Some(file) = target.strip_suffix(" (deleted)") {
                held.files += usize::from(!is_our_file(file));
            }
        }
        held
    }

    /// What is missing meanwhile, each by itself.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.memory_kib > OWN_MEMORY_KIB {
            words.push(format!("{} MiB of memory", self.memory_kib >> 10));
        }
        if self.descriptors > INHERITED {
            words.push(format!("{} open files", self.descriptors));
        }
        for (count, what) in [
            (self.files, "files without a name"),
            (self.threads, "threads"),
            (self.sockets, "sockets"),
            (self.proxies, "proxies of MCP servers"),
        ] {
            if count > 0 {
                words.push(format!("{count} {what}"));
            }
        }
        words
    }
}

/// Whether a fault is in force on a page of a proxy that a process has open; what cannot be looked at counts.
fn is_obeyed(folder: &Path, number: i32) -> bool {
    let Some(pid) = folder.file_name().and_then(|name| name.to_str()?.parse().ok()) else { return true };
    let look = || -> io::Result<bool> {
        let Some(process) = ProcessId::of(pid).map_err(io::Error::other)?.open()? else { return Ok(false) };
        let Some(page) = held(&process, number)? else { return Ok(false) };
        Ok(in_force(&page)?.is_some())
    };
    look().unwrap_or(true)
}

/// Whether a socket is of TCP or UDP, by the name that the kernel gives its protocol (`sockfs_xattr_get` in net/socket.c).
fn is_of_network(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let mut protocol = [0u8; 32];
    // SAFETY: both texts end with a zero, and the kernel writes no more than the length given.
    let length = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"system.sockprotoname".as_ptr(),
            protocol.as_mut_ptr().cast(),
            protocol.len(),
        )
    };
    length > 0 && (protocol.starts_with(b"TCP") || protocol.starts_with(b"UDP"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_a_process_takes_is_counted_and_other_sockets_are_not() {
        let read = || Holdings::read(Path::new("/proc/self"));
        let before = read();
        let _files: Vec<_> = (0..3).map(|_| File::open("/dev/null").unwrap()).collect();
        let _nameless = tempfile::tempfile().unwrap();
        let _tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let _udp = UdpSocket::bind("[::1]:0").or_else(|_| UdpSocket::bind("127.0.0.1:0")).unwrap();
        let _unix = UnixStream::pair().unwrap();
        let after = read();
        // Other tests of this process take some as well.
        assert!(after.descriptors >= before.descriptors.saturating_sub(1) + 3, "{before:?}, {after:?}");
        assert!(after.files > 0 && after.sockets >= 2 && after.memory_kib > 0, "{after:?}");
    }

    #[test]
    fn only_what_is_missing_is_told() {
        let own = Holdings { memory_kib: OWN_MEMORY_KIB, descriptors: INHERITED, ..Holdings::default() };
        assert!(own.words().is_empty());
        let all =
            Holdings { memory_kib: 200 << 10, descriptors: 9, files: 2, threads: 3, sockets: 4, proxies: 5 };
        let words = [
            "200 MiB of memory",
            "9 open files",
            "2 files without a name",
            "3 threads",
            "4 sockets",
            "5 proxies of MCP servers",
        ];
        assert_eq!(all.words(), words);
    }
}
