//! The prober: a process that takes samples for the server, which itself may open no connection.
//!
//! What the world answers is read here, where there is neither a caller nor the door to the injector; what callers say
//! is read in the server, where there is no network. The same goes for what others tell by themselves, of alerts. Frames are
//! those of `request/wire.rs`. What only root can see, facts about units, processes and logs, the injector is asked for instead; and
//! programs are run by the runner (`runner.rs`), for which the injector is asked for leave, as it is for the use of a kubeconfig or of a credential.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::alert::webhook::Webhook;
use super::{Check, Probe, Sample, late, runner};
use crate::request::facts::{Facts, Question as Fact};
use crate::request::wire::{Door, FrameReader, frame, write_frames};
use crate::request::{ApiError, Caller, ErrorCode, Reply, Request};

/// How much longer than its time limit a sample is waited for: whoever takes it keeps to that by itself, unless it stands still.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
struct Question {
    id: u64,
    probe: Probe,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    id: u64,
    sample: Sample,
}

/// What is left of an answer that cannot be read.
#[derive(Deserialize)]
struct OnlyId {
    id: u64,
}

/// Who waits for a sample, or for why its answer cannot be read.
type Asker = oneshot::Sender<Result<Sample, String>>;

/// Samples that are waited for; `None` once the prober is gone.
type Waiting = Mutex<Option<HashMap<u64, Asker>>>;

/// A place among those who wait, which is given back however the wait ends.
struct Place<'a> {
    waiting: &'a Waiting,
    id: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = lock(self.waiting).as_mut() {
            waiting.remove(&self.id);
        }
    }
}

/// The server's ends. Clones share the streams.
#[derive(Debug, Clone)]
pub struct Prober {
    prober: Line,
    /// Where programs are run, if any may be.
    runner: Option<Line>,
    /// Where facts are asked for, and on whose behalf.
    injector: Option<(Door, Caller)>,
}

/// The server's end of the stream to a process that takes samples. Clones share it.
#[derive(Debug, Clone)]
struct Line {
    next: Arc<AtomicU64>,
    waiting: Arc<Waiting>,
    frames: mpsc::UnboundedSender<Vec<u8>>,
}

impl Prober {
    /// Takes over connected streams: to the prober, and to the runner if there is one. Must be called within a tokio runtime.
    pub fn new(prober: UnixStream, runner: Option<UnixStream>) -> Self {
        Self { prober: Line::new(prober), runner: runner.map(Line::new), injector: None }
    }

    /// The same for samples that `caller` wants, so that facts behind `door` are told if the policy allows it.
    #[must_use]
    pub fn for_caller(&self, door: &Door, caller: Caller) -> Self {
        Self { injector: Some((door.clone(), caller)), ..self.clone() }
    }

    /// Has one sample taken. As [`Probe::sample`], it never fails: a prober that is gone, or does not answer, is what was seen.
    pub async fn sample(&self, probe: &Probe) -> Sample {
        if let Some(fact) = probe.check.question(probe.timeout) {
            let start = Instant::now();
            let answer = timeout(probe.timeout, self.ask(fact)).await;
            let facts = answer.unwrap_or_else(|_| Err(late(probe.timeout)));
            return probe.informed(facts, start.elapsed());
        }
        let failed = |why: &str| Sample::failed(format!("{}: {why}", probe.check));
        match timeout(probe.timeout, self.taker(&probe.check)).await {
            Ok(Ok(taker)) => {
                let patience = patience(probe);
                let sample = timeout(patience, taker.sample(probe)).await;
                sample.unwrap_or_else(|_| failed(&late(patience)))
            }
            Ok(Err(refused)) => failed(&refused.to_string()),
            Err(_) => failed(&late(probe.timeout)),
        }
    }

    /// Whether a sample of this may be taken for the caller, as far as that can be said beforehand.
    ///
    /// # Errors
    /// Why a program is not run, a kubeconfig not used, or a credential not shown.
    pub async fn admit(&self, check: &Check) -> Result<(), ApiError> {
        self.taker(check).await.map(drop)
    }

    /// Who takes samples of this, if they may be taken for the caller.
    async fn taker(&self, check: &Check) -> Result<&Line, ApiError> {
        if let Some((credential, url)) = check.credential()
            && let Some(path) = credential.file()
        {
            self.leave(Fact::Credential { path: path.to_owned(), url: url.to_owned() }).await?;
            return Ok(&self.prober);
        }
        match (check.program(), check.kubeconfig()) {
            (Some(program), _) => {
                self.leave(Fact::Command(program.path().to_owned())).await?;
                self.runs()
            }
            (None, Some(path)) => {
                self.leave(Fact::Kubeconfig(path.to_owned())).await?;
                Ok(&self.prober)
            }
            (None, None) => Ok(&self.prober),
        }
    }

