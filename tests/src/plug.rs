//! What a [`Caller`](crate::caller::Caller) does with sockets: each as one system call whose errno is the answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike, SockaddrStorage,
    UnixAddr, accept4, bind, connect, getsockname, listen, recv, send, sendmsg, sendto, setsockopt, socket,
    sockopt,
};
use nix::unistd::{read, write};

/// Something to do with a socket. Those that were taken are told by their address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plug {
    /// Has one listen at the address, connects to it, binds one for datagrams there, and keeps them for what follows.
    Take,
    /// Binds a new one to the port after that of the address.
    Bind,
    /// Likewise one for datagrams.
    BindDatagram,
    /// Listens once more with the one that was taken.
    Listen,
    /// Accepts a connection that has come to it.
    Accept,
    /// Sends a byte over the connection, by send(2).
    Send,
    /// Likewise by write(2).
    Write,
    /// Likewise by sendmsg(2).
    SendMessage,
    /// Likewise by sendto(2) to somebody else, which a connection does not care for.
    SendNamed,
    /// Sends a datagram to the address, without a connection.
    SendDatagram,
    /// Receives a byte over the connection, by recv(2).
    Receive,
    /// Likewise by read(2).
    Read,
    /// Receives a datagram.
    ReceiveDatagram,
    /// Binds, listens, connects, accepts, sends and receives with new sockets; the address of what listens is that of who asks.
    Whole,
    /// The same with unix sockets, whatever the address.
    WholeUnix,
}

/// Everything, with its word.
const PLUGS: [(&str, Plug); 15] = [
    ("take-socket", Plug::Take),
    ("bind-socket", Plug::Bind),
    ("bind-datagram", Plug::BindDatagram),
    ("listen-socket", Plug::Listen),
    ("accept-socket", Plug::Accept),
    ("send-socket", Plug::Send),
    ("write-socket", Plug::Write),
    ("sendmsg-socket", Plug::SendMessage),
    ("send-named", Plug::SendNamed),
    ("send-datagram", Plug::SendDatagram),
    ("receive-socket", Plug::Receive),
    ("read-socket", Plug::Read),
    ("receive-datagram", Plug::ReceiveDatagram),
    ("whole-sockets", Plug::Whole),
    ("whole-unix-sockets", Plug::WholeUnix),
];

/// How much there is to be received of what was taken; who sends adds to it.
const FILLED: usize = 4096;
/// Likewise of datagrams, which take much more room.
const DATAGRAMS: usize = 100;
/// An address for documentation (RFC 5737).
const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);
/// Long enough for a connection to come from this host.
const PATIENCE_MS: u16 = 2000;

/// See [`Plug::Take`].
struct Taken {
    server: OwnedFd,
    client: OwnedFd,
    accepted: OwnedFd,
    datagrams: OwnedFd,
}

thread_local! {
    static TAKEN: RefCell<HashMap<SocketAddr, Taken>> = RefCell::default();
}

impl Plug {
    pub(crate) fn word(self) -> &'static str {
        PLUGS.iter().find(|(_, plug)| *plug == self).map_or("", |(word, _)| word)
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        PLUGS.iter().find(|(known, _)| *known == word).map(|(_, plug)| *plug)
    }

    /// Does it, in the process that was asked.
    pub(crate) fn carry_out(self, address: SocketAddr) -> io::Result<()> {
        let beside = SocketAddr::new(address.ip(), address.port().wrapping_add(1));
        let taken = |act: fn(&Taken, SocketAddr) -> nix::Result<()>| {
            TAKEN.with_borrow(|taken| act(taken.get(&address).ok_or(Errno::ENOTCONN)?, address))
        };
        let done = match self {
            Self::Take => take(address),
            Self::Bind => bound(beside, SockType::Stream).map(drop),
            Self::BindDatagram => bound(beside, SockType::Datagram).map(drop),
            Self::Listen => taken(|taken, _| listening(&taken.server)),
            Self::Accept => taken(|taken, address| accept_one(&taken.server, address).map(drop)),
            Self::Send => taken(|taken, _| send(taken.client.as_raw_fd(), b"x", now()).map(drop)),
            Self::Write => taken(|taken, _| write(&taken.client, b"x").map(drop)),
            Self::SendMessage => taken(|taken, _| {
                let bytes = [IoSlice::new(b"x")];
                sendmsg::<()>(taken.client.as_raw_fd(), &bytes, &[], now(), None).map(drop)
            }),
            Self::SendNamed => taken(|taken, _| {
                let to = SockaddrStorage::from(ELSEWHERE);
                sendto(taken.client.as_raw_fd(), b"x", &to, now()).map(drop)
            }),
            Self::SendDatagram => taken(|taken, address| {
                let to = SockaddrStorage::from(address);
                sendto(taken.datagrams.as_raw_fd(), b"x", &to, now()).map(drop)
            }),
            Self::Receive => taken(|taken, _| recv(taken.accepted.as_raw_fd(), &mut [0], now()).map(drop)),
            Self::Read => taken(|taken, _| read(&taken.accepted, &mut [0]).map(drop)),
            Self::ReceiveDatagram => {
                taken(|taken, _| recv(taken.datagrams.as_raw_fd(), &mut [0], now()).map(drop))
            }
            Self::Whole => whole(&SockaddrStorage::from(address)),
            Self::WholeUnix => whole(&UnixAddr::new_abstract(unique().as_bytes())?),
        };
        Ok(done?)
    }
}

