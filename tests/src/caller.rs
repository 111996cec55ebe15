//! A process of the test's own that asks the kernel for what it is told to, and says what it got: a service, as far as a
//! fault of calls is concerned. It may be in a control group and in a network namespace of the test's.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use nix::libc::{EAGAIN, EBADMSG, ENOENT, ETIMEDOUT};

use crate::cgroup::Cgroup;
use crate::error::{Error, Result};
use crate::measure::{is_silence, receive};
use crate::name_server::{Heard, Kind, Over, ask_from_here};
use crate::netns::NetNs;
use crate::plug::Plug;
use crate::process::look_patiently;
use crate::touch::Touch;

/// The argument by which a test executable becomes a caller.
const ROLE: &str = "caller";

/// Long enough to tell silence from slowness.
const PATIENCE: Duration = Duration::from_millis(500);

/// Soon enough for what nothing holds up.
const SOON: Duration = Duration::from_millis(30);

/// The same on a processor that is not emulated: who measures by what is lost cannot tell less than this.
const AT_ONCE: Duration = Duration::from_millis(2);

thread_local! {
    /// Connections that are kept.
    static KEPT: RefCell<HashMap<SocketAddr, TcpStream>> = RefCell::default();
}

/// What a caller can ask for.
#[derive(Debug, Clone, Copy)]
pub enum Ask {
    /// connect(2) of a TCP socket.
    Connect(SocketAddr),
    /// The same, for [`PATIENCE`] at most; ETIMEDOUT when there is nothing by then.
    Reach(SocketAddr),
    /// sendto(2) of a UDP socket that is not connected.
    Send(SocketAddr),
    /// A datagram there and back; EAGAIN when nothing comes back within [`PATIENCE`].
    Trip(SocketAddr),
    /// The same, within [`SOON`].
    TripSoon(SocketAddr),
    /// The same, within [`AT_ONCE`].
    TripAtOnce(SocketAddr),
    /// Waits at this address for a datagram of somebody else's; EAGAIN when none comes within [`PATIENCE`].
    Hear(SocketAddr),
    /// Opens a TCP connection, and keeps it for what follows.
    Keep(SocketAddr),
    /// Sends a byte over the connection to this address that was kept; EAGAIN when none comes back within [`PATIENCE`].
    Say(SocketAddr),
    /// connect(2) of a UDP socket, which sends nothing.
    Associate(SocketAddr),
    /// Asks this name server for the addresses of a name, over UDP: ENOENT when it says that there is no such name, EAGAIN when it
    /// says nothing within [`PATIENCE`], EBADMSG when it says anything but the truth.
    Resolve(SocketAddr),
}

impl Ask {
    fn words(self) -> String {
        match self {
            Self::Connect(address) => format!("connect {address}"),
            Self::Reach(address) => format!("reach {address}"),
            Self::Send(address) => format!("send {address}"),
            Self::Trip(address) => format!("trip {address}"),
            Self::TripSoon(address) => format!("trip-soon {address}"),
            Self::TripAtOnce(address) => format!("trip-at-once {address}"),
            Self::Hear(address) => format!("hear {address}"),
            Self::Keep(address) => format!("keep {address}"),
            Self::Say(address) => format!("say {address}"),
            Self::Associate(address) => format!("associate {address}"),
            Self::Resolve(address) => format!("resolve {address}"),
        }
    }
}

/// A running caller; killed with the guard.
#[derive(Debug)]
pub struct Caller {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Caller {
    /// Starts one.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(namespace: &NetNs, cgroup: Option<&Cgroup>) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(ROLE).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(cgroup) = cgroup {
            cgroup.place(&mut command);
        }
        namespace.place(&mut command);
        let mut process = command.spawn().map_err(Error::io("start", "a caller"))?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(orders), Some(answers)) => Ok(Self { process, orders, answers: BufReader::new(answers) }),
            _ => Err(Error::Different("a caller without pipes".into())),
        }
    }

    /// The signal that has ended it, if one has.
    pub fn ended_by(&mut self) -> Option<i32> {
        self.process.try_wait().ok().flatten()?.signal()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What the kernel says: 0, or an errno.
    ///
    /// # Errors
    /// When the caller has ended.
    pub fn ask(&mut self, what: Ask) -> Result<i32> {
        self.hear(&format!("1 {}", what.words()))
    }

    /// How many of so many askings are answered with an error.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub fn failures(&mut self, times: u32, what: Ask) -> Result<i32> {
        self.hear(&format!("{times} {}", what.words()))
    }

    /// What the kernel says to something done with a file: 0, or an errno.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub fn touch(&mut self, touch: Touch, path: &Path) -> Result<i32> {
        self.touch_failures(1, touch, path)
    }

    /// How many of so many such calls are answered with an error.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub fn touch_failures(&mut self, times: u32, touch: Touch, path: &Path) -> Result<i32> {
        self.hear(&format!("{times} {} {}", touch.word(), path.display()))
    }

    /// What the kernel says to something done with a socket: 0, or an errno.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub fn plug(&mut self, plug: Plug, address: SocketAddr) -> Result<i32> {
        self.plug_failures(1, plug, address)
    }

    /// How many of so many such calls are answered with an error.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub fn plug_failures(&mut self, times: u32, plug: Plug, address: SocketAddr) -> Result<i32> {
        self.hear(&format!("{times} {} {address}", plug.word()))
    }

    fn hear(&mut self, words: &str) -> Result<i32> {
        writeln!(self.orders, "{words}").map_err(Error::io("ask", "a caller"))?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(Error::io("hear", "a caller"))?;
        line.trim()
            .parse()
            .map_err(|_not_a_number| Error::Different(format!("{words}: the caller says {line:?}")))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Lives a caller's life, if the arguments of this process say so.
pub fn serve_if_asked() -> Option<ExitCode> {
    if std::env::args().nth(1).as_deref() != Some(ROLE) {
        return None;
    }
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { break };
        println!("{}", answer(&line).unwrap_or(-1));
    }
    Some(ExitCode::SUCCESS)
}

