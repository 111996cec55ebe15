//! Whether a port accepts a connection.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Sampler, Seen, late, reach};
use crate::spec::SpecError;

/// A port that is connected to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Connection {
    /// Understands `HOST:PORT` or `[IPV6]:PORT`, which stands at `field` of the request.
    ///
    /// # Errors
    /// When `address` is not of that form.
    pub fn parse(field: &str, address: &str) -> Result<Self, SpecError> {
        let parts = address.rsplit_once(':').and_then(|(host, port)| {
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let port = port.parse::<u16>().ok().filter(|port| *port != 0)?;
            (!host.is_empty()).then(|| Self { host: host.to_owned(), port })
        });
        parts.ok_or_else(|| {
            SpecError::new(field, format!("{address:?} is not HOST:PORT: give e.g. \"127.0.0.1:5432\""))
        })
    }

    /// Connects; looking the name up takes no longer than `limit`.
    pub(super) async fn open(&self, limit: Duration) -> Result<TcpStream, String> {
        let stream = reach::connect(&self.host, self.port, limit).await?;
        // A closed local port may be picked as our own end, and then TCP connects to itself.
        match (stream.local_addr(), stream.peer_addr()) {
            (Ok(local), Ok(peer)) if local == peer => Err("nobody but ourselves listens there".to_owned()),
            (_, Err(error)) => Err(error.to_string()),
            _ => Ok(stream),
        }
    }
}

impl Sampler for Connection {
    async fn take(&self, limit: Duration) -> Seen {
        let verdict = match timeout(limit, self.open(limit)).await {
            Ok(opened) => opened.map(|_| "connected".to_owned()),
            Err(_) => Err(late(limit)),
        };
        Seen { verdict, answer: None, value: None, no_data: None }
    }

    fn measures_time(&self) -> bool {
        true
    }

    fn host(&self) -> Option<String> {
        Some(self.host.clone())
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connect to {} port {}", self.host, self.port)
    }
}
