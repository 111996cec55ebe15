//! What one packet of a bystander costs: CPU time to send it and have it received, and its round trip.
//!
//! Sender and receiver are one thread on one processor. The veth hands a packet over within `send`, in the softirq
//! that the sending thread runs on its own account, so that the thread's CPU clock sees the whole way.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::figures::{micros, percentile};
use super::probe::socket;
use super::targets::BLOCKED;
use crate::{Error, Pair, Result};

const PORT: u16 = 4998;
/// Packets between two looks at the clocks: few enough to fit a socket's buffer.
const BATCH: usize = 64;
/// As in the measurements that the goals come from.
const PAYLOAD: [u8; 18] = [0; 18];

/// What one visit showed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// CPU nanoseconds per packet.
    pub(super) cpu_ns: f64,
    /// Packets per second, while sending.
    pub(super) rate: f64,
    /// Median round trip in microseconds.
    pub(super) round_trip_us: f64,
}

/// A bystander's two sockets.
#[derive(Debug)]
pub(super) struct Bystander {
    near: UdpSocket,
    far: UdpSocket,
}

impl Bystander {
    /// Between the ends of a cable.
    pub(super) fn new(pair: &Pair) -> Result<Self> {
        let (near, far) = (socket(&pair.near, PORT)?, socket(&pair.far, PORT)?);
        let connect = |socket: &UdpSocket, to: std::net::IpAddr| {
            socket.connect((to, PORT)).map_err(Error::io("connect to", to.to_string()))
        };
        connect(&near, Pair::FAR_V4)?;
        connect(&far, Pair::NEAR_V4)?;
        Ok(Self { near, far })
    }

    /// Checks that the bystander passes, and that the target is blocked or not, as said.
    pub(super) fn check(&self, pair: &Pair, blocks: bool) -> Result<()> {
        let (sent, passed) = (5, self.burst(5)?.1);
        if passed != sent {
            return Err(Error::Different(format!("{passed} of {sent} packets of the bystander passed")));
        }
        let to = SocketAddr::from((BLOCKED, PORT + 1));
        let (near, far) = (socket(&pair.near, 0)?, socket(&pair.far, PORT + 1)?);
        for _ in 0..sent {
            // A refusal is a way of not passing.
            let _refused = near.send_to(&PAYLOAD, to);
        }
        std::thread::sleep(Duration::from_millis(5));
        let passed = drain(&far);
        if passed != if blocks { 0 } else { sent } {
            return Err(Error::Different(format!(
                "{passed} of {sent} packets to {BLOCKED} passed, which {} be blocked",
                if blocks { "should" } else { "should not" }
            )));
        }
        Ok(())
    }

    /// Sends, receives, and looks at the clocks for so long.
    pub(super) fn visit(&self, length: Duration) -> Result<Sample> {
        let (mut cpu, mut wall, mut packets) = (Duration::ZERO, Duration::ZERO, 0_usize);
        let started = Instant::now();
        self.burst(BATCH)?;
        while started.elapsed() < length {
            let (clocks, passed) = self.burst(BATCH)?;
            if passed != BATCH {
                return Err(Error::Different(format!("{passed} of {BATCH} packets of the bystander passed")));
            }
            cpu += clocks.cpu;
            wall += clocks.wall;
            packets += BATCH;
        }
        let packets = packets as f64;
        Ok(Sample {
            cpu_ns: cpu.as_nanos() as f64 / packets,
            rate: packets / wall.as_secs_f64(),
            round_trip_us: self.round_trip(length / 3)?,
        })
    }

    fn burst(&self, count: usize) -> Result<(Clocks, usize)> {
        let started = Clocks::now(Instant::now())?;
        let wall = Instant::now();
        for _ in 0..count {
            self.near.send(&PAYLOAD).map_err(Error::io("send", "a bystander's packet"))?;
        }
        let clocks = Clocks { wall: wall.elapsed(), cpu: Clocks::now(wall)?.cpu - started.cpu };
        let mut passed = drain(&self.far);
        if passed < count {
            // Now and then the kernel's own thread delivers.
            std::thread::sleep(Duration::from_millis(2));
            passed += drain(&self.far);
        }
        Ok((clocks, passed))
    }

    fn round_trip(&self, length: Duration) -> Result<f64> {
        let failed = || Error::io("bounce", "a bystander's packet");
        let mut times = Vec::with_capacity(4096);
        let started = Instant::now();
        let mut packet = [0; 32];
        while started.elapsed() < length {
            let sent = Instant::now();
            self.near.send(&PAYLOAD).map_err(failed())?;
            receive(&self.far, &mut packet)?;
            self.far.send(&PAYLOAD).map_err(failed())?;
            receive(&self.near, &mut packet)?;
            times.push(micros(sent.elapsed()));
        }
        Ok(percentile(&times, 0.5))
    }
}

struct Clocks {
    cpu: Duration,
    wall: Duration,
}

impl Clocks {
    fn now(since: Instant) -> Result<Self> {
        let time =
            clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(Error::sys("read", "the CPU clock"))?;
        Ok(Self { cpu: time.into(), wall: since.elapsed() })
    }
}

fn drain(socket: &UdpSocket) -> usize {
    let mut packet = [0; 32];
    std::iter::from_fn(|| socket.recv(&mut packet).ok()).count()
}

/// Without sleeping: nobody else has to run for the packet to come.
fn receive(socket: &UdpSocket, packet: &mut [u8]) -> Result<()> {
    let limit = Instant::now() + Duration::from_millis(200);
    loop {
        match socket.recv(packet) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > limit => {
                return Err(Error::Io {
                    op: "receive",
                    subject: "a bystander's packet".into(),
                    source: error,
                });
            }
            Err(_) => std::thread::yield_now(),
        }
    }
}
