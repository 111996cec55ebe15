//! The addresses of a host that a fault names, asked for again and again while the fault is active. The prober looks them up
//! ([`crate::request::names`]): no answer of a name server is read here.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::aside::{Party, Places, Purpose};
use crate::kernel::bpf::MOST_NAMED;
use crate::request::names::Resolver;
use crate::request::{ApiError, Caller, ErrorCode};

/// How long a look-up is waited for. As long as three name servers take that are asked twice and do not answer (resolv.conf(5)).
const LONGEST: Duration = Duration::from_secs(30);
/// So many look-ups at once for callers, and beside them for the faults that are active: however much callers ask, those learn where
/// their hosts are. A place is kept until the prober has answered, whether or not somebody waits for it still.
static PLACES: Places = Places::new(16, 4, None, "look-ups of host names");
static PLACES_OF_FAULTS: Places = Places::new(16, 16, None, "look-ups of host names for active faults");

/// What a name stands for, or why that is not known.
pub(super) type Answer = Result<Vec<IpNet>, ApiError>;

/// A host name, and what it stood for.
#[derive(Debug, Clone)]
pub(super) struct Names {
    host: String,
    every: Duration,
    resolver: Resolver,
    /// What the last answer said.
    last: Vec<IpNet>,
    /// What the fault is about.
    aimed: Vec<IpNet>,
}

impl Names {
    /// Of a host that had these addresses when the fault started, to be asked for again `every` so often. `None` when
    /// it is an address itself.
    pub(super) fn new(host: &str, every: Duration, first: &[IpNet], resolver: Resolver) -> Option<Self> {
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let (host, mut last) = (host.to_owned(), first.to_vec());
        last.sort_unstable();
        last.dedup();
        (!is_address).then(|| Self { host, every, resolver, aimed: last.clone(), last })
    }

    /// Its name.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// What the fault is about.
    pub(super) fn aimed(&self) -> Vec<IpNet> {
        self.aimed.clone()
    }

    /// Asks again and again, until nobody wants to know.
    pub(super) fn watch(&self) -> mpsc::Receiver<Answer> {
        let (sender, answers) = mpsc::channel(1);
        let (host, every, resolver) = (self.host.clone(), self.every, self.resolver.clone());
        spawn_local(async move {
            loop {
                tokio::select! {
                    () = sleep(every) => {}
                    () = sender.closed() => return,
                }
                let fault = (Party::Fault, Purpose::Injection);
                let answer = look_up_in(&PLACES_OF_FAULTS, fault, &host, &resolver).await;
                if sender.send(answer).await.is_err() {
                    return;
                }
            }
        });
        answers
    }

    /// What the fault is to be about from now on, if that is something else: what the name stands for, and what it stood
    /// for one answer ago, since callers hold on to an address for a while.
    pub(super) fn take_in(&mut self, mut fresh: Vec<IpNet>) -> Option<Vec<IpNet>> {
        fresh.sort_unstable();
        fresh.dedup();
        let fading = self.last.iter().filter(|old| !fresh.contains(old));
        let mut aimed: Vec<_> = fresh.iter().chain(fading).copied().take(MOST_NAMED as usize).collect();
        aimed.sort_unstable();
        self.last = fresh;
        if aimed == self.aimed {
            return None;
        }
        self.aimed.clone_from(&aimed);
        Some(aimed)
    }
}

/// The addresses of a host, as the prober finds them: name servers may take longer than a lease lasts, or the daemon to end.
///
/// # Errors
/// [`ErrorCode::TargetNotFound`] when the name has none, [`ErrorCode::Unavailable`] when that is not known within [`LONGEST`].
pub(super) async fn lookup(host: &str, resolver: &Resolver, caller: Caller, purpose: Purpose) -> Answer {
    look_up_in(&PLACES, (caller.into(), purpose), host, resolver).await
}