/// The errno of one asking; of several, how many failed. `None` when the line makes no sense.
fn answer(line: &str) -> Option<i32> {
    let (times, what) = line.split_once(' ')?;
    let answers: Option<Vec<i32>> = (0..times.parse().ok()?).map(|_| once(what)).collect();
    match answers?.as_slice() {
        [one] => Some(*one),
        all => i32::try_from(all.iter().filter(|errno| **errno != 0).count()).ok(),
    }
}

fn once(line: &str) -> Option<i32> {
    let (what, to) = line.split_once(' ')?;
    if let Some(touch) = Touch::parse(what) {
        return Some(number(touch.carry_out(to)));
    }
    let to: SocketAddr = to.parse().ok()?;
    if let Some(plug) = Plug::parse(what) {
        return Some(number(plug.carry_out(to)));
    }
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let result = match what {
        "connect" => TcpStream::connect(to).map(drop),
        "reach" => TcpStream::connect_timeout(&to, PATIENCE).map(drop),
        "send" => UdpSocket::bind(any).and_then(|socket| socket.send_to(b"x", to).map(drop)),
        "trip" => trip(any, to, PATIENCE),
        "trip-soon" => trip(any, to, SOON),
        "trip-at-once" => trip(any, to, AT_ONCE),
        "hear" => UdpSocket::bind(to).and_then(|socket| receive(&socket, &mut [0; 8], PATIENCE).map(drop)),
        "keep" => TcpStream::connect_timeout(&to, PATIENCE).map(|stream| {
            KEPT.with_borrow_mut(|kept| kept.insert(to, stream));
        }),
        "say" => KEPT.with_borrow_mut(|kept| say(kept.get_mut(&to).ok_or(ErrorKind::NotConnected)?)),
        "associate" => UdpSocket::bind(any).and_then(|socket| socket.connect(to)),
        "resolve" => resolve(to),
        _ => return None,
    };
    Some(number(result))
}

/// A datagram there and back.
fn trip(from: SocketAddr, to: SocketAddr, limit: Duration) -> io::Result<()> {
    let socket = UdpSocket::bind(from)?;
    socket.send_to(b"x", to)?;
    receive(&socket, &mut [0; 8], limit).map(drop)
}

/// A byte over a connection and back.
fn say(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"x")?;
    let heard = look_patiently(PATIENCE, |nap| {
        let heard = stream.set_read_timeout(Some(nap)).and_then(|()| stream.read_exact(&mut [0]));
        Some(heard).filter(|heard| !heard.as_ref().is_err_and(is_silence))
    });
    heard.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))
}

/// Believes nothing but the truth.
fn resolve(server: SocketAddr) -> io::Result<()> {
    const NO_SUCH_NAME: u8 = 3;
    let heard = ask_from_here(server, Over::Udp, "db.example.org", Kind::A, PATIENCE)?;
    let errno = match heard {
        Heard::Silence => EAGAIN,
        Heard::Said(NO_SUCH_NAME, ..) => ENOENT,
        heard if heard == Heard::truth(Kind::A) => return Ok(()),
        Heard::Said(..) | Heard::Reset => EBADMSG,
    };
    Err(io::Error::from_raw_os_error(errno))
}

fn number(result: std::io::Result<()>) -> i32 {
    let errno = |error: std::io::Error| match error.raw_os_error() {
        // The standard library's own end of a wait, and ours.
        None if error.kind() == ErrorKind::TimedOut => ETIMEDOUT,
        None if error.kind() == ErrorKind::WouldBlock => EAGAIN,
        errno => errno.unwrap_or(-1),
    };
    result.err().map_or(0, errno)
}

/// An IPv4 address as a program for IPv6 writes it.
pub(crate) fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped(), address.port()).into(),
        IpAddr::V6(_) => address,
    }
}
