//! A connection that the injector has accepted. The injector keeps a descriptor of it, too, to see its end. So it has to be hung up:
//! closing it is not enough for the other end to hear of it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use nix::sys::socket::{Shutdown as Ways, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// A stream, whatever its family: nothing is asked of it but to read and to write. Dropping it hangs up.
#[derive(Debug)]
pub(super) struct Connection(UnixStream);

impl Connection {
    /// Takes a stream over. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub(super) fn new(stream: OwnedFd) -> io::Result<Self> {
        let stream = StdStream::from(stream);
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream).map(Self)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        use std::os::fd::AsRawFd as _;
        // The other end may have done so before.
        let _: Result<(), nix::Error> = shutdown(self.0.as_raw_fd(), Ways::Both);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::waits::HANG;

    #[tokio::test]
    async fn the_other_end_hears_of_the_end_although_somebody_else_has_the_connection_open() {
        let (near, mut far) = StdStream::pair().unwrap();
        let _kept = near.try_clone().unwrap();
        far.set_read_timeout(Some(HANG)).unwrap();
        drop(Connection::new(near.into()).unwrap());
        assert_eq!(far.read(&mut [0; 8]).unwrap(), 0);
    }
}
