//! What the injector orders and the holder reports: length-prefixed JSON on one socket, with the target's
//! namespace as a passed descriptor.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::fault::Work;
use crate::kernel::bpf::{Capacity, Family};
use crate::request::Evidence;
use crate::request::descriptors::receive_with_fd;
use crate::sabotage::{self, Guard};

/// No frame is longer: 200,000 prefixes take about 8 MiB.
const LONGEST_FRAME: u32 = 32 << 20;

/// The two bounds of a fault's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When it ends, in boot-time nanoseconds.
    pub end_ns: u64,
    /// How long one heartbeat keeps it.
    pub window: Duration,
}

impl Lease {
    /// Until when a heartbeat at `now_ns` keeps the fault: `min(end, now + window)`.
    pub fn renewed_at(&self, now_ns: u64) -> u64 {
        if sabotage::without(Guard::Deadline) {
            return u64::MAX;
        }
        let window = u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX);
        self.end_ns.min(now_ns.saturating_add(window))
    }
}

/// What can be got ready before any work is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preload {
    /// Which programs.
    pub family: Family,
    /// Room in the maps of the programs.
    pub capacity: Capacity,
    /// Peers that are spared whatever the work says.
    pub protected_peers: Vec<IpNet>,
    /// TCP ports of this node that are spared.
    pub protected_tcp_ports: Vec<u16>,
}

/// What the injector orders.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Load programs. The first order of a holder that is started for them, and only then.
    Load(Preload),
    /// Carry out the work. Comes with the descriptor of the target's namespace when the work has one.
    Arm {
        /// What to do.
        work: Box<Work>,
        /// For how long.
        lease: Lease,
    },
    /// Go on for another window.
    Renew,
    /// Be about these peers from now on: a name stands for other addresses than before.
    Aim {
        /// All of them.
        peers: Vec<IpNet>,
    },
    /// Spare these from now on, and no others.
    Spare {
        /// Peers.
        peers: Vec<IpNet>,
        /// TCP ports of this node.
        tcp_ports: Vec<u16>,
    },
    /// Stop, let queued packets out, take everything away, and end.
    Disarm,
}

/// Why what a caller has named could not be reached, as the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unreached {
    /// The caller may not (EACCES, EPERM).
    Denied,
    /// It is not there, or another is in its place.
    Gone,
}

/// What the holder reports.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// Waiting for work, with the programs loaded.
    Ready,
    /// Applied, and read back from the kernel.
    Armed(Evidence),
    /// Applying failed; nothing is left of it in this process.
    Failed {
        /// Operation, subject, cause.
        message: String,
        /// Why what the caller has named could not be reached, if that is the cause.
        #[serde(default)]
        unreached: Option<Unreached>,
    },
    /// The lease was renewed.
    Beat(Evidence),
    /// About the peers of the last order to aim.
    Aimed,
    /// Sparing what the last order to spare says.
    Spared,
    /// Undone.
    Disarmed(Evidence),
}

/// Writes one frame, blocking.
///
/// # Errors
/// When the socket fails or the value is too long.
pub fn send(socket: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    socket.write_all(&frame(message)?)
}

/// The bytes of one frame: length as little-endian u32, then JSON.
///
/// # Errors
/// When the value is too long.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    if length > LONGEST_FRAME {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a frame of {length} bytes is too long"),
        ));
    }
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Reads one frame and the descriptor that came with it, blocking. `None` when the other end has closed.
///
/// # Errors
/// When the socket fails, or what came is not a frame.
pub fn receive<T: DeserializeOwned>(socket: &mut UnixStream) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut length = [0; 4];
    let Some(fd) = receive_header(socket, &mut length)? else { return Ok(None) };
    let length = u32::from_le_bytes(length);
    if length > LONGEST_FRAME {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a frame of {length} bytes is too long"),
        ));
    }
    let mut body = vec![0; length as usize];
    socket.read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&body)?, fd)))
}

fn receive_header(socket: &mut UnixStream, header: &mut [u8; 4]) -> io::Result<Option<Option<OwnedFd>>> {
    let (received, passed) = receive_with_fd(socket.as_fd(), header)?;
    if received == 0 {
        return Ok(None);
    }
    socket.read_exact(&mut header[received..])?;
    Ok(Some(passed))
}

#[cfg(any(test, fuzzing))]
#[path = "protocol_fuzzed.rs"]
pub(crate) mod fuzzed;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::descriptors::send_with_fd;

    #[test]
    fn an_order_arrives_whole_with_its_descriptor() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let bytes = frame(&Order::Renew).unwrap();
        let file = std::fs::File::open("/proc/self/ns/net").unwrap();
        let sent = send_with_fd(near.as_fd(), &bytes, file.as_fd()).unwrap();
        near.write_all(&bytes[sent..]).unwrap();
        let (order, fd): (Order, _) = receive(&mut far).unwrap().unwrap();
        assert!(matches!(order, Order::Renew) && fd.is_some());
        drop(near);
        assert!(receive::<Order>(&mut far).unwrap().is_none());
    }

    #[test]
    fn a_frame_that_claims_to_be_endless_is_refused() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert_eq!(receive::<Order>(&mut far).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_heartbeat_never_outlives_the_end() {
        let lease = Lease { end_ns: 10_000_000_000, window: Duration::from_secs(3) };
        assert_eq!(lease.renewed_at(1_000_000_000), 4_000_000_000);
        assert_eq!(lease.renewed_at(9_000_000_000), 10_000_000_000);
    }
}
