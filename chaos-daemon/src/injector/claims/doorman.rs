//! Lets callers in: accepts each connection, asks the kernel who is there, and hands the connection over to the server.
//!
//! It is done on the injector's loop. Accepting, asking and handing over are system calls that never wait, some 20 µs together. No more
//! are taken in at a time than a small part of the loop allows. What a caller says is read by the server alone.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{SockFlag, VsockAddr, accept4, getpeername};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Claims, lock, peer};
use crate::policy::{Role, Who};
use crate::request::Caller;
use crate::request::claim::{Arrival, announce};

/// How often it is looked who has gone.
const SWEEP: Duration = Duration::from_secs(1);
/// So many connections are accepted within [`TURN`]; the next wait in the kernel until it is over.
const MOST_IN_TURN: u32 = 100;
/// See [`MOST_IN_TURN`].
const TURN: Duration = Duration::from_millis(50);
/// How long to wait when nothing can be accepted.
const PAUSE: Duration = Duration::from_millis(200);

/// How many descriptors the injector may have at least, where the hard limit lets it: two for each connection, and its own.
const DESCRIPTORS: u64 = 4096;

/// Makes room for the descriptors of connections, for this process and those that it starts.
///
/// # Errors
/// When the limit cannot be read or set.
pub fn make_room() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    match soft < DESCRIPTORS.min(hard) {
        true => Ok(setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS.min(hard), hard)?),
        false => Ok(()),
    }
}

/// The sockets at which callers connect, listening.
#[derive(Debug, Default)]
pub struct Entrances {
    /// On this host, each with what nobody who comes by it is more than.
    pub unix: Vec<(OwnedFd, Role)>,
    /// A vsock, and the context ids that may connect; nobody else may.
    pub vsock: Option<(OwnedFd, Vec<u32>)>,
}

/// Lets callers in.
#[derive(Debug)]
pub struct Doorman {
    entrances: Vec<Entrance>,
    /// When the turn began, and how many were let in since.
    turn: Mutex<(Instant, u32)>,
}

#[derive(Debug)]
struct Entrance {
    listener: AsyncFd<OwnedFd>,
    ceiling: Role,
    /// Of a vsock, who may connect.
    contexts: Option<Vec<u32>>,
}

impl Doorman {
    /// Takes the sockets over. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When one of them cannot be watched.
    pub fn new(entrances: Entrances) -> io::Result<Self> {
        let Entrances { unix, vsock } = entrances;
        let unix = unix.into_iter().map(|(listener, ceiling)| (listener, ceiling, None));
        let vsock = vsock.map(|(listener, contexts)| (listener, Role::Admin, Some(contexts)));
        let entrances = unix.chain(vsock).map(|(listener, ceiling, contexts)| {
            never_block(&listener)?;
            // SAFETY: the descriptor is its own, and is open for as long as it is watched.
            let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE)? };
            Ok(Entrance { listener, ceiling, contexts })
        });
        let entrances = entrances.collect::<io::Result<_>>()?;
        Ok(Self { entrances, turn: Mutex::new((Instant::now(), 0)) })
    }

    /// Lets callers in, for the server at the other end of `arrivals`, and forgets who has gone; for ever.
    pub async fn keep(&self, claims: &Mutex<Claims>, arrivals: UnixStream) -> Infallible {
        let letting_in = self.entrances.iter().map(|entrance| self.let_in(entrance, claims, &arrivals));
        let sweeping = async {
            loop {
                sleep(SWEEP).await;
                lock(claims).sweep();
            }
        };
        tokio::select! {
            _ = join_all(letting_in) => pending().await,
            never = sweeping => never,
        }
    }

    async fn let_in(&self, entrance: &Entrance, claims: &Mutex<Claims>, arrivals: &UnixStream) {
        loop {
            self.wait_for_turn().await;
            match entrance.accept().await {
                Ok(connection) => {
                    if let Err(error) = entrance.announce(connection, claims, arrivals).await {
                        // Whoever it was has gone, or the server has, which is told otherwise.
                        tracing::debug!(%error, "a connection was not handed over");
                    }
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection now");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Waits until another one may be let in: whoever connects without end is not to keep the loop busy.
    async fn wait_for_turn(&self) {
        let next = {
            let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            if turn.0.elapsed() >= TURN {
                *turn = (Instant::now(), 0);
            }
            turn.1 += 1;
            (turn.1 > MOST_IN_TURN).then(|| turn.0 + TURN)
        };
        if let Some(next) = next {
            sleep_until(next).await;
        }
    }
}

impl Entrance {
    async fn accept(&self) -> io::Result<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let accept = |listener: &OwnedFd| {
            let fd = accept4(listener.as_raw_fd(), flags)?;
            // SAFETY: the kernel has just installed this descriptor for us, and nobody else knows it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        self.listener.async_io(Interest::READABLE, accept).await
    }

    /// Knows who it is from now on, and hands it over. Waits for a server that does not take it.
    async fn announce(
        &self,
        connection: OwnedFd,
        claims: &Mutex<Claims>,
        arrivals: &UnixStream,
    ) -> io::Result<()> {
        let (caller, groups, process) = match &self.contexts {
            None => peer::of_unix(connection.as_fd())?,
            // The context id is all that vsock knows of a caller: peer credentials on it are made up.
            Some(_) => {
                let address: VsockAddr = getpeername(connection.as_raw_fd())?;
                (Caller::Vsock { cid: address.cid() }, Vec::new(), None)
            }
        };
        let known = match (caller, &self.contexts) {
            (Caller::Vsock { cid }, Some(contexts)) if !contexts.contains(&cid) => {
                Err(format!("vsock context {cid} is not allowed to connect: it is not on the list"))
            }
            _ => {
                let who = Who { caller, groups, ceiling: self.ceiling };
                lock(claims).arrive(who, connection.try_clone()?, process)
            }
        };
        let (number, refused) = match known {
            Ok(number) => (number, None),
            Err(refused) => (0, Some(refused)),
        };
        let arrival = Arrival { connection: number, caller, refused };
        let hand_over = || announce(arrivals.as_fd(), &arrival, connection.as_fd());
        let handed_over = arrivals.async_io(Interest::WRITABLE, hand_over).await;
        if handed_over.is_err() {
            lock(claims).leave(number);
        }
        handed_over
    }
}

fn never_block(listener: &OwnedFd) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(listener, FcntlArg::F_GETFL)?);
    fcntl(listener, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// The connection went away before it was accepted.
fn is_passing(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ECONNABORTED | Errno::EINTR | Errno::EAGAIN))
}
