//! One question to a name server, and what it answers: RFC 1035, over UDP, and over TCP when the answer is cut short.
//!
//! The name is asked as it is given, without a search list, and once: an answer that is lost is a sample without one.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::{Sampler, Seen, late};
use crate::spec::SpecError;

const PORT: u16 = 53;
/// Where name servers stand, resolv.conf(5).
const CONFIGURATION: &str = "/etc/resolv.conf";

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Addresses of IPv4.
    A,
    /// Addresses of IPv6.
    Aaaa,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    name: String,
    kind: Kind,
    server: Option<SocketAddr>,
    /// The code that is right, by its name; without one, NOERROR with an address.
    rcode: Option<String>,
}

/// Codes of answers that may be told to be right.
const CODES: &[(&str, RCODE)] = &[
    ("NOERROR", RCODE::NoError),
    ("FORMERR", RCODE::FormatError),
    ("SERVFAIL", RCODE::ServerFailure),
    ("NXDOMAIN", RCODE::NameError),
    ("NOTIMP", RCODE::NotImplemented),
    ("REFUSED", RCODE::Refused),
];

/// What a server said.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    code: String,
    addresses: Vec<IpAddr>,
    cut: bool,
}

impl Lookup {
    /// Understands a question: a name, `A` or `AAAA`, and a server, as `ADDRESS`, `ADDRESS:PORT` or `[IPV6]:PORT`; without
    /// one, the first of `/etc/resolv.conf` is asked. `rcode` is the code that is right.
    ///
    /// # Errors
    /// Names what cannot be asked.
    pub fn parse(
        name: &str,
        kind: Option<&str>,
        server: Option<&str>,
        rcode: Option<&str>,
    ) -> Result<Self, SpecError> {
        let plain = name.trim_end_matches('.');
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        };
        if !plain.split('.').all(is_label) || Name::new(plain).is_err() {
            return Err(SpecError::new(
                "NAME",
                format!("{name:?} is not a name: give e.g. \"db.example.org\""),
            ));
        }
        let kind = match kind.map(str::to_ascii_uppercase).as_deref() {
            None | Some("A") => Kind::A,
            Some("AAAA") => Kind::Aaaa,
            Some(other) => return Err(SpecError::new("--type", format!("{other:?} is not one of A, AAAA"))),
        };
        let server = server.map(|text| {
            let address = text.parse().or_else(|_| text.parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT)));
            address.ok().filter(|address| address.port() != 0).ok_or_else(|| {
                SpecError::new("--server", format!("{text:?} is not an address: give e.g. \"127.0.0.1:53\""))
            })
        });
        let rcode = rcode.map(|given| {
            let known = CODES.iter().map(|(name, _)| *name).find(|name| name.eq_ignore_ascii_case(given));
            let names: Vec<_> = CODES.iter().map(|(name, _)| *name).collect();
            known.map(str::to_owned).ok_or_else(|| {
                SpecError::new("--rcode", format!("{given:?} is not one of {}", names.join(", ")))
            })
        });
        Ok(Self { name: plain.to_owned(), kind, server: server.transpose()?, rcode: rcode.transpose()? })
    }

    fn question(&self, id: u16) -> Result<Vec<u8>, String> {
        let name = Name::new(&self.name).map_err(|error| error.to_string())?;
        let kind = match self.kind {
            Kind::A => TYPE::A,
            Kind::Aaaa => TYPE::AAAA,
        };
        let mut packet = Packet::new_query(id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        packet.questions.push(Question::new(name, QTYPE::TYPE(kind), CLASS::IN.into(), false));
        packet.build_bytes_vec().map_err(|error| error.to_string())
    }

    /// What `bytes` answers to question `id`; `None` when it is no answer to it.
    fn understand(&self, id: u16, bytes: &[u8]) -> Option<Said> {
        let packet = Packet::parse(bytes).ok()?;
        if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
            return None;
        }
        let asked = Name::new(&self.name).ok()?;
        // A server that cannot read a question may leave it out of its answer.
        if packet.questions.first().is_some_and(|question| question.qname != asked) {
            return None;
        }
        let addresses = packet.answers.iter().filter_map(|record| match (&record.rdata, self.kind) {
            (RData::A(a), Kind::A) => Some(IpAddr::V4(Ipv4Addr::from_bits(a.address))),
            (RData::AAAA(aaaa), Kind::Aaaa) => Some(IpAddr::V6(Ipv6Addr::from_bits(aaaa.address))),
            _ => None,
        });
        let mut addresses: Vec<_> = addresses.collect();
        addresses.sort_unstable();
        let code = packet.rcode();
        let name = CODES.iter().find(|(_, known)| *known == code).map(|(name, _)| (*name).to_owned());
        let cut = packet.has_flags(PacketFlag::TRUNCATION);
        Some(Said { code: name.unwrap_or_else(|| format!("{code:?}")), addresses, cut })
    }

    fn judge(&self, said: Said, server: SocketAddr) -> Seen {
        let shown: Vec<_> = said.addresses.iter().map(ToString::to_string).collect();
        let list = if shown.is_empty() { "no address".to_owned() } else { shown.join(", ") };
        let text = format!("{}, {list}, from {server}", said.code);
        let verdict = match &self.rcode {
            Some(right) if *right == said.code => Ok(text),
            Some(right) => Err(format!("{text}, where {right} is right")),
            None if said.code == "NOERROR" && !shown.is_empty() => Ok(text),
            None => Err(text),
        };
        let answer: Value = json!({"rcode": said.code, "addresses": shown, "server": server.to_string()});
        Seen { verdict, answer: Some(answer), value: None, no_data: None }
    }

    async fn ask(&self, server: SocketAddr) -> Result<Said, String> {
        let id = rand::random();
        let question = self.question(id)?;
        let socket = connected(server).map_err(|error| error.to_string())?;
        socket.send(&question).await.map_err(|error| error.to_string())?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = socket.recv(&mut buffer).await.map_err(|error| error.to_string())?;
            match self.understand(id, &buffer[..read]) {
                Some(said) if said.cut => break,
                Some(said) => return Ok(said),
                // Somebody else's, or a late answer: it is not the end of waiting.
                None => {}
            }
        }
        let bytes = over_tcp(server, &question).await.map_err(|error| format!("over TCP: {error}"))?;
        self.understand(id, &bytes).ok_or_else(|| "what came over TCP is no answer".to_owned())
    }
}

