//! How many sockets this host has, by protocol, state and port, or as the kernel sums them up: `/proc/net/tcp`, `tcp6`,
//! `udp`, `udp6` and `sockstat` (proc_pid_net(5)).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::span::Span;
use super::{Sampler, Seen, blocking, instruments};
use crate::spec::SpecError;

/// States of TCP, by the numbers of the kernel (`include/net/tcp_states.h`), from 1.
pub const STATES: &[&str] = &[
    "established",
    "syn_sent",
    "syn_recv",
    "fin_wait1",
    "fin_wait2",
    "time_wait",
    "close",
    "close_wait",
    "last_ack",
    "listen",
    "closing",
];
/// What the kernel sums up of all sockets, of TCP, and of UDP; memory in pages.
const SUMS: &[(&str, &str, &[&str])] = &[
    ("all", "sockets", &["used"]),
    ("tcp", "TCP", &["inuse", "orphan", "tw", "alloc", "mem"]),
    ("udp", "UDP", &["inuse", "mem"]),
];

/// Protocols.
pub const PROTOCOLS: &[&str] = &["tcp", "udp", "all"];

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    protocol: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// A number of `sockstat`.
    Sum(String),
    /// Those of IPv4 and IPv6 that have this state, own port and port of the peer; whatever is not given fits.
    Listed { state: Option<u8>, port: Option<u16>, peer_port: Option<u16> },
}

/// What sockets have to be like to be counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter<'a> {
    /// A name of [`STATES`].
    pub state: Option<&'a str>,
    /// Own port.
    pub port: Option<u16>,
    /// Port of the other end.
    pub peer_port: Option<u16>,
    /// In place of all the others, the name of a sum.
    pub sum: Option<&'a str>,
}

impl Count {
    /// Understands what is to be counted.
    ///
    /// # Errors
    /// Names what there is not, or does not go together.
    pub fn parse(protocol: &str, filter: Filter<'_>) -> Result<Self, SpecError> {
        let unknown = |field: &str, given: &str, known: &[&str]| {
            SpecError::new(field, format!("{given:?} is not one of {}", known.join(", ")))
        };
        let (_, _, sums) = SUMS
            .iter()
            .find(|(name, ..)| *name == protocol)
            .ok_or_else(|| unknown("PROTOCOL", protocol, PROTOCOLS))?;
        let Filter { state, port, peer_port, sum } = filter;
        let listed = state.is_some() || port.is_some() || peer_port.is_some();
        let what = match sum {
            Some(_) if listed => {
                return Err(SpecError::new("--sum", "the kernel sums up all: leave out --state and ports"));
            }
            Some(sum) if sums.contains(&sum) => What::Sum(sum.to_owned()),
            Some(sum) => return Err(unknown("--sum", sum, sums)),
            None if protocol == "all" && listed => {
                return Err(SpecError::new("PROTOCOL", "of \"all\" there is a sum only: give tcp or udp"));
            }
            None if protocol == "all" => What::Sum("used".to_owned()),
            None => {
                let number = |state: &str| {
                    let at = STATES.iter().position(|known| *known == state);
                    let number = at.and_then(|at| u8::try_from(at + 1).ok());
                    number.ok_or_else(|| unknown("--state", state, STATES))
                };
                What::Listed { state: state.map(number).transpose()?, port, peer_port }
            }
        };
        Ok(Self { protocol: protocol.to_owned(), what })
    }

    fn read(&self) -> Result<Seen, String> {
        let read = |path| instruments::read(path).map_err(|error| format!("reading {path}: {error}"));
        let number = match &self.what {
            What::Sum(_) => {
                let text = read("/proc/net/sockstat")?;
                self.summed(&text)
                    .ok_or_else(|| format!("the kernel does not say so in {:?}", text.trim()))?
            }
            What::Listed { .. } => {
                let udp = self.protocol == "udp";
                let first = if udp { "/proc/net/udp" } else { "/proc/net/tcp" };
                let second = if udp { "/proc/net/udp6" } else { "/proc/net/tcp6" };
                let six = match instruments::read(second) {
                    Ok(text) => self.listed(&text),
                    // A kernel that has no IPv6 has no sockets of it.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
                    Err(error) => return Err(format!("reading {second}: {error}")),
                };
                self.listed(&read(first)?) + six
            }
        };
        let value = f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        Ok(Seen::measured(value, number.to_string()))
    }

