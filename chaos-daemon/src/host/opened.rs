//! What a process has open, as far as the calling thread may see it: sockets, a file that it writes, and where its output goes
//! (proc_pid_fd(5), proc_pid_fdinfo(5)).

use std::fs;
use std::path::{Path, PathBuf};

use nix::libc;

use super::MountNamespace;
use super::directory::Space;

/// How many descriptors of one process are looked at.
const MOST: usize = 4096;
/// How many of its files.
const MOST_FILES: usize = 16;
/// The descriptors of standard output and standard error.
const OUTPUT: [&str; 2] = ["1", "2"];

/// What a process has open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// The numbers by which its sockets are known.
    pub sockets: Vec<u64>,
    /// A file that it has open for writing, and what its file system has left.
    pub writes: Option<(PathBuf, Space)>,
    /// The file into which its output goes.
    pub log: Option<PathBuf>,
}

impl Opened {
    /// Of the process of this number. Of another user's, or of who has ended meanwhile, nothing is seen.
    pub fn of(pid: i32) -> Self {
        let folder = Path::new("/proc").join(pid.to_string());
        let mut found = Self::default();
        let mut files = Vec::new();
        for entry in fs::read_dir(folder.join("fd")).into_iter().flatten().flatten().take(MOST) {
            let Ok(link) = fs::read_link(entry.path()) else { continue };
            let Some(text) = link.to_str() else { continue };
            if let Some(number) = text.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) {
                found.sockets.extend(number.parse::<u64>().ok());
            } else if is_file(text) && files.len() < MOST_FILES {
                files.push((entry.file_name(), link));
            }
        }
        // So that the same one is told whatever order procfs has.
        files.sort();
        let mut written = files.iter().filter(|(name, _)| is_written(&folder.join("fdinfo").join(name)));
        let is_output = |name: &&(std::ffi::OsString, PathBuf)| OUTPUT.iter().any(|it| name.0 == *it);
        let all: Vec<_> = written.by_ref().collect();
        found.log = all.iter().find(|file| is_output(file)).map(|(_, link)| link.clone());
        // A file of its own says more than where its output goes, which somebody else has opened for it.
        let own = all.iter().find(|file| !is_output(file)).or(all.first());
        found.writes = own.and_then(|(name, link)| {
            let space = space(pid, &folder.join("fd").join(name), link)?;
            Some((link.clone(), space))
        });
        found
    }
}

/// Whether a link of a descriptor leads to a file that has a name.
fn is_file(link: &str) -> bool {
    let elsewhere = ["/dev/", "/proc/", "/sys/", "/memfd:", "/SYSV"];
    link.starts_with('/') && !link.ends_with(" (deleted)") && !elsewhere.iter().any(|it| link.starts_with(it))
}

/// Whether a descriptor is for writing: the flags of open(2), in octal digits.
fn is_written(fdinfo: &Path) -> bool {
    let text = fs::read_to_string(fdinfo).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| libc::c_int::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR))
}

/// What the file system of an open file has left; none of one that may never answer.
fn space(pid: i32, descriptor: &Path, path: &Path) -> Option<Space> {
    let mounts = fs::read(Path::new("/proc").join(pid.to_string()).join("mountinfo")).ok()?;
    let theirs = MountNamespace { pid, mounts: String::from_utf8_lossy(&mounts).into_owned() };
    let own = MountNamespace::own().ok()?;
    match theirs.hazard(path, &own) {
        None => Space::at(descriptor).ok().filter(|space| space.bytes > 0),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::TcpListener;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::waits::wait_for;

    #[test]
    fn of_a_child_its_output_its_sockets_and_a_file_that_it_writes_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (log, data) = (folder.path().join("log"), folder.path().join("data"));
        let mut command = Command::new("sh");
        command.args(["-c", "exec 7>>\"$0\"; read line"]).arg(&data).stdin(Stdio::piped());
        let mut child = command.stdout(File::create(&log).unwrap()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id().cast_signed();
        wait_for(|| data.exists());
        wait_for(|| Opened::of(pid).writes.is_some_and(|(path, _)| path == data));
        let opened = Opened::of(pid);
        assert_eq!(opened.log.as_deref(), Some(log.as_path()));
        let space = opened.writes.unwrap().1;
        assert!(space.bytes > 0 && space.used <= space.bytes, "{space:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Opened::of(pid), Opened::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = fs::metadata(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&listener)));
        let me = Opened::of(std::process::id().cast_signed());
        assert!(me.sockets.contains(&link.unwrap().ino()));
    }

    #[test]
    fn devices_pipes_and_files_that_are_gone_are_no_files() {
        assert!(is_file("/srv/data/log"));
        for other in ["/dev/null", "pipe:[7]", "/tmp/x (deleted)", "/memfd:a", "anon_inode:[eventpoll]"] {
            assert!(!is_file(other), "{other}");
        }
    }
}
