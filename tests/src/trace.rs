//! Numbered datagrams from one namespace to another, each with the time it took: what a path does to packets, seen by a
//! sender and a receiver of our own.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4RecvErr, RcvBufForce};

use crate::error::{Error, Result};
use crate::netns::NetNs;

/// In bytes as the kernel counts them.
const RECEIVE_BUFFER: usize = 32 << 20;
/// How often the receiver looks whether it is over.
const POLL: Duration = Duration::from_millis(20);
/// Number and time of a packet.
const HEADER: usize = 16;
/// What every byte behind the header is.
const FILLING: u8 = 0x5a;

/// What to send.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Packets.
    pub packets: u64,
    /// Packets per second.
    pub rate: u32,
    /// Bytes of each, without the headers of UDP and below: 16 to 1472.
    pub bytes: usize,
    /// How long to listen on after the last packet was sent, and after the last that arrived.
    pub linger: Duration,
}

/// A packet that arrived.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Its number, from 0.
    pub number: u64,
    /// How long it was under way.
    pub took: Duration,
    /// When it arrived, from the beginning.
    pub at: Duration,
    /// Whether it is as it was sent.
    pub whole: bool,
}

/// What became of the packets.
#[derive(Debug, Default)]
pub struct Trace {
    /// Packets given to the kernel.
    pub sent: u64,
    /// Packets that `send` refused.
    pub refused: u64,
    /// What arrived, in the order in which it did, copies included.
    pub arrivals: Vec<Arrival>,
}

impl Load {
    /// So many packets of 100 bytes, so many per second.
    pub fn of(packets: u64, rate: u32) -> Self {
        Self { packets, rate, bytes: 100, linger: Duration::from_millis(300) }
    }

    /// Sends all of it and says what arrived.
    ///
    /// # Errors
    /// When the sockets cannot be had.
    pub fn send(self, from: &NetNs, to: &NetNs, address: SocketAddr) -> Result<Trace> {
        let bind = |namespace: &NetNs, address| {
            namespace.run(|| UdpSocket::bind(address)).map_err(Error::io("bind", format!("{address}")))
        };
        let far = bind(to, address)?;
        setsockopt(&far, RcvBufForce, &RECEIVE_BUFFER).map_err(Error::sys("set up", "receiver"))?;
        far.set_read_timeout(Some(POLL)).map_err(Error::io("set up", "receiver"))?;
        let near = bind(from, if address.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() })?;
        // Without it UDP keeps to itself that a packet was dropped on its way out.
        if address.is_ipv4() {
            setsockopt(&near, Ipv4RecvErr, &true).map_err(Error::sys("set up", "sender"))?;
        }
        near.connect(address).map_err(Error::io("connect to", address.to_string()))?;
        let (epoch, over) = (Instant::now(), AtomicBool::new(false));
        Ok(std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&far, epoch, self.linger, &over));
            let (sent, refused) = self.send_all(&near, epoch);
            over.store(true, Ordering::Relaxed);
            Trace { sent, refused, arrivals: receiver.join().unwrap_or_default() }
        }))
    }

    fn send_all(self, socket: &UdpSocket, epoch: Instant) -> (u64, u64) {
        let (mut sent, mut refused) = (0, 0);
        let mut packet = vec![FILLING; self.bytes.max(HEADER)];
        for number in 0..self.packets {
            packet[..8].copy_from_slice(&number.to_be_bytes());
            packet[8..HEADER].copy_from_slice(&nanos(epoch).to_be_bytes());
            match socket.send(&packet) {
                Ok(_) => sent += 1,
                Err(_) => refused += 1,
            }
            let next = Duration::from_secs_f64((number + 1) as f64 / f64::from(self.rate));
            std::thread::sleep(next.saturating_sub(epoch.elapsed()));
        }
        (sent, refused)
    }
}