fn now() -> MsgFlags {
    MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL
}

/// A name that nobody else's sockets have.
fn unique() -> String {
    format!("chaos-test-{}", std::process::id())
}

fn new(of: &impl SockaddrLike, kind: SockType) -> nix::Result<OwnedFd> {
    let family = of.family().unwrap_or(AddressFamily::Inet);
    socket(family, kind, SockFlag::SOCK_CLOEXEC, None::<SockProtocol>)
}

fn bound(address: SocketAddr, kind: SockType) -> nix::Result<OwnedFd> {
    let address = SockaddrStorage::from(address);
    let made = new(&address, kind)?;
    setsockopt(&made, sockopt::ReuseAddr, &true)?;
    bind(made.as_raw_fd(), &address).map(|()| made)
}

fn listening(server: &impl AsFd) -> nix::Result<()> {
    listen(server, Backlog::new(128)?)
}

/// Accepts a connection, once one has come: a new one, or one that was not accepted before.
fn accept_one(server: &OwnedFd, address: SocketAddr) -> nix::Result<(OwnedFd, OwnedFd)> {
    let address = SockaddrStorage::from(address);
    let client = new(&address, SockType::Stream)?;
    connect(client.as_raw_fd(), &address)?;
    accept_from(server).map(|accepted| (client, accepted))
}

fn accept_from(server: &OwnedFd) -> nix::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    let mut waiting = [PollFd::new(server.as_fd(), PollFlags::POLLIN)];
    if poll(&mut waiting, PollTimeout::from(PATIENCE_MS))? == 0 {
        return Err(Errno::ETIME);
    }
    let accepted = accept4(server.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: the kernel has just made this descriptor for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(accepted) })
}

fn take(address: SocketAddr) -> nix::Result<()> {
    let server = bound(address, SockType::Stream)?;
    listening(&server)?;
    let (client, accepted) = accept_one(&server, address)?;
    write(&client, &[0; FILLED])?;
    let datagrams = bound(address, SockType::Datagram)?;
    let to = SockaddrStorage::from(address);
    for _ in 0..DATAGRAMS {
        sendto(datagrams.as_raw_fd(), b"x", &to, now())?;
    }
    TAKEN.with_borrow_mut(|taken| taken.insert(address, Taken { server, client, accepted, datagrams }));
    Ok(())
}

fn whole<A: SockaddrLike>(address: &A) -> nix::Result<()> {
    let server = new(address, SockType::Stream)?;
    bind(server.as_raw_fd(), address)?;
    listening(&server)?;
    let there: A = getsockname(server.as_raw_fd())?;
    let client = new(address, SockType::Stream)?;
    connect(client.as_raw_fd(), &there)?;
    let accepted = accept_from(&server)?;
    send(client.as_raw_fd(), b"x", now())?;
    match recv(accepted.as_raw_fd(), &mut [0], MsgFlags::empty())? {
        1 => Ok(()),
        _ => Err(Errno::EPROTO),
    }
}