/// A socket that hears `server` alone. Not bound beforehand, which is a call that the prober may not make.
fn connected(server: SocketAddr) -> io::Result<UdpSocket> {
    let family = if server.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Datagram, flags, None)?;
    connect(socket.as_raw_fd(), &SockaddrStorage::from(server))?;
    UdpSocket::from_std(socket.into())
}

async fn over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    // OPENS: the caller | the prober | a process without rights
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question].concat()).await?;
    let mut bytes = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn configured() -> Result<SocketAddr, String> {
    let text = fs::read_to_string(CONFIGURATION)
        .map_err(|error| format!("reading {CONFIGURATION}: {error}; name a server with --server"))?;
    first_server(&text).ok_or_else(|| format!("{CONFIGURATION} names no server: name one with --server"))
}

fn first_server(text: &str) -> Option<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    });
    servers.filter_map(|server| server.parse().ok()).map(|server| SocketAddr::new(server, PORT)).next()
}

impl Sampler for Lookup {
    async fn take(&self, limit: Duration) -> Seen {
        let server = match self.server.map_or_else(configured, Ok) {
            Ok(server) => server,
            Err(why) => return Seen::nothing(why),
        };
        match timeout(limit, self.ask(server)).await {
            Ok(Ok(said)) => self.judge(said, server),
            Ok(Err(why)) => Seen::nothing(format!("asking {server}: {why}")),
            Err(_) => Seen::nothing(format!("{} from {server}", late(limit))),
        }
    }

    fn measures_time(&self) -> bool {
        true
    }

