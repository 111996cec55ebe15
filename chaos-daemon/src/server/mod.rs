//! The unprivileged process: takes connections in, knows by the kernel's word who is there, and keeps limits.
//!
//! What is spoken on a connection is the business of whoever passes `speak` to [`run`].

pub mod catalogue;
pub mod history;
pub mod keys;
pub mod notes;
pub mod registry;
pub mod runs;
pub mod schedule;
pub mod service;

use std::future::Future;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_vsock::VsockListener;

use crate::experiment::Grammar;
use crate::probe::prober::Prober;
use crate::request::wire::Door;
use crate::request::{Caller, WentDown};
use history::Retention;
use service::Service;

/// The most connections at once. One counts until all that was asked for on it has ended.
pub const MOST_CONNECTIONS: usize = 16;

/// What the server is started with.
#[derive(Debug)]
pub struct ServerOptions {
    /// The listening socket.
    pub listener: StdListener,
    /// Our end of the socketpair to the injector.
    pub door: StdStream,
    /// Our end of the socketpair to the prober.
    pub prober: StdStream,
    /// Our end of the socketpair to the runner, if there is one.
    pub runner: Option<StdStream>,
    /// Directory for registry, schedules and history, writable by our user; without one, everything is forgotten at the end.
    pub state_dir: Option<PathBuf>,
    /// How many runs of experiments are kept there.
    pub retention: Retention,
    /// How many experiments may run at once.
    pub most_runs: u32,
    /// The fault that has taken the host down before this boot, if one has.
    pub went_down: Option<WentDown>,
    /// A vsock to listen on as well.
    pub vsock: Option<VsockOptions>,
}

/// A vsock to listen on.
#[derive(Debug)]
pub struct VsockOptions {
    /// The listening socket.
    pub listener: OwnedFd,
    /// Context ids that may connect; nobody else may.
    pub allowed_cids: Vec<u32>,
}

/// Why the server could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An inherited socket is of no use.
    #[error("taking over the inherited {which}")]
    Inherited {
        /// Which of them.
        which: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Connections can no longer be accepted.
    #[error("accepting a connection")]
    Accept(#[source] io::Error),
}

/// One connection, ready to be spoken on.
pub struct Session {
    /// What the daemon does.
    pub service: Service,
    /// Who is there.
    pub caller: Caller,
    /// What the caller says.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What is said to the caller.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
}

/// Serves connections with `speak` until the injector is gone, which is the end of the server's work. A connection has its place
/// for as long as `speak` takes.
///
/// # Errors
/// When a socket is of no use, or connections can no longer be accepted.
pub async fn run<F>(
    options: ServerOptions,
    grammar: Grammar,
    speak: impl Fn(Session) -> F + Send + Sync + Clone + 'static,
) -> Result<(), ServerError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let ServerOptions { listener, door, prober, runner, state_dir, retention, most_runs, went_down, vsock } =
        options;
    let inherited = |which| move |source| ServerError::Inherited { which, source };
    let vsock = vsock.map(take_vsock);
    listener.set_nonblocking(true).map_err(inherited("listening socket"))?;
    door.set_nonblocking(true).map_err(inherited("door to the injector"))?;
    let stream = |stream: StdStream, which| {
        stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)).map_err(inherited(which))
    };
    let runner = runner.map(|runner| stream(runner, "socket to the runner")).transpose()?;
    let prober = Prober::new(stream(prober, "socket to the prober")?, runner);
    let listener = UnixListener::from_std(listener).map_err(inherited("listening socket"))?;
    let door = Door::new(UnixStream::from_std(door).map_err(inherited("door to the injector"))?);
    let state_dir = state_dir.as_deref();
    let service = Service::new(door, prober, state_dir, retention, most_runs, went_down.as_ref(), grammar);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let entrance = Entrance { service: service.clone(), places, speak };
    tokio::select! {
        () = service.injector_gone() => {
            tracing::warn!("the injector is gone: ending");
            Ok(())
        }
        error = accept_unix(listener, entrance.clone()) => Err(error),
        error = accept_vsock(vsock, entrance) => Err(error),
        never = schedule::keep(service.clone()) => match never {},
    }
}

