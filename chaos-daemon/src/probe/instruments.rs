//! The files of procfs in which the kernel tells about this host: opened once, and read from the start each time.
//!
//! The prober may open no file once it is shut in (`host/sandbox.rs`); so it opens these before. What they tell is about
//! the network namespace in which they were opened.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

const PATHS: &[&str] = &[
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/fs/file-nr",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/threads-max",
    "/proc/pressure/cpu",
    "/proc/pressure/memory",
    "/proc/pressure/io",
    "/proc/pressure/irq",
    "/proc/net/tcp",
    "/proc/net/tcp6",
    "/proc/net/udp",
    "/proc/net/udp6",
    "/proc/net/sockstat",
];

static FILES: OnceLock<BTreeMap<&'static str, io::Result<File>>> = OnceLock::new();

/// Opens what can be opened; what cannot is told when it is read. A second call does nothing.
pub fn open() {
    files();
}

fn files() -> &'static BTreeMap<&'static str, io::Result<File>> {
    // OPENS: nobody: the list is the program's | the prober | texts of procfs that everybody may read
    FILES.get_or_init(|| PATHS.iter().map(|path| (*path, File::open(path))).collect())
}

/// What the file at `path`, one of the list, says now.
pub(super) fn read(path: &'static str) -> io::Result<String> {
    let file = match files().get(path) {
        Some(Ok(file)) => file,
        Some(Err(error)) => {
            return Err(error
                .raw_os_error()
                .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error));
        }
        None => return Err(io::ErrorKind::NotFound.into()),
    };
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let offset = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        match file.read_at(&mut buffer, offset)? {
            0 => return String::from_utf8(bytes).map_err(io::Error::other),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_anew_each_time() {
        let listening = || read("/proc/net/tcp").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = format!(":{:04X} ", listener.local_addr().unwrap().port());
        assert!(listening().contains(&port));
        drop(listener);
        assert!(!listening().contains(&port));
        assert!(read("/proc/net/elsewhere").is_err());
    }
}
