//! The devices by which this host lives: that of its default route, those below it, and the loopback. Nothing that cuts goes there
//! unless it is narrowed to somebody.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use chaos_common::rule::PortRange;
use ipnet::IpNet;

use crate::host::addresses::{interfaces, is_default};
use crate::host::{Interface, NetNs};
use crate::policy::Permit;
use crate::request::{ApiError, ErrorCode};
use crate::spec::dns::Names;
use crate::spec::effect::Effect;
use crate::spec::{PortMatch, Traffic};
use crate::target::NetworkTarget;

/// So many ports narrow, at most.
const MOST_PORTS: u32 = 128;
/// Ports of what every program of a host needs: names, the time, logins, storage, the API of a cluster (IANA's registry of ports).
const NEEDED_PORTS: [u16; 12] = [53, 88, 123, 389, 636, 853, 2049, 2379, 2380, 3260, 6443, 10_250];
/// The device by which programs of a host speak with each other.
const LOOPBACK: &str = "lo";
/// The addresses by which they do so, whoever they are.
const LOOPBACK_V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LOOPBACK_V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
/// Peers of a shorter prefix than these are about everybody: a provider's, or all of a site.
const LEAST_PREFIX_V4: u8 = 16;
const LEAST_PREFIX_V6: u8 = 48;
/// So many prefixes of that length are as much, however they are written.
const MOST_SITES: f64 = 16.0;
/// What countries have below their own domain for everybody.
const SECOND_LEVELS: [&str; 11] = ["ac", "co", "com", "edu", "go", "gob", "gov", "ne", "net", "or", "org"];
/// Names below which are those of a whole cluster, and addresses looked up backwards.
const WHOLE_ZONES: [&str; 5] =
    ["cluster.local", "svc.cluster.local", "in-addr.arpa", "ip6.arpa", "home.arpa"];

/// What a device is to its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifeline {
    /// Programs speak with each other through it.
    Loopback,
    /// The default route leaves through it, or through a device that stands on it.
    DefaultRoute,
}

impl Lifeline {
    /// Why it is protected.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Loopback => "the host's programs speak with each other through it",
            Self::DefaultRoute => "the host's default route leaves through it",
        }
    }
}

/// Refuses to cut such a device of the daemon's own network namespace for everybody, unless the policy names it. Blocks.
///
/// # Errors
/// [`ErrorCode::TargetProtected`], and when it cannot be looked at.
pub fn refuse_cut(
    effect: &Effect,
    target: &NetworkTarget,
    permit: &Permit,
    home: &NetNs,
) -> Result<(), ApiError> {
    let name = &target.interface.name;
    if !effect.cuts()
        || is_narrow(effect, target)
        || permit.spares_not(name)
        || !is_here(&target.netns, home, name)?
    {
        return Ok(());
    }
    match lifeline(&target.interface)? {
        None => Ok(()),
        Some(lifeline) => {
            let text =
                format!("interface {name:?} is protected from what cuts everybody off: {}", lifeline.why());
            Err(ApiError::new(ErrorCode::TargetProtected, text).hint(remedy(name)))
        }
    }
}

/// What would be right, or would open it.
fn remedy(name: &str) -> String {
    format!(
        "narrow it by cidr, host, port, unit or cgroup; `critical_interfaces = [{name:?}]` of the daemon's policy file opens it"
    )
}

/// Whether a device is in the daemon's own network namespace.
pub(super) fn is_here(netns: &NetNs, home: &NetNs, name: &str) -> Result<bool, ApiError> {
    let here = home.identity().and_then(|home| Ok(home == netns.identity()?));
    here.map_err(|error| {
        let text =
            format!("tell whether interface {name:?} is in the daemon's own network namespace: {error}");
        ApiError::new(ErrorCode::InjectionFailed, text).hint("try again")
    })
}

