//! What a caller may say about where a fault goes, and the traffic that this selects.

use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ip;
use super::parameter::{Parameter, fields_of};
use super::ports::{PortText, Ports};
use super::process::{Share, Whose, names_processes};
use super::units::{MOST_PREFIXES, SpecError};

/// Where a fault goes, as a caller writes it. Every field narrows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetRequest {
    /// Network interface, e.g. eth0. Without one, network_partition and timeout are of all packets of a unit, cgroup or processes. Those
    /// over the loopback are met only where cidr, cidrs or host says so.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Network namespace: a name in /run/netns, or a path such as /proc/PID/ns/net. Default: the host's.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Peer addresses as one prefix, e.g. 10.1.0.0/16, 2001:db8::/32 or a single address.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cidr: Option<String>,
    /// Peer prefixes, e.g. 10.1.0.0/16, 2001:db8::/32 or a single address; up to 200000.
    #[schemars(with = "Vec<String>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<String>,
    /// Peer by host name; looked up when the fault starts, and again and again while it is active.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How long after an answer the host is looked up again. Default: 5.
    #[schemars(with = "u32", range(min = 1, max = 3600))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolve_seconds: Option<u32>,
    /// Port, on either end of the connection; or a range, e.g. 8000-8100.
    #[schemars(with = "PortText")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PortText>,
    /// Port on this node's end only; or a range.
    #[schemars(with = "PortText")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_port: Option<PortText>,
    /// Port on the peer's end only; or a range.
    #[schemars(with = "PortText")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_port: Option<PortText>,
    /// tcp, udp or icmp (both ICMP and ICMPv6). Default: any.
    #[schemars(with = "String", extend("enum" = ["tcp", "udp", "icmp"]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// egress, ingress or both. Default: by the fault type.
    #[schemars(with = "String", extend("enum" = ["egress", "ingress", "both"]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// systemd unit, e.g. payment.service.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// cgroup v2, by its path below /sys/fs/cgroup.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Container, by its id, or the first 12 digits of it or more.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Process id. But for faults of processes, its network namespace or control group is meant, if that is its own.
    #[schemars(with = "u32")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Program, by its absolute path, e.g. /usr/sbin/nginx: those who run it.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
    /// Regular expression (a plain word is one) to be found in the command line.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Regular expression to be found in the command line of a process above: its parent, or one further up.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<String>,
    /// Share of the matching processes, as a fraction (0.25) or a percentage (25%); never fewer than one. Default: all.
    #[schemars(with = "Share")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Chooses which processes make up the share: the same seed, the same ones, and a larger share has those of a smaller one among it.
    /// For link_down in a rhythm, chooses how it varies. Default: 0.
    #[schemars(with = "u64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl TargetRequest {
    /// Its fields.
    pub fn fields() -> &'static [Parameter] {
        static FIELDS: LazyLock<Vec<Parameter>> = LazyLock::new(fields_of::<TargetRequest>);
        &FIELDS
    }

    /// How long after an answer the host that is named is looked up again.
    pub fn resolve_every(&self) -> Duration {
        Duration::from_secs(u64::from(self.resolve_seconds.unwrap_or(5)))
    }

    /// What it names, each as people say it; faults of which one name is the same have the same target. A fault that names
    /// nothing goes to the host as a whole.
    pub fn names(&self) -> Vec<String> {
        let place =
            self.netns.as_ref().map(|netns| format!(" of network namespace {netns}")).unwrap_or_default();
        let mut names = Vec::new();
        let mut name =
            |what: &str, given: Option<String>| names.extend(given.map(|given| format!("{what} {given}")));
        name("interface", self.interface.as_ref().map(|interface| format!("{interface}{place}")));
        name("unit", self.unit.clone());
        name("cgroup", self.cgroup.clone());
        name("container", self.container.clone());
        name("pid", self.pid.map(|pid| pid.to_string()));
        name("exe", self.exe.clone());
        name("command", self.command.as_ref().map(|command| format!("{command:?}")));
        name("below", self.below.as_ref().map(|below| format!("{below:?}")));
        if names.is_empty() {
            names.push(match &self.netns {
                Some(netns) => format!("network namespace {netns}"),
                None => "this host".to_owned(),
            });
        }
        names
    }

    /// Refuses a time between look-ups that is out of bounds, or where nothing is looked up.
    pub(super) fn check_resolving(&self) -> Result<(), SpecError> {
        let wrong = |problem: &str| Err(SpecError::new("target.resolve_seconds", problem));
        match self.resolve_seconds {
            Some(_) if self.host.is_none() => wrong("belongs to a target with a host: leave it out"),
            Some(seconds) if !(1..=3600).contains(&seconds) => wrong("give 1 to 3600"),
            _ => Ok(()),
        }
    }
}

