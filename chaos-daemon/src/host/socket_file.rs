//! Files of unix sockets: those by which a host is run, and a way to one that leads to the very file that was looked at, whatever
//! its path stands for by then.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::budget;
use super::listening::all_owners;
use super::place::reach;
use super::process::numbers;

/// Where sockets are without which a host cannot be run.
const VITAL: &[&str] = &["/run/systemd", "/run/dbus", "/run/udev"];

/// `__SO_ACCEPTCON` (linux/net.h): who has such a socket listens.
const ACCEPTS: u32 = 1 << 16;

/// A file, by device and inode.
type Id = (u64, u64);

/// The file of a socket, held on to.
#[derive(Debug)]
pub struct SocketFile {
    file: File,
    id: Id,
}

impl SocketFile {
    /// What connect(2) would find at this path now.
    ///
    /// # Errors
    /// When nothing can be reached there, or no socket.
    pub fn find(path: &Path) -> io::Result<Self> {
        let file = reach(path)?;
        let found = file.metadata()?;
        match found.file_type().is_socket() {
            true => Ok(Self { file, id: (found.dev(), found.ino()) }),
            // As connect(2) has it.
            false => Err(io::Error::new(ErrorKind::ConnectionRefused, "it is no socket")),
        }
    }

    /// A path that leads to this file and no other, in this process and for as long as the value lives (unix(7), proc_pid_fd(5)).
    pub fn path(&self) -> PathBuf {
        // OPENS: the caller | the caller | leads to the open place of this value and nowhere else
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

impl SocketFile {
    /// The processes that listen at this file, whatever its path is to them, as far as they can be looked at.
    ///
    /// # Errors
    /// When processes cannot be listed, or the thread's [budget] is spent.
    pub fn servers(&self) -> io::Result<Vec<i32>> {
        let all = numbers()?;
        // By the number of a socket, the path to which it was bound. Each network namespace lists its own (proc_net(5)).
        let (mut seen, mut bound) = (BTreeSet::new(), BTreeMap::new());
        for pid in &all {
            budget::check()?;
            let folder = PathBuf::from(format!("/proc/{pid}"));
            if let Ok(namespace) = fs::read_link(folder.join("ns/net"))
                && seen.insert(namespace)
            {
                // OPENS: nobody: the path is the program's | root | a text of procfs
                let text = fs::read(folder.join("net/unix")).unwrap_or_default();
                bound.extend(listening(&String::from_utf8_lossy(&text)));
            }
        }
        let mut found = BTreeSet::new();
        for (inode, owners) in all_owners(&bound.keys().copied().collect(), &all)? {
            let Some(path) = bound.get(&inode) else { continue };
            if owners.iter().any(|pid| self.is_at(path, *pid)) {
                found.extend(owners);
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Whether a path leads to this file, for a process, or from here.
    fn is_at(&self, path: &Path, pid: i32) -> bool {
        let inside = match path.strip_prefix("/") {
            Ok(inside) => PathBuf::from(format!("/proc/{pid}/root")).join(inside),
            Err(_) => PathBuf::from(format!("/proc/{pid}/cwd")).join(path),
        };
        let leads_here =
            |path: &Path| fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        leads_here(&inside) || path.is_absolute() && leads_here(path)
    }
}

/// The sockets of streams and of messages that listen at a path: Num, RefCount, Protocol, Flags, Type, St, Inode, Path.
fn listening(text: &str) -> impl Iterator<Item = (u64, PathBuf)> {
    text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let inode = fields.nth(2)?.parse().ok()?;
        // What is behind may have blanks.
        let path = line.split_once(&format!(" {inode} "))?.1.trim_start();
        (flags & ACCEPTS != 0 && !path.starts_with('@')).then(|| (inode, PathBuf::from(path)))
    })
}

/// Sockets that nobody is to be connected to: known by what they are, since anybody can have a path lead to one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SparedSockets {
    host: BTreeSet<Id>,
    own: Option<Id>,
}

impl SparedSockets {
    /// Those by which this host is run, and the daemon's `own`.
    pub fn look(own: &Path) -> Self {
        let host = VITAL.iter().flat_map(|folder| sockets_in(Path::new(folder))).collect();
        Self { host, own: SocketFile::find(own).ok().map(|own| own.id) }
    }

    /// What it is, if it is one of them.
    ///
    /// # Errors
    /// When it cannot be said where it is.
    pub fn what(&self, socket: &SocketFile) -> io::Result<Option<&'static str>> {
        // Also by where it is: one that was made anew has the place of the one before.
        let place = fs::read_link(socket.path())?;
        if self.host.contains(&socket.id) || VITAL.iter().any(|folder| place.starts_with(folder)) {
            return Ok(Some("a socket by which the host is run"));
        }
        let own = self.own == Some(socket.id);
        Ok(own.then_some("this daemon's own socket, by which its faults are ended"))
    }
}

/// The sockets in a folder and below it, in its file system, and those that links in there lead to. What cannot be read is passed
/// over.
fn sockets_in(folder: &Path) -> BTreeSet<Id> {
    let mut found = BTreeSet::new();
    let Ok(device) = fs::metadata(folder).map(|folder| folder.dev()) else { return found };
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && entry.metadata().is_ok_and(|below| below.dev() == device) {
                folders.push(entry.path());
            } else if kind.is_socket() || kind.is_symlink() {
                let led_to = fs::metadata(entry.path()).ok();
                let socket = led_to.filter(|led_to| led_to.file_type().is_socket());
                found.extend(socket.map(|socket| (socket.dev(), socket.ino())));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::waits::wait_for;

    #[test]
    fn sockets_are_found_in_a_folder_and_below_it_and_by_links_and_nothing_else_is() {
        let (vital, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let below = vital.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let paths = [vital.path().join("1"), below.join("2"), elsewhere.path().join("3")];
        let _listeners = paths.each_ref().map(|path| UnixListener::bind(path).unwrap());
        symlink(&paths[2], below.join("link")).unwrap();
        // A link to a folder is not gone along, or it would never end.
        symlink(vital.path(), below.join("circle")).unwrap();
        symlink(vital.path().join("none"), below.join("broken")).unwrap();
        fs::write(below.join("file"), "").unwrap();
        let expected = paths.each_ref().map(|path| SocketFile::find(path).unwrap().id);
        assert_eq!(sockets_in(vital.path()), expected.into());
        assert_eq!(sockets_in(&vital.path().join("none")), BTreeSet::new());
    }

    #[test]
    fn who_listens_at_a_file_is_found_by_whatever_path_and_who_is_connected_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let _listener = UnixListener::bind(path("with blank")).unwrap();
        let _near = UnixStream::connect(path("with blank")).unwrap();
        fs::hard_link(path("with blank"), path("second")).unwrap();
        let me = std::process::id().cast_signed();
        for name in ["with blank", "second"] {
            // A test beside this one that starts a program has it for a moment, too.
            wait_for(|| SocketFile::find(&path(name)).unwrap().servers().unwrap() == [me]);
        }
        let gone = UnixListener::bind(path("gone")).unwrap();
        let file = SocketFile::find(&path("gone")).unwrap();
        drop(gone);
        wait_for(|| file.servers().unwrap().is_empty());
        let text = "Num RefCount Protocol Flags Type St Inode Path\n\
                    0: 2 0 00010000 0001 01 17 /run/a b\n0: 2 0 00010000 0001 01 18 @abstract\n\
                    0: 3 0 00000000 0001 03 19 /run/a\n0: 2 0 00010000 0001 01 20\n";
        assert_eq!(super::listening(text).collect::<Vec<_>>(), [(17, PathBuf::from("/run/a b"))]);
    }

    #[test]
    fn a_socket_that_is_spared_is_one_by_whatever_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let _listeners = ["own", "vital", "other"].map(|name| UnixListener::bind(path(name)).unwrap());
        let mut spared = SparedSockets::look(&path("own"));
        spared.host.insert(SocketFile::find(&path("vital")).unwrap().id);
        let text = serde_json::to_string(&spared).unwrap();
        assert_eq!(serde_json::from_str::<SparedSockets>(&text).unwrap(), spared);
        let what = |name: &str| spared.what(&SocketFile::find(&path(name)).unwrap()).unwrap();
        symlink(path("own"), path("link")).unwrap();
        fs::hard_link(path("vital"), path("second")).unwrap();
        assert!(what("link").is_some_and(|what| what.contains("own socket")));
        assert!(what("second").is_some_and(|what| what.contains("the host is run")));
        assert_eq!(what("other"), None);
    }

    #[test]
    fn a_file_that_was_looked_at_is_connected_to_whatever_its_path_stands_for_by_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let first = UnixListener::bind(&path).unwrap();
        let found = SocketFile::find(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = UnixListener::bind(&path).unwrap();
        let _connected = UnixStream::connect(found.path()).unwrap();
        for (listener, expected) in [(first, true), (second, false)] {
            listener.set_nonblocking(true).unwrap();
            assert_eq!(listener.accept().is_ok(), expected);
        }
        fs::write(folder.path().join("file"), "").unwrap();
        let error = SocketFile::find(&folder.path().join("file")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(SocketFile::find(&folder.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
