//! What is mounted where, in the mount namespaces of others too, as procfs shows it (proc(5)).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::gettid;

/// `NS_GET_USERNS` (linux/nsfs.h): a descriptor of the user namespace that owns a namespace.
const NS_GET_USERNS: libc::Ioctl = nix::request_code_none!(0xb7, 1) as libc::Ioctl;

/// Types of file systems that ask somebody else for what is on them, who may never answer. Those of FUSE have more behind a dot.
const ASKING: &[&str] = &["fuse", "fuseblk", "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs"];

/// A mount namespace, by a thread that is in it.
#[derive(Debug, Clone)]
pub struct MountNamespace {
    /// The thread.
    pub pid: i32,
    /// Its `mountinfo` (proc(5)).
    pub mounts: String,
}

/// A mount, as a line of mountinfo has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount<'a> {
    /// The number of its file system.
    pub device: &'a str,
    /// What of the file system is mounted; `net:[inode]` of a network namespace.
    pub root: &'a str,
    /// Where.
    pub point: PathBuf,
    /// The type of the file system.
    pub kind: &'a str,
}

impl<'a> Mount<'a> {
    /// Fields 3, 4, 5 and, after the dash, 9.
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut fields = left.split(' ').skip(2);
        let (device, root, point) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { device, root, point: PathBuf::from(unescape(point)), kind: right.split(' ').next()? })
    }
}

/// mountinfo writes blanks and the like as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = text.to_owned();
    for (code, plain) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        out = out.replace(code, plain);
    }
    out
}

impl MountNamespace {
    /// That of the calling thread.
    ///
    /// # Errors
    /// When procfs cannot be read.
    pub fn own() -> io::Result<Self> {
        Ok(Self { pid: gettid().as_raw(), mounts: mountinfo(Path::new("/proc/thread-self"))? })
    }

    /// Its mounts.
    pub fn each(&self) -> impl Iterator<Item = Mount<'_>> {
        self.mounts.lines().filter_map(Mount::parse)
    }

    /// Where network namespaces are mounted, each with what procfs calls it, `net:[inode]`.
    pub fn networks(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        self.each().filter(|mount| mount.root.starts_with("net:[")).map(|mount| (mount.root, mount.point))
    }

    /// A path of it as this process reaches it.
    pub fn reach(&self, path: &Path) -> PathBuf {
        reach(self.pid, path)
    }

    /// The type of a file system on the way to a path that may never answer. That which the root of `own` is on is none: without
    /// its answers this process would not get far anyway.
    pub fn hazard(&self, path: &Path, own: &Self) -> Option<&str> {
        let home = own.device_of_root();
        let asks = |kind: &str| ASKING.contains(&kind.split('.').next().unwrap_or_default());
        let mut on_the_way = self.each().filter(|mount| path.starts_with(&mount.point));
        let hazard = on_the_way.find(|mount| asks(mount.kind) && Some(mount.device) != home)?;
        Some(hazard.kind)
    }

    /// Of what is mounted over one another the last is to be seen.
    fn device_of_root(&self) -> Option<&str> {
        self.each().filter(|mount| mount.point == Path::new("/")).map(|mount| mount.device).last()
    }
}

/// A path of another process's mount namespace, as this one reaches it (proc(5), `/proc/PID/root`).
pub fn reach(pid: i32, path: &Path) -> PathBuf {
    let root = Path::new("/proc").join(pid.to_string()).join("root");
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The mount namespaces that threads are in, each once, of those that this process's user namespace owns. In others a user without
/// rights mounts what he likes, as much as he likes, and over what he likes; they are not looked at.
#[derive(Debug, Default)]
pub struct MountNamespaces {
    seen: BTreeMap<PathBuf, Seen>,
    /// Those that are not looked at.
    foreign: BTreeSet<PathBuf>,
}

/// A mount namespace, and how far down in it the root is of the thread by which it is seen: that sees nothing above it.
#[derive(Debug)]
struct Seen {
    depth: usize,
    namespace: MountNamespace,
}

impl MountNamespaces {
    /// Takes in that of a thread, by its folder in procfs: a thread may have left that of its process, and `/proc/TID/root` leads
    /// there, though `/proc` does not list it. One that has ended, or is not ours to see, has none.
    ///
    /// # Errors
    /// When it cannot be looked at for another reason.
    pub fn note(&mut self, thread: &Path) -> io::Result<()> {
        match self.take_in(thread) {
            Err(error) if is_out_of_sight(&error) => Ok(()),
            noted => noted,
        }
    }

    fn take_in(&mut self, thread: &Path) -> io::Result<()> {
        let Some(pid) = thread.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok()) else {
            return Ok(());
        };
        let link = fs::read_link(thread.join("ns/mnt"))?;
        if self.foreign.contains(&link) {
            return Ok(());
        }
        // OPENS: whoever runs the thread | root | a link of the kernel's to a namespace, which does nothing when it is opened
        if !self.seen.contains_key(&link) && !is_owned_here(&File::open(thread.join("ns/mnt"))?)? {
            self.foreign.insert(link);
            return Ok(());
        }
        let depth = depth_of_root(thread)?;
        if self.seen.get(&link).is_none_or(|seen| depth < seen.depth) {
            let namespace = MountNamespace { pid, mounts: mountinfo(thread)? };
            self.seen.insert(link, Seen { depth, namespace });
        }
        Ok(())
    }

    /// All that were taken in.
    pub fn into_vec(self) -> Vec<MountNamespace> {
        self.seen.into_values().map(|seen| seen.namespace).collect()
    }
}