/// Which way packets go, seen from this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Leaving through the interface.
    Egress,
    /// Arriving at the interface.
    Ingress,
}

impl Direction {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        }
    }

    /// Both ways, egress first.
    pub const BOTH: &'static [Self] = &[Self::Egress, Self::Ingress];
}

/// Layer 4 protocol of the packets a fault selects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Every IP packet.
    #[default]
    Any,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP for IPv4, ICMPv6 for IPv6.
    Icmp,
}

/// The ports that a packet must have to be selected; `None` is any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMatch {
    /// On either end.
    pub either: Option<Ports>,
    /// On this node's end.
    pub local: Option<Ports>,
    /// On the peer's end.
    pub remote: Option<Ports>,
}

impl PortMatch {
    /// The ports that a target names.
    pub(super) fn parse(target: &TargetRequest) -> Result<Self, SpecError> {
        Ok(Self {
            either: ports("target.port", target.port.as_ref())?,
            local: ports("target.local_port", target.local_port.as_ref())?,
            remote: ports("target.remote_port", target.remote_port.as_ref())?,
        })
    }

    /// ` port 80`, ` local port 80`, each if it is named.
    pub fn words(&self) -> String {
        let each = [("", self.either), ("local ", self.local), ("remote ", self.remote)];
        each.iter().filter_map(|(end, ports)| ports.map(|ports| format!(" {end}{ports}"))).collect()
    }
}

/// The traffic a network fault selects on its interface: parsed, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Interface name.
    pub interface: String,
    /// Network namespace, as the caller named it; `None` is the daemon's own.
    pub netns: Option<String>,
    /// Whose; `None` is everybody's. What is known by its control group has no [`Direction::Ingress`], and no packets without a
    /// socket.
    pub whose: Option<Whose>,
    /// Peer prefixes. Empty only when [`Traffic::every_peer`] holds.
    pub peers: Vec<IpNet>,
    /// Peer by name, to be resolved.
    pub host: Option<String>,
    /// Protocol.
    pub protocol: Protocol,
    /// Ports.
    pub ports: PortMatch,
    /// Directions, never empty.
    pub directions: Vec<Direction>,
}

impl Traffic {
    /// Parses the network part of a target. `default_directions` is what the fault type does when the caller
    /// does not say.
    ///
    /// # Errors
    /// Names the field that is missing or wrong.
    pub fn parse(target: &TargetRequest, default_directions: &[Direction]) -> Result<Self, SpecError> {
        let interface = interface_name(target)?;
        let whose = Whose::parse(target)?;
        if matches!(whose, Some(Whose::Processes(_))) && target.netns.is_some() {
            let problem = "processes are in a network namespace already, where the interface is looked up: leave it out";
            return Err(SpecError::new("target.netns", problem));
        }
        let directions = parse_direction(target.direction.as_deref(), default_directions)?;
        if matches!(whose, Some(Whose::Cgroup(_))) && directions.contains(&Direction::Ingress) {
            return Err(no_service_on_arrival());
        }
        let (protocol, ports) = transport(target)?;
        Ok(Self {
            interface,
            netns: target.netns.clone(),
            whose,
            peers: peers(target)?,
            host: target.host.clone(),
            protocol,
            ports,
            directions,
        })
    }

    /// Whether every peer is selected: no prefix and no host was named.
    pub fn every_peer(&self) -> bool {
        self.peers.is_empty() && self.host.is_none()
    }
}

/// The protocol and the ports that packets are narrowed by.
pub(super) fn transport(target: &TargetRequest) -> Result<(Protocol, PortMatch), SpecError> {
    let (protocol, ports) = (protocol(target.protocol.as_deref())?, PortMatch::parse(target)?);
    if protocol == Protocol::Icmp && ports != PortMatch::default() {
        return Err(SpecError::new("target.protocol", "icmp has no ports: leave the port out"));
    }
    Ok((protocol, ports))
}

