//! The unprivileged process: takes in connections that the injector has accepted, and keeps limits. In whose name it asks the injector
//! for something, it says by the number of the connection.
//!
//! What is spoken on a connection is the business of whoever passes `speak` to [`run`].

pub mod advise;
pub mod budget;
pub mod catalogue;
mod connection;
mod diary;
pub mod history;
pub mod keys;
pub mod ledger;
mod nearest;
pub mod notes;
mod old_registry;
pub mod places;
pub mod registry;
pub mod runs;
pub mod schedule;
pub mod search;
pub mod service;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chaos_audit::{Kind, Record};
use futures_util::future::OptionFuture;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use crate::host::log_rates;
use crate::probe::prober::{Prober, Samples, samples};
use crate::request::claim::{Arrival, Claim, next_arrival};
use crate::request::descriptors::next_stream;
use crate::request::wire::Door;
use crate::request::{ApiError, Caller, ErrorCode, WentDown};
use budget::{Budget, Tally};
use connection::Connection;
use history::Retention;
use places::{Admission, Places};
use service::Service;

/// How many who are refused are told why at the same time; who comes beyond is cut off.
const MOST_REFUSED: usize = 32;
/// How long one of them may take to say what it wants, so that the refusal can name it.
const REFUSED_SAYS: Duration = Duration::from_secs(2);
/// How much of that is read.
const REFUSED_LINE: u64 = 64 * 1024;

/// What the server is started with.
#[derive(Debug)]
pub struct ServerOptions {
    /// Where the injector hands over the connections that it has accepted.
    pub arrivals: StdStream,
    /// Our end of the socketpair to the injector.
    pub door: StdStream,
    /// Where the injector hands over the stream to each prober that it starts, the first at once.
    pub prober: StdStream,
    /// The same of runners, if there are any.
    pub runner: Option<StdStream>,
    /// Directory for registry, schedules and history, writable by our user; without one, everything is forgotten at the end.
    pub state_dir: Option<PathBuf>,
    /// How many runs of experiments are kept there.
    pub retention: Retention,
    /// How many experiments may run at once.
    pub most_runs: u32,
    /// The fault that has taken the host down before this boot, if one has.
    pub went_down: Option<WentDown>,
    /// How many connections one user may have.
    pub connections: u32,
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
    /// Connections can no longer be taken in.
    #[error("taking a connection in")]
    Arrivals(#[source] io::Error),
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
    /// What is held for the caller.
    pub tally: Arc<Tally>,
    /// Why the caller may only stop and look, if that is so.
    pub narrow: Option<String>,
}

/// Serves connections with `speak` until the injector is gone, which is the end of the server's work. A connection has its place
/// for as long as `speak` takes.
///
/// # Errors
/// When a socket is of no use, or connections can no longer be taken in.
pub async fn run<F>(
    options: ServerOptions,
    speak: impl Fn(Session) -> F + Send + Sync + Clone + 'static,
) -> Result<(), ServerError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let ServerOptions {
        arrivals,
        door,
        prober,
        runner,
        state_dir,
        retention,
        most_runs,
        went_down,
        connections,
    } = options;
    let inherited = |which| move |source| ServerError::Inherited { which, source };
    door.set_nonblocking(true).map_err(inherited("door to the injector"))?;
    let prober = Takers::new(prober).await.map_err(inherited("socket to the prober"))?;
    let runner = match runner {
        Some(runner) => Some(Takers::new(runner).await.map_err(inherited("socket to the runner"))?),
        None => None,
    };
    let samples = Prober::new(prober.line.clone(), runner.as_ref().map(|runner| runner.line.clone()));
    let arrivals = UnixStream::from_std(arrivals).map_err(inherited("socket for connections"))?;
    let door = Door::new(UnixStream::from_std(door).map_err(inherited("door to the injector"))?);
    let state_dir = state_dir.as_deref();
    let service = Service::new(door, samples, state_dir, retention, most_runs, went_down.as_ref());
    let (budget, refusals) = (Budget::default(), Arc::new(Semaphore::new(MOST_REFUSED)));
    let entrance = Entrance {
        service: service.clone(),
        places: Places::new(connections),
        budget: budget.clone(),
        refusals,
        speak,
    };
    tokio::select! {
        () = service.injector_gone() => {
            tracing::warn!("the injector is gone: ending");
            Ok(())
        }
        error = async {
            // Before anybody can entrust more to it.
            service.keep_entrusted().await;
            take_in(arrivals, entrance).await
        } => Err(error),
        never = budget.give_back() => match never {},
        never = service.ledger().keep() => match never {},
        never = schedule::keep(service.clone()) => match never {},
        never = search::keep(service.clone()) => match never {},
        never = tell_left_out() => match never {},
        never = prober.follow() => match never {},
        Some(never) = OptionFuture::from(runner.map(Takers::follow)) => match never {},
    }
}