fn nanos(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn receive(socket: &UdpSocket, epoch: Instant, linger: Duration, over: &AtomicBool) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let mut packet = [0; 2048];
    // Counted in looks: who has not had a processor for long has not read yet what is there.
    let mut silence = Duration::ZERO;
    while !over.load(Ordering::Relaxed) || silence < linger {
        match socket.recv(&mut packet) {
            Ok(length) if length >= HEADER => {
                arrivals.push(arrival(&packet[..length], epoch.elapsed()));
                silence = Duration::ZERO;
            }
            Ok(_) => {}
            Err(error) if is_timeout(&error) => silence += POLL,
            Err(_) => break,
        }
    }
    arrivals
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn arrival(packet: &[u8], at: Duration) -> Arrival {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap_or_default());
    let sent_at = Duration::from_nanos(number(&packet[8..HEADER]));
    let whole = packet[HEADER..].iter().all(|byte| *byte == FILLING);
    Arrival { number: number(&packet[..8]), took: at.saturating_sub(sent_at), at, whole }
}

impl Trace {
    /// How many different packets arrived.
    pub fn received(&self) -> u64 {
        let numbers: std::collections::HashSet<_> = self.arrivals.iter().map(|it| it.number).collect();
        numbers.len() as u64
    }

    /// How many arrived again.
    pub fn copies(&self) -> u64 {
        self.arrivals.len() as u64 - self.received()
    }

    /// Share of the sent packets that never arrived.
    pub fn lost(&self) -> f64 {
        1.0 - self.received() as f64 / self.sent as f64
    }

    /// How many were lost in a row, on average.
    pub fn burst(&self) -> f64 {
        let arrived: std::collections::HashSet<_> = self.arrivals.iter().map(|it| it.number).collect();
        let lost = |number: &u64| !arrived.contains(number);
        let beginnings =
            (0..self.sent).filter(|number| lost(number) && (*number == 0 || !lost(&(number - 1))));
        (self.sent - self.received()) as f64 / beginnings.count() as f64
    }

    /// How many arrived before one that was sent earlier.
    pub fn overtakers(&self) -> u64 {
        let mut least = u64::MAX;
        let early = |arrival: &&Arrival| {
            let overtakes = arrival.number > least;
            least = least.min(arrival.number);
            overtakes
        };
        self.arrivals.iter().rev().filter(early).count() as u64
    }

    /// Milliseconds that each arrival took, in the order of sending.
    pub fn times(&self) -> Vec<f64> {
        let mut arrivals = self.arrivals.clone();
        arrivals.sort_by_key(|arrival| arrival.number);
        arrivals.iter().map(|arrival| arrival.took.as_secs_f64() * 1e3).collect()
    }
}

/// The mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The value that this share is below; not a number when there is none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

/// How much each value resembles the one before it, from -1 to 1.
pub fn autocorrelation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let products = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>();
    products / values.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
}

/// Four standard errors of a share that was counted among so many: chance goes further once in 15,000 times.
pub fn tolerance(share: f64, among: u64) -> f64 {
    4.0 * (share * (1.0 - share) / among as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(numbers: &[u64]) -> Trace {
        let arrival = |number: &u64| Arrival {
            number: *number,
            took: Duration::from_millis(*number),
            at: Duration::ZERO,
            whole: true,
        };
        Trace { sent: 10, refused: 0, arrivals: numbers.iter().map(arrival).collect() }
    }

    #[test]
    fn copies_losses_and_overtakers_are_told_apart() {
        let trace = arrived(&[0, 1, 1, 4, 2, 3, 5]);
        assert_eq!((trace.received(), trace.copies(), trace.overtakers()), (6, 1, 1));
        assert!((trace.lost() - 0.4).abs() < 1e-9);
        assert_eq!(trace.times(), [0.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((trace.burst() - 4.0).abs() < 1e-9);
        assert_eq!((mean(&[1.0, 3.0]), quantile(&[3.0, 1.0], 0.5)), (2.0, 3.0));
        assert!(
            autocorrelation(&[1.0, 2.0, 3.0, 4.0]) > 0.2 && autocorrelation(&[1.0, -1.0, 1.0, -1.0]) < -0.7
        );
    }
}
