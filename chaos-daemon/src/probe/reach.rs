//! Whom the samples of this process may ask, and which addresses a name has. A name is looked up once a sample, so that a series of a
//! hundred requests is no load of a name server.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task_local;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use super::names::addresses_of;
use super::{blocking, late};
use crate::spec::Reach;

/// The most look-ups of this process at once: a name server that does not answer keeps each for a while.
const MOST_AT_ONCE: usize = 64;
/// The most addresses of a name that are tried: as many as the HTTP client takes.
const MOST_ADDRESSES: usize = 16;

static LOOK_UPS: AtomicUsize = AtomicUsize::new(0);

task_local! {
    static WITHIN: Arc<Within>;
}

/// What holds for one sample.
#[derive(Debug)]
pub(super) struct Within {
    reach: Reach,
    /// Names that were looked up.
    known: Mutex<BTreeMap<String, Vec<IpAddr>>>,
}

/// Why an address is not asked.
#[derive(Debug)]
enum Unasked {
    Refused(String),
    Late(Duration),
}

impl fmt::Display for Unasked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Late(limit) => write!(f, "looking its name up: {}", late(*limit)),
        }
    }
}

impl std::error::Error for Unasked {}

/// Does something for one sample, which asks nobody outside of this.
pub async fn within<T>(reach: Reach, work: impl Future<Output = T>) -> T {
    WITHIN.scope(Arc::new(Within { reach, known: Mutex::default() }), work).await
}

/// Does a part of a sample, or all of one that is taken for whoever has started this process, who may ask everybody.
pub(super) async fn of_sample<T>(work: impl Future<Output = T>) -> T {
    match WITHIN.try_with(Arc::clone) {
        Ok(_) => work.await,
        Err(_) => within(Reach::all(), work).await,
    }
}

/// The same work for another thread.
pub(super) fn carried<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let current = WITHIN.try_with(Arc::clone);
    move || match current {
        Ok(current) => WITHIN.sync_scope(current, work),
        Err(_) => work(),
    }
}

/// Connects to a host, by its name or its address, which takes no longer than `limit`.
///
/// # Errors
/// Why there is no connection.
pub(super) async fn connect(host: &str, port: u16, limit: Duration) -> Result<TcpStream, String> {
    let name = host.to_owned();
    let addresses = match host.parse::<IpAddr>() {
        // The usual case needs no thread.
        Ok(_) => addresses(host, limit),
        Err(_) => blocking(limit, move || addresses(&name, limit)).await?,
    };
    let places =
        addresses.map_err(|why| why.to_string())?.into_iter().map(|address| SocketAddr::new(address, port));
    // OPENS: the caller | the prober | a process without rights; to what the policy lets be asked
    TcpStream::connect(places.collect::<Vec<_>>().as_slice()).await.map_err(|error| error.to_string())
}

/// A client of HTTP that asks nobody else.
pub(super) fn agent(config: Config) -> ureq::Agent {
    ureq::Agent::with_parts(config, DefaultConnector::default(), Names)
}

/// The addresses of a host that may be asked.
fn addresses(host: &str, limit: Duration) -> Result<Vec<IpAddr>, Unasked> {
    let all = Arc::new(Within { reach: Reach::all(), known: Mutex::default() });
    let current = WITHIN.try_with(Arc::clone).unwrap_or(all);
    let found = match host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => current.look_up(host, limit)?,
    };
    let (may, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| current.reach.has(*address));
    match (may.is_empty(), others.first()) {
        (true, Some(other)) => Err(Unasked::Refused(format!(
            "{other} is none of the addresses that probes may ask (limits.probe_addresses)"
        ))),
        (true, None) => Err(Unasked::Refused(format!("{host:?} has no address"))),
        (false, _) => Ok(may),
    }
}

