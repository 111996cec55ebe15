//! Network namespaces, pinned by a file descriptor: while a [`NetNs`] lives, its namespace cannot be mistaken
//! for another one that got the same name, nor go away.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::stat::{fstat, makedev};
use serde::{Deserialize, Serialize};

/// Where `ip netns` keeps the namespaces that have a name (ip-netns(8)).
pub const NAMED: &str = "/run/netns";

/// `NS_GET_NSTYPE` (linux/nsfs.h): which kind of namespace a descriptor refers to.
const NS_GET_NSTYPE: libc::Ioctl = nix::request_code_none!(0xb7, 3) as libc::Ioctl;

/// `SO_NETNS_COOKIE` (asm-generic/socket.h, Linux 5.14).
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Why a network namespace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetNsError {
    /// The text is neither a name below `/run/netns` nor an absolute path.
    #[error("{0:?} is neither the name of a network namespace nor an absolute path")]
    Name(String),
    /// The namespace file cannot be opened.
    #[error("cannot open the network namespace {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The file is something else.
    #[error("{subject} is not a network namespace")]
    NotOne {
        /// The file.
        subject: String,
    },
    /// No descriptor for another pin.
    #[error("cannot pin a network namespace once more")]
    Clone(#[source] io::Error),
    /// `setns` failed.
    #[error("cannot enter a network namespace (CAP_SYS_ADMIN is needed)")]
    Enter(#[source] Errno),
    /// `unshare` failed.
    #[error("cannot create a network namespace (CAP_SYS_ADMIN is needed)")]
    Create(#[source] Errno),
    /// Its identity cannot be read.
    #[error("cannot read the identity of a network namespace")]
    Identify(#[source] Errno),
    /// Work that had to be done inside it failed.
    #[error("cannot work inside a network namespace")]
    Work(#[source] io::Error),
}

impl NetNsError {
    /// Whether what was to be opened is not there any more, or something else is in its place.
    pub fn has_gone(&self) -> bool {
        match self {
            Self::NotOne { .. } => true,
            Self::Open { source, .. } => {
                matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
            }
            _ => false,
        }
    }
}

/// What tells one namespace from every other since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetNsIdentity {
    /// Device of the nsfs file.
    pub dev: u64,
    /// Inode of the nsfs file. Used again after the namespace is gone.
    pub inode: u64,
    /// The kernel's cookie: never used again until reboot.
    pub cookie: u64,
}

/// A pinned network namespace.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
    /// Once it was asked for. It never changes.
    identity: OnceLock<NetNsIdentity>,
}

impl NetNs {
    /// Opens a namespace by its name below `/run/netns`, or by the absolute path of a namespace file.
    ///
    /// # Errors
    /// When the text is neither, the file cannot be opened, or it is no network namespace.
    pub fn open(name_or_path: &str) -> Result<Self, NetNsError> {
        let plain = !name_or_path.contains(['/', '\0']) && !matches!(name_or_path, "" | "." | "..");
        if !plain && !name_or_path.starts_with('/') {
            return Err(NetNsError::Name(name_or_path.to_owned()));
        }
        // Joining an absolute path replaces the base.
        Self::at(&Path::new(NAMED).join(name_or_path))
    }

    /// The namespace the calling thread is in.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn current() -> Result<Self, NetNsError> {
        Self::at(Path::new("/proc/thread-self/ns/net"))
    }

    /// Opens the namespace that a path leads to. Whatever else is there by now is not opened: that might wait for somebody, as
    /// for the other end of a pipe, or do something, as to a watchdog. The way there is walked, though.
    ///
    /// # Errors
    /// When the file cannot be opened, or it is no network namespace.
    pub fn at(path: &Path) -> Result<Self, NetNsError> {
        let failed = |source: io::Error| NetNsError::Open { path: path.to_path_buf(), source };
        let subject = path.display().to_string();
        // OPENS: the caller; the journal; whoever runs a process | the caller (`target::Entrance`); root, where root asks or the policy
        // names it | a mere place first, opened only once the kernel says that it is a namespace, without its file system being asked;
        // a caller names places of root's and the kernel's alone (`spec::netns`)
        let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).map_err(failed)?;
        if !is_of_namespaces(&place).map_err(failed)? {
            return Err(NetNsError::NotOne { subject });
        }
        // The same file, whatever the path leads to by now.
        let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).map_err(failed)?;
        Self::checked(file.into(), subject)
    }

    /// Takes a descriptor that somebody else opened.
    ///
    /// # Errors
    /// When it is no network namespace.
    pub fn of_fd(fd: OwnedFd) -> Result<Self, NetNsError> {
        let subject = format!("file descriptor {}", fd.as_raw_fd());
        Self::checked(fd, subject)
    }

    fn checked(fd: OwnedFd, subject: String) -> Result<Self, NetNsError> {
        // SAFETY: this request takes no argument and only reads; on a file of another kind it fails.
        let kind = unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_NSTYPE) };
        if kind == libc::CLONE_NEWNET {
            Ok(Self { fd, identity: OnceLock::new() })
        } else {
            Err(NetNsError::NotOne { subject })
        }
    }

    /// Moves the calling thread into this namespace.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN.
    pub fn enter(&self) -> Result<(), NetNsError> {
        setns(&self.fd, CloneFlags::CLONE_NEWNET).map_err(NetNsError::Enter)
    }

    /// Creates an empty namespace and moves the calling thread into it. It ends with its last process,
    /// socket and descriptor, and takes its virtual devices and their peers with it.
    ///
    /// A process that outlives the namespace must build its first tokio runtime before: with signals enabled
    /// that opens a socket pair which stays open for the life of the process, and so would the namespace.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or when the limit of namespaces is reached.
    pub fn unshare() -> Result<Self, NetNsError> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(NetNsError::Create)?;
        Self::current()
    }

    /// What tells this namespace from every other.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or before Linux 5.14.
    pub fn identity(&self) -> Result<NetNsIdentity, NetNsError> {
        if let Some(known) = self.identity.get() {
            return Ok(*known);
        }
        let (dev, inode) = self.number()?;
        let cookie = self.inside(|| Ok(own_cookie()?))?;
        Ok(*self.identity.get_or_init(|| NetNsIdentity { dev, inode, cookie }))
    }

    /// Device and inode of its file. As long as it lives no other namespace has them.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn number(&self) -> Result<(u64, u64), NetNsError> {
        let stat = fstat(&self.fd).map_err(NetNsError::Identify)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Another pin on the same namespace.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn try_clone(&self) -> Result<Self, NetNsError> {
        let fd = self.fd.try_clone().map_err(NetNsError::Clone)?;
        Ok(Self { fd, identity: self.identity.clone() })
    }

    /// Does `work` inside this namespace: on a thread of its own, unless the calling thread is in it already. The
    /// calling thread never leaves its namespace, so it cannot get stuck in the wrong one. A socket opened by `work`
    /// stays inside.
    ///
    /// # Errors
    /// When no thread can be started, the namespace cannot be entered, or `work` fails.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> Result<T, NetNsError> {
        if self.is_current() {
            return work().map_err(NetNsError::Work);
        }
        thread::scope(|scope| {
            let thread = thread::Builder::new()
                .name("netns".to_owned())
                .spawn_scoped(scope, || {
                    self.enter()?;
                    work().map_err(NetNsError::Work)
                })
                .map_err(NetNsError::Work)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl NetNs {
    /// Whether the calling thread is in this namespace. While a namespace is pinned, its inode is its own.
    fn is_current(&self) -> bool {
        let here = nix::sys::stat::stat("/proc/thread-self/ns/net");
        matches!((here, fstat(&self.fd)), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether a file that is open as a mere place is on the file system of all namespaces. Its own one, which may not answer, is not
/// asked (statx(2), `AT_STATX_DONT_SYNC`).
fn is_of_namespaces(place: &File) -> io::Result<bool> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty string that ends with a zero; the kernel writes to `found` alone, which outlives the call.
    let result = unsafe { libc::statx(place.as_raw_fd(), c"".as_ptr(), flags, 0, found.as_mut_ptr()) };
    Errno::result(result)?;
    // SAFETY: zeros are a valid value of this plain struct, and the kernel has written another one over them.
    let found = unsafe { found.assume_init() };
    let device = makedev(found.stx_dev_major.into(), found.stx_dev_minor.into());
    Ok(device == fs::metadata("/proc/thread-self/ns/net")?.dev())
}

/// The cookie of the namespace the calling thread is in; 0 where the kernel has none (before Linux 5.14). There a namespace is known by
/// its inode alone, which the kernel gives away again once it has gone.
fn own_cookie() -> Result<u64, Errno> {
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `cookie`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match Errno::result(result) {
        Err(Errno::ENOPROTOOPT) => Ok(0),
        result => result.map(|_| cookie),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::waits::HANG;

    #[test]
    fn a_pipe_in_the_place_of_a_namespace_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let (tell, told) = mpsc::channel();
        let named = path.display().to_string();
        // Opened to be read, it waits for whoever writes.
        thread::spawn(move || tell.send(NetNs::open(&named).map(drop).map_err(|error| error.to_string())));
        let answer = told.recv_timeout(HANG).unwrap();
        assert_eq!(answer, Err(format!("{} is not a network namespace", path.display())));
    }

    #[test]
    fn a_namespace_is_opened_over_a_link_and_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("link");
        std::os::unix::fs::symlink("/proc/thread-self/ns/net", &path).unwrap();
        let (opened, here) = (NetNs::at(&path).unwrap(), NetNs::current().unwrap());
        assert_eq!(opened.number().unwrap(), here.number().unwrap());
        assert_eq!(opened.identity().unwrap(), here.identity().unwrap());
    }

    #[test]
    fn what_is_no_network_namespace_is_refused_by_name() {
        for bad in ["", ".", "..", "a/b", "../etc"] {
            assert!(matches!(NetNs::open(bad), Err(NetNsError::Name(_))), "{bad:?} was accepted");
        }
        for other in ["/etc/passwd", "/proc/self/ns/uts"] {
            let error = NetNs::open(other).unwrap_err();
            assert_eq!(error.to_string(), format!("{other} is not a network namespace"));
        }
        let error = NetNs::open("no-such-namespace").unwrap_err();
        assert_eq!(error.to_string(), "cannot open the network namespace /run/netns/no-such-namespace");
    }
}
