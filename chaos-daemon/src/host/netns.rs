//! Network namespaces, pinned by a file descriptor: while a [`NetNs`] lives, its namespace cannot be mistaken
//! for another one that got the same name, nor go away.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};

/// Where `ip netns` keeps the namespaces that have a name (ip-netns(8)).
const NAMED: &str = "/run/netns";

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
        Self::open_file(&Path::new(NAMED).join(name_or_path))
    }

    /// The namespace the calling thread is in.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn current() -> Result<Self, NetNsError> {
        Self::open_file(Path::new("/proc/thread-self/ns/net"))
    }

    /// Takes a descriptor that somebody else opened.
    ///
    /// # Errors
    /// When it is no network namespace.
    pub fn of_fd(fd: OwnedFd) -> Result<Self, NetNsError> {
        let subject = format!("file descriptor {}", fd.as_raw_fd());
        Self::checked(fd, subject)
    }

    fn open_file(path: &Path) -> Result<Self, NetNsError> {
        let file =
            File::open(path).map_err(|source| NetNsError::Open { path: path.to_path_buf(), source })?;
        Self::checked(file.into(), path.display().to_string())
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
        let stat = fstat(&self.fd).map_err(NetNsError::Identify)?;
        let cookie = self.inside(|| Ok(own_cookie()?))?;
        Ok(*self.identity.get_or_init(|| NetNsIdentity { dev: stat.st_dev, inode: stat.st_ino, cookie }))
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

/// The cookie of the namespace the calling thread is in.
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
    Errno::result(result).map(|_| cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

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
