//! A server for UDP and TCP on one port of a namespace.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::netns::NetNs;

/// How often whoever waits for a datagram looks whether that is over.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Two threads that serve until this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Listens in a namespace, on this address and port. Each of the two serves its socket, on which it never waits long, until it
    /// is to stop.
    pub(crate) fn start(
        namespace: &NetNs,
        address: IpAddr,
        port: u16,
        over_udp: fn(&UdpSocket, &AtomicBool),
        over_tcp: fn(&TcpListener, &AtomicBool),
    ) -> Result<Self> {
        let address = SocketAddr::new(address, port);
        let sockets = namespace.run(|| -> io::Result<_> {
            let (udp, tcp) = (UdpSocket::bind(address)?, TcpListener::bind(address)?);
            udp.set_read_timeout(Some(POLL))?;
            tcp.set_nonblocking(true)?;
            Ok((udp, tcp))
        });
        let (udp, tcp) = sockets.map_err(Error::io("listen on", address.to_string()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stop_udp, stop_tcp) = (Arc::clone(&stop), Arc::clone(&stop));
        let threads = vec![
            std::thread::spawn(move || over_udp(&udp, &stop_udp)),
            std::thread::spawn(move || over_tcp(&tcp, &stop_tcp)),
        ];
        Ok(Self { address, stop, threads })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
