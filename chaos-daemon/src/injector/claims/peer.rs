//! Who is at the other end of a connection, by the kernel's word (unix(7), vsock(7)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{getsockopt, sockopt};

use crate::request::Caller;

/// Supplementary groups (include/uapi/asm-generic/socket.h).
const SO_PEERGROUPS: libc::c_int = 59;
/// A descriptor of the process, from Linux 6.5 on (the same file).
const SO_PEERPIDFD: libc::c_int = 77;
/// The most groups that anybody has (`NGROUPS_MAX` in include/uapi/linux/limits.h).
const MOST_GROUPS: usize = 65_536;
/// How many are asked for at first.
const FEW_GROUPS: usize = 64;

/// Who connected to a unix socket, with the supplementary groups that the process had then, and the process itself where the kernel
/// gives it.
pub(super) fn of_unix(socket: BorrowedFd<'_>) -> io::Result<(Caller, Vec<u32>, Option<OwnedFd>)> {
    let peer = getsockopt(&socket, sockopt::PeerCredentials)?;
    let caller = Caller::Unix { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() };
    Ok((caller, groups(socket)?, process(socket)))
}

fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; FEW_GROUPS];
    loop {
        let mut bytes =
            libc::socklen_t::try_from(size_of_val(groups.as_slice())).map_err(io::Error::other)?;
        // SAFETY: the kernel writes so many bytes at most, and how many it has written, or would have, to `bytes`.
        let asked = unsafe {
            let (list, length) = (groups.as_mut_ptr().cast(), &raw mut bytes);
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERGROUPS, list, length)
        };
        let there = bytes as usize / size_of::<u32>();
        if asked == 0 {
            groups.truncate(there);
            return Ok(groups);
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ERANGE) && groups.len() < there.min(MOST_GROUPS) => {
                groups.resize(there.min(MOST_GROUPS), 0);
            }
            error => return Err(error),
        }
    }
}

/// None of one that was collected already, and on kernels that do not know it.
fn process(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one number, for which there is room.
    let asked = unsafe {
        let (place, length) = ((&raw mut fd).cast(), &raw mut bytes);
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, place, length)
    };
    // SAFETY: the kernel has just installed this descriptor for us, and nobody else knows it.
    (asked == 0 && fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use nix::unistd::{getgid, getgroups, getuid};

    use super::*;

    #[test]
    fn the_other_end_is_this_process_with_its_groups() {
        let (near, _far) = UnixStream::pair().unwrap();
        let (caller, groups, _process) = of_unix(near.as_fd()).unwrap();
        let pid = std::process::id().cast_signed();
        assert_eq!(caller, Caller::Unix { uid: getuid().as_raw(), gid: getgid().as_raw(), pid });
        let own: Vec<u32> = getgroups().unwrap().into_iter().map(nix::unistd::Gid::as_raw).collect();
        assert_eq!(groups, own);
    }
}
