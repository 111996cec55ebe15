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
use super::share::Share;
use super::typed;
use super::units::{MOST_PREFIXES, SpecError};

/// Where a fault goes, as a caller writes it. Every field narrows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetRequest {
    /// Network interface, e.g. eth0. Default: that of the route to cidr, cidrs or host, or the default route's. But of a unit, cgroup or
    /// processes network_partition and timeout are of all packets then, over the loopback only of peers that are named.
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
    /// What becomes of the fault when its target goes, such as a unit that is restarted: end, or follow it to the one that comes in
    /// its place. Default: follow of unit and container, whose name is what is meant; end of others.
    #[schemars(with = "String", extend("enum" = ["end", "follow"]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_target_gone: Option<String>,
}

/// What becomes of a fault whose target has gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTargetGone {
    /// It ends.
    #[default]
    End,
    /// It waits until the name of its target stands for another one, and goes on there.
    Follow,
}

impl TargetRequest {
    /// Whether it names processes by themselves.
    pub(super) fn names_processes(&self) -> bool {
        let Self { pid, exe, command, below, container, .. } = self;
        pid.is_some() || exe.is_some() || command.is_some() || below.is_some() || container.is_some()
    }

    /// Whether it says whose packets, calls or resources are meant.
    pub fn names_group(&self) -> bool {
        self.unit.is_some() || self.cgroup.is_some() || self.names_processes()
    }

    /// Its fields.
    pub fn fields() -> &'static [Parameter] {
        static FIELDS: LazyLock<Vec<Parameter>> = LazyLock::new(fields_of::<TargetRequest>);
        &FIELDS
    }

    /// How long after an answer the host that is named is looked up again.
    pub fn resolve_every(&self) -> Duration {
        Duration::from_secs(u64::from(self.resolve_seconds.unwrap_or(5)))
    }

    /// What becomes of a fault when this target has gone.
    ///
    /// # Errors
    /// When the word is not known.
    pub(super) fn on_target_gone(&self) -> Result<OnTargetGone, SpecError> {
        let wrong = |problem: String| SpecError::new("target.on_target_gone", problem);
        // The next process of this number is a stranger.
        let by_number =
            self.pid.is_some() || self.netns.as_ref().is_some_and(|netns| netns.starts_with("/proc/"));
        let is_name = (self.unit.is_some() || self.container.is_some()) && !by_number;
        match self.on_target_gone.as_deref() {
            None if is_name => Ok(OnTargetGone::Follow),
            None | Some("end") => Ok(OnTargetGone::End),
            Some("follow") if by_number => {
                Err(wrong("a number of a process is given to another one: name a unit, container, cgroup or netns to follow".into()))
            }
            Some("follow") => Ok(OnTargetGone::Follow),
            Some(other) => Err(wrong(format!("{other:?} is not known: give \"end\" or \"follow\""))),
        }
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

/// The protocol and the ports that packets are narrowed by.
pub(super) fn transport(target: &TargetRequest) -> Result<(Protocol, PortMatch), SpecError> {
    let (protocol, ports) = (protocol(target.protocol.as_deref())?, PortMatch::parse(target)?);
    if protocol == Protocol::Icmp && ports != PortMatch::default() {
        return Err(SpecError::new("target.protocol", "icmp has no ports: leave the port out"));
    }
    Ok((protocol, ports))
}

/// The interface that a target names; `None` when it names those by the route to whom the interface is found: peers, or whose packets.
pub(super) fn interface_or_route(target: &TargetRequest) -> Result<Option<String>, SpecError> {
    let names_peers = target.cidr.is_some() || !target.cidrs.is_empty() || target.host.is_some();
    if target.interface.is_none() && (names_peers || target.names_group()) {
        return Ok(None);
    }
    if target.interface.is_none() {
        let problem = "missing: name the network interface, e.g. \"eth0\"; or peers by cidr or host, or a unit, by whose route it is found";
        return Err(SpecError::new("target.interface", problem));
    }
    interface_name(target).map(Some)
}

/// The interface that a target has to name.
pub(super) fn interface_name(target: &TargetRequest) -> Result<String, SpecError> {
    let interface = target.interface.clone().ok_or_else(|| {
        SpecError::new("target.interface", "missing: name the network interface, e.g. \"eth0\"")
    })?;
    typed::interface(&interface)?;
    if interface.is_empty() || interface.len() > 15 || interface.contains(['/', ' ', '\0']) {
        return Err(SpecError::new("target.interface", format!("{interface:?} is not an interface name")));
    }
    Ok(interface)
}

/// The peer prefixes that a target names: sorted, each once.
pub(super) fn peers(target: &TargetRequest) -> Result<Vec<IpNet>, SpecError> {
    typed::host(target.host.as_deref())?;
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
    match text.map(str::to_ascii_lowercase).as_deref() {
        None | Some("any" | "all") => Ok(Protocol::Any),
        Some("tcp") => Ok(Protocol::Tcp),
        Some("udp") => Ok(Protocol::Udp),
        Some("icmp") => Ok(Protocol::Icmp),
        Some(_) => Err(SpecError::new(
            "target.protocol",
            format!(
                "{:?} is not known: give \"tcp\", \"udp\" or \"icmp\", or leave it out for any",
                text.unwrap_or_default()
            ),
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
    net.map(|net| ip::canonical(net.trunc())).ok_or_else(|| SpecError::new(field(), typed::no_prefix(text)))
}