    /// The number in `sockstat`.
    fn summed(&self, text: &str) -> Option<u64> {
        let What::Sum(sum) = &self.what else { return None };
        let (_, line, _) = SUMS.iter().find(|(name, ..)| *name == self.protocol)?;
        let line = text.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(": "))?;
        let words: Vec<_> = line.split(' ').collect();
        words.chunks_exact(2).find(|pair| pair[0] == sum)?[1].parse().ok()
    }

    /// How many lines of a list fit.
    fn listed(&self, text: &str) -> u64 {
        text.lines().skip(1).map(|line| u64::from(self.fits(line))).sum()
    }

    /// `  0: 0100007F:1F90 00000000:0000 0A …`: number, own address, that of the peer, state.
    fn fits(&self, line: &str) -> bool {
        let What::Listed { state, port, peer_port } = &self.what else { return false };
        let mut words = line.split_ascii_whitespace().skip(1);
        let mut port_of = || u16::from_str_radix(words.next()?.rsplit_once(':')?.1, 16).ok();
        let (Some(own), Some(peer)) = (port_of(), port_of()) else { return false };
        let Some(Ok(seen)) = words.next().map(|word| u8::from_str_radix(word, 16)) else { return false };
        state.is_none_or(|state| state == seen)
            && port.is_none_or(|port| port == own)
            && peer_port.is_none_or(|port| port == peer)
    }
}

impl Sampler for Count {
    async fn take(&self, limit: Duration) -> Seen {
        let count = self.clone();
        blocking(limit, move || count.read()).await.and_then(|read| read).into()
    }

    fn span(&self, _: Duration) -> Span {
        Span::AMOUNT
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sockets", self.protocol)?;
        match &self.what {
            What::Sum(sum) => write!(f, ", {sum}"),
            What::Listed { state, port, peer_port } => {
                if let Some(state) = state.and_then(|state| STATES.get(usize::from(state).wrapping_sub(1))) {
                    write!(f, ", {state}")?;
                }
                if let Some(port) = port {
                    write!(f, ", port {port}")?;
                }
                peer_port.map_or(Ok(()), |port| write!(f, ", to port {port}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const TABLE: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1
   2: 0100007F:D2F0 0100007F:1F90 08 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1
  half a line
";

    fn count(state: Option<&str>, port: Option<u16>, peer_port: Option<u16>) -> Count {
        Count::parse("tcp", Filter { state, port, peer_port, sum: None }).unwrap()
    }

    #[test]
    fn sockets_are_counted_by_state_and_ports() {
        for (counted, number) in [
            (count(None, None, None), 3),
            (count(Some("listen"), None, None), 1),
            (count(None, Some(8080), None), 2),
            (count(Some("established"), Some(8080), None), 1),
            (count(Some("close_wait"), None, Some(8080)), 1),
            (count(Some("time_wait"), None, None), 0),
        ] {
            assert_eq!(counted.listed(TABLE), number, "{counted}");
        }
        assert_eq!(
            count(Some("listen"), Some(80), Some(1)).to_string(),
            "tcp sockets, listen, port 80, to port 1"
        );
    }

    #[test]
    fn a_sum_is_that_of_its_protocol() {
        let text = "sockets: used 155\nTCP: inuse 10 orphan 1 tw 2 alloc 14 mem 3\nUDP: inuse 4 mem 5\nUDPLITE: inuse 0\n";
        for (protocol, sum, number) in [
            ("all", None, 155),
            ("tcp", Some("orphan"), 1),
            ("tcp", Some("inuse"), 10),
            ("udp", Some("inuse"), 4),
        ] {
            let count = Count::parse(protocol, Filter { sum, ..Filter::default() }).unwrap();
            assert_eq!(count.summed(text), Some(number), "{count}");
        }
    }

    #[test]
    fn what_cannot_be_counted_is_named() {
        let filter = Filter::default();
        for (protocol, filter, field) in [
            ("sctp", filter, "PROTOCOL"),
            ("all", Filter { port: Some(1), ..filter }, "PROTOCOL"),
            ("tcp", Filter { state: Some("open"), ..filter }, "--state"),
            ("tcp", Filter { sum: Some("used"), ..filter }, "--sum"),
            ("tcp", Filter { sum: Some("tw"), port: Some(1), ..filter }, "--sum"),
        ] {
            assert_eq!(Count::parse(protocol, filter).unwrap_err().field, field);
        }
    }

    #[test]
    fn the_kernel_s_own_list_is_read() {
        // At a port that nobody else's test has, of either family.
        let listeners = (0..100).find_map(|_| {
            let four = TcpListener::bind("127.0.0.1:0").ok()?;
            let six = TcpListener::bind(("::1", four.local_addr().ok()?.port())).ok()?;
            Some([four, six])
        });
        let addresses = listeners.as_ref().unwrap().each_ref().map(|listener| listener.local_addr().unwrap());
        let port = Some(addresses[0].port());
        let now = |state: &str, port, peer| count(Some(state), port, peer).read().unwrap().value;
        assert_eq!(now("listen", port, None), Some(2.0));
        let mut clients = Vec::new();
        for (address, established) in addresses.into_iter().zip([3.0, 6.0]) {
            clients.extend((0..3).map(|_| TcpStream::connect(address).unwrap()));
            assert_eq!(now("established", None, port), Some(established));
        }
    }
}