/// Where connections come in.
#[derive(Clone)]
struct Entrance<S> {
    service: Service,
    places: Arc<Semaphore>,
    speak: S,
}

impl<S, F> Entrance<S>
where
    S: Fn(Session) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    fn admit(
        &self,
        caller: Caller,
        reader: impl AsyncRead + Send + Unpin + 'static,
        mut writer: impl AsyncWrite + Send + Unpin + 'static,
    ) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            tracing::warn!(?caller, "refused: {MOST_CONNECTIONS} connections are open");
            let text = format!(
                "{MOST_CONNECTIONS} connections are open, or have left calls that go on, which is the most at once: close \
                 one"
            );
            tokio::spawn(async move { refuse(&mut writer, &text).await });
            return;
        };
        tracing::debug!(?caller, "connected");
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        let session = Session { service: self.service.clone(), caller, reader, writer };
        let spoken = (self.speak)(session);
        tokio::spawn(async move {
            spoken.await;
            drop(place);
            tracing::debug!(?caller, "disconnected");
        });
    }
}

/// The caller learns why, as far as it still listens.
async fn refuse(writer: &mut (impl AsyncWrite + Unpin), text: &str) {
    let error = serde_json::json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": text}});
    let said = tokio::time::timeout(Duration::from_secs(1), async {
        writer.write_all(format!("{error}\n").as_bytes()).await?;
        writer.shutdown().await
    });
    // A caller that does not listen is refused all the same.
    let _ = said.await;
}

async fn accept_unix<S, F>(listener: UnixListener, entrance: Entrance<S>) -> ServerError
where
    S: Fn(Session) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) if is_passing(&error) => continue,
            Err(error) if is_exhaustion(&error) => {
                tracing::warn!(%error, "cannot accept a connection now");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
            Err(error) => return ServerError::Accept(error),
        };
        match stream.peer_cred() {
            Ok(peer) => {
                let pid = peer.pid().unwrap_or(0);
                let (reader, writer) = stream.into_split();
                entrance.admit(Caller::Unix { uid: peer.uid(), gid: peer.gid(), pid }, reader, writer);
            }
            Err(error) => tracing::warn!(%error, "refused: the kernel does not say who connected"),
        }
    }
}

/// The listening vsock as tokio knows it, which makes it nonblocking, and who may connect to it.
fn take_vsock(options: VsockOptions) -> (VsockListener, Vec<u32>) {
    let VsockOptions { listener, allowed_cids } = options;
    // SAFETY: an open descriptor, and its ownership goes along.
    (unsafe { VsockListener::from_raw_fd(listener.into_raw_fd()) }, allowed_cids)
}

/// Without a vsock to listen on, this waits for ever.
async fn accept_vsock<S, F>(vsock: Option<(VsockListener, Vec<u32>)>, entrance: Entrance<S>) -> ServerError
where
    S: Fn(Session) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let Some((listener, allowed_cids)) = vsock else { return std::future::pending().await };
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(connection) => connection,
            Err(error) if is_passing(&error) => continue,
            Err(error) if is_exhaustion(&error) => {
                tracing::warn!(%error, "cannot accept a vsock connection now");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
            Err(error) => return ServerError::Accept(error),
        };
        // The context id is all that vsock knows of a caller: peer credentials on it are made up.
        let cid = address.cid();
        let (reader, mut writer) = tokio::io::split(stream);
        if allowed_cids.contains(&cid) {
            entrance.admit(Caller::Vsock { cid }, reader, writer);
        } else {
            tracing::warn!(cid, "refused: this vsock context is not on the list");
            let text = format!("vsock context {cid} is not allowed to connect");
            tokio::spawn(async move { refuse(&mut writer, &text).await });
        }
    }
}

/// The connection went away before it was accepted.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// Too many files are open, here or on the host; that may end.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(nix::errno::Errno::from_raw),
        Some(nix::errno::Errno::EMFILE | nix::errno::Errno::ENFILE | nix::errno::Errno::ENOMEM)
    )
}
