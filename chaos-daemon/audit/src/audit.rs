//! The thread that writes: who has something recorded never waits for a disk, unless they ask to.
//!
//! Three threads do it. The first writes; the second syncs what was written, so that the next line need not wait for that; the third tells
//! others, who may not listen. A queue with an end is before the first. When it is full, what does not fit is counted, and
//! the count is the next line.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::head::Head;
use crate::record::{Outcome, Party, Record};
use crate::shares::{Kind, Shares};

/// How many records wait to be written.
const MOST_WAITING: usize = 4096;
/// How many of one party.
const MOST_OF_ONE: usize = 1024;
/// How many are written at once.
const BATCH: usize = 256;
/// How often it is tried again where nothing can be written, and looked what was counted for long enough.
const TICK: Duration = Duration::from_secs(1);
/// The least time between two syncs: half of what an answer may be ahead of one.
const SYNC_PACE: Duration = Duration::from_millis(30);
/// How often others are told where the chain ends.
const HEAD_PACE: Duration = Duration::from_secs(60);
/// How much may wait to be told to others, who may not listen.
const MOST_UNTOLD: usize = 1024;
/// How long it is waited for the last line when it ends.
const LAST: Duration = Duration::from_secs(3);

/// Where records go.
pub trait Sink: Send + 'static {
    /// What was written.
    type Synced: Written;

    /// Writes all of these, or none.
    ///
    /// # Errors
    /// When they cannot be written; then none of them is.
    fn append(&mut self, records: &[Record]) -> io::Result<()>;

    /// What was written so far, to be synced.
    ///
    /// # Errors
    /// When there is no further descriptor.
    fn written(&self) -> io::Result<Self::Synced>;
}

/// What was written, and is to outlive a loss of power.
pub trait Written: Send + 'static {
    /// Waits until it does, and says where the chain ends that does.
    ///
    /// # Errors
    /// When the disk says so.
    fn sync(&self) -> io::Result<Head>;
}

/// Why something is not recorded, so that it must not begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fallen {
    /// It cannot be written.
    #[error("the audit cannot be written: {0}")]
    Unwritten(String),
    /// Too much waits to be written.
    #[error("too much waits to be written to the audit")]
    Full,
    /// This party changes the host too often.
    #[error("the audit has room for 1000 changes of one user at once, and 10 more a minute")]
    TooOften,
}

/// What others are told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum News {
    /// What was written.
    Record(Box<Record>),
    /// Where the chain ends.
    Head(Head),
    /// Nothing can be written any more, and why; or it can again.
    Trouble(Option<String>),
}

/// Who hears of what is written. It may wait.
pub trait Ear: Send + 'static {
    /// A record was written.
    fn record(&mut self, record: &Record);
    /// The chain ends here, and all of it is synced.
    fn head(&mut self, head: Head);
    /// Nothing can be written any more, and why; or it can again.
    fn trouble(&mut self, trouble: Option<&str>);
}

/// How it is written.
pub struct AuditOptions<O, C, E> {
    /// Opens the chain, and says what is to be written first. Tried again as long as it fails.
    pub open: O,
    /// Adds to a record what is to be looked up.
    pub complete: C,
    /// Who is told.
    pub ear: E,
}

type Done = Box<dyn FnOnce(Result<(), Fallen>) + Send>;

struct Item {
    record: Record,
    done: Option<Done>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    of: BTreeMap<Party, usize>,
    /// How many did not fit.
    lost: u64,
    shares: Shares,
    closing: bool,
}

impl Queue {
    /// Whether it fits; where it does not, who waits for it is given back.
    fn push(&mut self, item: Item) -> Result<(), Option<Done>> {
        let of_party = self.of.entry(item.record.party()).or_insert(0);
        if self.items.len() >= MOST_WAITING || *of_party >= MOST_OF_ONE {
            self.lost += 1;
            return Err(item.done);
        }
        *of_party += 1;
        self.items.push_back(item);
        Ok(())
    }

    fn take(&mut self, most: usize) -> Vec<Item> {
        let taken: Vec<_> = self.items.drain(..self.items.len().min(most)).collect();
        for item in &taken {
            if let Some(count) = self.of.get_mut(&item.record.party()) {
                *count -= 1;
            }
        }
        self.of.retain(|_, count| *count > 0);
        taken
    }