    async fn leave(&self, question: Fact) -> Result<(), ApiError> {
        let Some((door, caller)) = &self.injector else {
            return Err(ApiError::new(ErrorCode::PolicyDenied, "nobody who may ask for it does"));
        };
        door.call(Request::Look { question, caller: *caller }).await.map(drop)
    }

    /// Who runs programs.
    fn runs(&self) -> Result<&Line, ApiError> {
        self.runner.as_ref().ok_or_else(|| {
            ApiError::new(ErrorCode::Unavailable, "the process that runs programs could not be started")
                .hint("the daemon's log says why; its unit has to allow it: RestrictNamespaces=pid (see the documentation)")
        })
    }

    async fn ask(&self, fact: Fact) -> Result<Facts, String> {
        let Some((door, caller)) = &self.injector else {
            return Err("nobody who may ask for it does".to_owned());
        };
        match door.call(Request::Look { question: fact, caller: *caller }).await {
            Ok(Reply::Seen(facts)) => Ok(facts),
            Ok(other) => Err(format!("the injector's answer does not fit the question: {other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Line {
    fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        let (frames, queue) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(write_frames(writer, queue));
        tokio::spawn(read_answers(FrameReader::new(reader), Arc::clone(&waiting)));
        Self { next: Arc::default(), waiting, frames }
    }

    async fn sample(&self, probe: &Probe) -> Sample {
        let failed = |why: &str| Sample::failed(format!("{}: {why}", probe.check));
        let gone = || failed("the process that probes is gone; the daemon starts another");
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        match lock(&self.waiting).as_mut() {
            Some(waiting) => waiting.insert(id, answer),
            None => return gone(),
        };
        let _place = Place { waiting: &self.waiting, id };
        let asked =
            frame(&Question { id, probe: probe.clone() }).ok().and_then(|bytes| self.frames.send(bytes).ok());
        match asked {
            Some(()) => match answered.await {
                Ok(Ok(sample)) => sample,
                Ok(Err(why)) => failed(&why),
                Err(_) => gone(),
            },
            None => gone(),
        }
    }
}

/// How long a sample is waited for. One of a program may first wait for a place, and at last for the end of what it has started.
fn patience(probe: &Probe) -> Duration {
    match probe.check.program() {
        Some(_) => 2 * probe.timeout + 2 * runner::GRACE + GRACE,
        None => probe.timeout + GRACE,
    }
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, Option<HashMap<u64, Asker>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read_answers(mut reader: FrameReader, waiting: Arc<Waiting>) {
    while let Ok(Some(frame)) = reader.next().await {
        let (id, sample) = match understood(&frame) {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, "the prober's answer is not one");
                continue;
            }
        };
        let asker = lock(&waiting).as_mut().and_then(|waiting| waiting.remove(&id));
        if let Some(asker) = asker {
            // One that has left does not want the sample.
            let _ = asker.send(sample);
        }
    }
    lock(&waiting).take();
}

/// Whose answer a frame is, and the sample, or why it cannot be read: what the world says has a part in it, and must not be able
/// to keep other samples from being read. What is passed over to find the number may be nested as deep as it likes.
fn understood(frame: &[u8]) -> Result<(u64, Result<Sample, String>), serde_json::Error> {
    match serde_json::from_slice::<Answer>(frame) {
        Ok(Answer { id, sample }) => Ok((id, Ok(sample))),
        Err(problem) => {
            let OnlyId { id } = serde_json::from_slice(frame)?;
            Ok((id, Err(format!("the answer cannot be read: {problem}"))))
        }
    }
}

/// The prober's end: takes samples, all at once, until the server is gone or says something that is not a question; and listens at
/// `webhook` meanwhile.
pub async fn serve(stream: UnixStream, webhook: Option<Webhook>) {
    let hearsay = webhook.as_ref().map(Webhook::hearsay);
    webhook.map(|webhook| tokio::spawn(webhook.listen()));
    answer_questions(stream, |probe| {
        let hearsay = hearsay.clone();
        async move {
            match (probe.hearsay(hearsay.as_ref()), probe.check.program()) {
                (Some(sample), _) => sample,
                (None, None) => probe.sample().await,
                (None, Some(_)) => Sample::failed(format!("{}: no program is run here", probe.check)),
            }
        }
    })
    .await;
}

/// Has `sample` answer every question of the server.
pub(super) async fn answer_questions<F>(stream: UnixStream, sample: impl Fn(Probe) -> F)
where
    F: Future<Output = Sample> + Send + 'static,
{
    let (reader, writer) = stream.into_split();
    let (frames, queue) = mpsc::unbounded_channel();
    tokio::spawn(write_frames(writer, queue));
    let mut reader = FrameReader::new(reader);
    while let Ok(Some(bytes)) = reader.next().await {
        let Ok(Question { id, probe }) = serde_json::from_slice(&bytes) else {
            tracing::error!("the server's question is not one");
            return;
        };
        let (frames, sample) = (frames.clone(), sample(probe));
        tokio::spawn(async move {
            match frame(&Answer { id, sample: sample.await }) {
                // Fails only when the server is gone.
                Ok(bytes) => drop(frames.send(bytes)),
                Err(error) => tracing::error!(%error, "cannot encode a sample"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::probe::command::Command;
    use crate::probe::{Bounds, Check};
    use crate::waits::HANG;

    fn probe(address: &str) -> Probe {
        let bounds = Bounds::default();
        Probe { check: Check::tcp("tcp", address).unwrap(), timeout: HANG, bounds }
    }

    #[tokio::test]
    async fn samples_are_taken_by_the_other_end_each_for_its_own_question() {
        let (server, other) = UnixStream::pair().unwrap();
        tokio::spawn(serve(other, None));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let prober = Prober::new(server, None);
        // Bound, never listening: refused.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let refused = closed.local_addr().unwrap().to_string();
        let (open, refused) = (probe(&address), probe(&refused));
        let (yes, no) = tokio::join!(prober.sample(&open), prober.sample(&refused));
        assert!(yes.ok, "{yes:?}");
        assert!(!no.ok && no.detail.contains("refused"), "{no:?}");
    }

    #[tokio::test]
    async fn a_prober_that_is_gone_is_a_sample_that_says_so() {
        let (server, other) = UnixStream::pair().unwrap();
        let prober = Prober::new(server, None);
        let before = prober.clone();
        let waiting = tokio::spawn(async move { before.sample(&probe("127.0.0.1:9")).await });
        tokio::task::yield_now().await;
        drop(other);
        for sample in [waiting.await.unwrap(), prober.sample(&probe("127.0.0.1:9")).await] {
            assert!(!sample.ok && sample.detail.contains("gone"), "{sample:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_read_is_one_failed_sample_and_the_next_is_read() {
        let (server, other) = UnixStream::pair().unwrap();
        let deep = (0..150).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        tokio::spawn(answer_questions(other, move |asked| {
            let answer = matches!(asked.check, Check::Tcp { port: 9, .. }).then(|| deep.clone());
            async move { Sample { ok: true, answer, ..Sample::failed("seen".to_owned()) } }
        }));
        let prober = Prober::new(server, None);
        let unread = prober.sample(&probe("127.0.0.1:9")).await;
        assert!(!unread.ok && unread.detail.contains("cannot be read"), "{unread:?}");
        let read = prober.sample(&probe("127.0.0.1:10")).await;
        assert!(read.ok, "{read:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_prober_that_does_not_answer_is_waited_for_as_long_as_a_sample_may_take_and_no_longer() {
        let (server, _silent) = UnixStream::pair().unwrap();
        let prober = Prober::new(server, None);
        let asked = probe("127.0.0.1:9");
        let begun = Instant::now();
        let sample = timeout(10 * HANG, prober.sample(&asked)).await.unwrap();
        assert!(!sample.ok && sample.detail.contains("no answer within 62s"), "{sample:?}");
        assert!(begun.elapsed() >= asked.timeout + GRACE, "{:?}", begun.elapsed());
        assert!(lock(&prober.prober.waiting).as_ref().is_some_and(HashMap::is_empty));
    }

    #[test]
    fn a_sample_of_a_program_is_waited_for_longer_than_the_runner_takes_to_give_it_up() {
        let program = Command::parse(vec!["/bin/true".to_owned()], vec![], None, None).unwrap();
        let asked = Probe { check: Check::Command(program), ..probe("127.0.0.1:9") };
        // For a place, for the sample, and for the end of whoever has taken it.
        assert!(patience(&asked) > asked.timeout + (asked.timeout + runner::GRACE) + runner::GRACE);
    }
}