/// How far down the root of a thread is; one whose path is too long to be told (readlink(2)) further than any other.
fn depth_of_root(thread: &Path) -> io::Result<usize> {
    match fs::read_link(thread.join("root")) {
        Ok(root) => Ok(root.components().count()),
        Err(error) if is_too_long(&error) => Ok(usize::MAX),
        Err(error) => Err(error),
    }
}

/// Whether the user namespace of this process owns a namespace: only who has its rights can have changed what is in it. Where the
/// kernel knows no user namespaces, it has not even this question.
fn is_owned_here(namespace: &File) -> io::Result<bool> {
    let own = match fs::metadata("/proc/thread-self/ns/user") {
        Ok(own) => own,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    // SAFETY: this request takes no argument and only reads.
    let owner = match Errno::result(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) }) {
        // SAFETY: the call has made this descriptor, which is nobody else's.
        Ok(fd) => File::from(unsafe { OwnedFd::from_raw_fd(fd) }),
        // One that is above, or beside (ioctl_nsfs(2)).
        Err(Errno::EPERM) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let owner = owner.metadata()?;
    Ok((owner.dev(), owner.ino()) == (own.dev(), own.ino()))
}

/// Whether the text of a link in procfs is longer than the kernel tells: no namespace has such a name.
pub fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENAMETOOLONG)
}

/// Whether what was to be looked at in procfs has gone with its process, or is not ours to see.
pub fn is_out_of_sight(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    matches!(errno, Some(libc::ENOENT | libc::ESRCH | libc::EINVAL | libc::EACCES | libc::EPERM))
}

/// A name that is no UTF-8 leads nowhere then, and is not in the way of others.
fn mountinfo(thread: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(thread.join("mountinfo"))?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(mounts: &str) -> MountNamespace {
        MountNamespace { pid: 7, mounts: mounts.to_owned() }
    }

    #[test]
    fn a_mount_is_read_with_its_type_whatever_stands_between() {
        let text = "31 23 0:27 / /sys/fs/bpf rw,nosuid shared:9 master:1 - bpf bpf rw,mode=700\n\
                    32 23 0:28 /sub /mnt/a\\040b rw - tmpfs none rw\n";
        let namespace = namespace(text);
        let found: Vec<_> = namespace.each().collect();
        let bpf = Mount { device: "0:27", root: "/", point: "/sys/fs/bpf".into(), kind: "bpf" };
        let tmpfs = Mount { device: "0:28", root: "/sub", point: "/mnt/a b".into(), kind: "tmpfs" };
        assert_eq!(found, [bpf, tmpfs]);
    }

    #[test]
    fn a_network_namespace_is_found_where_it_is_mounted_and_reached_by_a_thread_that_sees_it() {
        let line = "412 30 0:4 net:[4026532345] /run/netns/blue\\040one rw shared:200 - nsfs nsfs rw\n";
        let namespace = namespace(&format!("31 23 0:27 / /sys/fs/bpf rw - bpf bpf rw\n{line}"));
        let found: Vec<_> = namespace.networks().collect();
        assert_eq!(found, [("net:[4026532345]", PathBuf::from("/run/netns/blue one"))]);
        assert_eq!(namespace.reach(&found[0].1), Path::new("/proc/7/root/run/netns/blue one"));
    }

    #[test]
    fn a_way_through_a_file_system_that_may_not_answer_is_a_hazard_unless_it_is_the_root_itself() {
        let text = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
                    2 1 0:40 / /srv/a rw - fuse.sshfs host: rw\n\
                    3 1 0:41 / /srv/b rw - tmpfs none rw\n";
        let local = namespace(text);
        assert_eq!(local.hazard(Path::new("/srv/a/ns"), &local), Some("fuse.sshfs"));
        assert_eq!(local.hazard(Path::new("/srv/a"), &local), Some("fuse.sshfs"));
        for safe in ["/srv/b/ns", "/srv/ab", "/srv"] {
            assert_eq!(local.hazard(Path::new(safe), &local), None, "{safe}");
        }
        let diskless = namespace("1 0 0:19 / / rw - nfs4 host:/ rw\n");
        assert_eq!(diskless.hazard(Path::new("/run/ns"), &diskless), None);
        assert_eq!(diskless.hazard(Path::new("/run/ns"), &local), Some("nfs4"));
    }

    #[test]
    fn the_mounts_of_this_process_are_among_those_of_its_threads_once() {
        let mut all = MountNamespaces::default();
        let threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
        for thread in threads {
            all.note(&thread).unwrap();
        }
        let all = all.into_vec();
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0].each().count(), MountNamespace::own().unwrap().each().count());
        MountNamespaces::default().note(Path::new("/proc/2147483647")).unwrap();
    }
}
