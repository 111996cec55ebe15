//! From what a caller names to what the kernel knows: resolved once and pinned; only what a host's name stands
//! for is looked up again, by who keeps the fault.

pub mod cgroup;
pub mod netns;
pub mod process;
pub mod scope;
pub mod supervisor;

use ipnet::IpNet;

pub use cgroup::Service;
pub use netns::Entrance;
use netns::no_netns;

use crate::host::addresses::interfaces;
use crate::host::netns::NetNs;
use crate::host::{Interface, Spared};
use crate::request::{ApiError, ErrorCode};
use crate::spec::traffic::no_service_on_arrival;
use crate::spec::{Direction, Traffic, Whose};

/// How many interfaces are named to who has named none of them.
const MOST_NAMED: usize = 16;

/// The interface a network fault goes to, pinned: the namespace by an open file, the device by its index.
#[derive(Debug)]
pub struct NetworkTarget {
    /// How the namespace is found again; `None` is the daemon's own.
    pub netns_name: Option<String>,
    /// The namespace; stays this one even when its name is given to another.
    pub netns: NetNs,
    /// The device.
    pub interface: Interface,
    /// Whose packets; `None` is everybody's.
    pub service: Option<Service>,
    /// Peer prefixes, a named host's addresses included.
    pub peers: Vec<IpNet>,
}

/// Resolves the target of a network fault. `named` are the addresses of the host it names, if it names one. `home` is the namespace of
/// a target that names none: that of the calling thread. Of a service nobody may be in it who has to be `spared`.
///
/// # Errors
/// [`ErrorCode::TargetNotFound`] names what does not exist, [`ErrorCode::PolicyDenied`] a namespace that may not be entered.
pub fn resolve(
    traffic: &Traffic,
    named: &[IpNet],
    home: &NetNs,
    entrance: &Entrance,
    spared: &Spared,
) -> Result<NetworkTarget, ApiError> {
    let (netns_name, service) = match &traffic.whose {
        None => (traffic.netns.clone(), None),
        Some(Whose::Cgroup(group)) => (traffic.netns.clone(), Some(cgroup::resolve_service(group, spared)?)),
        Some(Whose::Processes(selector)) => {
            let scope = scope::of_packets(selector, home, entrance, spared)?;
            if scope.service.is_some() && traffic.directions.contains(&Direction::Ingress) {
                return Err(no_service_on_arrival().into());
            }
            return in_scope(traffic, scope, named, home, entrance);
        }
    };
    finish(traffic, (netns_name, service), named, home, entrance)
}

/// The network namespace in which a fault acts that names no interface; `home` is that of the calling thread.
///
/// # Errors
/// As [`resolve`].
pub fn namespace(
    traffic: &Traffic,
    home: &NetNs,
    entrance: &Entrance,
    spared: &Spared,
) -> Result<NetNs, ApiError> {
    match (&traffic.whose, &traffic.netns) {
        (Some(Whose::Processes(selector)), _) => {
            scope::of_packets(selector, home, entrance, spared).map(|scope| scope.netns)
        }
        (_, Some(name)) => entrance.open(name),
        (_, None) => home.try_clone().map_err(|error| no_netns("the daemon's own", &error)),
    }
}

/// The target among processes: the interface in the namespace that they have, which has to be the same still.
fn in_scope(
    traffic: &Traffic,
    scope: scope::Scope,
    named: &[IpNet],
    home: &NetNs,
    entrance: &Entrance,
) -> Result<NetworkTarget, ApiError> {
    let target = finish(traffic, (scope.netns_name, scope.service), named, home, entrance)?;
    let identity = |netns: &NetNs| netns.identity().map_err(|error| no_netns("of the processes", &error));
    match identity(&target.netns)? == identity(&scope.netns)? {
        true => Ok(target),
        false => Err(not_found("target: the processes ended while they were looked up".to_owned())),
    }
}

fn finish(
    traffic: &Traffic,
    (netns_name, service): (Option<String>, Option<Service>),
    named: &[IpNet],
    home: &NetNs,
    entrance: &Entrance,
) -> Result<NetworkTarget, ApiError> {
    let name = traffic.interface.as_ref().ok_or_else(|| {
        ApiError::new(ErrorCode::MissingParameter, "target.interface: missing: name the network interface")
    })?;
    let (netns, interface) = resolve_interface(name, netns_name.as_deref(), home, entrance)?;
    if !interface.ethernet {
        return Err(ApiError::new(
            ErrorCode::InvalidParameter,
            format!("target.interface: {name:?} carries no Ethernet frames, which network faults need"),
        )
        .hint("name the Ethernet device below it, or lo"));
    }
    let mut peers = traffic.peers.clone();
    peers.extend_from_slice(named);
    Ok(NetworkTarget { netns_name, netns, interface, service, peers })
}

/// Resolves an interface of a namespace, or of `home`, that of the calling thread.
///
/// # Errors
/// [`ErrorCode::TargetNotFound`] names what does not exist, [`ErrorCode::PolicyDenied`] a namespace that may not be entered.
pub fn resolve_interface(
    name: &str,
    netns: Option<&str>,
    home: &NetNs,
    entrance: &Entrance,
) -> Result<(NetNs, Interface), ApiError> {
    let opened = match netns {
        None => home.try_clone().map_err(|error| no_netns("the daemon's own", &error))?,
        Some(name) => entrance.open(name)?,
    };
    let found = match netns {
        None => Interface::find_here(name),
        Some(_) => Interface::find(&opened, name),
    };
    let interface = found
        .map_err(|error| not_found(format!("target.interface: look up {name:?}: {error}")))?
        .ok_or_else(|| {
            let place = netns
                .map_or("this network namespace".to_owned(), |name| format!("network namespace {name:?}"));
            not_found(format!("target.interface: no interface {name:?} in {place}"))
                .hint(format!("there are {}", there_are(&opened)))
        })?;
    Ok((opened, interface))
}

/// The interfaces of a namespace, for who has named another one.
fn there_are(netns: &NetNs) -> String {
    let all = netns.inside(interfaces).unwrap_or_default();
    let names: Vec<_> = all.keys().take(MOST_NAMED).cloned().collect();
    let more = if all.len() > MOST_NAMED { " and more, which chaos_targets finds by a text" } else { "" };
    format!("{}{more}", names.join(", "))
}

fn not_found(message: String) -> ApiError {
    ApiError::new(ErrorCode::TargetNotFound, message)
}
