//! A dense flow through a pair that knows of each packet whether it went there and back as without a fault.
//!
//! One thread does both ends: a packet over a veth is mostly delivered before `send` returns, so that looking right
//! after it tells, without another thread that would have to be woken.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::prctl;
use nix::sys::socket::{setsockopt, sockopt};

use crate::kinds::ended::DELAY_MS;
use crate::process::wait_until;
use crate::{Error, NetNs, Pair, Result};

const PROMPT: Duration = Duration::from_millis(DELAY_MS / 2);
/// Aimed at between two packets.
const EVERY: Duration = Duration::from_micros(100);
/// Enough for some seconds.
const MOST: usize = 50_000;
const PATIENCE: Duration = Duration::from_secs(5);
const PORT: u16 = 4998;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Datagrams, and back.
    Echoes,
    /// The same; what comes back twice is not normal.
    Twins,
    /// TCP connections.
    Connections,
}

/// One packet or connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shot {
    /// Just before it was sent.
    pub(super) at: Instant,
    /// Just after it was: whoever sends may have to wait for a processor in between.
    pub(super) sent: Instant,
    /// Whether it went through as without a fault.
    pub(super) normal: bool,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    sent: AtomicUsize,
    normal: AtomicUsize,
}

/// A running flow.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<Vec<Shot>>>>,
}

impl Watch {
    /// Starts.
    ///
    /// # Errors
    /// When sockets cannot be had.
    pub(super) fn start(pair: &Pair, traffic: Traffic) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let told = Arc::clone(&shared);
        let to = SocketAddr::new(Pair::FAR_V4, PORT);
        let failed = || Error::io("bind", to.to_string());
        let thread = match traffic {
            Traffic::Echoes | Traffic::Twins => {
                let (near, far) = (udp(&pair.near, 0), udp(&pair.far, PORT));
                let (near, far) = (near.map_err(failed())?, far.map_err(failed())?);
                std::thread::spawn(move || Ok(echoes(&near, &far, to, traffic, &told)))
            }
            Traffic::Connections => {
                let listener = pair.far.run(|| TcpListener::bind(to)).map_err(failed())?;
                listener.set_nonblocking(true).map_err(failed())?;
                let enter = pair.near.entrance()?;
                std::thread::spawn(move || {
                    enter.enter()?;
                    connections(&listener, to, &told)
                })
            }
        };
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits until so many more have been sent.
    pub(super) fn await_sent(&self, count: usize) -> Result<()> {
        await_more(&self.shared.sent, count, "packets sent")
    }

    /// Waits until so many more were normal.
    pub(super) fn await_normal(&self, count: usize) -> Result<()> {
        await_more(&self.shared.normal, count, "normal packets")
    }

