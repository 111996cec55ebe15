//! The books of one flow: when each packet was sent, whether it arrived, and whether it should have.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

use crate::error::{Error, Result};
use crate::late::HANG;
use crate::netns::NetNs;
use crate::process::wait_until;

const POLL: Duration = Duration::from_millis(200);
const RECEIVE_BUFFER: usize = 32 << 20;

/// What should become of a packet that is sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// It arrives.
    Through,
    /// It does not.
    Cut,
    /// Something is just changing.
    Either,
}

/// Packets, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// All that were sent.
    pub(super) sent: u64,
    /// Sent while nothing should have kept them, and lost or refused.
    pub(super) lost: u64,
    /// Sent while a fault should have cut them off, and arrived.
    pub(super) leaked: u64,
    /// Of these, let through while a lease may have run out: they are not in `leaked`.
    pub(super) early: u64,
    /// In how many stretches of such doubt any was let through.
    pub(super) stretches: u64,
    /// Arrived twice.
    pub(super) twice: u64,
}

#[derive(Debug)]
struct Packet {
    before: Instant,
    after: Instant,
    refused: bool,
    arrived: u32,
}

#[derive(Debug)]
struct Books {
    packets: Vec<Packet>,
    /// From when on what was expected, in order.
    expected: Vec<(Instant, Expected)>,
    /// From when until when a lease may have run out, because something kept the daemon from renewing it.
    stretches: Vec<(Instant, Instant)>,
}

