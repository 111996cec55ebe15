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

use super::Ready;
use super::look::Eyes;
use super::{Goal, HoardWork, Plan, Work, descriptors};
use crate::host::listening::{all_owners, listening};
use crate::host::process::{Owner, numbers};
use crate::host::protected::{Rule, ways_in};
use crate::host::socket_file::SocketFile;
use crate::host::socket_file::SparedSockets;
use crate::host::supply::Descriptors;
use crate::host::{Aim, Identity, Running};
use crate::host::{NetNs, connections};
use crate::policy::Permit;
use crate::request::ApiError;
use crate::request::ErrorCode;
use crate::spec::LifetimeClass;
use crate::spec::sessions::Place;
use crate::spec::sessions::{Amount, ConnectionLoad};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Looks whether the server may be loaded, at files as the caller, and plans it.
///
/// # Errors
/// Names who may not be connected to, and why.
pub(super) fn prepare(load: &ConnectionLoad, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    let identity = eyes.identity();
    let netns = load.netns.as_ref().map(|name| eyes.entrance.open(name)).transpose()?;
    let spared = match &load.server.place {
        Place::Tcp(address) => {
            let there = netns.as_ref().unwrap_or(eyes.home);
            tcp(*address, eyes.permit, there)?;
            refuse_served_by_whom_the_host_needs(*address, there, eyes)?;
            SparedSockets::default()
        }
        Place::Unix(path) => {
            let (file, spared) = unix(path, eyes.runtime_dir, identity)?;
            let servers = file.servers().map_err(|error| unknown_servers(&path.display(), &error))?;
            refuse_servers(&path.display(), &servers, eyes)?;
            spared
        }
    };
    let open = Descriptors::read().map_err(|error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look at the host's open files: {error}"))
    })?;
    let plan = plan(load, open.process, &spared, identity)?;
    Ok(Ready { netns, ..plan.into() })
}

fn tcp(address: SocketAddr, permit: &Permit, netns: &NetNs) -> Result<(), ApiError> {
    let (ip, port) = (address.ip(), address.port());
    let ours = netns.inside(|| connections::is_ours(ip)).map_err(|error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("params.url: look whose address {ip} is: {error}"))
    })?;
    if !ours && !permit.may_load(ip) {
        let text = format!("params.url: {ip} is no address of this host, or of the network namespace named");
        return Err(ApiError::new(ErrorCode::PolicyDenied, text)
            .hint("rule `load_cidrs` of the daemon's policy file can allow other hosts; only the operator changes it"));
    }
    let protected = permit.protected();
    if protected.cidrs.iter().any(|prefix| prefix.contains(&ip)) {
        return Err(spared(format!("{ip} is protected by the policy")));
    }
    if ours && protected.tcp_ports.contains(&port) {
        return Err(spared(format!("TCP port {port} of this host is protected by the policy")));
    }
    Ok(())
}

/// A load is felt by who serves: whom a rule or the table protects from being hit is protected from it, too.
fn refuse_served_by_whom_the_host_needs(
    address: SocketAddr,
    netns: &NetNs,
    eyes: &Eyes<'_>,
) -> Result<(), ApiError> {
    let failed = |error: &dyn std::fmt::Display| unknown_servers(&address, error);
    let mut sockets =
        netns.inside(|| listening().map_err(io::Error::other)).map_err(|error| failed(&error))?;
    sockets.retain(|socket| socket.protocol == "tcp" && socket.address.port() == address.port());
    if sockets.is_empty() {
        return Ok(());
    }
    let all = numbers().map_err(|error| failed(&error))?;
    let wanted = sockets.iter().map(|socket| socket.inode).collect();
    let owners = all_owners(&wanted, &all).map_err(|error| failed(&error))?;
    for owners in owners.values() {
        refuse_servers(&address, owners, eyes)?;
    }
    Ok(())
}

fn unknown_servers(place: &dyn std::fmt::Display, error: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(ErrorCode::InjectionFailed, format!("params.url: look who serves {place}: {error}"))
}

