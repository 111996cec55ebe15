//! Who listens where operators come in, whatever it is called.

use std::io;

use super::super::listening::{Listening, listening, owners};
use super::super::process::Running;

/// Ports at which hosts are reached from afar, by protocol (IANA's registry of ports): SSH, Telnet, rlogin, remote desktops, VPNs, and
/// the agents of who runs the machine.
const PORTS: &[(&str, u16)] = &[
    ("tcp", 22),
    ("tcp", 23),
    ("tcp", 513),
    ("tcp", 514),
    ("tcp", 992),
    ("tcp", 3389),
    ("tcp", 5900),
    ("tcp", 5901),
    ("udp", 500),
    ("udp", 1194),
    ("tcp", 1194),
    ("udp", 4500),
    ("udp", 41_641),
    ("udp", 51_820),
    ("udp", 60_001),
];

/// Whether a socket is at such a port.
fn is_way_in(socket: &Listening) -> bool {
    PORTS.contains(&(socket.protocol, socket.address.port()))
}

/// Marks those who listen where operators come in, in the network namespace of this thread.
///
/// # Errors
/// When sockets cannot be listed, or the thread's [budget](crate::host::budget) is spent.
pub fn mark(processes: &mut [Running]) -> io::Result<()> {
    if processes.is_empty() {
        return Ok(());
    }
    let mut sockets = listening().map_err(io::Error::other)?;
    sockets.retain(is_way_in);
    // Of each process alone: several may have one socket.
    for process in processes.iter_mut().filter(|_| !sockets.is_empty()) {
        process.listens = !owners(&sockets, &[process.id.pid])?.is_empty();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_listens_at_another_port_is_no_way_in() {
        let _socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut me = [Running::read(std::process::id().cast_signed()).unwrap()];
        mark(&mut me).unwrap();
        assert!(!me[0].listens);
    }

    #[test]
    fn ways_in_are_known_by_protocol_and_port() {
        let socket =
            |protocol, port| Listening { protocol, address: ([0, 0, 0, 0], port).into(), uid: 0, inode: 1 };
        assert!(is_way_in(&socket("tcp", 22)) && is_way_in(&socket("udp", 51_820)));
        assert!(!is_way_in(&socket("udp", 22)) && !is_way_in(&socket("tcp", 8080)));
    }
}
