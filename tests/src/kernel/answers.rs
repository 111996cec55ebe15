//! Packets that are answered with an error: what callers hear who cannot reach their destination, of either IP version and
//! protocol, before, during and after; and what becomes of connections that are there.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use chaos_daemon::spec::answer::ERROR_ANSWERS;
use nix::errno::Errno;
use nix::libc::{EACCES, ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT};
use nix::sys::socket::{
    self, AddressFamily, SockFlag, SockType, SockaddrStorage, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use serde_json::json;

use super::lifetime::{Blow, survives};
use super::served::LEASE;
use super::{Context, Outcome, STANDSTILL, TestResult, assert_lasted, on_every_attachment, tests};
use crate::fault::Fault;
use crate::late::{HANG, within};
use crate::measure::{Echo, Tcp, tcp_rtt, udp_rtt_median};
use crate::{Daemon, NetNs, Pair, Residue, Result};

tests![
    callers_hear_at_once_that_a_host_cannot_be_reached_and_of_no_other,
    each_answer_is_the_error_that_it_says,
    remote_callers_and_pings_hear_it_too,
    a_peer_is_refused_at_one_port_and_its_connections_there_are_reset,
    an_unreachable_host_ends_at_its_time,
    killing_every_process_at_once_ends_an_unreachable_host_at_once,
    stopping_every_process_ends_an_unreachable_host_with_the_lease,
    an_error_both_ways_resets_either_end_of_a_connection_at_its_next_segment_and_not_before,
    an_error_of_what_leaves_resets_this_end_also_for_what_arrives,
];

/// Less than it takes until a SYN is sent again of itself.
const AT_ONCE: Duration = Duration::from_millis(500);

/// What connect(2) of a TCP socket says, and how soon; 0 for success.
fn connect(from: &NetNs, to: SocketAddr) -> (i32, Duration) {
    let start = Instant::now();
    // The standard library's own way with a limit asks for the error after the fact, and may find it gone.
    let answer = from.run(|| {
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&socket, sockopt::SendTimeout, &TimeVal::seconds(HANG.as_secs().cast_signed()))?;
        socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(to))
    });
    let errno = match answer {
        Ok(()) => 0,
        // Of a socket that blocks, its limit is over (socket(7)).
        Err(Errno::EINPROGRESS) => ETIMEDOUT,
        Err(errno) => errno as i32,
    };
    (errno, start.elapsed())
}

/// What it says at once: later, another answer may have come.
fn connect_at_once(from: &NetNs, to: SocketAddr) -> Result<i32> {
    let (errno, took) = connect(from, to);
    within(AT_ONCE, took, &format!("connect(2) to {to}")).map(|()| errno)
}

/// What a UDP socket that wants to hear of errors hears after sending; 0 for an answer.
fn datagram(from: &NetNs, to: SocketAddr) -> i32 {
    datagram_within(HANG, from, to)
}

/// The same, with a patience of its own: that nothing comes is heard as EAGAIN.
fn datagram_within(patience: Duration, from: &NetNs, to: SocketAddr) -> i32 {
    let heard = from.run(|| -> io::Result<usize> {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        match to {
            SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?,
            SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?,
        }
        socket.set_read_timeout(Some(patience))?;
        socket.connect(to)?;
        socket.send(b"chaos")?;
        socket.recv(&mut [0; 10])
    });
    heard.err().map_or(0, number)
}

/// Of an end of the standard library's own, the kernel's number, or its words.
fn number(error: io::Error) -> i32 {
    match error.raw_os_error() {
        Some(errno) => errno,
        None if error.kind() == ErrorKind::TimedOut => ETIMEDOUT,
        None => panic!("an error without a number: {error}"),
    }
}

fn unreachable(pair: &Pair) -> Fault {
    Fault::new("error")
        .on(&pair.near, json!({"cidr": "10.77.0.2"}))
        .with(json!({"answer": "host_unreachable"}))
}

fn callers_hear_at_once_that_a_host_cannot_be_reached_and_of_no_other(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let echoes = [Echo::start(&pair.far, Pair::FAR_V4, 7)?, Echo::start(&pair.far, Pair::FAR_V6, 7)?];
        let [one, other] = echoes.each_ref().map(Echo::address);
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near, &pair.far])?;
        let calls = |to| (connect(&pair.near, to).0, datagram(&pair.near, to));
        assert_eq!((calls(one), calls(other)), ((0, 0), (0, 0)), "before");
        for (narrow, hit, spared) in [("10.77.0.2", one, other), ("fd77::2", other, one)] {
            let fault = unreachable(&pair).on(&pair.near, json!({"cidr": narrow}));
            fault.inject(&mcp)?;
            assert_eq!(connect_at_once(&pair.near, hit)?, EHOSTUNREACH, "{hit}");
            assert_eq!(datagram(&pair.near, hit), EHOSTUNREACH, "{hit}");
            assert_eq!(calls(spared), (0, 0), "a bystander");
            assert_eq!(fault.status(&mcp)?["state"], "effective");
            fault.remove(&mcp)?;
            assert_eq!(calls(hit), (0, 0), "after");
        }
        before.assert_unchanged_within(&[&pair.near, &pair.far], HANG)?;
        Ok(())
    })
}

