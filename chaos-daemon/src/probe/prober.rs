//! The prober: a process that takes samples for the server, which itself may open no connection.
//!
//! What the world answers is read here, where there is neither a caller nor the door to the injector; what callers say
//! is read in the server, where there is no network. The same goes for what others tell by themselves, of alerts. Frames are
//! those of `request/wire.rs`. What only root can see, facts about units, processes and logs, the injector is asked for instead; and
//! programs are run by the runner (`runner.rs`), for which the injector is asked for leave, as it is for the use of a kubeconfig or of a credential.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

use super::alert::webhook::Webhook;
use super::{Check, Probe, Sample, late, reach, runner};
use crate::request::facts::{Facts, Question as Fact};
use crate::request::line::{Line, answer_questions};
use crate::request::wire::{Door, MAX_FRAME};
use crate::request::{ApiError, ErrorCode, Reply, Request};
use crate::spec::Reach;

/// How much longer than its time limit a sample is waited for: whoever takes it keeps to that by itself, unless it stands still.
const GRACE: Duration = Duration::from_secs(2);

/// To a process that takes samples.
pub type Samples = Line<Asked, Sample>;

/// A sample to be taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Of what.
    pub probe: Probe,
    /// Which addresses it may ask.
    pub reach: Reach,
}

/// Takes over a connected stream to such a process. Must be called within a tokio runtime.
pub fn samples(stream: UnixStream) -> Samples {
    Line::new(stream, MAX_FRAME)
}

/// The server's ends. Clones share the streams.
#[derive(Debug, Clone)]
pub struct Prober {
    prober: Samples,
    /// Where programs are run, if any may be.
    runner: Option<Samples>,
    /// Where facts are asked for, in the name of who wants the samples.
    injector: Option<Door>,
}

impl Prober {
    /// Takes samples by the prober, and by the runner if there is one.
    pub fn new(prober: Samples, runner: Option<Samples>) -> Self {
        Self { prober, runner, injector: None }
    }

