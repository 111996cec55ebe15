//! Round trips between two namespaces, measured with sockets of our own: nothing here knows of the daemon.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{Error, Result};
use crate::netns::{NetNs, output};
use crate::process::look_patiently;
use crate::server::{POLL, Server};

/// An echo server for UDP and TCP on one port; it ends with the guard.
#[derive(Debug)]
pub struct Echo(Server);

impl Echo {
    /// Listens in a namespace, on this address and port.
    ///
    /// # Errors
    /// When the port cannot be had.
    pub fn start(namespace: &NetNs, address: IpAddr, port: u16) -> Result<Self> {
        Server::start(namespace, address, port, echo_udp, echo_tcp).map(Self)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }
}

fn echo_udp(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], peer);
        }
    }
}

fn echo_tcp(listener: &TcpListener, stop: &AtomicBool) {
    std::thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((stream, _)) => drop(scope.spawn(|| echo_stream(stream, stop))),
                Err(_) => wait_for_a_caller(listener),
            }
        }
    });
}

/// Waits until somebody connects, or for a moment. Looking again and again would take an emulated processor a good part of its time.
pub(crate) fn wait_for_a_caller(listener: &TcpListener) {
    let mut waiting = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let moment = PollTimeout::try_from(POLL).unwrap_or(PollTimeout::ZERO);
    if poll(&mut waiting, moment).is_err() {
        std::thread::sleep(POLL);
    }
}

fn echo_stream(mut stream: TcpStream, stop: &AtomicBool) {
    let mut buffer = [0; 2048];
    if stream.set_nonblocking(false).and(stream.set_read_timeout(Some(POLL))).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) if stream.write_all(&buffer[..length]).is_err() => return,
            Err(error) if !is_silence(&error) => return,
            Ok(_) | Err(_) => {}
        }
    }
}

/// One datagram to an [`Echo`] and back. `Ok(None)`: no answer within the limit.
///
/// # Errors
/// When the socket says no.
pub fn udp_rtt(from: &NetNs, to: SocketAddr, limit: Duration) -> Result<Option<Duration>> {
    static SEQUENCE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    from.run(|| {
        let socket = UdpSocket::bind(any(to))?;
        socket.connect(to)?;
        let started = Instant::now();
        socket.send(&sequence)?;
        let mut buffer = [0; 64];
        match receive(&socket, &mut buffer, limit) {
            Ok(length) if buffer[..length] == sequence => Ok(Some(started.elapsed())),
            Ok(_) => Err(io::Error::new(ErrorKind::InvalidData, "an echo of something else")),
            Err(error) if is_silence(&error) => Ok(None),
            Err(error) => Err(error),
        }
    })
    .map_err(Error::io("measure UDP to", to.to_string()))
}

/// As `recv`, patiently: on a machine that stands still nobody answers, and this is no silence.
///
/// # Errors
/// What the socket says, and `WouldBlock` when nothing has come.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8], patience: Duration) -> io::Result<usize> {
    let received = look_patiently(patience, |nap| {
        let received = socket.set_read_timeout(Some(nap)).and_then(|()| socket.recv(buffer));
        Some(received).filter(|received| !received.as_ref().is_err_and(is_silence))
    });
    received.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))
}

/// Whether an error says that nothing came in time.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The quickest of `count` datagrams' round trips: what the path itself takes, whatever else the machine is doing.
///
/// # Errors
/// As [`udp_rtt_median`].
pub fn udp_rtt_least(from: &NetNs, to: SocketAddr, count: usize, limit: Duration) -> Result<Duration> {
    udp_rtts(from, to, count, limit).map(|times| times[0])
}

/// The median of `count` datagrams' round trips.
///
/// # Errors
/// When one of them gets no answer within the limit.
pub fn udp_rtt_median(from: &NetNs, to: SocketAddr, count: usize, limit: Duration) -> Result<Duration> {
    udp_rtts(from, to, count, limit).map(|times| times[times.len() / 2])
}

fn udp_rtts(from: &NetNs, to: SocketAddr, count: usize, limit: Duration) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let silent = || Error::in_vain(format!("echo from {to}"), limit);
        times.push(udp_rtt(from, to, limit)?.ok_or_else(silent)?);
    }
    times.sort();
    Ok(times)
}

/// What became of a TCP connection to an [`Echo`].
#[derive(Debug)]
pub enum Tcp {
    /// Time to connect, and time of one echo after that.
    Answered {
        /// From `connect` to its return: one round trip.
        connect: Duration,
        /// From sending a byte to having it back.
        echo: Duration,
    },
    /// Refused or reset, after this time.
    Reset(Duration),
    /// Nothing within the limit.
    Silent,
}

/// Connects, sends one byte, waits for it.
///
/// # Errors
/// When the socket says something else than refused, reset or timed out.
pub fn tcp_rtt(from: &NetNs, to: SocketAddr, limit: Duration) -> Result<Tcp> {
    let started = Instant::now();
    let attempt = from.run(|| -> io::Result<Tcp> {
        let mut stream = TcpStream::connect_timeout(&to, limit)?;
        let connect = started.elapsed();
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        let sent = Instant::now();
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])?;
        Ok(Tcp::Answered { connect, echo: sent.elapsed() })
    });
    attempt
        .or_else(|error| match error.kind() {
            // The far end closing at once shows as an end of file.
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
                Ok(Tcp::Reset(started.elapsed()))
            }
            _ if is_silence(&error) => Ok(Tcp::Silent),
            _ => Err(error),
        })
        .map_err(Error::io("measure TCP to", to.to_string()))
}

/// One echo request of `ping`, in the namespace. `None`: no answer within the limit.
///
/// # Errors
/// When ping cannot be run or says something we do not understand.
pub fn icmp_rtt(from: &NetNs, to: IpAddr, limit: Duration) -> Result<Option<Duration>> {
    let wait = format!("{:.3}", limit.as_secs_f64());
    let mut command = from.command("ping");
    command.args(["-n", "-c", "1", "-W", &wait, &to.to_string()]).env("LC_ALL", "C");
    let text = match output(&mut command) {
        Ok(text) => text,
        // Status 1 is "no answer".
        Err(Error::Command { output, .. }) if output.starts_with("exit status: 1") => return Ok(None),
        Err(error) => return Err(error),
    };
    let millis =
        text.split("time=").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    match millis {
        Some(millis) => Ok(Some(Duration::from_secs_f64(millis / 1000.0))),
        None => Err(Error::Command { command: format!("ping {to}"), output: text }),
    }
}

/// Where a socket is bound that sends to such an address.
pub(crate) fn any(like: SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0; 16], 0)),
    }
}
