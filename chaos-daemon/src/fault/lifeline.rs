//! The devices by which this host lives: that of its default route, those below it, and the loopback. Nothing that cuts goes there
//! unless it is narrowed to somebody.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use ipnet::IpNet;

use crate::host::addresses::interfaces;
use crate::host::{Interface, NetNs};
use crate::policy::Permit;
use crate::request::{ApiError, ErrorCode};
use crate::spec::blast::Severity;
use crate::spec::effect::Effect;
use crate::spec::{Impairment, Loss, PortMatch, Traffic};
use crate::target::NetworkTarget;

/// From this share on what is lost, refused or answered wrongly cuts, since little gets through.
const CUTS: f64 = 0.5;
/// Ports that are all of them, or nearly, narrow nothing.
const MOST_PORTS: u32 = 1024;
/// The device by which programs of a host speak with each other.
const LOOPBACK: &str = "lo";
/// Peers of a shorter prefix than these are about everybody: a provider's, or all of a site.
const LEAST_PREFIX_V4: u8 = 16;
const LEAST_PREFIX_V6: u8 = 48;

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
    if !cuts(effect)
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
fn lifeline(interface: &Interface) -> Result<Option<Lifeline>, ApiError> {
    let name = &interface.name;
    if name == LOOPBACK {
        return Ok(Some(Lifeline::Loopback));
    }
    let failed = |error: io::Error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look at what interface {name:?} carries: {error}"))
    };
    let all = interfaces().map_err(failed)?;
    // A VPN that takes all has two halves of it.
    let is_default = |net: &IpNet| net.prefix_len() <= 1;
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

/// Whether little or nothing of what it meets gets through.
fn cuts(effect: &Effect) -> bool {
    let blast = effect.blast();
    // How much a model of states loses in the end depends on all of its numbers: any may be nearly all.
    if let Effect::Impair { impairment: Impairment::Loss(loss), .. } = effect
        && !matches!(loss, Loss::Random(_))
    {
        return true;
    }
    let loses = match effect {
        Effect::Drop { .. } | Effect::Refuse { .. } | Effect::Names { .. } => true,
        Effect::Impair { impairment: Impairment::Loss(_) | Impairment::Corrupt(_), .. } => blast.share < 1.0,
        _ => false,
    };
    blast.severity == Severity::Outage || loses && blast.share >= CUTS
}

/// Whether it is about somebody, and not about everybody.
fn is_narrow(effect: &Effect, target: &NetworkTarget) -> bool {
    let Some(Traffic { whose, ports, .. }) = effect.traffic() else { return false };
    let is_wide = |peer: &IpNet| {
        peer.prefix_len() < if peer.network().is_ipv4() { LEAST_PREFIX_V4 } else { LEAST_PREFIX_V6 }
    };
    let all_peers = target.peers.iter().any(is_wide);
    let ports = match effect {
        // Questions have a port anyway.
        Effect::Names { questions, .. } => !questions.names.is_empty(),
        _ => narrows(*ports),
    };
    whose.is_some() || ports || !target.peers.is_empty() && !all_peers
}

fn narrows(ports: PortMatch) -> bool {
    let few = |ports: chaos_common::rule::PortRange| u32::from(ports.last - ports.first) < MOST_PORTS;
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
        let interface = Interface { name: traffic.interface.clone(), index: 1, ethernet: true };
        let target =
            NetworkTarget { netns_name: None, netns, interface, service: None, peers: traffic.peers.clone() };
        cuts(&effect) && !is_narrow(&effect, &target)
    }

    #[test]
    fn what_cuts_has_to_be_narrowed_whatever_kind_it_is() {
        let whole = || json!({"interface": "lo"});
        for (kind, params) in [
            ("network_partition", json!({})),
            ("timeout", json!({})),
            ("error", json!({})),
            ("dns_error", json!({})),
            ("packet_loss", json!({"loss_percent": 100})),
            ("packet_loss", json!({"loss_percent": 60})),
            ("packet_corrupt", json!({"corrupt_percent": 100})),
            ("timeout", json!({"packet_probability": 0.5})),
            ("packet_loss", json!({"gilbert_elliott": {"p": 99.9, "r": 0.1}})),
        ] {
            assert!(refused(kind, whole(), params.clone()), "{kind} {params}");
        }
        for target in [
            json!({"interface": "lo", "cidr": "10.0.0.1"}),
            json!({"interface": "lo", "port": 5432}),
            json!({"interface": "lo", "unit": "a.service", "direction": "egress"}),
        ] {
            assert!(!refused("timeout", target.clone(), json!({})), "{target}");
        }
        for target in
            [json!({"interface": "lo", "cidr": "0.0.0.0/0"}), json!({"interface": "lo", "port": "1-65535"})]
        {
            assert!(refused("timeout", target.clone(), json!({})), "{target}");
        }
    }

    #[test]
    fn what_only_degrades_may_be_of_everybody() {
        for (kind, params) in [
            ("latency", json!({"delay_ms": 100})),
            ("packet_loss", json!({"loss_percent": 5})),
            ("timeout", json!({"packet_probability": 0.1})),
            ("bandwidth", json!({"rate_kbit": 1000})),
        ] {
            assert!(!refused(kind, json!({"interface": "lo"}), params.clone()), "{kind} {params}");
        }
    }

    #[test]
    fn a_device_carries_itself() {
        assert_eq!(carried_by("no-such-device"), ["no-such-device".to_owned()].into());
    }
}
