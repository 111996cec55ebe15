//! Connections to a server, held open, or opened and closed at a rate. One thread has them all; each is a task of its own.

mod http;
mod mcp;
mod session;
mod tally;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Interval, interval, sleep, timeout};

use self::session::Session;
use self::tally::{Outcome, Tally};
use super::{Step, Store};
use crate::host::socket_file::SparedSockets;
use crate::request::evidence::Connections;
use crate::request::{Evidence, Shortfall};
use crate::spec::sessions::{Amount, Exchange, MOST_PER_SECOND, Server};

/// How long a step lasts: an order to end is heard in between.
const SLICE: Duration = Duration::from_millis(20);
/// How soon one that was refused or lost is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How many may be opening at once.
const MOST_OPENING: usize = 256;
/// How long the first one may take, without which there is no load: well within the time of an injection.
const FIRST: Duration = Duration::from_millis(1200);
/// How long taking leave of sessions that a server keeps may take at the end: less than a removal waits.
const GOODBYE: Duration = Duration::from_millis(700);

/// What every task knows.
#[derive(Debug)]
struct Terms {
    server: Server,
    limit: Duration,
    spared: SparedSockets,
    tally: Tally,
}

/// The load.
#[derive(Debug)]
pub(super) struct Sessions {
    terms: Arc<Terms>,
    amount: Amount,
    running: Option<Running>,
    /// How many were wanted last.
    wanted: u64,
    /// Whether it is known of all that were wanted at first what has become of them.
    settled: bool,
}

/// The tasks, and what they share. Dropping it closes every connection.
#[derive(Debug)]
struct Running {
    tasks: JoinSet<()>,
    runtime: Runtime,
    over: watch::Sender<bool>,
    gate: Arc<Gate>,
    /// How many tasks that hold one there are.
    slots: u64,
    /// What of the rate is not used yet, and since when.
    credit: f64,
    since: Instant,
}

/// How fast connections are opened, and how many at once.
#[derive(Debug)]
struct Gate {
    pace: Mutex<Interval>,
    opening: Semaphore,
}

impl Sessions {
    /// Opens one connection, to see that somebody is there, and closes it again.
    pub(super) fn open(
        server: &Server,
        amount: Amount,
        limit: Duration,
        spared: &SparedSockets,
    ) -> io::Result<Self> {
        let runtime = runtime()?;
        let place = &server.place;
        let first = runtime.block_on(async { timeout(FIRST, session::connect(place, spared)).await });
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("nobody answered within {FIRST:?}"));
        let first = first.unwrap_or_else(|_elapsed| Err(late()));
        first.map_err(|error| io::Error::new(error.kind(), format!("connect to {place}: {error}")))?;
        let (server, spared) = (server.clone(), spared.clone());
        let terms = Arc::new(Terms { server, limit, spared, tally: Tally::default() });
        Ok(Self { terms, amount, running: None, wanted: 0, settled: false })
    }

    fn running(&mut self) -> io::Result<&mut Running> {
        match &mut self.running {
            Some(running) => Ok(running),
            none => Ok(none.insert(Running::new()?)),
        }
    }
}

impl Sessions {
    /// What has become of the connections until now.
    fn found(&self) -> Connections {
        let (held, connections) = self.terms.tally.evidence();
        let short = matches!(self.amount, Amount::Held(_)) && held < self.goal();
        let why = if self.wanted < self.goal() { Shortfall::Growing } else { Shortfall::Exhausted };
        Connections { things_held: held, connections, shortfall: short.then_some(why) }
    }
}

impl Store for Sessions {
    fn goal(&self) -> u64 {
        let (Amount::Held(most) | Amount::PerSecond(most)) = self.amount;
        most
    }

    fn take(&mut self, wanted: u64) -> io::Result<Step> {
        let (terms, amount) = (Arc::clone(&self.terms), self.amount);
        self.wanted = wanted;
        let running = self.running()?;
        match amount {
            Amount::Held(_) => running.hold(wanted, &terms),
            Amount::PerSecond(_) => running.open(wanted, &terms),
        }
        running.runtime.block_on(async { sleep(SLICE).await });
        let first = if matches!(amount, Amount::Held(_)) { wanted } else { 1 };
        self.settled |= self.terms.tally.concluded() >= first;
        Ok(if self.settled { Step::Acting } else { Step::More })
    }

