//! In whose name the server asks: it names a connection, or something that somebody who was connected has begun. Who that is, the
//! injector alone knows, which has accepted the connection and given out the number.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::Caller;
use super::descriptors::{receive_with_fd, send_with_fd};
use super::facts::Precautions;
use crate::spec::{FaultRequest, Owner};

/// In bytes; no arrival is longer.
const LONGEST_ARRIVAL: usize = 2048;

/// In whose name something is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claim {
    /// In nobody's.
    #[default]
    Nobody,
    /// In that of who is connected.
    Connection(u64),
    /// In that of who has begun something while connected.
    Grant(u64),
}

/// What goes on when who has begun it is no longer connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undertaking {
    /// One run of an experiment, in which each fault is injected once.
    Run,
    /// Runs of one document, as often as a schedule has them.
    Schedule,
    /// Runs of one document with other parameters, lengths and shares.
    Search,
}

/// What somebody wants to have done in his name when he is no longer connected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entrusted {
    /// What it is.
    pub what: Undertaking,
    /// Whose its faults are.
    pub owner: Owner,
    /// The name of its experiment, for people.
    pub name: String,
    /// The digest of its document, for people.
    pub document: String,
    /// The faults that it may inject.
    pub faults: Vec<FaultRequest>,
    /// What the experiment says of itself.
    pub says: Precautions,
    /// The stage of its blast radius, in percent, of a run that has one.
    pub stage: Option<u8>,
    /// Whether that stage is not due.
    pub skips: bool,
    /// How long a run takes at most.
    pub lasts: Option<Duration>,
    /// How many runs it begins at most; without it, as many as come until somebody ends it.
    pub runs: Option<u32>,
}

/// What a fault is known by to a run, or to a schedule.
pub fn exactly(fault: &FaultRequest) -> String {
    digest(&serde_json::json!(fault))
}

/// What is the same of all faults that a search makes of one: type and target, without how much, how long and of how many.
pub fn roughly(fault: &FaultRequest) -> String {
    let mut target = fault.target.clone();
    target.share = None;
    digest(&serde_json::json!({"fault_type": fault.fault_type, "target": target}))
}

/// The keys of objects are sorted.
fn digest(value: &serde_json::Value) -> String {
    Sha256::digest(value.to_string().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A connection that the injector has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// By which the server names it to the injector.
    pub connection: u64,
    /// Who it is, for what the server keeps itself.
    pub caller: Caller,
    /// Why nothing is served to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A pair of sockets for arrivals, which keeps one message from the next: the injector's end, which never blocks, and the server's.
///
/// # Errors
/// When there are no more descriptors.
pub fn arrivals() -> io::Result<(StdStream, StdStream)> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let (ours, theirs) = (StdStream::from(ours), StdStream::from(theirs));
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((ours, theirs))
}

/// Hands a connection over, with who it is.
///
/// # Errors
/// When the socket fails, `WouldBlock` included.
pub fn announce(socket: BorrowedFd<'_>, arrival: &Arrival, connection: BorrowedFd<'_>) -> io::Result<()> {
    let bytes = serde_json::to_vec(arrival)?;
    send_with_fd(socket, &bytes, connection).map(drop)
}

/// The next connection; `None` once the injector is gone. Cancelling it loses nothing.
///
/// # Errors
/// When the socket fails, or something else comes.
pub async fn next_arrival(socket: &UnixStream) -> io::Result<Option<(Arrival, OwnedFd)>> {
    let mut bytes = [0; LONGEST_ARRIVAL];
    let receive = || receive_with_fd(socket.as_fd(), &mut bytes);
    match socket.async_io(Interest::READABLE, receive).await? {
        (0, None) => Ok(None),
        (length, Some(fd)) => Ok(Some((serde_json::from_slice(&bytes[..length])?, fd))),
        (_, None) => Err(io::Error::new(io::ErrorKind::InvalidData, "an arrival without a connection")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::waits::HANG;

    fn fault(json: serde_json::Value) -> FaultRequest {
        serde_json::from_value(json).unwrap()
    }

    #[tokio::test]
    async fn each_connection_comes_with_who_it_is_until_the_injector_is_gone() {
        let (ours, theirs) = arrivals().unwrap();
        let theirs = UnixStream::from_std(theirs).unwrap();
        for connection in [1, 2] {
            let caller = Caller::Unix { uid: 1001, gid: 1001, pid: 7 };
            let refused = (connection == 2).then(|| "no place".to_owned());
            let arrival = Arrival { connection, caller, refused };
            let (near, _far) = StdStream::pair().unwrap();
            announce(ours.as_fd(), &arrival, near.as_fd()).unwrap();
        }
        for connection in [1, 2] {
            let (arrival, _fd) = timeout(HANG, next_arrival(&theirs)).await.unwrap().unwrap().unwrap();
            assert_eq!((arrival.connection, arrival.refused.is_some()), (connection, connection == 2));
        }
        drop(ours);
        assert!(timeout(HANG, next_arrival(&theirs)).await.unwrap().unwrap().is_none());
    }

    #[test]
    fn what_a_search_varies_is_no_part_of_what_a_fault_is_roughly_and_all_of_it_is_of_what_it_is_exactly() {
        let one = serde_json::json!({"fault_type": "latency", "probability": 1, "duration_seconds": 5,
            "target": {"interface": "eth0"}, "params": {"delay_ms": 10}});
        let with = |field: &str, value: serde_json::Value| {
            let mut other = one.clone();
            other[field] = value;
            fault(other)
        };
        let harsher = with("params", serde_json::json!({"delay_ms": 20}));
        let longer = with("duration_seconds", 9.into());
        let part = with("target", serde_json::json!({"interface": "eth0", "share": "10%"}));
        let elsewhere = with("target", serde_json::json!({"interface": "eth1"}));
        let another = with("fault_type", "packet_loss".into());
        let one = fault(one.clone());
        for other in [&harsher, &longer, &part] {
            assert!(roughly(&one) == roughly(other) && exactly(&one) != exactly(other), "{other:?}");
        }
        for other in [&elsewhere, &another] {
            assert!(roughly(&one) != roughly(other), "{other:?}");
        }
    }
}
