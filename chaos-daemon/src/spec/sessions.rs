//! What `connection_load` opens: connections to one server, held open, or opened and closed at a rate.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ip;
use super::settings::need;
use super::target::TargetRequest;
use super::units::{SpecError, time};

/// The most connections that are held at once.
pub const MOST_SESSIONS: u64 = 20_000;
/// The most connections that are opened in a second.
pub const MOST_PER_SECOND: u64 = 2_000;
/// What `params.url` looks like, for people.
const FORMS: &str = "tcp://ADDRESS:PORT, unix:/PATH, http://ADDRESS:PORT/PATH, mcp+http://ADDRESS:PORT/PATH or \
                     mcp+unix:/PATH";

/// Connections to be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionLoad {
    /// To whom.
    pub server: Server,
    /// How many.
    pub amount: Amount,
    /// How long a connection may take to open, and each answer to come.
    pub timeout: Duration,
    /// How long it takes until all of it is there.
    pub ramp: Duration,
    /// The network namespace that they are opened in, as the caller named it; `None` is the daemon's own.
    pub netns: Option<String>,
}

/// Who is connected to, and what is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Where it listens.
    pub place: Place,
    /// What is said on a connection once it is open.
    pub exchange: Exchange,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A unix socket, by its path.
    Unix(PathBuf),
}

/// What is said on a connection once it is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// Nothing.
    Nothing,
    /// One GET, which leaves the connection open.
    Http {
        /// Of this path.
        path: String,
    },
    /// The handshake of an MCP session, and a question for its tools: by POST to this path, or line by line without one.
    Mcp {
        /// Path of the endpoint.
        path: Option<String>,
    },
}

/// How many connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// So many are held; one that is lost or refused is tried again.
    Held(u64),
    /// So many are opened, and closed again, each second.
    PerSecond(u64),
}

/// What `connection_load` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LoadParams {
    /// Which server of this host: tcp://ADDRESS:PORT, unix:/PATH, http://ADDRESS:PORT/PATH, mcp+http://ADDRESS:PORT/PATH or
    /// mcp+unix:/PATH.
    url: String,
    /// How many connections to hold.
    #[schemars(range(min = 1, max = MOST_SESSIONS))]
    sessions: Option<u64>,
    /// In place of holding some: how many connections to open and close.
    #[schemars(range(min = 1, max = MOST_PER_SECOND))]
    connections_per_second: Option<u64>,
    /// How long opening, and each answer, may take.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 10.0, max = 30_000.0))]
    timeout_ms: f64,
}

fn timeout_ms() -> f64 {
    1000.0
}

impl LoadParams {
    /// The load that is asked for, on this target.
    pub(super) fn load(&self, ramp: Duration, target: &TargetRequest) -> Result<ConnectionLoad, SpecError> {
        let server = Server::parse(&self.url)?;
        let netns = target.netns.clone();
        if (TargetRequest { netns: None, ..target.clone() }) != TargetRequest::default() {
            let problem = "params.url says where the connections go: give netns, or nothing";
            return Err(SpecError::new("target", problem));
        }
        if netns.is_some() && matches!(server.place, Place::Unix(_)) {
            let problem = "a unix socket is found by its path in every namespace: leave the target out";
            return Err(SpecError::new("target.netns", problem));
        }
        Ok(ConnectionLoad { server, amount: self.amount()?, timeout: time(self.timeout_ms), ramp, netns })
    }

    fn amount(&self) -> Result<Amount, SpecError> {
        match (self.sessions, self.connections_per_second) {
            (Some(count), None) => Ok(Amount::Held(count)),
            (None, Some(rate)) => Ok(Amount::PerSecond(rate)),
            (Some(_), Some(_)) => Err(SpecError::new(
                "params.connections_per_second",
                "give sessions or connections_per_second, not both: two faults can be active at once",
            )),
            (None, None) => need("params.sessions", None, "how many to hold, or connections_per_second"),
        }
    }
}

impl Server {
    /// Parses a `params.url`.
    ///
    /// # Errors
    /// Names what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, SpecError> {
        let wrong = |problem: String| Err(SpecError::new("params.url", problem));
        if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return wrong(format!("{url:?} has a blank in it: give {FORMS}"));
        }
        let Some((scheme, rest)) = url.split_once(':') else {
            return wrong(format!("{url:?} is no URL: give {FORMS}"));
        };
        let (authority, path) = split(rest);
        let mcp = |path| Exchange::Mcp { path };
        let (place, exchange) = match scheme {
            "tcp" if path.is_empty() => (tcp(url, authority, None)?, Exchange::Nothing),
            "tcp" => return wrong(format!("{url:?}: a tcp URL ends with its port")),
            "unix" => (unix(url, rest)?, Exchange::Nothing),
            "http" => (tcp(url, authority, Some(80))?, Exchange::Http { path: or_root(path) }),
            "mcp+http" => (tcp(url, authority, Some(80))?, mcp(Some(or_root(path)))),
            "mcp+unix" => (unix(url, rest)?, mcp(None)),
            "https" | "mcp+https" => return wrong("TLS is not available: give http or tcp".to_owned()),
            _ => return wrong(format!("{scheme:?} is not known: give {FORMS}")),
        };
        Ok(Self { place, exchange })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{} port {}", address.ip(), address.port()),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "connections",
            Self::Http { .. } => "HTTP connections",
            Self::Mcp { .. } => "MCP sessions",
        })
    }
}

