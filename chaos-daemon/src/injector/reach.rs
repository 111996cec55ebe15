//! Whether a server may be loaded: it is this host's own, or the policy names it, and nobody depends on it for the way in.

use std::net::SocketAddr;
use std::path::Path;

use crate::fault::Ground;
use crate::host::socket_file::{SocketFile, SparedSockets};
use crate::host::supply::Descriptors;
use crate::host::{Identity, NetNs, connections};
use crate::policy::Permit;
use crate::request::{ApiError, ErrorCode};
use crate::spec::sessions::{ConnectionLoad, Place};
use crate::target::Entrance;

/// Looks, at files as the caller. `runtime_dir` is the daemon's own.
///
/// # Errors
/// Names who may not be connected to, and why.
pub(super) fn look(
    load: &ConnectionLoad,
    permit: &Permit,
    home: &NetNs,
    runtime_dir: &Path,
    entrance: &Entrance,
) -> Result<Ground, ApiError> {
    let identity = entrance.identity();
    let spared = match &load.server.place {
        Place::Tcp(address) => {
            match &load.netns {
                None => tcp(*address, permit, home)?,
                Some(name) => tcp(*address, permit, &entrance.open(name)?)?,
            }
            SparedSockets::default()
        }
        Place::Unix(path) => unix(path, runtime_dir, identity)?,
    };
    let open = Descriptors::read().map_err(|error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look at the host's open files: {error}"))
    })?;
    Ok(Ground::Reach(open, spared, identity.clone()))
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

/// Looks at the file that is there now, and says which it may not be: another can be there at the next connection.
fn unix(path: &Path, runtime_dir: &Path, identity: &Identity) -> Result<SparedSockets, ApiError> {
    let shown = path.display();
    let not_found = |error: std::io::Error| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.url: {shown}: {error}"))
    };
    let found = identity.act(|| SocketFile::find(path)).map_err(not_found)?;
    let spared_ones = SparedSockets::look(&runtime_dir.join("mcp.sock"));
    match spared_ones.what(&found).map_err(not_found)? {
        Some(what) => Err(spared(format!("{shown} is {what}"))),
        None => Ok(spared_ones),
    }
}

fn spared(why: String) -> ApiError {
    ApiError::new(ErrorCode::TargetProtected, format!("params.url: {why}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

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
