//! The addresses of a host that a fault names, asked for again and again while the fault is active.

use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::aside::{Party, Places, Purpose};
use crate::kernel::bpf::MOST_NAMED;
use crate::request::{ApiError, Caller};
use crate::target;

/// So many look-ups at once for callers, and beside them for the faults that are active: however much callers ask, those learn where
/// their hosts are.
static PLACES: Places = Places::new(16, 4, None, "look-ups of host names");
static PLACES_OF_FAULTS: Places = Places::new(16, 16, None, "look-ups of host names for active faults");

/// What a name stands for, or why that is not known.
pub(super) type Answer = Result<Vec<IpNet>, ApiError>;

/// A host name, and what it stood for.
#[derive(Debug, Clone)]
pub(super) struct Names {
    host: String,
    every: Duration,
    /// What the last answer said.
    last: Vec<IpNet>,
    /// What the fault is about.
    aimed: Vec<IpNet>,
}

impl Names {
    /// Of a host that had these addresses when the fault started, to be asked for again `every` so often. `None` when
    /// it is an address itself.
    pub(super) fn new(host: &str, every: Duration, first: &[IpNet]) -> Option<Self> {
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let (host, mut last) = (host.to_owned(), first.to_vec());
        last.sort_unstable();
        last.dedup();
        (!is_address).then(|| Self { host, every, aimed: last.clone(), last })
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
        let (host, every) = (self.host.clone(), self.every);
        tokio::task::spawn_local(async move {
            loop {
                tokio::select! {
                    () = sleep(every) => {}
                    () = sender.closed() => return,
                }
                let fault = (Party::Fault, Purpose::Injection);
                let answer = look_up_in(&PLACES_OF_FAULTS, fault, host.clone()).await;
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

/// The addresses of a host, asked for away from the loop: name servers may take longer than a lease lasts, or the daemon to end.
pub(super) async fn lookup(host: String, caller: Caller, purpose: Purpose) -> Answer {
    look_up_in(&PLACES, (caller.into(), purpose), host).await
}

async fn look_up_in(places: &'static Places, who: (Party, Purpose), host: String) -> Answer {
    places.turn(who.0, who.1).await?.run(move || target::addresses_of(&host)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn an_address_that_has_gone_stays_for_one_more_answer() {
        let second = Duration::from_secs(1);
        let [a, b, c] = ["10.0.0.1/32", "10.0.0.2/32", "::3/128"];
        let mut names = Names::new("db.example", second, &nets(&[b, a, b])).unwrap();
        assert_eq!(names.take_in(nets(&[a, b])), None);
        assert_eq!(names.take_in(nets(&[c, a])), Some(nets(&[a, b, c])));
        assert_eq!(names.take_in(nets(&[a, c])), Some(nets(&[a, c])));
        assert_eq!(names.take_in(nets(&[b])), Some(nets(&[a, b, c])));
        assert_eq!(names.take_in(nets(&[b])), Some(nets(&[b])));
        assert!(Names::new("10.0.0.1", second, &nets(&[a])).is_none());
    }

    #[test]
    fn no_more_addresses_are_taken_than_there_is_room_for_and_those_of_now_first() {
        let many = |second: u8| {
            (0..=255u8).map(move |last| IpNet::from(std::net::IpAddr::from([10, 0, second, last])))
        };
        let mut names = Names::new("db.example", Duration::from_secs(1), &nets(&["10.9.0.1/32"])).unwrap();
        let aimed = names.take_in(many(1).chain(many(2)).collect()).unwrap();
        assert_eq!(aimed.len(), MOST_NAMED as usize);
        assert!(!aimed.contains(&nets(&["10.9.0.1/32"])[0]));
    }
}