/// What follows the scheme, as authority and path.
fn split(rest: &str) -> (&str, &str) {
    let rest = rest.strip_prefix("//").unwrap_or_default();
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// A path as a request names it: not empty, and without a fragment.
fn or_root(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// A name is not looked up: whose addresses they are has to be known before anything is opened.
fn tcp(url: &str, authority: &str, port: Option<u16>) -> Result<Place, SpecError> {
    let (host, given) = match authority.rsplit_once(':') {
        Some((host, digits)) if !digits.ends_with(']') => (host, digits.parse().ok()),
        _ => (authority, port),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address = match bare {
        "localhost" => Some(IpAddr::from(Ipv4Addr::LOCALHOST)),
        other => ip::address(other),
    };
    let problem = match (address, given) {
        (Some(address), Some(port)) if port != 0 && !address.is_unspecified() && !address.is_multicast() => {
            return Ok(Place::Tcp(SocketAddr::new(address, port)));
        }
        (None, _) => format!("{url:?}: {host:?} is no address: give one of this host, or localhost"),
        (Some(address), Some(port)) if port != 0 => {
            format!("{url:?}: nobody can be connected to at {address}")
        }
        _ => format!("{url:?} names no port: give {FORMS}"),
    };
    Err(SpecError::new("params.url", problem))
}

fn unix(url: &str, rest: &str) -> Result<Place, SpecError> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    match path.starts_with('/') && path.len() > 1 {
        true => Ok(Place::Unix(PathBuf::from(path))),
        false => Err(SpecError::new("params.url", format!("{url:?}: give the absolute path of a socket"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::FaultType;
    use crate::spec::effect::Effect;
    use crate::spec::fault;

    #[test]
    fn a_url_says_where_and_what_is_said() {
        let at = |text: &str| Place::Tcp(text.parse().unwrap());
        let path = |path: &str| path.to_owned();
        for (url, place, exchange) in [
            ("tcp://127.0.0.1:5432", at("127.0.0.1:5432"), Exchange::Nothing),
            ("tcp://[::1]:80", at("[::1]:80"), Exchange::Nothing),
            ("tcp://[::ffff:10.0.0.5]:80", at("10.0.0.5:80"), Exchange::Nothing),
            ("unix:/run/a.sock", Place::Unix("/run/a.sock".into()), Exchange::Nothing),
            ("http://localhost", at("127.0.0.1:80"), Exchange::Http { path: path("/") }),
            ("http://10.0.0.7:8080/a?b#c", at("10.0.0.7:8080"), Exchange::Http { path: path("/a?b") }),
            ("http://[::1]/?q", at("[::1]:80"), Exchange::Http { path: path("/?q") }),
            ("mcp+http://127.0.0.1:3/mcp", at("127.0.0.1:3"), Exchange::Mcp { path: Some(path("/mcp")) }),
            ("mcp+unix:///run/a.sock", Place::Unix("/run/a.sock".into()), Exchange::Mcp { path: None }),
        ] {
            assert_eq!(Server::parse(url).unwrap(), Server { place, exchange }, "{url}");
        }
        for bad in [
            "",
            "127.0.0.1:80",
            "tcp://127.0.0.1",
            "tcp://127.0.0.1:0",
            "tcp://127.0.0.1:80/",
            "tcp://0.0.0.0:80",
            "tcp://[::ffff:0.0.0.0]:80",
            "tcp://[::ffff:224.0.0.1]:80",
            "http://example.org",
            "https://127.0.0.1",
            "unix:a",
            "mcp+unix:",
            "ftp://127.0.0.1:21",
            "http://127.0.0.1:8080/a b",
            "tcp://224.0.0.1:80",
            "tcp:127.0.0.1:80",
        ] {
            assert_eq!(Server::parse(bad).unwrap_err().field, "params.url", "{bad:?} was accepted");
        }
    }

    #[test]
    fn connections_are_held_or_opened_at_a_rate_within_bounds_and_go_where_the_url_says() {
        let load = |params: serde_json::Value, target: serde_json::Value| match fault::tests::parse(
            FaultType::ConnectionLoad,
            &target.to_string(),
            params,
        )?
        .effect
        {
            Effect::Load(load) => Ok::<_, SpecError>(load),
            other => panic!("{other:?}"),
        };
        let url = "tcp://127.0.0.1:1";
        let held = load(json!({"url": url, "sessions": 5}), json!({"netns": "blue"})).unwrap();
        assert_eq!((held.amount, held.timeout), (Amount::Held(5), Duration::from_secs(1)));
        for (params, target, field) in [
            (json!({"sessions": 5}), json!({}), "params.url"),
            (json!({"url": url}), json!({}), "params.sessions"),
            (json!({"url": url, "sessions": 0}), json!({}), "params.sessions"),
            (json!({"url": url, "sessions": 20_001}), json!({}), "params.sessions"),
            (json!({"url": url, "connections_per_second": 2001}), json!({}), "params.connections_per_second"),
            (
                json!({"url": url, "sessions": 1, "connections_per_second": 1}),
                json!({}),
                "params.connections_per_second",
            ),
            (json!({"url": url, "sessions": 1, "timeout_ms": 1}), json!({}), "params.timeout_ms"),
            (json!({"url": url, "sessions": 1, "ramp_seconds": -1}), json!({}), "params.ramp_seconds"),
            (json!({"url": url, "sessions": 1}), json!({"port": 1}), "target"),
            (json!({"url": "unix:/a", "sessions": 1}), json!({"netns": "blue"}), "target.netns"),
        ] {
            assert_eq!(load(params.clone(), target).unwrap_err().field, field, "{params}");
        }
    }
}
