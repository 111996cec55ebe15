//! A name server that knows every name, and a resolver that asks one question and believes whatever it hears: over UDP and
//! TCP, in as few words as RFC 1035 allows.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::measure::{is_silence, receive, wait_for_a_caller};
use crate::netns::NetNs;
use crate::server::Server;

const HEADER: usize = 12;

/// What the server says that the addresses of every name are.
pub const TRUE_V4: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
/// Likewise.
pub const TRUE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An address of IPv4.
    A = 1,
    /// Something that the server does not have.
    Mail = 15,
    /// An address of IPv6.
    Aaaa = 28,
}

/// Over what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// One datagram.
    Udp,
    /// A connection of its own.
    Tcp,
}

/// What the resolver hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// An answer: its code, the addresses in it, and for how many seconds they are said to hold.
    Said(u8, Vec<IpAddr>, Vec<u32>),
    /// Nothing in time.
    Silence,
    /// That the connection is reset.
    Reset,
}

impl Heard {
    /// An answer without addresses.
    pub fn code(code: u8) -> Self {
        Self::Said(code, Vec::new(), Vec::new())
    }

    /// What the server here says.
    pub fn truth(kind: Kind) -> Self {
        let address = match kind {
            Kind::A => IpAddr::from(TRUE_V4),
            Kind::Aaaa => IpAddr::from(TRUE_V6),
            Kind::Mail => return Self::code(0),
        };
        Self::Said(0, vec![address], vec![60])
    }
}

/// A message with one question, by a sender that knows EDNS.
pub fn question(id: u16, name: &str, kind: Kind) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let mut message = vec![high, low, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, kind as u8, 0, 1]);
    // OPT: 1232 bytes may be sent back.
    message.extend_from_slice(&[0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    message
}

/// Where the first question of a message ends.
fn end_of_question(message: &[u8]) -> Option<usize> {
    let mut at = HEADER;
    loop {
        match usize::from(*message.get(at)?) {
            0 => return Some(at + 5).filter(|end| *end <= message.len()),
            length => at += length + 1,
        }
    }
}

/// Understands an answer to a question.
///
/// # Errors
/// When it is none, or not to this question.
pub fn understand(question: &[u8], answer: &[u8]) -> io::Result<Heard> {
    let strange = |what: &str| io::Error::new(ErrorKind::InvalidData, format!("{what}: {answer:02x?}"));
    let end = end_of_question(question).ok_or_else(|| strange("no question was asked"))?;
    if answer.len() < end || answer[..2] != question[..2] || answer[HEADER..end] != question[HEADER..end] {
        return Err(strange("an answer to another question"));
    }
    if answer[2] & 0x80 == 0 || answer[3] & 0x80 == 0 || answer[4..6] != [0, 1] || answer[8..10] != [0, 0] {
        return Err(strange("no answer of a resolver"));
    }
    let (mut at, mut addresses, mut times) = (end, Vec::new(), Vec::new());
    for _ in 0..u16::from_be_bytes([answer[6], answer[7]]) {
        let record = answer.get(at..at + 12).ok_or_else(|| strange("cut off"))?;
        // The name of the question, its type and its class.
        if record[..2] != [0xc0, 12] || record[2..6] != question[end - 4..end] {
            return Err(strange("a record of something else"));
        }
        times.push(u32::from_be_bytes([record[6], record[7], record[8], record[9]]));
        let length = usize::from(record[11]);
        let data = answer.get(at + 12..at + 12 + length).ok_or_else(|| strange("cut off"))?;
        if let Ok(octets) = <[u8; 4]>::try_from(data) {
            addresses.push(octets.into());
        } else if let Ok(octets) = <[u8; 16]>::try_from(data) {
            addresses.push(octets.into());
        }
        at += 12 + length;
    }
    // Who asks with EDNS is answered with it, and with nothing else.
    if answer[10..12] != question[10..12] || answer[at..] != question[end..] {
        return Err(strange("EDNS is lost, or something follows"));
    }
    Ok(Heard::Said(answer[3] & 0x0f, addresses, times))
}

/// Asks one question from a namespace.
///
/// # Errors
/// When what comes back is no answer to it.
pub fn ask(
    from: &NetNs,
    server: SocketAddr,
    over: Over,
    name: &str,
    kind: Kind,
    limit: Duration,
) -> Result<Heard> {
    let heard = from.run(|| ask_from_here(server, over, name, kind, limit));
    heard.map_err(Error::io("ask", format!("{server} for {name}")))
}

/// As [`ask`], from where this thread is.
pub(crate) fn ask_from_here(
    server: SocketAddr,
    over: Over,
    name: &str,
    kind: Kind,
    limit: Duration,
) -> io::Result<Heard> {
    static ID: AtomicU16 = AtomicU16::new(1);
    let question = question(ID.fetch_add(1, Ordering::Relaxed), name, kind);
    let answer = match over {
        Over::Udp => over_udp(server, &question, limit),
        Over::Tcp => over_tcp(server, &question, limit),
    };
    match answer {
        Ok(answer) => understand(&question, &answer),
        Err(error) if is_silence(&error) => Ok(Heard::Silence),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(Heard::Reset),
        Err(error) => Err(error),
    }
}

fn over_udp(server: SocketAddr, question: &[u8], limit: Duration) -> io::Result<Vec<u8>> {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.send(question)?;
    let mut buffer = vec![0; 1500];
    let length = receive(&socket, &mut buffer, limit)?;
    buffer.truncate(length);
    Ok(buffer)
}

fn over_tcp(server: SocketAddr, question: &[u8], limit: Duration) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(&prefixed(question))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// A message as it is sent over TCP.
fn prefixed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], message].concat()
}