async fn look_up_in(
    places: &'static Places,
    (party, purpose): (Party, Purpose),
    host: &str,
    resolver: &Resolver,
) -> Answer {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![address.to_canonical().into()]);
    }
    let turn = places.turn(party, purpose).await?;
    let (resolver, asked) = (resolver.clone(), host.to_owned());
    let look = spawn_local(async move {
        let answer = resolver.ask(asked).await;
        drop(turn);
        answer
    });
    let unknown = |why: &str| {
        ApiError::new(ErrorCode::Unavailable, format!("target.host: look up {host:?}: {why}"))
            .hint("see whether the name servers of this host answer, and ask again")
    };
    let not_found = |why: &str| {
        ApiError::new(ErrorCode::TargetNotFound, format!("target.host: look up {host:?}: {why}"))
            .hint("`getent ahosts` shows what a name stands for")
    };
    match timeout(LONGEST, look).await {
        Ok(Ok(Ok(Ok(found)))) if found.is_empty() => Err(not_found("it has no address")),
        Ok(Ok(Ok(Ok(found)))) => Ok(found.into_iter().take(MOST_NAMED as usize).map(Into::into).collect()),
        Ok(Ok(Ok(Err(why)))) => Err(not_found(&why)),
        Ok(Ok(Err(unanswered))) => Err(unknown(&unanswered.to_string())),
        Ok(Err(broken)) => Err(unknown(&broken.to_string())),
        Err(_) => Err(unknown(&format!("no answer within {LONGEST:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::task::LocalSet;
    use tokio::time::Instant;

    use super::*;
    use crate::request::names;
    use crate::waits::see;

    /// Names that stand for these at first, and nobody who could be asked.
    fn standing_for(host: &str, first: &[IpNet]) -> Option<Names> {
        Names::new(host, Duration::from_secs(1), first, names::resolver())
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn an_address_that_has_gone_stays_for_one_more_answer() {
        let [a, b, c] = ["10.0.0.1/32", "10.0.0.2/32", "::3/128"];
        let mut names = standing_for("db.example", &nets(&[b, a, b])).unwrap();
        assert_eq!(names.take_in(nets(&[a, b])), None);
        assert_eq!(names.take_in(nets(&[c, a])), Some(nets(&[a, b, c])));
        assert_eq!(names.take_in(nets(&[a, c])), Some(nets(&[a, c])));
        assert_eq!(names.take_in(nets(&[b])), Some(nets(&[a, b, c])));
        assert_eq!(names.take_in(nets(&[b])), Some(nets(&[b])));
        assert!(standing_for("10.0.0.1", &nets(&[a])).is_none());
    }

    #[test]
    fn no_more_addresses_are_taken_than_there_is_room_for_and_those_of_now_first() {
        let many = |second: u8| {
            (0..=255u8).map(move |last| IpNet::from(std::net::IpAddr::from([10, 0, second, last])))
        };
        let mut names = standing_for("db.example", &nets(&["10.9.0.1/32"])).unwrap();
        let aimed = names.take_in(many(1).chain(many(2)).collect()).unwrap();
        assert_eq!(aimed.len(), MOST_NAMED as usize);
        assert!(!aimed.contains(&nets(&["10.9.0.1/32"])[0]));
    }

    /// How many addresses there are, or what is said instead.
    type Expected = Result<usize, (ErrorCode, &'static str)>;

    /// The prober's end: says this of whatever it is asked.
    async fn prober(mut stream: UnixStream, says: Vec<u8>) {
        let mut asked = [0; 4096];
        let read = stream.read(&mut asked).await.unwrap();
        assert!(read > 4);
        let length = u32::try_from(says.len()).unwrap().to_le_bytes();
        // What is too long is not read to its end.
        let _ = stream.write_all(&[&length[..], &says].concat()).await;
    }

    #[tokio::test]
    async fn whatever_the_prober_says_a_name_has_few_addresses_or_the_reason_why_they_are_not_known() {
        let found = |count: usize| {
            let all = (0..count).map(|number| format!("\"fd00::{:x}\"", number % 65536));
            format!("{{\"id\":0,\"what\":{{\"Ok\":[{}]}}}}", all.collect::<Vec<_>>().join(","))
        };
        let of = |text: &str| text.as_bytes().to_vec();
        let cases: [(Vec<u8>, Expected); 8] = [
            (of(&found(3)), Ok(3)),
            (of(&found(1000)), Ok(MOST_NAMED as usize)),
            (of(&found(0)), Err((ErrorCode::TargetNotFound, "no address"))),
            (of(&found(100_000)), Err((ErrorCode::Unavailable, "gone"))),
            (
                of(r#"{"id":0,"what":{"Err":"no such name"}}"#),
                Err((ErrorCode::TargetNotFound, "no such name")),
            ),
            (of(r#"{"id":0,"what":{"Ok":["elsewhere"]}}"#), Err((ErrorCode::Unavailable, "cannot be read"))),
            (of(r#"{"id":7,"what":{"Ok":["10.0.0.1"]}}"#), Err((ErrorCode::Unavailable, "gone"))),
            (of("nonsense"), Err((ErrorCode::Unavailable, "gone"))),
        ];
        for (says, expected) in cases {
            let shown = String::from_utf8_lossy(&says[..says.len().min(60)]).into_owned();
            LocalSet::new()
                .run_until(async {
                    let (ours, theirs) = UnixStream::pair().unwrap();
                    let resolver = names::resolver();
                    resolver.connect(ours);
                    spawn_local(prober(theirs, says));
                    let answer =
                        lookup("db.example", &resolver, Caller::Vsock { cid: 5 }, Purpose::Look).await;
                    match (answer, expected) {
                        (Ok(found), Ok(count)) => assert_eq!(found.len(), count, "{shown}"),
                        (Err(error), Err((code, words))) => {
                            assert!(error.code == code && error.message.contains(words), "{shown}: {error}");
                        }
                        (answer, _) => panic!("{shown}: {answer:?}"),
                    }
                })
                .await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_prober_that_does_not_answer_keeps_the_places_of_who_asks_and_nobody_waiting_for_ever() {
        let (ours, silent) = UnixStream::pair().unwrap();
        let resolver = names::resolver();
        resolver.connect(ours);
        let (one, other) = (Caller::Vsock { cid: 6 }, Caller::Vsock { cid: 7 });
        LocalSet::new()
            .run_until(async {
                let ask = |caller| {
                    let resolver = resolver.clone();
                    spawn_local(async move { lookup("db.example", &resolver, caller, Purpose::Look).await })
                };
                // One leaves at once: its look-up goes on all the same.
                let left = ask(one);
                see(async || resolver.waiting() == Some(1)).await;
                left.abort();
                let since = Instant::now();
                let others: Vec<_> = (0..4).map(|_| ask(one)).collect();
                let mut refused = Vec::new();
                for asked in others {
                    refused.push(asked.await.unwrap().unwrap_err());
                }
                assert!(since.elapsed() <= LONGEST + Duration::from_secs(1), "{:?}", since.elapsed());
                let count = |code| refused.iter().filter(|error| error.code == code).count();
                assert_eq!(
                    (count(ErrorCode::Unavailable), count(ErrorCode::LimitReached)),
                    (3, 1),
                    "{refused:?}"
                );
                let late = ask(other).await.unwrap().unwrap_err();
                assert!(late.message.contains("no answer within 30s"), "{late}");
                assert_eq!(resolver.waiting(), Some(5));
                // And once it is gone nobody waits.
                drop(silent);
                let gone = ask(one).await.unwrap().unwrap_err();
                assert!(gone.code == ErrorCode::Unavailable && gone.message.contains("gone"), "{gone}");
            })
            .await;
    }
}
