//! One port, bound and held.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{Ipv6V6Only, RcvBuf};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket};

use super::{Step, Store};
use crate::request::Evidence;
use crate::request::evidence::Things;
use crate::spec::LocalPort;

/// A port, and the socket that holds it.
#[derive(Debug)]
pub(super) struct Port {
    local: LocalPort,
    socket: Option<OwnedFd>,
}

impl Port {
    /// Takes nothing yet.
    pub(super) fn open(local: LocalPort) -> Self {
        Self { local, socket: None }
    }

    /// A socket that nobody else can bind beside: it allows no reuse.
    fn bound(&self) -> Result<OwnedFd, Errno> {
        let Some(address) = self.local.address else {
            return match self.bound_to(Ipv6Addr::UNSPECIFIED.into()) {
                // A kernel without IPv6.
                Err(Errno::EAFNOSUPPORT) => self.bound_to(Ipv4Addr::UNSPECIFIED.into()),
                bound => bound,
            };
        };
        self.bound_to(address)
    }

    fn bound_to(&self, address: std::net::IpAddr) -> Result<OwnedFd, Errno> {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let kind = if self.local.udp { SockType::Datagram } else { SockType::Stream };
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
        if family == AddressFamily::Inet6 {
            setsockopt(&socket, Ipv6V6Only, &self.local.address.is_some())?;
        }
        // Nobody reads what comes: the kernel shall keep as little of it as it can.
        setsockopt(&socket, RcvBuf, &0)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, self.local.port)))?;
        Ok(socket)
    }
}

/// Why a port cannot be held, for people.
fn words(local: LocalPort, errno: Errno) -> String {
    match errno {
        Errno::EADDRINUSE => format!("{local} is in use already; `ss -anp` shows by whom: stop that first"),
        Errno::EADDRNOTAVAIL => format!("{local}: that is no address of this host or network namespace"),
        Errno::EACCES => {
            format!(
                "{local} takes CAP_NET_BIND_SERVICE; the documentation says which drop-in gives it to an installed daemon"
            )
        }
        other => format!("bind a socket to {local}: {other}"),
    }
}

impl Store for Port {
    fn goal(&self) -> u64 {
        1
    }

    fn take(&mut self, _wanted: u64) -> io::Result<Step> {
        if self.socket.is_none() {
            let failed =
                |errno: Errno| io::Error::new(io::Error::from(errno).kind(), words(self.local, errno));
            self.socket = Some(self.bound().map_err(failed)?);
        }
        Ok(Step::Enough)
    }

    fn give_back(&mut self) {
        self.socket = None;
    }

    fn held(&mut self) -> Evidence {
        Evidence::Things(Things { things_held: self.socket.is_some().into(), shortfall: None })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_port_of_every_address_is_in_the_way_of_each_and_free_when_given_back() {
        // Below the ports that the kernel chooses, so that no other test is given this one in between.
        let (free, mut port) = (20_000..30_000)
            .find_map(|number| {
                let mut port = Port::open(LocalPort { udp: false, address: None, port: number });
                port.take(1).is_ok().then_some((number, port))
            })
            .unwrap();
        assert_eq!(port.held().held(), 1);
        for address in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
            let bound = TcpListener::bind((address, free));
            assert_eq!(bound.unwrap_err().kind(), io::ErrorKind::AddrInUse, "{address}");
        }
        port.give_back();
        assert!(TcpListener::bind(("127.0.0.1", free)).is_ok());
    }

    #[test]
    fn a_port_that_is_taken_is_refused_by_name() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = taken.local_addr().unwrap().port();
        let local = LocalPort { udp: true, address: Some(Ipv4Addr::LOCALHOST.into()), port: number };
        let error = Port::open(local).take(1).err().unwrap();
        let expected = format!("UDP port {number} of 127.0.0.1 is in use already");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}