    /// The same for samples that somebody wants in whose name `door` asks, so that facts behind it are told if the policy allows it.
    #[must_use]
    pub fn asking(&self, door: &Door) -> Self {
        Self { injector: Some(door.clone()), ..self.clone() }
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
            Ok(Ok((taker, reach))) => {
                let patience = patience(probe);
                match timeout(patience, taker.ask(Asked { probe: probe.clone(), reach })).await {
                    Ok(Ok(sample)) => sample,
                    Ok(Err(why)) => failed(&why.to_string()),
                    Err(_) => failed(&late(patience)),
                }
            }
            Ok(Err(refused)) => failed(&refused.in_full()),
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

    /// Who takes samples of this, if they may be taken for the caller, and which addresses they may ask.
    async fn taker(&self, check: &Check) -> Result<(&Samples, Reach), ApiError> {
        let (mut reach, mut is_run) = (Reach::usual(), false);
        for question in needed_leaves(check) {
            // Where nobody decides, the usual addresses may be asked, as by everybody on this host.
            if self.injector.is_none() && matches!(question, Fact::Address(_)) {
                continue;
            }
            is_run |= matches!(question, Fact::Command(_) | Fact::Python(_));
            if let Facts::Address(told) = self.leave(question).await? {
                reach = told;
            }
        }
        let taker = if is_run { self.runs()? } else { &self.prober };
        Ok((taker, reach))
    }

    async fn leave(&self, question: Fact) -> Result<Facts, ApiError> {
        let Some(door) = &self.injector else {
            return Err(ApiError::new(ErrorCode::PolicyDenied, "nobody who may ask for it does"));
        };
        match door.call(Request::Look { question }).await? {
            Reply::Seen(facts) => Ok(facts),
            other => {
                let text = format!("the injector's answer does not fit the question: {other:?}");
                Err(ApiError::new(ErrorCode::Unavailable, text))
            }
        }
    }

    /// Who runs programs.
    fn runs(&self) -> Result<&Samples, ApiError> {
        self.runner.as_ref().ok_or_else(|| {
            ApiError::new(ErrorCode::Unavailable, "the process that runs programs could not be started")
                .hint("the daemon's log says why; its unit has to allow it: RestrictNamespaces=pid (see the documentation)")
        })
    }

    async fn ask(&self, fact: Fact) -> Result<Facts, String> {
        let Some(door) = &self.injector else {
            return Err("nobody who may ask for it does".to_owned());
        };
        match door.call(Request::Look { question: fact }).await {
            Ok(Reply::Seen(facts)) => Ok(facts),
            Ok(other) => Err(format!("the injector's answer does not fit the question: {other:?}")),
            Err(error) => Err(error.in_full()),
        }
    }
}

/// What the policy is asked before a sample of this is taken.
pub fn needed_leaves(check: &Check) -> Vec<Fact> {
    let credential = check.credential().and_then(|(credential, url)| {
        Some(Fact::Credential { path: credential.file()?.to_owned(), url: url.to_owned() })
    });
    let program = check.program().map(|program| Fact::Command(program.path().to_owned()));
    let program = check.python().map(Fact::Python).or(program);
    let kubeconfig = check.kubeconfig().map(|path| Fact::Kubeconfig(path.to_owned()));
    [credential, program, kubeconfig, check.host().map(Fact::Address)].into_iter().flatten().collect()
}

/// How long a sample is waited for. One of a program may first wait for a place, and at last for the end of what it has started.
fn patience(probe: &Probe) -> Duration {
    match probe.check.program().is_some() || probe.check.python().is_some() {
        true => 2 * probe.timeout + 2 * runner::GRACE + GRACE,
        false => probe.timeout + GRACE,
    }
}

/// The prober's end: takes samples, all at once, until the server is gone or says something that is not a question; and listens at
/// `webhook` meanwhile.
pub async fn serve(stream: UnixStream, webhook: Option<Webhook>) {
    let hearsay = webhook.as_ref().map(Webhook::hearsay);
    webhook.map(|webhook| tokio::spawn(webhook.listen()));
    answer_questions(stream, |Asked { probe, reach }| {
        let hearsay = hearsay.clone();
        async move {
            match (probe.hearsay(hearsay.as_ref()), probe.check.program()) {
                (Some(sample), _) => sample,
                (None, None) => reach::within(reach, probe.sample()).await,
                (None, Some(_)) => Sample::failed(format!("{}: no program is run here", probe.check)),
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::probe::command::Command;
    use crate::probe::{Bounds, Check, tcp};
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
        let prober = Prober::new(samples(server), None);
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
        let prober = Prober::new(samples(server), None);
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
        tokio::spawn(answer_questions(other, move |Asked { probe: asked, .. }: Asked| {
            let answer =
                matches!(asked.check, Check::Tcp(tcp::Connection { port: 9, .. })).then(|| deep.clone());
            async move { Sample { ok: true, answer, ..Sample::failed("seen".to_owned()) } }
        }));
        let prober = Prober::new(samples(server), None);
        let unread = prober.sample(&probe("127.0.0.1:9")).await;
        assert!(!unread.ok && unread.detail.contains("cannot be read"), "{unread:?}");
        let read = prober.sample(&probe("127.0.0.1:10")).await;
        assert!(read.ok, "{read:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_prober_that_does_not_answer_is_waited_for_as_long_as_a_sample_may_take_and_no_longer() {
        let (server, _silent) = UnixStream::pair().unwrap();
        let prober = Prober::new(samples(server), None);
        let asked = probe("127.0.0.1:9");
        let begun = Instant::now();
        let sample = timeout(10 * HANG, prober.sample(&asked)).await.unwrap();
        assert!(!sample.ok && sample.detail.contains("no answer within 62s"), "{sample:?}");
        assert!(begun.elapsed() >= asked.timeout + GRACE, "{:?}", begun.elapsed());
        assert_eq!(prober.prober.waiting(), Some(0));
    }

    #[test]
    fn a_sample_of_a_program_is_waited_for_longer_than_the_runner_takes_to_give_it_up() {
        let program = Command::parse(vec!["/bin/true".to_owned()], vec![], None, None).unwrap();
        let asked = Probe { check: Check::Command(program), ..probe("127.0.0.1:9") };
        // For a place, for the sample, and for the end of whoever has taken it.
        assert!(patience(&asked) > asked.timeout + (asked.timeout + runner::GRACE) + runner::GRACE);
    }
}