    fn give_back(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        if matches!(self.terms.server.exchange, Exchange::Mcp { path: Some(_) }) {
            running.take_leave();
        }
    }

    fn held(&mut self) -> Evidence {
        Evidence::Connections(self.found())
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Running {
    fn new() -> io::Result<Self> {
        let runtime = runtime()?;
        let each = Duration::from_secs(1) / u32::try_from(MOST_PER_SECOND).unwrap_or(u32::MAX);
        let pace = runtime.block_on(async { interval(each) });
        let gate = Gate { pace: Mutex::new(pace), opening: Semaphore::new(MOST_OPENING) };
        let (over, _) = watch::channel(false);
        let (gate, since) = (Arc::new(gate), Instant::now());
        Ok(Self { tasks: JoinSet::new(), runtime, over, gate, slots: 0, credit: 0.0, since })
    }

    /// Has so many tasks hold one each.
    fn hold(&mut self, wanted: u64, terms: &Arc<Terms>) {
        while self.slots < wanted {
            let task = hold(Arc::clone(terms), Arc::clone(&self.gate), self.over.subscribe());
            self.spawn(task);
            self.slots += 1;
        }
    }

    /// Opens as many as are due since the last time, unless too many are under way.
    #[expect(clippy::cast_precision_loss, reason = "at most 2,000")]
    fn open(&mut self, rate: u64, terms: &Arc<Terms>) {
        while self.tasks.try_join_next().is_some() {}
        let since = std::mem::replace(&mut self.since, Instant::now());
        // What was prevented is made up for, but no more than a few steps, so that it never bursts.
        let due = rate as f64 * since.elapsed().min(4 * SLICE).as_secs_f64();
        self.credit = (self.credit + due).min(rate as f64);
        while self.credit >= 1.0 && self.tasks.len() < MOST_OPENING {
            self.spawn(open_and_close(Arc::clone(terms)));
            self.credit -= 1.0;
        }
        self.credit = self.credit.fract();
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(task, self.runtime.handle());
    }

    /// Has every task tell the server that its session is over, as far as there is time.
    fn take_leave(&mut self) {
        self.over.send_replace(true);
        let Self { tasks, runtime, .. } = self;
        let all = async { while tasks.join_next().await.is_some() {} };
        // Those that had no time are closed without a word.
        drop(runtime.block_on(async { timeout(GOODBYE, all).await }));
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

/// Holds one connection: opens it, and when it is refused or lost, another in its place.
async fn hold(terms: Arc<Terms>, gate: Arc<Gate>, mut over: watch::Receiver<bool>) {
    loop {
        let opened = tokio::select! {
            opened = enter(&terms, &gate) => opened,
            () = end(&mut over) => return,
        };
        let lost = match opened {
            Ok(mut session) => {
                let _held = terms.tally.hold();
                let lost = tokio::select! {
                    why = session.lost(terms.limit) => Some(why),
                    () = end(&mut over) => None,
                };
                let Some(why) = lost else { return session.take_leave().await };
                why
            }
            Err(why) => why,
        };
        terms.tally.count(lost);
        tokio::select! {
            () = sleep(AGAIN) => {}
            () = end(&mut over) => return,
        }
    }
}

/// Waits until all is over.
async fn end(over: &mut watch::Receiver<bool>) {
    drop(over.wait_for(|over| *over).await);
}

/// Opens one when it is its turn.
async fn enter(terms: &Terms, gate: &Gate) -> Result<Session, Outcome> {
    gate.pace.lock().await.tick().await;
    let _turn = gate.opening.acquire().await;
    Session::open(terms).await
}

async fn open_and_close(terms: Arc<Terms>) {
    match Session::open(&terms).await {
        Ok(mut session) => session.take_leave().await,
        Err(why) => terms.tally.count(why),
    }
}

#[cfg(test)]
mod tests;