impl Within {
    fn look_up(&self, host: &str, limit: Duration) -> Result<Vec<IpAddr>, Unasked> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(host) {
            return Ok(found.clone());
        }
        let mut found = look_up(host, limit)?;
        found.truncate(MOST_ADDRESSES);
        known().insert(host.to_owned(), found.clone());
        Ok(found)
    }
}

/// A look-up that goes on, also when nobody waits for it any more.
struct Turn;

impl Turn {
    fn take() -> Option<Self> {
        let more = |count: usize| (count < MOST_AT_ONCE).then_some(count + 1);
        LOOK_UPS.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        LOOK_UPS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// On a thread of its own: nothing ends a look-up that has begun.
fn look_up(host: &str, limit: Duration) -> Result<Vec<IpAddr>, Unasked> {
    let refused = |why: String| Unasked::Refused(why);
    let turn = Turn::take().ok_or_else(|| refused(format!("{MOST_AT_ONCE} names are looked up already")))?;
    let (tell, told) = mpsc::sync_channel(1);
    let name = host.to_owned();
    let work = move || {
        let _turn = turn;
        // Nobody who waits any more is fine.
        let _ = tell.send(addresses_of(&name));
    };
    thread::Builder::new().name("name".to_owned()).spawn(work).map_err(|error| refused(error.to_string()))?;
    match told.recv_timeout(limit) {
        Ok(found) => found.map_err(|error| refused(error.to_string())),
        Err(_) => Err(Unasked::Late(limit)),
    }
}

/// The addresses of names for the client of HTTP.
#[derive(Debug)]
struct Names;

impl Resolver for Names {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().ok_or(ureq::Error::HostNotFound)?;
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(usual);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let found = addresses(host, *timeout.after).map_err(|why| match why {
            Unasked::Late(_) => ureq::Error::Timeout(timeout.reason),
            refused => ureq::Error::Other(Box::new(refused)),
        })?;
        let mut places = self.empty();
        found
            .into_iter()
            .take(MOST_ADDRESSES)
            .for_each(|address| places.push(SocketAddr::new(address, port)));
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::probe::{Bounds, Check, Probe};
    use crate::waits::HANG;

    fn own() -> Reach {
        Reach { prefixes: vec!["127.0.0.1/32".parse().unwrap()] }
    }

    #[tokio::test]
    async fn what_the_policy_does_not_let_be_asked_is_not_asked_in_whatever_form_it_is_named() {
        for address in ["127.0.0.2", "::1", "::ffff:127.0.0.2", "127.2", "0x7f000002"] {
            let refused = within(own(), connect(address, 9, HANG)).await.unwrap_err();
            assert!(refused.contains("none of the addresses that probes may ask"), "{address}: {refused}");
            let url = if address.contains(':') {
                format!("http://[{address}]:9/")
            } else {
                format!("http://{address}:9/")
            };
            let check = Check::http("url", &url, Vec::new()).unwrap();
            let probe = Probe { check, timeout: HANG, bounds: Bounds::default() };
            let sample = within(own(), probe.sample()).await;
            assert!(
                sample.detail.contains("none of the addresses that probes may ask"),
                "{address}: {sample:?}"
            );
        }
        // Refused by the kernel, and not by this.
        let refused = within(own(), connect("127.0.0.1", 9, HANG)).await.unwrap_err();
        assert!(refused.contains("refused"), "{refused}");
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_a_sample_and_anew_in_the_next() {
        let looked_up = async || WITHIN.with(|within| within.known.lock().unwrap().clone());
        within(Reach::all(), async {
            let _refused = connect("localhost", 9, HANG).await;
            assert_eq!(looked_up().await.keys().collect::<Vec<_>>(), ["localhost"]);
            let begun = Instant::now();
            let found = addresses("localhost", Duration::ZERO);
            assert!(found.is_ok(), "{found:?} after {:?}", begun.elapsed());
        })
        .await;
        within(Reach::all(), async { assert!(looked_up().await.is_empty()) }).await;
    }
}