fn each_answer_is_the_error_that_it_says(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let echoes = [Echo::start(&pair.far, Pair::FAR_V4, 7)?, Echo::start(&pair.far, Pair::FAR_V6, 7)?];
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let answers = [
        ("host_unreachable", EHOSTUNREACH, EHOSTUNREACH),
        ("network_unreachable", ENETUNREACH, ENETUNREACH),
        ("port_unreachable", ECONNREFUSED, ECONNREFUSED),
        ("admin_prohibited", EHOSTUNREACH, EACCES),
    ];
    let tried = |name: &str| name == "reset" || answers.iter().any(|(answer, ..)| *answer == name);
    assert!(ERROR_ANSWERS.iter().all(|(name, _)| tried(name)), "an answer is not tried");
    let normal = || -> TestResult {
        for echo in &echoes {
            let to = echo.address();
            assert_eq!((connect(&pair.near, to).0, datagram(&pair.near, to)), (0, 0), "{to} without a fault");
        }
        Ok(Outcome::Pass)
    };
    normal()?;
    for (answer, v4, v6) in answers {
        let fault =
            Fault::new("error").on(&pair.near, json!({"remote_port": 7})).with(json!({"answer": answer}));
        fault.inject(&mcp)?;
        for (echo, errno) in echoes.iter().zip([v4, v6]) {
            let to = echo.address();
            assert_eq!(
                (connect(&pair.near, to).0, datagram(&pair.near, to)),
                (errno, errno),
                "{answer} {to}"
            );
        }
        fault.remove(&mcp)?;
        normal()?;
    }
    Ok(Outcome::Pass)
}

fn remote_callers_and_pings_hear_it_too(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.near, Pair::NEAR_V4, 7)?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let answered = tcp_rtt(&pair.far, echo.address(), HANG)?;
        assert!(matches!(answered, Tcp::Answered { .. }), "before: {answered:?}");
        let fault = unreachable(&pair).on(&pair.near, json!({"direction": "ingress"}));
        fault.inject(&mcp)?;
        assert_eq!(connect_at_once(&pair.far, echo.address())?, EHOSTUNREACH);
        assert_eq!(datagram(&pair.far, echo.address()), EHOSTUNREACH);
        let mut ping = pair.far.command("ping");
        let said = ping.args(["-n", "-c1", "-W60", "10.77.0.1"]).env("LC_ALL", "C").output()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("Destination Host Unreachable"), "{said}");
        fault.remove(&mcp)?;
        let answered = tcp_rtt(&pair.far, echo.address(), HANG)?;
        assert!(matches!(answered, Tcp::Answered { .. }), "{answered:?}");
        Ok(())
    })
}

/// What a byte that is sent brings back: another, or an error.
fn echoed(mut end: &TcpStream) -> io::Result<usize> {
    end.set_read_timeout(Some(HANG))?;
    end.write_all(b"x")?;
    end.read(&mut [0; 10])
}

fn a_peer_is_refused_at_one_port_and_its_connections_there_are_reset(context: &Context) -> TestResult {
    const BESIDE: u16 = 8;
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near, &pair.far])?;
        for address in [Pair::NEAR_V4, Pair::NEAR_V6] {
            let listen = |port| Echo::start(&pair.near, address, port);
            let (echo, other) = (listen(7)?, listen(BESIDE)?);
            let open = |to: SocketAddr| pair.far.run(|| TcpStream::connect_timeout(&to, HANG));
            let (there, beside) = (open(echo.address())?, open(other.address())?);
            assert_eq!((echoed(&there)?, echoed(&beside)?), (1, 1), "before: {address}");
            let fault = Fault::new("error").on(&pair.near, json!({"port": 7, "direction": "ingress"}));
            fault.inject(&mcp)?;
            assert_eq!(connect_at_once(&pair.far, echo.address())?, ECONNREFUSED, "{address}");
            assert_reset_by_sending(&there, "a connection of the peer")?;
            assert_eq!((connect(&pair.far, other.address()).0, echoed(&beside)?), (0, 1), "a bystander");
            assert_eq!(fault.status(&mcp)?["state"], "effective");
            fault.remove(&mcp)?;
            assert_eq!((echoed(&open(echo.address())?)?, echoed(&beside)?), (1, 1), "after: {address}");
        }
        before.assert_unchanged_within(&[&pair.near, &pair.far], HANG)?;
        Ok(())
    })
}