/// Why a fault of what arrives cannot be of one service.
pub fn no_service_on_arrival() -> SpecError {
    SpecError::new(
        "target.direction",
        "a packet that arrives meets the interface before its service is known: with a unit or cgroup, or processes without a \
         network namespace of their own, give \"egress\"; or leave the interface out of network_partition and timeout, which are \
         of the service's sockets then, both ways",
    )
}

/// The interface that a target names.
pub(super) fn interface_name(target: &TargetRequest) -> Result<String, SpecError> {
    let interface = target.interface.clone().ok_or_else(|| {
        let mut problem = "missing: name the network interface, e.g. \"eth0\"".to_owned();
        if target.unit.is_some() || target.cgroup.is_some() || names_processes(target) {
            problem
                .push_str("; of a unit, cgroup or processes, only network_partition and timeout do without");
        }
        SpecError::new("target.interface", problem)
    })?;
    if interface.is_empty() || interface.len() > 15 || interface.contains(['/', ' ', '\0']) {
        return Err(SpecError::new("target.interface", format!("{interface:?} is not an interface name")));
    }
    Ok(interface)
}

/// The peer prefixes that a target names: sorted, each once.
pub(super) fn peers(target: &TargetRequest) -> Result<Vec<IpNet>, SpecError> {
    let mut peers = Vec::with_capacity(target.cidrs.len() + 1);
    for (index, text) in target.cidrs.iter().enumerate() {
        peers.push(prefix(text, || format!("target.cidrs[{index}]"))?);
    }
    if let Some(text) = &target.cidr {
        peers.push(prefix(text, || "target.cidr".to_owned())?);
    }
    if peers.len() > MOST_PREFIXES {
        return Err(SpecError::new("target.cidrs", format!("at most {MOST_PREFIXES} prefixes per fault")));
    }
    peers.sort_unstable();
    peers.dedup();
    Ok(peers)
}

/// The ports that a target names.
pub(super) fn ports(field: &str, given: Option<&PortText>) -> Result<Option<Ports>, SpecError> {
    given.map(|given| Ports::parse(field, given)).transpose()
}

/// The protocol that a target names.
pub(super) fn protocol(text: Option<&str>) -> Result<Protocol, SpecError> {
    match text {
        None => Ok(Protocol::Any),
        Some("tcp") => Ok(Protocol::Tcp),
        Some("udp") => Ok(Protocol::Udp),
        Some("icmp") => Ok(Protocol::Icmp),
        Some(other) => Err(SpecError::new(
            "target.protocol",
            format!("{other:?} is not known: give \"tcp\", \"udp\" or \"icmp\", or leave it out for any"),
        )),
    }
}

/// The directions that a target names.
pub(super) fn parse_direction(
    text: Option<&str>,
    default: &[Direction],
) -> Result<Vec<Direction>, SpecError> {
    Ok(match text {
        None => default.to_vec(),
        Some("both") => Direction::BOTH.to_vec(),
        Some("egress") => vec![Direction::Egress],
        Some("ingress") => vec![Direction::Ingress],
        Some(other) => {
            return Err(SpecError::new(
                "target.direction",
                format!("{other:?} is not known: give \"egress\", \"ingress\" or \"both\""),
            ));
        }
    })
}