/// Whether a question that is sent to an echo comes back as it was: nobody has answered it.
///
/// # Errors
/// When the socket says no.
pub fn comes_back(from: &NetNs, echo: SocketAddr, limit: Duration) -> Result<bool> {
    let question = question(7, "db.example.org", Kind::A);
    match from.run(|| over_udp(echo, &question, limit)) {
        Ok(back) => Ok(back == question),
        Err(error) if is_silence(&error) => Ok(false),
        Err(error) => Err(Error::io("send a question to", echo.to_string())(error)),
    }
}

/// A name server; it ends with the guard.
#[derive(Debug)]
pub struct NameServer(Server);

impl NameServer {
    /// Starts one in a namespace, at this address and port.
    ///
    /// # Errors
    /// When the port cannot be had.
    pub fn start(namespace: &NetNs, address: IpAddr, port: u16) -> Result<Self> {
        Server::start(namespace, address, port, serve_udp, serve_tcp).map(Self)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }
}

/// The truth.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let end = end_of_question(question)?;
    let mut answer = question[..end].to_vec();
    (answer[2], answer[3]) = (0x81, 0x80);
    let data = match question[end - 3] {
        1 => TRUE_V4.octets().to_vec(),
        28 => TRUE_V6.octets().to_vec(),
        _ => Vec::new(),
    };
    if !data.is_empty() {
        answer[7] = 1;
        answer.extend_from_slice(&[0xc0, 12]);
        answer.extend_from_slice(&question[end - 4..end]);
        answer.extend_from_slice(&[0, 0, 0, 60, 0, data.len() as u8]);
        answer.extend_from_slice(&data);
    }
    answer.extend_from_slice(&question[end..]);
    Some(answer)
}

fn serve_udp(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; 1500];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, peer)) = socket.recv_from(&mut buffer)
            && let Some(answer) = answer(&buffer[..length])
        {
            let _ = socket.send_to(&answer, peer);
        }
    }
}

fn serve_tcp(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            // Whoever asks nothing, or hangs up, gets nothing.
            Ok((stream, _)) => drop(serve_stream(stream)),
            Err(_) => wait_for_a_caller(listener),
        }
    }
}

fn serve_stream(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut question)?;
    match answer(&question) {
        Some(answer) => stream.write_all(&prefixed(&answer)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_tells_the_truth_and_the_resolver_understands_it() {
        for kind in [Kind::A, Kind::Aaaa, Kind::Mail] {
            let question = question(9, "db.example.org", kind);
            let answer = answer(&question).unwrap();
            assert_eq!(understand(&question, &answer).unwrap(), Heard::truth(kind));
            assert!(understand(&question, &question).is_err(), "a question is no answer");
            let mut other = answer.clone();
            other[0] ^= 1;
            assert!(understand(&question, &other).is_err(), "to another question");
            assert!(understand(&question, &answer[..answer.len() - 1]).is_err(), "cut off");
        }
    }
}