/// Refuses a place that is served by whom the host needs; `owners` have its socket.
fn refuse_servers(place: &dyn std::fmt::Display, owners: &[i32], eyes: &Eyes<'_>) -> Result<(), ApiError> {
    // Whoever is logged in by it is loaded, and not hit.
    let whosever = |process: Running| {
        let owner = Owner { terminal: 0, login: None, ..process.owner };
        Running { owner, ..process }
    };
    let mut servers: Vec<_> = owners.iter().copied().filter_map(Running::read).map(whosever).collect();
    let spared_ones = eyes.spared.with_session();
    // The service manager keeps the sockets of services that it starts.
    if servers.len() > 1 {
        servers.retain(|process| process.id.pid != 1);
    }
    // These stand before a container, whose port it is.
    servers.retain(|process| !matches!(&*process.name, "docker-proxy" | "rootlessport"));
    ways_in::mark(&mut servers).map_err(|error| unknown_servers(place, &error))?;
    let mut protected =
        servers.iter().filter_map(|process| Some((process.protected(Aim::AtPlace, &spared_ones)?, process)));
    match protected.find(|(protected, _)| is_of_the_host(protected.rule)) {
        None => Ok(()),
        Some((protected, process)) => {
            let text = format!(
                "{place} is served by process {} ({}), and {protected}",
                process.id.pid, process.name
            );
            Err(spared(text).hint(protected.remedy()))
        }
    }
}

/// Whether a rule is about what a host lives by, and not about whose a process is: who is only loaded goes on.
fn is_of_the_host(rule: Rule) -> bool {
    match rule {
        Rule::First
        | Rule::Kernel
        | Rule::Ourselves
        | Rule::Core
        | Rule::NeededToBoot
        | Rule::Listens
        | Rule::Table(_) => true,
        Rule::Session | Rule::Login | Rule::Shell | Rule::NoUnit => false,
    }
}

/// Looks at the file that is there now, and says which it may not be: another can be there at the next connection.
fn unix(
    path: &Path,
    runtime_dir: &Path,
    identity: &Identity,
) -> Result<(SocketFile, SparedSockets), ApiError> {
    let shown = path.display();
    let not_found = |error: std::io::Error| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.url: {shown}: {error}"))
    };
    let found = identity.act(|| SocketFile::find(path)).map_err(not_found)?;
    let spared_ones = SparedSockets::look(&runtime_dir.join("mcp.sock"));
    match spared_ones.what(&found).map_err(not_found)? {
        Some(what) => Err(spared(format!("{shown} is {what}"))),
        None => Ok((found, spared_ones)),
    }
}

fn spared(why: String) -> ApiError {
    ApiError::new(ErrorCode::TargetProtected, format!("params.url: {why}"))
}

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
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
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

    #[test]
    fn a_socket_is_judged_by_the_file_that_its_path_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let _listeners =
            ["mcp.sock", "other", "second (deleted)"].map(|name| UnixListener::bind(path(name)).unwrap());
        symlink(path("mcp.sock"), path("link")).unwrap();
        fs::write(path("file"), "").unwrap();
        // The text of this link of procfs names another file than it leads to.
        fs::hard_link(path("mcp.sock"), path("second")).unwrap();
        let second = SocketFile::find(&path("second")).unwrap();
        fs::remove_file(path("second")).unwrap();
        assert!(fs::read_link(second.path()).unwrap().ends_with("second (deleted)"));
        let refused = |path: &Path| unix(path, folder.path(), &Identity::ROOT).unwrap_err().code;
        assert!(unix(&path("other"), folder.path(), &Identity::ROOT).is_ok());
        for protected in [path("mcp.sock"), path("link"), second.path()] {
            assert_eq!(refused(&protected), ErrorCode::TargetProtected, "{protected:?}");
        }
        for nothing in [path("file"), path("none"), folder.path().to_owned()] {
            assert_eq!(refused(&nothing), ErrorCode::TargetNotFound, "{nothing:?}");
        }
    }
}