/// What a device of this thread's network namespace is to its host.
///
/// # Errors
/// When that cannot be looked at.
pub(super) fn lifeline(interface: &Interface) -> Result<Option<Lifeline>, ApiError> {
    let name = &interface.name;
    if name == LOOPBACK {
        return Ok(Some(Lifeline::Loopback));
    }
    let failed = |error: io::Error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look at what interface {name:?} carries: {error}"))
    };
    let all = interfaces().map_err(failed)?;
    let mut default = all.iter().filter(|(_, it)| it.routes.iter().any(is_default)).map(|(name, _)| name);
    let carried = carried_by(name);
    Ok(default.any(|name| carried.contains(name)).then_some(Lifeline::DefaultRoute))
}

/// A device and all that stand on it: bridges, bonds, VLANs, by the links that the kernel has of them (`upper_NAME` in sysfs).
fn carried_by(name: &str) -> BTreeSet<String> {
    let (mut carried, mut next) = (BTreeSet::new(), vec![name.to_owned()]);
    while let Some(name) = next.pop() {
        let entries = fs::read_dir(format!("/sys/class/net/{name}")).into_iter().flatten().flatten();
        let upper =
            |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_prefix("upper_")?.to_owned());
        if carried.insert(name) {
            next.extend(entries.filter_map(upper));
        }
    }
    carried
}

/// Whether it is about somebody, and not about everybody.
fn is_narrow(effect: &Effect, target: &NetworkTarget) -> bool {
    let Some(Traffic { whose, ports, .. }) = effect.traffic() else { return false };
    let names = match effect {
        Effect::Names { questions, .. } => Some(&questions.names),
        Effect::Impair { names, .. } if !names.is_empty() => Some(names),
        _ => None,
    };
    let narrowed = match names {
        // Questions have a port anyway.
        Some(names) => !names.is_empty() && names.iter().all(is_of_somebody),
        None => narrows(*ports),
    };
    whose.is_some() || narrowed || are_somebody(&target.peers, &target.interface.name)
}

/// Whether these peers are some, and not about everybody on this device.
fn are_somebody(peers: &[IpNet], interface: &str) -> bool {
    let least = |peer: &IpNet| if peer.network().is_ipv4() { LEAST_PREFIX_V4 } else { LEAST_PREFIX_V6 };
    let is_wide = |peer: &IpNet| {
        let everybody = interface == LOOPBACK && (peer.contains(&LOOPBACK_V4) || peer.contains(&LOOPBACK_V6));
        everybody || peer.prefix_len() < least(peer)
    };
    let sites: f64 =
        peers.iter().map(|peer| 2_f64.powi(i32::from(least(peer)) - i32::from(peer.prefix_len()))).sum();
    !peers.is_empty() && !peers.iter().any(is_wide) && sites <= MOST_SITES
}

/// Whether a name is somebody's, and does not stand for all below a top-level domain, or what is as wide.
fn is_of_somebody(names: &Names) -> bool {
    let labels: Vec<_> = names.name.split('.').collect();
    let is_public = match labels.as_slice() {
        [] | [_] => true,
        // As "co.uk" and "com.au".
        [second, top] => top.len() == 2 && SECOND_LEVELS.contains(second),
        _ => false,
    };
    !names.below || !is_public && !WHOLE_ZONES.contains(&&*names.name)
}