fn prefix(text: &str, field: impl FnOnce() -> String) -> Result<IpNet, SpecError> {
    let net = match text.contains('/') {
        true => IpNet::from_str(text).ok(),
        false => ip::address(text).map(IpNet::from),
    };
    net.map(|net| ip::canonical(net.trunc())).ok_or_else(|| {
        SpecError::new(
            field(),
            format!("{text:?} is not an address prefix: give e.g. \"10.0.0.0/8\", \"2001:db8::/32\" or \"10.0.0.7\""),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::CgroupSelector;

    fn target(json: &str) -> Result<Traffic, SpecError> {
        Traffic::parse(&serde_json::from_str(json).unwrap(), Direction::BOTH)
    }

    #[test]
    fn a_prefix_longer_than_the_address_is_named_with_its_field() {
        let error = target(r#"{"interface":"eth0","cidr":"10.0.0.0/33"}"#).unwrap_err();
        assert!(
            error.to_string().starts_with("target.cidr: \"10.0.0.0/33\" is not an address prefix"),
            "{error}"
        );
    }

    #[test]
    fn a_bare_address_is_a_host_prefix_and_host_bits_are_cut() {
        let traffic =
            target(r#"{"interface":"eth0","cidr":"10.0.0.7","cidrs":["10.1.2.3/16","::1"]}"#).unwrap();
        let texts: Vec<_> = traffic.peers.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.7/32", "10.1.0.0/16", "::1/128"]);
    }

    #[test]
    fn a_peer_of_ipv4_is_one_however_it_is_written() {
        let traffic =
            target(r#"{"interface":"eth0","cidr":"::ffff:10.0.0.7","cidrs":["::ffff:10.1.2.3/104"]}"#)
                .unwrap();
        let texts: Vec<_> = traffic.peers.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.0/8", "10.0.0.7/32"]);
    }

    #[test]
    fn a_network_target_needs_an_interface() {
        assert_eq!(target("{}").unwrap_err().field, "target.interface");
        assert_eq!(
            target(r#"{"interface":"an-interface-name-too-long"}"#).unwrap_err().field,
            "target.interface"
        );
    }

    #[test]
    fn a_service_is_known_on_the_way_out_only() {
        let egress = target(r#"{"interface":"e","unit":"a.service","direction":"egress"}"#).unwrap();
        assert_eq!(egress.whose, Some(Whose::Cgroup(CgroupSelector::Unit("a.service".into()))));
        for json in [
            r#"{"interface":"e","unit":"a.service"}"#,
            r#"{"interface":"e","cgroup":"a","direction":"ingress"}"#,
            r#"{"interface":"e","cgroup":"a","direction":"both"}"#,
        ] {
            assert_eq!(target(json).unwrap_err().field, "target.direction", "{json}");
        }
        let both = r#"{"interface":"e","cgroup":"a","unit":"a.service","direction":"egress"}"#;
        assert_eq!(target(both).unwrap_err().field, "target.cgroup");
    }

    #[test]
    fn processes_bring_their_namespace_along_and_are_never_a_share() {
        let both = target(r#"{"interface":"e","pid":71,"unit":"a.service","direction":"both"}"#).unwrap();
        assert!(matches!(both.whose, Some(Whose::Processes(selector)) if selector.pid == Some(71)));
        for (json, field) in [
            (r#"{"interface":"e","pid":71,"netns":"n"}"#, "target.netns"),
            (r#"{"interface":"e","exe":"nginx"}"#, "target.exe"),
            (r#"{"interface":"e","pid":71,"share":0.5}"#, "target.share"),
            (r#"{"interface":"e","container":"web"}"#, "target.container"),
            (r#"{"interface":"e","below":"("}"#, "target.below"),
        ] {
            assert_eq!(target(json).unwrap_err().field, field, "{json}");
        }
    }

    #[test]
    fn a_target_is_known_by_what_it_names() {
        let names = |json: &str| serde_json::from_str::<TargetRequest>(json).unwrap().names();
        let both = r#"{"interface":"e","unit":"a.service","port":80,"direction":"egress"}"#;
        assert_eq!(names(both), ["interface e", "unit a.service"]);
        assert_eq!(names(r#"{"interface":"e","netns":"n"}"#), ["interface e of network namespace n"]);
        assert_eq!(names(r#"{"pid":7,"exe":"/a","command":"b c"}"#), ["pid 7", "exe /a", "command \"b c\""]);
        assert_eq!(names(r#"{"command":"mcp","below":"a"}"#), ["command \"mcp\"", "below \"a\""]);
        assert_eq!(names(r#"{"netns":"n","local_port":80}"#), ["network namespace n"]);
        assert_eq!(names("{}"), ["this host"]);
    }

    #[test]
    fn unknown_target_fields_are_refused() {
        assert!(serde_json::from_str::<TargetRequest>(r#"{"iface":"eth0"}"#).is_err());
    }

    #[test]
    fn ports_and_icmp_exclude_each_other() {
        assert_eq!(
            target(r#"{"interface":"e","protocol":"icmp","port":1}"#).unwrap_err().field,
            "target.protocol"
        );
        assert_eq!(target(r#"{"interface":"e","port":0}"#).unwrap_err().field, "target.port");
        let backwards = r#"{"interface":"e","remote_port":"90-80"}"#;
        assert_eq!(target(backwards).unwrap_err().field, "target.remote_port");
    }
}
