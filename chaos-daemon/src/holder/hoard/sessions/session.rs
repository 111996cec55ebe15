//! One connection: opened, asked what is to be asked, and then watched until the server ends it.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpSocket, UnixStream};
use tokio::time::timeout;

use super::Terms;
use super::http::Http;
use super::mcp::{Lines, Posts};
use super::tally::{Outcome, Tally, Timed};
use crate::host::socket_file::{SocketFile, SparedSockets};
use crate::spec::sessions::{Exchange, Place};

/// A connected socket.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection with all its answers.
pub(super) enum Session {
    /// Nothing was said.
    Plain {
        stream: Box<dyn Stream>,
        since: Instant,
    },
    Http(Http),
    Posts(Posts),
    Lines(Lines),
}

impl Session {
    /// Opens one, and has its answers.
    pub(super) async fn open(terms: &Terms) -> Result<Self, Outcome> {
        let (tally, place, since) = (&terms.tally, &terms.server.place, Instant::now());
        let stream =
            within(terms.limit, async { connect(place, &terms.spared).await.map_err(|e| opening(&e)) });
        let stream = stream.await?;
        tally.took(Timed::Connect, since.elapsed());
        let session = match &terms.server.exchange {
            Exchange::Nothing => Self::Plain { stream, since },
            Exchange::Http { path } => {
                let mut http = Http::new(stream, place).await?;
                within(terms.limit, http.get(path, tally)).await?;
                Self::Http(http)
            }
            Exchange::Mcp { path: Some(path) } => {
                let http = Http::new(stream, place).await?;
                Self::Posts(Posts::open(http, path, terms).await?)
            }
            Exchange::Mcp { path: None } => Self::Lines(Lines::open(stream, terms).await?),
        };
        tally.opened();
        Ok(session)
    }

    /// Waits until the server ends it.
    pub(super) async fn lost(&mut self, limit: Duration) -> Outcome {
        match self {
            Self::Plain { stream, since } => plain_end(stream, *since, limit).await,
            Self::Http(http) => http.closed().await,
            Self::Posts(posts) => posts.closed().await,
            Self::Lines(lines) => lines.closed().await,
        }
    }

    /// Tells the server that it is over, where the server would keep something of it.
    pub(super) async fn take_leave(&mut self) {
        if let Self::Posts(posts) = self {
            posts.take_leave().await;
        }
    }
}

/// Of one on which nothing is said: who closes it at once, without a byte, has not served it.
async fn plain_end(stream: &mut Box<dyn Stream>, since: Instant, limit: Duration) -> Outcome {
    let mut buffer = [0; 4096];
    let mut heard = false;
    loop {
        let read = stream.read(&mut buffer).await;
        let at_once = !heard && since.elapsed() < limit;
        match read {
            Ok(0) if at_once => return Outcome::Empty,
            Err(_) if at_once => return Outcome::Refused,
            Ok(0) | Err(_) => return Outcome::Lost,
            Ok(_) => heard = true,
        }
    }
}

/// An answer that is waited for no longer than this.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, Outcome>>,
) -> Result<T, Outcome> {
    timeout(limit, answer).await.unwrap_or(Err(Outcome::TimedOut))
}

/// Connects. However such a TCP connection is closed, also by SIGKILL, the kernel forgets it at once: no port of this host
/// is kept for a minute (`TIME_WAIT`) after the fault.
pub(super) async fn connect(place: &Place, spared: &SparedSockets) -> io::Result<Box<dyn Stream>> {
    let address = match place {
        Place::Unix(path) => return connect_unix(path, spared).await,
        Place::Tcp(address) => address,
    };
    // OPENS: the caller | the caller | an address of this host in its own network namespace, or of `load_cidrs`; anybody may
    // connect there
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_zero_linger()?;
    let stream = socket.connect(*address).await?;
    // A port at which nobody listens may be chosen as our own, and then TCP connects to itself.
    if stream.local_addr()? == *address {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    Ok(Box::new(stream))
}

/// Connects to the file that is there now, if it is none of those that are spared: a server that starts again makes another, and
/// whoever may write to its folder puts there what he likes.
async fn connect_unix(path: &Path, spared: &SparedSockets) -> io::Result<Box<dyn Stream>> {
    let socket = SocketFile::find(path)?;
    if let Some(what) = spared.what(&socket)? {
        return Err(io::Error::new(ErrorKind::ConnectionRefused, format!("it is {what}")));
    }
    // OPENS: the caller; whoever may write to the folder | the caller | the very file that was looked at, by the holder, who is
    // the caller by now: the kernel refuses what it would refuse the caller
    Ok(Box::new(UnixStream::connect(socket.path()).await?))
}

/// Why one did not open.
fn opening(error: &io::Error) -> Outcome {
    match error.kind() {
        ErrorKind::TimedOut => Outcome::TimedOut,
        // A unix socket whose queue is full says "try again".
        ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::WouldBlock
        | ErrorKind::NotFound
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable => Outcome::Refused,
        _ => Outcome::Unopened,
    }
}

/// Why no answer came on one that had opened.
pub(super) fn answering(error: &io::Error) -> Outcome {
    match error.kind() {
        ErrorKind::UnexpectedEof => Outcome::Empty,
        ErrorKind::TimedOut => Outcome::TimedOut,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => Outcome::Refused,
        _ => Outcome::ErrorAnswer,
    }
}

/// How long something took, on the books.
pub(super) async fn timed<T>(
    tally: &Tally,
    what: Timed,
    work: impl Future<Output = Result<T, Outcome>>,
) -> Result<T, Outcome> {
    let start = Instant::now();
    let done = work.await?;
    tally.took(what, start.elapsed());
    Ok(done)
}
