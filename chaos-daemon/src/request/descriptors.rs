//! Descriptors that one process of the daemon gives to another (unix(7), `SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Sends the first bytes of a message together with a descriptor; returns how many were taken.
///
/// # Errors
/// When the socket fails, `WouldBlock` included.
pub fn send_with_fd(socket: BorrowedFd<'_>, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<usize> {
    let fds = [fd.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&fds)];
    Ok(sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], &control, MsgFlags::MSG_NOSIGNAL, None)?)
}

/// Reads some bytes, and the descriptor that came with them; returns how many: 0 when the other end has closed.
///
/// # Errors
/// When the socket fails, `WouldBlock` included.
pub fn receive_with_fd(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = cmsg_space!([i32; 1]);
    let mut slices = [IoSliceMut::new(bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let mut passed = None;
    for item in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = item {
            for fd in fds {
                // SAFETY: the kernel has just installed this descriptor for us, and nobody else knows it.
                passed = Some(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
    Ok((message.bytes, passed))
}

/// Hands a connected stream over, for [`next_stream`] at the other end of `socket`.
///
/// # Errors
/// When the socket fails, `WouldBlock` included.
pub fn hand_over(socket: BorrowedFd<'_>, stream: &StdStream) -> io::Result<()> {
    send_with_fd(socket, &[0], stream.as_fd()).map(drop)
}

/// The next stream that is handed over; `None` once the other end has closed. Must be called within a tokio runtime.
///
/// # Errors
/// When the socket fails, or a byte comes without a stream.
pub async fn next_stream(socket: &UnixStream) -> io::Result<Option<UnixStream>> {
    let receive = || receive_with_fd(socket.as_fd(), &mut [0]);
    let (received, fd) = socket.async_io(Interest::READABLE, receive).await?;
    match (received, fd) {
        (0, None) => Ok(None),
        (_, None) => Err(io::Error::new(io::ErrorKind::InvalidData, "a byte without a descriptor")),
        (_, Some(fd)) => {
            let stream = StdStream::from(fd);
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;
    use crate::waits::HANG;

    #[tokio::test]
    async fn streams_are_handed_over_in_turn_until_the_other_end_closes_or_says_something_else() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        for said in [b"first", b"later"] {
            let (near, far) = StdStream::pair().unwrap();
            hand_over(ours.as_fd(), &far).unwrap();
            drop(far);
            let mut taken = timeout(HANG, next_stream(&theirs)).await.unwrap().unwrap().unwrap();
            taken.write_all(said).await.unwrap();
            drop(taken);
            near.set_nonblocking(true).unwrap();
            let mut heard = Vec::new();
            UnixStream::from_std(near).unwrap().read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, said);
        }
        ours.try_write(b"x").unwrap();
        let bare = timeout(HANG, next_stream(&theirs)).await.unwrap();
        assert!(bare.is_err_and(|error| error.kind() == io::ErrorKind::InvalidData));
        drop(ours);
        assert!(timeout(HANG, next_stream(&theirs)).await.unwrap().unwrap().is_none());
    }
}