    /// Puts back what could not be written. Those who wait for it have been told.
    fn put_back(&mut self, items: Vec<Item>) {
        for item in items.into_iter().rev() {
            *self.of.entry(item.record.party()).or_insert(0) += 1;
            self.items.push_front(item);
        }
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    ring: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The audit, as those see it who have something recorded. Clones are of the same.
#[derive(Clone)]
pub struct Audit {
    shared: Arc<Shared>,
    over: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

impl Audit {
    /// Begins.
    ///
    /// # Errors
    /// When there are no threads to be had.
    pub fn start<S: Sink>(
        options: AuditOptions<
            impl FnMut() -> io::Result<(S, Vec<Record>)> + Send + 'static,
            impl FnMut(&mut Record) + Send + 'static,
            impl Ear,
        >,
    ) -> io::Result<Self> {
        let AuditOptions { open, complete, ear } = options;
        let shared = Arc::new(Shared::default());
        let (say, news) = mpsc::sync_channel(MOST_UNTOLD);
        let (sync, to_sync) = mpsc::channel();
        let (ended, over) = mpsc::channel();
        let name = |what: &str| thread::Builder::new().name(format!("audit {what}"));
        let told = ended.clone();
        name("news").spawn(move || {
            tell(&news, ear);
            drop(told);
        })?;
        let heads = say.clone();
        name("sync").spawn(move || keep_synced(&to_sync, &heads))?;
        let writer =
            Writer { shared: Arc::clone(&shared), sink: None, open, complete, say, sync, trouble: None };
        name("write").spawn(move || {
            writer.write();
            drop(ended);
        })?;
        Ok(Self { shared, over: Arc::new(Mutex::new(over)) })
    }

    /// Has something recorded, and does not wait for it.
    pub fn put(&self, kind: Kind, record: Record) {
        let mut queue = self.shared.lock();
        if let Some(record) = queue.shares.admit(kind, record, Instant::now()) {
            // What does not fit is counted.
            let _lost = queue.push(Item { record, done: None });
            self.shared.ring.notify_one();
        }
    }

    /// Has something recorded that is to begin after that: `done` is told once it is written, or why it is not.
    pub fn before(&self, record: Record, done: impl FnOnce(Result<(), Fallen>) + Send + 'static) {
        let mut queue = self.shared.lock();
        if !queue.shares.may_start(record.party(), Instant::now()) {
            drop(queue);
            return done(Err(Fallen::TooOften));
        }
        let pushed = queue.push(Item { record, done: Some(Box::new(done)) });
        self.shared.ring.notify_one();
        drop(queue);
        if let Err(Some(done)) = pushed {
            done(Err(Fallen::Full));
        }
    }

    /// Writes what waits, and ends; 3 s at most.
    pub fn close(&self) {
        self.shared.lock().closing = true;
        self.shared.ring.notify_one();
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        // Both threads that could be waited for have ended when it is disconnected.
        let _over = over.recv_timeout(LAST);
    }
}

/// The thread that writes.
struct Writer<S: Sink, O, C> {
    shared: Arc<Shared>,
    /// Once it could be opened.
    sink: Option<S>,
    open: O,
    complete: C,
    say: SyncSender<News>,
    sync: mpsc::Sender<S::Synced>,
    /// Why nothing can be written.
    trouble: Option<String>,
}

impl<S, O, C> Writer<S, O, C>
where
    S: Sink,
    O: FnMut() -> io::Result<(S, Vec<Record>)>,
    C: FnMut(&mut Record),
{
    fn write(mut self) {
        loop {
            let (mut items, counted, closing) = self.next();
            for item in &mut items {
                (self.complete)(&mut item.record);
            }
            let of_one = |record| Item { record, done: None };
            items.extend(counted.into_iter().map(of_one));
            if !items.is_empty() {
                self.carry(items, closing);
            } else if self.sink.is_none() {
                // What a crash has left is mended before somebody acts.
                let trouble = self.opened().err().map(|error| error.to_string());
                self.tell_trouble(trouble);
            }
            if closing && (self.trouble.is_some() || self.shared.lock().items.is_empty()) {
                return;
            }
        }
    }

    /// Waits for something to write. While nothing can be written, it waits for somebody who needs to know whether it still is so.
    fn next(&self) -> (Vec<Item>, Vec<Record>, bool) {
        let mut queue = self.shared.lock();
        let is_broken = self.trouble.is_some();
        let waits = |queue: &mut Queue| {
            let urgent = queue.items.iter().any(|item| item.done.is_some());
            !queue.closing && !urgent && (is_broken || queue.items.is_empty())
        };
        if self.sink.is_some() || is_broken {
            let waited = self.shared.ring.wait_timeout_while(queue, TICK, waits);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let closing = queue.closing;
        // Where nothing can be written, whoever waits is told so, wherever in the queue that is.
        let items = queue.take(if closing || is_broken { usize::MAX } else { BATCH });
        let mut counted = queue.shares.due(Instant::now(), closing);
        if queue.lost > 0 {
            counted.push(Record {
                time: Timestamp::now(),
                act: "audit_lost".to_owned(),
                outcome: Outcome::Failed,
                repeats: Some(queue.lost),
                reason: Some("so many acts have no line: more waited to be written than fit".to_owned()),
                ..Record::default()
            });
        }
        (items, counted, closing)
    }

    fn opened(&mut self) -> io::Result<&mut S> {
        if self.sink.is_none() {
            let (mut sink, first) = (self.open)()?;
            sink.append(&first)?;
            self.sink = Some(sink);
            for record in first {
                let _untold = self.say.try_send(News::Record(Box::new(record)));
            }
        }
        self.sink.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn carry(&mut self, items: Vec<Item>, closing: bool) {
        let records: Vec<_> = items.iter().map(|item| item.record.clone()).collect();
        let written = self.opened().and_then(|sink| {
            sink.append(&records)?;
            // What is written is written, also where it cannot be synced yet.
            Ok(sink.written().ok())
        });
        match written {
            Ok(synced) => {
                let lost = records.iter().find(|record| record.act == "audit_lost");
                if let Some(lost) = lost.and_then(|record| record.repeats) {
                    self.shared.lock().lost -= lost;
                }
                items.into_iter().filter_map(|item| item.done).for_each(|done| done(Ok(())));
                if let Some(synced) = synced {
                    // The thread is there for as long as this one.
                    let _ = self.sync.send(synced);
                }
                for record in records {
                    // Who does not listen is not waited for.
                    let _untold = self.say.try_send(News::Record(Box::new(record)));
                }
                self.tell_trouble(None);
            }
            Err(error) => {
                let mut kept = Vec::new();
                for Item { record, done } in items {
                    match done {
                        Some(done) => done(Err(Fallen::Unwritten(error.to_string()))),
                        None if record.act == "audit_lost" || closing => {}
                        None => kept.push(Item { record, done: None }),
                    }
                }
                self.shared.lock().put_back(kept);
                self.tell_trouble(Some(error.to_string()));
            }
        }
    }

    fn tell_trouble(&mut self, trouble: Option<String>) {
        if self.trouble != trouble {
            let _untold = self.say.try_send(News::Trouble(trouble.clone()));
            self.trouble = trouble;
        }
    }
}

/// Syncs the last of what was written, again and again; and says where the chain ends then.
fn keep_synced<W: Written>(to_sync: &mpsc::Receiver<W>, heads: &SyncSender<News>) {
    let mut is_broken = false;
    while let Ok(mut last) = to_sync.recv() {
        while let Ok(later) = to_sync.try_recv() {
            last = later;
        }
        let synced = last.sync();
        if let Ok(head) = synced {
            let _untold = heads.try_send(News::Head(head));
        }
        if synced.is_err() != is_broken {
            is_broken = synced.is_err();
            let trouble = synced.err().map(|error| format!("sync it to the disk: {error}"));
            let _untold = heads.try_send(News::Trouble(trouble));
        }
        thread::sleep(SYNC_PACE);
    }
}

/// Tells others: each record at once, and where the chain ends every minute in which it has grown.
fn tell(news: &mpsc::Receiver<News>, mut ear: impl Ear) {
    let (mut head, mut told) = (None, Instant::now());
    loop {
        let left = HEAD_PACE.saturating_sub(told.elapsed());
        match news.recv_timeout(left) {
            Ok(News::Record(record)) => ear.record(&record),
            Ok(News::Trouble(trouble)) => ear.trouble(trouble.as_deref()),
            Ok(News::Head(last)) => head = Some(last),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                if let Some(head) = head {
                    ear.head(head);
                }
                return;
            }
        }
        if told.elapsed() >= HEAD_PACE {
            told = Instant::now();
            if let Some(head) = head.take() {
                ear.head(head);
            }
        }
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
