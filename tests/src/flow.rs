//! A bystander: a steady, numbered UDP flow that must not lose, reorder or delay a packet while faults come and go.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

use crate::error::{Error, Result};
use crate::netns::NetNs;

/// How long the receiver goes on listening after the last packet was sent.
const LINGER: Duration = Duration::from_millis(300);
/// How long it waits for a packet at a time.
const LOOK: Duration = Duration::from_millis(20);

/// In bytes as the kernel counts them, some 800 for a packet of ours.
const RECEIVE_BUFFER: usize = 32 << 20;

/// What became of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowReport {
    /// Packets given to the kernel.
    pub sent: u64,
    /// Packets that `send` refused.
    pub refused: u64,
    /// Different packets that arrived.
    pub received: u64,
    /// Packets that arrived again.
    pub duplicated: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
    /// The longest that a packet was under way.
    pub slowest: Duration,
}

impl FlowReport {
    /// Packets given to the kernel that never arrived.
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

/// A running flow.
#[derive(Debug)]
pub struct UdpFlow {
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<(u64, u64)>>,
    receiver: Option<JoinHandle<FlowReport>>,
}

impl UdpFlow {
    /// Starts sending from one namespace to an address in the other, so many packets per second.
    ///
    /// # Errors
    /// When the sockets cannot be had.
    pub fn start(from: &NetNs, to: &NetNs, address: SocketAddr, rate: u32) -> Result<Self> {
        let bind = |namespace: &NetNs, address| {
            namespace.run(|| UdpSocket::bind(address)).map_err(Error::io("bind", format!("{address}")))
        };
        let far = bind(to, address)?;
        // Room for seconds of it: what a busy machine reads late is not lost.
        setsockopt(&far, RcvBufForce, &RECEIVE_BUFFER).map_err(Error::sys("set up", "receiver"))?;
        far.set_read_timeout(Some(LOOK)).map_err(Error::io("set up", "receiver"))?;
        let unspecified: SocketAddr =
            if address.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        let near = bind(from, unspecified)?;
        near.connect(address).map_err(Error::io("connect to", address.to_string()))?;
        let epoch = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let (stop_sender, stop_receiver) = (Arc::clone(&stop), Arc::clone(&stop));
        let interval = Duration::from_secs(1) / rate.max(1);
        Ok(Self {
            stop,
            sender: Some(std::thread::spawn(move || send(&near, epoch, interval, &stop_sender))),
            receiver: Some(std::thread::spawn(move || receive(&far, epoch, &stop_receiver))),
        })
    }

    /// Stops and reports.
    ///
    /// # Errors
    /// When a thread of it panicked.
    pub fn finish(mut self) -> Result<FlowReport> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.take().and_then(|thread| thread.join().ok());
        let report = self.receiver.take().and_then(|thread| thread.join().ok());
        match (sent, report) {
            (Some((sent, refused)), Some(report)) => Ok(FlowReport { sent, refused, ..report }),
            _ => Err(Error::Different("a thread of the flow panicked".into())),
        }
    }
}

impl Drop for UdpFlow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.take().map(JoinHandle::join);
        self.receiver.take().map(JoinHandle::join);
    }
}

fn nanos(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn send(socket: &UdpSocket, epoch: Instant, interval: Duration, stop: &AtomicBool) -> (u64, u64) {
    let (mut sent, mut refused) = (0_u64, 0);
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let mut packet = [0; 16];
        packet[..8].copy_from_slice(&sent.to_be_bytes());
        packet[8..].copy_from_slice(&nanos(epoch).to_be_bytes());
        match socket.send(&packet) {
            Ok(_) => sent += 1,
            Err(_) => refused += 1,
        }
        next += interval;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    (sent, refused)
}

fn receive(socket: &UdpSocket, epoch: Instant, stop: &AtomicBool) -> FlowReport {
    let mut report =
        FlowReport { sent: 0, refused: 0, received: 0, duplicated: 0, reordered: 0, slowest: Duration::ZERO };
    let mut seen = std::collections::HashSet::new();
    let mut highest = None;
    // Counted in looks: who has not had a processor for long has not read yet what is there.
    let mut silence = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) || silence < LINGER {
        let mut packet = [0; 16];
        if !matches!(socket.recv(&mut packet), Ok(16)) {
            silence += LOOK;
            continue;
        }
        silence = Duration::ZERO;
        let (number, sent_at) = packet.split_at(8);
        let number = u64::from_be_bytes(number.try_into().unwrap_or_default());
        let sent_at = u64::from_be_bytes(sent_at.try_into().unwrap_or_default());
        report.slowest = report.slowest.max(Duration::from_nanos(nanos(epoch).saturating_sub(sent_at)));
        if !seen.insert(number) {
            report.duplicated += 1;
            continue;
        }
        report.received += 1;
        if highest.is_some_and(|highest| number < highest) {
            report.reordered += 1;
        }
        highest = highest.max(Some(number));
    }
    report
}