    /// The name servers of this host are asked whatever the policy says.
    fn host(&self) -> Option<String> {
        self.server.map(|server| server.ip().to_string())
    }
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::A => "A",
            Kind::Aaaa => "AAAA",
        };
        write!(f, "look up {kind} of {}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::A;

    use super::*;

    fn lookup() -> Lookup {
        Lookup::parse("db.example.org", None, None, None).unwrap()
    }

    fn answer(id: u16, name: &'static str, code: RCODE, addresses: &[[u8; 4]]) -> Vec<u8> {
        let mut packet = Packet::new_reply(id);
        *packet.rcode_mut() = code;
        let name = Name::new(name).unwrap();
        packet.questions.push(Question::new(name.clone(), QTYPE::TYPE(TYPE::A), CLASS::IN.into(), false));
        for address in addresses {
            let record = RData::A(A { address: u32::from_be_bytes(*address) });
            packet.answers.push(ResourceRecord::new(name.clone(), CLASS::IN, 60, record));
        }
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn an_answer_is_one_only_to_its_own_question() {
        let two = [[10, 0, 0, 2], [10, 0, 0, 1]];
        let bytes = answer(7, "db.example.org", RCODE::NoError, &two);
        let said = lookup().understand(7, &bytes).unwrap();
        assert_eq!(said.code, "NOERROR");
        assert_eq!(said.addresses, ["10.0.0.1".parse::<IpAddr>().unwrap(), "10.0.0.2".parse().unwrap()]);
        assert_eq!(lookup().understand(8, &bytes), None);
        assert_eq!(lookup().understand(7, &answer(7, "other.example.org", RCODE::NoError, &two)), None);
        assert_eq!(lookup().understand(7, &lookup().question(7).unwrap()), None, "a question");
        for end in 0..bytes.len() {
            // Half an answer is none, and breaks nothing.
            assert_eq!(lookup().understand(7, &bytes[..end]), None, "{end}");
        }
    }

    #[test]
    fn what_is_right_is_an_address_or_the_code_that_was_asked_for() {
        let server = "127.0.0.1:53".parse().unwrap();
        let judge = |rcode, code, addresses: &[[u8; 4]]| {
            let lookup = Lookup::parse("db.example.org", None, None, rcode).unwrap();
            let said = lookup.understand(1, &answer(1, "db.example.org", code, addresses)).unwrap();
            lookup.judge(said, server)
        };
        assert!(judge(None, RCODE::NoError, &[[10, 0, 0, 1]]).verdict.is_ok());
        assert!(judge(None, RCODE::NoError, &[]).verdict.is_err());
        assert!(judge(None, RCODE::NameError, &[]).verdict.unwrap_err().starts_with("NXDOMAIN, no address"));
        assert!(judge(Some("nxdomain"), RCODE::NameError, &[]).verdict.is_ok());
        assert!(judge(Some("NXDOMAIN"), RCODE::NoError, &[[10, 0, 0, 1]]).verdict.is_err());
        let answer = judge(None, RCODE::NoError, &[[10, 0, 0, 1]]).answer.unwrap();
        assert_eq!((&answer["rcode"], &answer["addresses"]), (&json!("NOERROR"), &json!(["10.0.0.1"])));
    }

    #[test]
    fn what_cannot_be_asked_is_named() {
        for (name, kind, server, rcode, field) in [
            ("", None, None, None, "NAME"),
            ("a b", None, None, None, "NAME"),
            ("a..b", None, None, None, "NAME"),
            ("a", Some("MX"), None, None, "--type"),
            ("a", None, Some("localhost"), None, "--server"),
            ("a", None, Some("127.0.0.1:0"), None, "--server"),
            ("a", None, None, Some("OK"), "--rcode"),
        ] {
            assert_eq!(Lookup::parse(name, kind, server, rcode).unwrap_err().field, field, "{name:?}");
        }
        let server = |text| Lookup::parse("a.", Some("aaaa"), Some(text), None).unwrap().server.unwrap();
        assert_eq!(server("10.0.0.1"), "10.0.0.1:53".parse().unwrap());
        assert_eq!(server("[::1]:5353"), "[::1]:5353".parse().unwrap());
    }

    #[test]
    fn the_first_server_of_the_configuration_is_asked() {
        let text = "# nameserver 10.0.0.9\nsearch example.org\nnameserver\t10.0.0.1\nnameserver 10.0.0.2\n";
        assert_eq!(first_server(text), Some("10.0.0.1:53".parse().unwrap()));
        assert_eq!(first_server("search example.org\n"), None);
    }
}