/// A running flow.
#[derive(Debug)]
pub(super) struct Ledger {
    books: Arc<Mutex<Books>>,
    sending: Arc<AtomicBool>,
    receiving: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Ledger {
    /// Sends to an address in another namespace, one packet an interval.
    pub(super) fn start(from: &NetNs, to: &NetNs, address: SocketAddr, interval: Duration) -> Result<Self> {
        let subject = address.to_string();
        let bind = |namespace: &NetNs, address: SocketAddr| namespace.run(|| UdpSocket::bind(address));
        let far = bind(to, address).map_err(Error::io("bind", subject.clone()))?;
        setsockopt(&far, RcvBufForce, &RECEIVE_BUFFER).map_err(Error::sys("set up", "receiver"))?;
        far.set_read_timeout(Some(POLL)).map_err(Error::io("set up", "receiver"))?;
        let any: SocketAddr = if address.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        let near = bind(from, any).map_err(Error::io("bind", "sender"))?;
        near.connect(address).map_err(Error::io("connect to", subject))?;
        let expected = vec![(Instant::now(), Expected::Through)];
        let books = Arc::new(Mutex::new(Books { packets: Vec::new(), expected, stretches: Vec::new() }));
        let (sending, receiving) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
        let (out, back) =
            ((Arc::clone(&books), Arc::clone(&sending)), (Arc::clone(&books), receiving.clone()));
        let threads = vec![
            std::thread::spawn(move || send(&near, interval, &out.0, &out.1)),
            std::thread::spawn(move || receive(&far, &back.0, &back.1)),
        ];
        Ok(Self { books, sending, receiving, threads })
    }

    /// From `slack` ago on, any packet may be lost or not.
    pub(super) fn doubt(&self, slack: Duration) {
        let now = Instant::now();
        self.expect(now.checked_sub(slack).unwrap_or(now), Expected::Either);
    }

    /// From now on this is expected.
    pub(super) fn settle(&self, expected: Expected) {
        self.expect(Instant::now(), expected);
    }

    /// From a moment on, whatever was said of the time after it, this is expected.
    pub(super) fn expect(&self, from: Instant, expected: Expected) {
        let mut books = lock(&self.books);
        books.expected.retain(|(at, _)| *at < from);
        books.expected.push((from, expected));
    }

    /// From then until now a lease may have run out: a packet that a fault should have cut off is excused.
    pub(super) fn excuse_leaks(&self, since: Instant) {
        lock(&self.books).stretches.push((since, Instant::now()));
    }

    /// The first packet after `since` that arrived: how long after it was sent. `None` when none does in time.
    pub(super) fn first_after(&self, since: Instant, limit: Duration) -> Option<Duration> {
        let mut found = None;
        wait_until(limit, || {
            let books = lock(&self.books);
            let from = books.packets.partition_point(|packet| packet.before < since);
            let first = books.packets[from..].iter().find(|packet| packet.arrived > 0);
            found = first.map(|packet| packet.before - since);
            found.is_some()
        });
        found
    }

    /// Stops, waits for what is under way, and accounts for every packet.
    pub(super) fn close(mut self) -> Account {
        self.sending.store(false, Ordering::Relaxed);
        wait_until(HANG, || lock(&self.books).account().lost == 0);
        self.stop();
        lock(&self.books).account()
    }

    fn stop(&mut self) {
        self.sending.store(false, Ordering::Relaxed);
        self.receiving.store(false, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Books {
    /// What was expected of a packet: something for certain only if it was so during the whole of its sending.
    fn expected(&self, packet: &Packet) -> Expected {
        let at = |moment| self.expected.partition_point(|(from, _)| *from <= moment).saturating_sub(1);
        let (first, last) = (at(packet.before), at(packet.after));
        let first_expected = self.expected[first].1;
        let same = self.expected[first..=last].iter().all(|(_, expected)| *expected == first_expected);
        if same { first_expected } else { Expected::Either }
    }

    fn account(&self) -> Account {
        let mut account = Account { sent: self.packets.len() as u64, ..Account::default() };
        let mut needed = vec![false; self.stretches.len()];
        for packet in &self.packets {
            account.twice += u64::from(packet.arrived > 1);
            match self.expected(packet) {
                Expected::Through => account.lost += u64::from(packet.arrived == 0 || packet.refused),
                Expected::Cut if packet.arrived > 0 => match self.stretch_of(packet) {
                    Some(stretch) => {
                        account.early += 1;
                        needed[stretch] = true;
                    }
                    None => account.leaked += 1,
                },
                Expected::Cut | Expected::Either => {}
            }
        }
        account.stretches = needed.into_iter().filter(|needed| *needed).count() as u64;
        account
    }

    /// The first stretch of doubt in which a packet was under way, if any.
    fn stretch_of(&self, packet: &Packet) -> Option<usize> {
        self.stretches.iter().position(|(from, to)| *from <= packet.after && packet.before <= *to)
    }
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(socket: &UdpSocket, interval: Duration, books: &Mutex<Books>, sending: &AtomicBool) {
    let mut next = Instant::now();
    let mut number = 0_u64;
    while sending.load(Ordering::Relaxed) {
        // On the books before it is sent: it may arrive before `send` returns.
        let before = Instant::now();
        lock(books).packets.push(Packet { before, after: before, refused: false, arrived: 0 });
        let refused = socket.send(&number.to_be_bytes()).is_err();
        if let Some(packet) = lock(books).packets.last_mut() {
            (packet.after, packet.refused) = (Instant::now(), refused);
        }
        number += 1;
        // A sender that was kept from running does not catch up: a burst of what is late is not a steady flow.
        next = (next + interval).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn receive(socket: &UdpSocket, books: &Mutex<Books>, receiving: &AtomicBool) {
    let mut buffer = [0; 8];
    while receiving.load(Ordering::Relaxed) {
        if !matches!(socket.recv(&mut buffer), Ok(8)) {
            continue;
        }
        let number = usize::try_from(u64::from_be_bytes(buffer)).unwrap_or(usize::MAX);
        if let Some(packet) = lock(books).packets.get_mut(number) {
            packet.arrived += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books(expected: &[(u64, Expected)], packets: &[(u64, u64, u32)]) -> Account {
        doubtful(expected, packets, &[])
    }

    fn doubtful(
        expected: &[(u64, Expected)],
        packets: &[(u64, u64, u32)],
        stretches: &[(u64, u64)],
    ) -> Account {
        let start = Instant::now();
        let at = |millis: &u64| start + Duration::from_millis(*millis);
        let packet = |(before, after, arrived): &(u64, u64, u32)| Packet {
            before: at(before),
            after: at(after),
            refused: false,
            arrived: *arrived,
        };
        Books {
            expected: expected.iter().map(|(from, expected)| (at(from), *expected)).collect(),
            packets: packets.iter().map(packet).collect(),
            stretches: stretches.iter().map(|(from, to)| (at(from), at(to))).collect(),
        }
        .account()
    }

    #[test]
    fn a_packet_is_judged_by_what_was_expected_while_it_was_sent() {
        let times =
            [(0, Expected::Through), (10, Expected::Either), (20, Expected::Cut), (30, Expected::Through)];
        let account = |packets: &[(u64, u64, u32)]| books(&times, packets);
        assert_eq!(account(&[(1, 2, 0)]).lost, 1);
        assert_eq!(account(&[(1, 2, 1), (12, 13, 0), (25, 26, 0)]).lost, 0);
        assert_eq!(account(&[(25, 26, 1)]).leaked, 1);
        // Sent across a change: nothing can be said.
        let across = account(&[(9, 11, 0), (19, 21, 1), (5, 35, 0), (29, 31, 0)]);
        assert_eq!((across.lost, across.leaked), (0, 0));
        assert_eq!(account(&[(1, 2, 2)]).twice, 1);
    }

    #[test]
    fn a_packet_that_came_through_is_excused_only_while_a_lease_may_have_run_out() {
        let times = [(0, Expected::Cut), (100, Expected::Through)];
        let stretches = [(10, 20), (30, 40), (110, 120)];
        let account = |packets: &[(u64, u64, u32)]| {
            let Account { leaked, lost, early, stretches, .. } = doubtful(&times, packets, &stretches);
            (leaked, lost, early, stretches)
        };
        assert_eq!(account(&[(15, 16, 0), (35, 36, 0), (50, 51, 0)]), (0, 0, 0, 0), "no excuse was needed");
        assert_eq!(account(&[(5, 6, 1), (15, 16, 1), (16, 17, 1), (25, 26, 1), (38, 41, 1)]), (2, 0, 3, 2));
        assert_eq!(account(&[(115, 116, 0)]), (0, 1, 0, 0), "no lease that runs out loses a packet");
    }

    #[test]
    fn two_stretches_of_the_same_expectation_are_one() {
        let times = [(0, Expected::Cut), (10, Expected::Cut)];
        assert_eq!(books(&times, &[(9, 11, 1)]).leaked, 1);
    }
}
