//! Whose addresses are translated on the way: what connection tracking has of the network namespace that a thread is in.
//!
//! Reference: Linux `net/netfilter/nf_conntrack_standalone.c` (`ct_seq_show`), CONFIG_NF_CONNTRACK_PROCFS.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;

use nix::libc;

/// How much of the table is read, in bytes: whoever is in the namespace makes it as long as he likes.
const LONGEST: u64 = 1 << 20;

/// A connection, or an exchange of datagrams, of which one end is known by another address on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    /// The transport's protocol number.
    pub protocol: u8,
    /// Addresses and ports as who has begun it has them.
    pub before: Ends,
    /// As they are behind the translation.
    pub behind: Ends,
}

/// Who sends, and to whom, seen from who has begun it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Address and port of who has begun it.
    pub source: (IpAddr, u16),
    /// Address and port of whom it is with.
    pub destination: (IpAddr, u16),
}

/// Those that are translated; none where connections are not tracked, or the kernel does not tell.
///
/// # Errors
/// When the table is there and cannot be read.
pub fn translations() -> io::Result<Vec<Translation>> {
    let mut text = Vec::new();
    // OPENS: nobody, its name is here | root | a text of procfs, of which 1 MiB is read
    match File::open("/proc/thread-self/net/nf_conntrack") {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Vec::new()),
        opened => opened?.take(LONGEST).read_to_end(&mut text)?,
    };
    Ok(String::from_utf8_lossy(&text).lines().filter_map(translation).collect())
}

/// Family, its number, protocol, its number, time left, state, both directions as `src= dst= sport= dport=`, and more.
fn translation(line: &str) -> Option<Translation> {
    let protocol = line.split_whitespace().nth(3)?.parse().ok()?;
    let all = |key: &str| -> Vec<&str> {
        line.split_whitespace().filter_map(|word| word.strip_prefix(key)?.strip_prefix('=')).collect()
    };
    let (from, to) = (all("src"), all("dst"));
    let (from_port, to_port) = (all("sport"), all("dport"));
    let end = |addresses: &[&str], ports: &[&str], way: usize| {
        let port = ports.get(way).map_or(Some(0), |port| port.parse().ok())?;
        Some((addresses.get(way)?.parse().ok()?, port))
    };
    let before = Ends { source: end(&from, &from_port, 0)?, destination: end(&to, &to_port, 0)? };
    // What comes back has the ends the other way round.
    let behind = Ends { source: end(&to, &to_port, 1)?, destination: end(&from, &from_port, 1)? };
    (before != behind).then_some(Translation { protocol, before, behind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_to_another_address_than_its_own_is_translated_and_others_are_not() {
        let line = "ipv4     2 tcp      6 431999 ESTABLISHED src=10.77.0.1 dst=10.96.0.10 sport=40000 dport=80 \
                    src=10.77.0.2 dst=10.77.0.1 sport=8080 dport=40000 [ASSURED] mark=0 zone=0 use=2";
        let end = |address: &str, port| (address.parse().unwrap(), port);
        let found = translation(line).unwrap();
        assert_eq!(found.protocol, 6);
        assert_eq!(found.before.destination, end("10.96.0.10", 80));
        assert_eq!(found.behind.destination, end("10.77.0.2", 8080));
        assert_eq!(found.before.source, found.behind.source);
        let plain = "ipv4 2 udp 17 20 src=10.0.0.1 dst=10.0.0.2 sport=5 dport=6 [UNREPLIED] src=10.0.0.2 dst=10.0.0.1 sport=6 dport=5 use=1";
        assert_eq!(translation(plain), None);
        let ping = "ipv4 2 icmp 1 29 src=10.0.0.1 dst=10.9.0.2 type=8 code=0 id=3 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=3 use=1";
        assert_eq!(translation(ping).unwrap().behind.destination, end("10.0.0.2", 0));
        for broken in ["", "ipv4 2 tcp 6", "ipv4 2 tcp 6 9 src=x dst=y sport=1 dport=2"] {
            assert_eq!(translation(broken), None, "{broken}");
        }
    }
}