fn narrows(ports: PortMatch) -> bool {
    let few = |ports: PortRange| {
        let needed = NEEDED_PORTS.iter().any(|port| (ports.first..=ports.last).contains(port));
        !needed && u32::from(ports.last - ports.first) < MOST_PORTS
    };
    [ports.either, ports.local, ports.remote].into_iter().flatten().any(|ports| few(ports.range()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::spec::FaultRequest;

    fn effect(kind: &str, target: &Value, params: Value) -> Effect {
        let request = json!({"fault_type": kind, "probability": 1, "target": target, "params": params});
        serde_json::from_value::<FaultRequest>(request).unwrap().parse().unwrap().effect
    }

    fn refused(kind: &str, target: Value, params: Value) -> bool {
        let effect = effect(kind, &target, params);
        let traffic = effect.traffic().unwrap();
        let netns = NetNs::at(Path::new("/proc/thread-self/ns/net")).unwrap();
        let interface = Interface { name: traffic.interface.clone().unwrap(), index: 1, ethernet: true };
        let target =
            NetworkTarget { netns_name: None, netns, interface, service: None, peers: traffic.peers.clone() };
        effect.cuts() && !is_narrow(&effect, &target)
    }

    #[test]
    fn what_cuts_has_to_be_narrowed_whatever_kind_it_is() {
        let whole = || json!({"interface": "lo"});
        for (kind, params) in [
            ("network_partition", json!({})),
            ("error", json!({})),
            ("dns_error", json!({})),
            ("packet_loss", json!({"loss_percent": 100})),
            ("bandwidth", json!({"rate_kbit": 8})),
            ("latency", json!({"delay_ms": 60_000})),
            ("link_profile", json!({"up_loss_percent": 100})),
        ] {
            assert!(refused(kind, whole(), params.clone()), "{kind} {params}");
        }
        assert!(!refused("latency", whole(), json!({"delay_ms": 100})), "it only degrades");
        for target in [
            json!({"interface": "lo", "cidr": "10.0.0.1"}),
            json!({"interface": "eth0", "cidr": "127.0.0.1"}),
            json!({"interface": "eth0", "cidrs": ["10.0.0.0/16", "10.1.0.0/16"]}),
            json!({"interface": "lo", "port": 5432}),
            json!({"interface": "lo", "remote_port": "8000-8100"}),
            json!({"interface": "lo", "remote_port": 53, "local_port": 40_000}),
            json!({"interface": "lo", "unit": "a.service", "direction": "egress"}),
        ] {
            assert!(!refused("timeout", target.clone(), json!({})), "{target}");
        }
    }

    #[test]
    fn what_means_about_everybody_narrows_nothing() {
        let sites: Vec<_> = (0..=255).map(|site| format!("10.{site}.0.0/16")).collect();
        for target in [
            json!({"interface": "lo", "cidr": "0.0.0.0/0"}),
            json!({"interface": "eth0", "cidrs": sites}),
            json!({"interface": "lo", "cidr": "127.0.0.1"}),
            json!({"interface": "lo", "cidrs": ["10.0.0.1", "::1"]}),
            json!({"interface": "lo", "port": "1-65535"}),
            json!({"interface": "lo", "remote_port": "1000-1200"}),
            json!({"interface": "eth0", "remote_port": 53}),
            json!({"interface": "eth0", "port": "50-60", "protocol": "udp"}),
            json!({"interface": "eth0", "remote_port": 6443}),
        ] {
            assert!(refused("timeout", target.clone(), json!({})), "{target}");
        }
    }

    #[test]
    fn a_name_is_somebodys_and_all_below_a_top_level_domain_are_everybody() {
        let about = |kind: &str, names: Value| {
            let params = match kind {
                "latency" => json!({"names": names, "delay_ms": 9000}),
                _ => json!({"names": names}),
            };
            refused(kind, json!({"interface": "eth0"}), params)
        };
        for kind in ["dns_error", "latency"] {
            for names in [json!(["db.example.org"]), json!(["*.example.org"]), json!(["*.a.co.uk", "db"])] {
                assert!(!about(kind, names.clone()), "{kind} {names}");
            }
            for names in [
                json!(["*.org"]),
                json!(["*.co.uk"]),
                json!(["db.example.org", "*.com"]),
                json!(["*.cluster.local"]),
            ] {
                assert!(about(kind, names.clone()), "{kind} {names}");
            }
        }
    }

    #[test]
    fn a_device_carries_itself() {
        assert_eq!(carried_by("no-such-device"), ["no-such-device".to_owned()].into());
    }
}