/// A line to whichever process the injector has started last to take samples.
struct Takers {
    line: Samples,
    /// Where streams to them come from.
    streams: UnixStream,
}

impl Takers {
    /// Waits for the first, whose stream was handed over before the server was started.
    async fn new(streams: StdStream) -> io::Result<Self> {
        streams.set_nonblocking(true)?;
        let streams = UnixStream::from_std(streams)?;
        let first = next_stream(&streams).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Self { line: samples(first), streams })
    }

    /// Connects the line to each that follows.
    async fn follow(self) -> Infallible {
        loop {
            match next_stream(&self.streams).await {
                Ok(Some(stream)) => self.line.connect(stream),
                // The door has closed as well.
                Ok(None) => std::future::pending().await,
                Err(error) => {
                    tracing::error!(%error, "no stream to who takes samples can be had any more");
                    std::future::pending().await
                }
            }
        }
    }
}

/// Says every now and then what of callers is not in the log.
async fn tell_left_out() -> Infallible {
    loop {
        tokio::time::sleep(log_rates::TOLD).await;
        log_rates::tell_left_out();
    }
}

/// Where connections come in.
#[derive(Clone)]
struct Entrance<S> {
    service: Service,
    places: Places,
    budget: Budget,
    refusals: Arc<Semaphore>,
    speak: S,
}

impl<S, F> Entrance<S>
where
    S: Fn(Session) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    fn admit(&self, arrival: Arrival, connection: Connection) {
        let Arrival { connection: number, caller, refused } = arrival;
        let (reader, writer) = tokio::io::split(connection);
        if let Some(why) = refused {
            return self.refuse(caller, reader, writer, why);
        }
        let tally = self.budget.tally();
        let (place, narrow) = match self.places.admit(caller.owner(), &tally) {
            Admission::Whole(place) => (place, None),
            Admission::Narrow(place, full) => (place, Some(full.to_string())),
            Admission::Refused(full) => return self.refuse(caller, reader, writer, full.to_string()),
        };
        tracing::debug!(%caller, narrow, "connected");
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        let service = self.service.in_the_name_of(Claim::Connection(number));
        let session = Session { service, caller, reader, writer, tally, narrow };
        let spoken = (self.speak)(session);
        tokio::spawn(async move {
            spoken.await;
            drop(place);
            tracing::debug!(%caller, "disconnected");
        });
    }

    /// The caller learns why, as far as it says something and listens.
    fn refuse(
        &self,
        caller: Caller,
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        text: String,
    ) {
        tracing::warn!(%caller, "refused: {text}");
        let (ledger, reason) = (self.service.ledger().clone(), text.clone());
        let Ok(place) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        tokio::spawn(async move {
            let error = ApiError::new(ErrorCode::LimitReached, reason);
            let record = Record { act: "connect".to_owned(), ..Record::default() };
            ledger.put(Kind::Look, ledger::refused(record, &error), caller).await;
            // Who says nothing, or does not listen, is refused all the same.
            let _ = tokio::time::timeout(REFUSED_SAYS, refuse(reader, writer, &text)).await;
            drop(place);
        });
    }
}

/// Answers the first request, since a client shows its user no answer to anything else.
async fn refuse(
    reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    text: &str,
) -> io::Result<()> {
    let mut line = Vec::new();
    BufReader::new(reader.take(REFUSED_LINE)).read_until(b'\n', &mut line).await?;
    let said = serde_json::from_slice::<serde_json::Value>(&line).unwrap_or_default();
    let id = said.get("id").filter(|id| id.is_string() || id.is_number());
    let error = serde_json::json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": text}});
    writer.write_all(format!("{error}\n").as_bytes()).await?;
    writer.shutdown().await
}

/// Takes in what the injector has accepted, until it is gone.
async fn take_in<S, F>(arrivals: UnixStream, entrance: Entrance<S>) -> ServerError
where
    S: Fn(Session) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let (arrival, stream) = match next_arrival(&arrivals).await {
            Ok(Some(arrival)) => arrival,
            // The door has closed as well.
            Ok(None) => return std::future::pending().await,
            Err(error) => return ServerError::Arrivals(error),
        };
        match Connection::new(stream) {
            Ok(connection) => entrance.admit(arrival, connection),
            Err(error) => tracing::warn!(caller = %arrival.caller, %error, "a connection was lost"),
        }
    }
}
