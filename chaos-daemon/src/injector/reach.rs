//! Whether a server may be loaded: it is this host's own, or the policy names it, and nobody depends on it for the way in.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::fault::Ground;
use crate::host::supply::Descriptors;
use crate::host::{NetNs, connections};
use crate::policy::Permit;
use crate::request::{ApiError, ErrorCode};
use crate::spec::sessions::{ConnectionLoad, Place};
use crate::target;

/// Where sockets are without which a host cannot be run.
const VITAL: &[&str] = &["/run/systemd", "/run/dbus", "/run/udev"];

/// Looks. `runtime_dir` is the daemon's own.
///
/// # Errors
/// Names who may not be connected to, and why.
pub(super) fn look(
    load: &ConnectionLoad,
    permit: &Permit,
    home: &NetNs,
    runtime_dir: &Path,
) -> Result<Ground, ApiError> {
    match &load.server.place {
        Place::Tcp(address) => match &load.netns {
            None => tcp(*address, permit, home)?,
            Some(name) => tcp(*address, permit, &target::resolve_netns(name)?)?,
        },
        Place::Unix(path) => unix(path, runtime_dir)?,
    }
    Ok(Ground::Descriptors(Descriptors::read().map_err(|error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look at the host's open files: {error}"))
    })?))
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

fn unix(path: &Path, runtime_dir: &Path) -> Result<(), ApiError> {
    let shown = path.display();
    let not_found = |why: &dyn std::fmt::Display| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.url: {shown}: {why}"))
    };
    let found = fs::canonicalize(path).map_err(|error| not_found(&error))?;
    let identity = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    let meta = fs::metadata(&found).map_err(|error| not_found(&error))?;
    if !meta.file_type().is_socket() {
        return Err(not_found(&"it is no socket"));
    }
    if VITAL.iter().any(|folder| found.starts_with(folder)) {
        return Err(spared(format!("{shown} is a socket by which the host is run")));
    }
    if identity(&runtime_dir.join("mcp.sock")).is_ok_and(|ours| ours == (meta.dev(), meta.ino())) {
        return Err(spared(format!("{shown} is this daemon's own socket, by which its faults are ended")));
    }
    Ok(())
}

fn spared(why: String) -> ApiError {
    ApiError::new(ErrorCode::TargetProtected, format!("params.url: {why}"))
}
