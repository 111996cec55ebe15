//! Connection load: connections to a server of this host are held open, or opened and closed at a rate.
//!
//! - **Mechanism**: a holder of its own connects, says what the protocol begins with (nothing, a GET, or the handshake of an MCP
//!   session and a question for its tools), and keeps the connection. What is refused or lost is tried again a second later.
//! - **Kernel requirement**: none.
//! - **Lifetime class**: kernel: the connections are closed with the process, by a reset, so that none lingers. A stopped one is
//!   killed by its timer when the lease runs out.
//! - **Undo**: end the holder. A server that keeps MCP sessions beyond their connections is told of their end by DELETE, but not
//!   by a holder that is killed: then they last as long as that server keeps them.
//! - **Blast radius**: the server, and whoever else is served by it. Another host only if the policy names it.
//! - **Reference**: socket(7) (`SO_LINGER`), RFC 9112, Model Context Protocol 2025-06-18 (transports).

use std::fmt::Write;

use super::{Goal, HoardWork, Plan, Work, descriptors};
use crate::host::Identity;
use crate::host::socket_file::SparedSockets;
use crate::request::ApiError;
use crate::spec::LifetimeClass;
use crate::spec::sessions::{Amount, ConnectionLoad};

/// Plans it; the process may have `most` descriptors, and connects as `identity`, and to none of the sockets that are `spared`.
///
/// # Errors
/// [`crate::request::ErrorCode::LimitReached`] when one process cannot have so many.
pub fn plan(
    load: &ConnectionLoad,
    most: u64,
    spared: &SparedSockets,
    identity: &Identity,
) -> Result<Plan, ApiError> {
    let ConnectionLoad { server, amount, timeout, ramp, netns } = load;
    let mut description = match amount {
        Amount::Held(count) => {
            descriptors::fits_process(*count, most)?;
            format!("connection_load: holds {count} {} to {}", server.exchange, server.place)
        }
        Amount::PerSecond(rate) => {
            format!(
                "connection_load: opens and closes {rate} {} a second to {}",
                server.exchange, server.place
            )
        }
    };
    if let Some(netns) = netns {
        // Writing to a string cannot fail.
        let _ = write!(description, " in namespace {netns}");
    }
    if !ramp.is_zero() {
        let _ = write!(description, ", all of it after {ramp:?}");
    }
    let (server, spared) = (server.clone(), spared.clone());
    let goal = Goal::Connections { server, amount: *amount, limit: *timeout, spared };
    Ok(Plan {
        work: Work::Hoard(HoardWork { goal, ramp: *ramp, cgroup: None, identity: identity.clone() }),
        steps: Vec::new(),
        lifetime: LifetimeClass::Kernel,
        description,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::spec::sessions::Server;

    #[test]
    fn one_process_holds_no_more_than_it_may_have_open() {
        let load = |amount| ConnectionLoad {
            server: Server::parse("mcp+http://127.0.0.1:8080/mcp").unwrap(),
            amount,
            timeout: Duration::from_secs(1),
            ramp: Duration::from_secs(5),
            netns: None,
        };
        let plan = |load: &ConnectionLoad, most| plan(load, most, &SparedSockets::default(), &Identity::ROOT);
        let words = plan(&load(Amount::Held(900)), 1024).unwrap().description;
        assert_eq!(
            words,
            "connection_load: holds 900 MCP sessions to 127.0.0.1 port 8080, all of it after 5s"
        );
        assert!(plan(&load(Amount::Held(1000)), 1024).is_err());
        assert!(plan(&load(Amount::PerSecond(2000)), 1024).is_ok());
    }
}
