//! TCP connections by which somebody reaches this host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use nix::libc;
use procfs::net::{TcpNetEntry, TcpState, tcp, tcp6};

/// Addresses of this host to which somebody is connected at one of `ports`, in the network namespace of this process.
///
/// # Errors
/// When procfs cannot be read. A kernel without IPv6 has no connections over it.
pub fn reached_at(ports: &[u16]) -> Result<Vec<IpAddr>, procfs::ProcError> {
    let six = unless_missing(tcp6())?;
    let here = |entry: &TcpNetEntry| {
        entry.state == TcpState::Established && ports.contains(&entry.local_address.port())
    };
    let all = tcp()?.into_iter().chain(six);
    Ok(all.filter(here).map(|entry| entry.local_address.ip().to_canonical()).collect())
}

/// A table that a kernel without IPv6 has not.
pub(super) fn unless_missing<T>(listed: procfs::ProcResult<Vec<T>>) -> procfs::ProcResult<Vec<T>> {
    match listed {
        Err(procfs::ProcError::NotFound(_)) => Ok(Vec::new()),
        listed => listed,
    }
}

/// Whether an address is one of this host's, in the network namespace of this thread. A datagram to an address of one's own
/// leaves from that same address; none is sent.
///
/// # Errors
/// When there is no socket to ask with, or it cannot say.
pub fn is_ours(address: IpAddr) -> io::Result<bool> {
    if address.is_loopback() {
        return Ok(true);
    }
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    match socket.connect((address, 9)) {
        Ok(()) => Ok(socket.local_addr()?.ip() == address),
        // It is nobody's here.
        Err(error) if has_no_way(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether connect(2) of a datagram socket has found no way to an address: no route, or one that only refuses (unreachable,
/// prohibit, blackhole; `fib_props` in the kernel's `net/ipv4/fib_semantics.c`), or no address to send from.
fn has_no_way(error: &io::Error) -> bool {
    const NO_WAY: [i32; 5] =
        [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL, libc::EADDRNOTAVAIL];
    error.raw_os_error().is_some_and(|number| NO_WAY.contains(&number))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_address_without_a_way_is_nobodys_here_and_a_socket_that_fails_does_not_say_so() {
        let of = |number| has_no_way(&io::Error::from_raw_os_error(number));
        assert!(of(libc::ENETUNREACH) && of(libc::EACCES) && of(libc::EINVAL));
        assert!(!of(libc::EIO) && !of(libc::ENOMEM) && !of(libc::EPERM));
        assert!(is_ours(Ipv4Addr::LOCALHOST.into()).unwrap());
        // RFC 5737: for documentation only.
        assert!(!is_ours(Ipv4Addr::new(192, 0, 2, 1).into()).unwrap());
    }

    #[test]
    fn somebody_who_is_connected_is_seen_at_that_port_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(reached_at(&[port]).unwrap(), Vec::<IpAddr>::new());
        let _near = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _far = listener.accept().unwrap();
        assert_eq!(reached_at(&[port]).unwrap(), [IpAddr::from(Ipv4Addr::LOCALHOST)]);
        assert_eq!(reached_at(&[]).unwrap(), Vec::<IpAddr>::new());
    }
}