fn an_unreachable_host_ends_at_its_time(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let before = Residue::take(&[&pair.near])?;
        let mcp = daemon.mcp()?;
        // Long enough for a slow machine to see it before it ends.
        let lasting = LEASE;
        let asked = Instant::now();
        unreachable(&pair).lasting(lasting).inject(&mcp)?;
        let start = Instant::now();
        assert_eq!(datagram(&pair.near, echo.address()), EHOSTUNREACH);
        // Nobody promises an answer to what was on its way when it ended.
        while datagram_within(AT_ONCE, &pair.near, echo.address()) != 0 {
            within(lasting + STANDSTILL, start.elapsed(), "it goes on")?;
        }
        assert_lasted(asked, lasting);
        udp_rtt_median(&pair.near, echo.address(), 3, HANG)?;
        before.assert_unchanged_within(&[&pair.near], HANG)?;
        Ok(())
    })
}

fn killing_every_process_at_once_ends_an_unreachable_host_at_once(context: &Context) -> TestResult {
    survives(context, Blow::Kill, unreachable)
}

fn stopping_every_process_ends_an_unreachable_host_with_the_lease(context: &Context) -> TestResult {
    survives(context, Blow::Stop, unreachable)
}

/// Both ends of a connection from the near to the far side.
fn connection(pair: &Pair, to: IpAddr) -> io::Result<[TcpStream; 2]> {
    let listener = pair.far.run(|| TcpListener::bind((to, 7)))?;
    let near = pair.near.run(|| TcpStream::connect_timeout(&listener.local_addr()?, HANG))?;
    let (far, _) = listener.accept()?;
    for end in [&near, &far] {
        end.set_nodelay(true)?;
    }
    Ok([near, far])
}

/// What the next read says within this time, behind the data.
fn heard(mut end: &TcpStream, within: Duration) -> io::Result<ErrorKind> {
    end.set_read_timeout(Some(within))?;
    loop {
        match end.read(&mut [0; 100]) {
            Ok(0) => return Ok(ErrorKind::UnexpectedEof),
            Ok(_) => {}
            Err(error) => return Ok(error.kind()),
        }
    }
}

/// Sends a segment, and expects the reset that it brings back.
fn assert_reset_by_sending(mut end: &TcpStream, which: &str) -> TestResult {
    end.write_all(b"x")?;
    assert_eq!(heard(end, HANG)?, ErrorKind::ConnectionReset, "{which}");
    Ok(Outcome::Pass)
}

fn an_error_both_ways_resets_either_end_of_a_connection_at_its_next_segment_and_not_before(
    context: &Context,
) -> TestResult {
    const IDLE: Duration = Duration::from_millis(200);
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        for (to, first) in [(Pair::FAR_V4, 0), (Pair::FAR_V6, 1)] {
            let ends = connection(&pair, to)?;
            let fault = Fault::new("error").on(&pair.near, json!({"port": 7, "direction": "both"}));
            fault.inject(&mcp)?;
            for end in &ends {
                assert_eq!(heard(end, IDLE)?, ErrorKind::WouldBlock, "it was reset while it was idle");
            }
            assert_reset_by_sending(&ends[first], "the end that sends")?;
            assert_eq!(heard(&ends[1 - first], IDLE)?, ErrorKind::WouldBlock, "the other end");
            assert_reset_by_sending(&ends[1 - first], "the other end, when it sends")?;
            fault.remove(&mcp)?;
            connection(&pair, to)?;
        }
        Ok(())
    })
}

fn an_error_of_what_leaves_resets_this_end_also_for_what_arrives(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    for to in [Pair::FAR_V4, Pair::FAR_V6] {
        let [near, mut far] = connection(&pair, to)?;
        let fault = Fault::new("error").on(&pair.near, json!({"port": 7}));
        fault.inject(&mcp)?;
        // What arrives is not met, but the acknowledgement of it is.
        far.write_all(b"x")?;
        assert_eq!(heard(&near, HANG)?, ErrorKind::ConnectionReset);
        fault.remove(&mcp)?;
        let [mut near, mut far] = connection(&pair, to)?;
        for end in [&near, &far] {
            end.set_read_timeout(Some(HANG))?;
        }
        far.write_all(b"x")?;
        assert_eq!(near.read(&mut [0; 10])?, 1, "what arrives after it");
        near.write_all(b"x")?;
        assert_eq!(far.read(&mut [0; 10])?, 1, "what leaves after it");
    }
    Ok(Outcome::Pass)
}
