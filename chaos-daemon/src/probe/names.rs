//! Addresses of hosts, looked up for the injector: what a fault names.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::thread;

use tokio::net::UnixStream;
use tokio::sync::oneshot;

use crate::request::line::answer_questions;
use crate::request::names::MOST_ADDRESSES;

/// Looks names up, all at once, until the injector is gone.
pub async fn serve(injector: UnixStream) {
    answer_questions(injector, |host: String| async move {
        let found = look_up(host).await;
        found.map_err(|error| error.to_string())
    })
    .await;
}

/// On a thread of its own, since name servers may take long, and samples are not to wait for one: the injector bounds how many there
/// are.
async fn look_up(host: String) -> io::Result<Vec<IpAddr>> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        // Nobody who waits any more is fine.
        let _ = tell.send(addresses_of(&host));
    };
    thread::Builder::new().name("name".to_owned()).spawn(work)?;
    told.await.map_err(io::Error::other)?
}

pub(super) fn addresses_of(host: &str) -> io::Result<Vec<IpAddr>> {
    // OPENS: the caller; name servers | the prober | a process without rights, shut in by Landlock
    let found = (host, 0).to_socket_addrs()?;
    Ok(found.map(|address| address.ip().to_canonical()).take(MOST_ADDRESSES as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::names::resolver;

    #[tokio::test]
    async fn the_injector_is_told_the_addresses_of_a_name_or_why_it_has_none() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(serve(theirs));
        let resolver = resolver();
        resolver.connect(ours);
        let ask = async |host: &str| resolver.ask(host.to_owned()).await.unwrap();
        assert!(ask("localhost").await.unwrap().iter().all(IpAddr::is_loopback));
        assert_eq!(ask("::ffff:10.0.0.7").await, Ok(vec![IpAddr::from([10, 0, 0, 7])]));
        // No name of a host has a blank.
        let none = ask("no such host").await;
        assert!(none.as_ref().is_err_and(|error| error.contains("lookup")), "{none:?}");
    }
}