    /// Stops; all in the order of sending.
    pub(super) fn finish(mut self) -> Result<Vec<Shot>> {
        self.shared.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(shots)) => shots.map_err(Error::io("watch", "a flow")),
            _ => Err(Error::Different("the thread of the flow panicked".into())),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// From `since` to the first of those that are normal up to the end. `None` when the last is not.
pub(super) fn normal_from(shots: &[Shot], since: Instant) -> Option<Duration> {
    let later = &shots[shots.partition_point(|shot| shot.at < since)..];
    let first = later.iter().rposition(|shot| !shot.normal).map_or(0, |last| last + 1);
    later.get(first).map(|shot| shot.at - since)
}

/// How far packets were from each other in the middle of cases.
pub(super) fn distance(shots: &[Shot]) -> Duration {
    let mut gaps: Vec<_> = shots.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    gaps.sort();
    gaps.get(gaps.len() / 2).copied().unwrap_or_default()
}

fn await_more(counter: &AtomicUsize, count: usize, what: &str) -> Result<()> {
    let enough = counter.load(Ordering::Relaxed) + count;
    if wait_until(PATIENCE, || counter.load(Ordering::Relaxed) >= enough) {
        return Ok(());
    }
    Err(Error::in_vain(format!("{count} {what}"), PATIENCE))
}

fn udp(namespace: &NetNs, port: u16) -> io::Result<UdpSocket> {
    let socket = namespace.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Until the next is due. A process is woken 50 µs late unless it asks for less (PR_SET_TIMERSLACK of prctl(2)).
fn pause(at: Instant) {
    std::thread::sleep(EVERY.saturating_sub(at.elapsed()));
}

fn echoes(near: &UdpSocket, far: &UdpSocket, to: SocketAddr, traffic: Traffic, told: &Shared) -> Vec<Shot> {
    // Without it the flow is a little less dense.
    let _ = prctl::set_timerslack(1);
    let mut shots: Vec<Shot> = Vec::with_capacity(MOST);
    while !told.stop.load(Ordering::Relaxed) && shots.len() < MOST {
        let at = Instant::now();
        let number = shots.len() as u64;
        // Refused is not normal either.
        let _ = near.send_to(&number.to_be_bytes(), to);
        shots.push(Shot { at, sent: Instant::now(), normal: false });
        turn_and_collect(near, far, traffic, &mut shots, &told.normal);
        told.sent.store(shots.len(), Ordering::Relaxed);
        pause(at);
    }
    // The last ones may be under way.
    let until = Instant::now() + PROMPT;
    while Instant::now() < until && shots.last().is_some_and(|shot| !shot.normal) {
        std::thread::sleep(EVERY);
        turn_and_collect(near, far, traffic, &mut shots, &told.normal);
    }
    shots
}

/// Sends back what has arrived at the far end, and notes what has come back, and how many of it are normal.
fn turn_and_collect(
    near: &UdpSocket,
    far: &UdpSocket,
    traffic: Traffic,
    shots: &mut [Shot],
    normal: &AtomicUsize,
) {
    let mut packet = [0; 8];
    while let Ok((8, from)) = far.recv_from(&mut packet) {
        let _ = far.send_to(&packet, from);
    }
    while let Ok(8) = near.recv(&mut packet) {
        let number = usize::try_from(u64::from_be_bytes(packet)).unwrap_or(usize::MAX);
        let Some(shot) = shots.get_mut(number) else { continue };
        if shot.normal && traffic == Traffic::Twins {
            shot.normal = false;
            normal.fetch_sub(1, Ordering::Relaxed);
        } else if !shot.normal && shot.at.elapsed() < PROMPT {
            shot.normal = true;
            normal.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn connections(listener: &TcpListener, to: SocketAddr, told: &Shared) -> io::Result<Vec<Shot>> {
    // Nothing stays behind: a port that waits for late segments is one that cannot be used again.
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    let _ = prctl::set_timerslack(1);
    let mut shots: Vec<Shot> = Vec::with_capacity(MOST);
    while !told.stop.load(Ordering::Relaxed) && shots.len() < MOST {
        let at = Instant::now();
        let connected = TcpStream::connect_timeout(&to, PROMPT);
        if let Ok(stream) = &connected {
            setsockopt(stream, sockopt::Linger, &at_once)?;
            told.normal.fetch_add(1, Ordering::Relaxed);
        }
        shots.push(Shot { at, sent: Instant::now(), normal: connected.is_ok() });
        drop(connected);
        while listener.accept().is_ok() {}
        told.sent.store(shots.len(), Ordering::Relaxed);
        pause(at);
    }
    Ok(shots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_begins_after_the_last_packet_that_was_not() {
        let start = Instant::now();
        let shots: Vec<Shot> = "...xx.x..."
            .chars()
            .enumerate()
            .map(|(i, c)| (start + EVERY * i as u32, c == '.'))
            .map(|(at, normal)| Shot { at, sent: at, normal })
            .collect();
        assert_eq!(normal_from(&shots, start), Some(EVERY * 7));
        assert_eq!(normal_from(&shots, start + EVERY * 8), Some(Duration::ZERO));
        assert_eq!(normal_from(&shots[..7], start), None);
    }
}
