//! A flow of stamped packets, one every 50 µs, that knows of each packet whether it got through.
//!
//! One thread sends and receives: a packet over a veth is delivered before `send` returns, so that looking right
//! after it tells, without a second thread that would have to be woken.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::processors::Processors;
use crate::process::wait_until;
use crate::{Error, NetNs, Pair, Result};

/// Distance between packets: the resolution of what is measured.
const EVERY: Duration = Duration::from_micros(50);
/// No trial takes longer: 30 s of packets.
const MOST_SHOTS: usize = 600_000;
/// How long after the last packet stragglers are waited for.
const LINGER: Duration = Duration::from_millis(20);
/// A fault is active when so many packets in a row are lost: one may be lost by chance.
const RUN: usize = 4;

/// One packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shot {
    at: Instant,
    passed: bool,
}

/// How long so many packets may take, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the flow tells while it runs.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    sent: AtomicUsize,
    passed: AtomicUsize,
}

/// A flow that runs.
#[derive(Debug)]
pub(super) struct Probe {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Vec<Shot>>>>,
}

/// A non-blocking UDP socket in a namespace.
pub(super) fn socket(namespace: &NetNs, port: u16) -> Result<UdpSocket> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    namespace
        .run(|| UdpSocket::bind(address).and_then(|socket| socket.set_nonblocking(true).map(|()| socket)))
        .map_err(Error::io("bind", address.to_string()))
}

impl Probe {
    /// Starts sending from the near side of a pair to `to`, which the far side has.
    pub(super) fn start(pair: &Pair, to: SocketAddr, processors: Processors) -> Result<Self> {
        let far = socket(&pair.far, to.port())?;
        // Not connected: a refusal that was noted for one packet must not be answered to the next.
        let near = socket(&pair.near, 0)?;
        let shared = Arc::new(Shared::default());
        let told = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            processors.keep_to_packets()?;
            Ok(shoot(&near, &far, to, &told))
        });
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits until so many more packets have been sent.
    pub(super) fn await_sent(&self, count: usize) -> Result<()> {
        await_more(&self.shared.sent, count, "packets sent")
    }

    /// Waits until so many more packets have got through.
    pub(super) fn await_passed(&self, count: usize) -> Result<()> {
        await_more(&self.shared.passed, count, "packets through")
    }

    /// Stops; every packet in the order of sending.
    pub(super) fn finish(mut self) -> Result<Vec<Shot>> {
        self.shared.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(shots)) => shots,
            _ => Err(Error::Different("the thread of the probe panicked".into())),
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn await_more(counter: &AtomicUsize, count: usize, what: &str) -> Result<()> {
    let enough = counter.load(Ordering::Relaxed) + count;
    if wait_until(PATIENCE, || counter.load(Ordering::Relaxed) >= enough) {
        return Ok(());
    }
    Err(Error::in_vain(format!("{count} {what}"), PATIENCE))
}

fn shoot(near: &UdpSocket, far: &UdpSocket, to: SocketAddr, told: &Shared) -> Vec<Shot> {
    let mut shots: Vec<Shot> = Vec::with_capacity(8192);
    while !told.stop.load(Ordering::Relaxed) && shots.len() < MOST_SHOTS {
        let at = Instant::now();
        let number = shots.len() as u64;
        shots.push(Shot { at, passed: false });
        // A packet that is refused is one that does not get through.
        let _refused = near.send_to(&number.to_be_bytes(), to);
        told.passed.fetch_add(collect(far, &mut shots), Ordering::Relaxed);
        told.sent.store(shots.len(), Ordering::Relaxed);
        while at.elapsed() < EVERY {
            std::hint::spin_loop();
        }
    }
    std::thread::sleep(LINGER);
    collect(far, &mut shots);
    shots
}

/// Notes what has arrived; returns how many.
fn collect(far: &UdpSocket, shots: &mut [Shot]) -> usize {
    let mut packet = [0; 8];
    let mut count = 0;
    while let Ok(8) = far.recv(&mut packet) {
        let number = usize::try_from(u64::from_be_bytes(packet)).unwrap_or(usize::MAX);
        if let Some(shot) = shots.get_mut(number) {
            shot.passed = true;
            count += 1;
        }
    }
    count
}

/// From `called` to the first packet of those that did not get through any more.
pub(super) fn first_lost(shots: &[Shot], called: Instant) -> Option<Duration> {
    let later = &shots[shots.partition_point(|shot| shot.at < called)..];
    let run = later.windows(RUN).find(|run| run.iter().all(|shot| !shot.passed))?;
    Some(run[0].at - called)
}

/// From `called` to the first packet that got through.
pub(super) fn first_passed(shots: &[Shot], called: Instant) -> Option<Duration> {
    let shot = shots.iter().find(|shot| shot.at >= called && shot.passed)?;
    Some(shot.at - called)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lost_packet_is_chance_and_four_are_the_fault() {
        let start = Instant::now();
        let shots: Vec<Shot> = "..x...xxxxx...."
            .chars()
            .enumerate()
            .map(|(i, c)| Shot { at: start + EVERY * i as u32, passed: c == '.' })
            .collect();
        assert_eq!(first_lost(&shots, start), Some(EVERY * 6));
        assert_eq!(first_passed(&shots, start + EVERY * 8), Some(EVERY * 3));
        assert_eq!(first_lost(&shots, start + EVERY * 11), None);
    }
}
