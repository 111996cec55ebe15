//! Why a fault most likely meets nothing, decided from what was seen. Pure: what was not seen is no reason.

use std::collections::BTreeMap;
use std::net::IpAddr;

use chaos_common::rule::{EVERY_PEER, ICMP, ICMP_V6, TCP, UDP};
use chaos_common::{Packet, PacketRule, Version, Way};
use ipnet::IpNet;

use super::packet::{Ip, Sight, What, type_words};
use crate::host::translation::{Ends, Translation};
use crate::request::evidence::Met;
use crate::spec::Direction;

/// What a fault is about.
#[derive(Debug, Clone)]
pub(super) struct Sought {
    /// Where it looks, for people: `eth0`, `cgroup /sys/fs/cgroup/a`.
    pub(super) place: String,
    /// Protocol and ports, of which it asks nothing else.
    pub(super) rule: PacketRule,
    /// The same for people: `tcp port 80`; empty is all.
    pub(super) words: String,
    /// Peers; none is every peer.
    pub(super) peers: Vec<IpNet>,
    /// Which ways.
    pub(super) directions: Vec<Direction>,
    /// The device that packets of a control group have to pass, and its name.
    pub(super) interface: Option<(u32, String)>,
    /// Whether it meets calls that connect, and not packets.
    pub(super) connects: bool,
}

/// What was seen of what a fault could meet.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// What the fault has counted.
    pub(super) met: Met,
    /// Whether nobody is in its control group.
    pub(super) nobody: bool,
    /// Whether counters have moved for what arrives, and for what leaves.
    pub(super) moved: [bool; 2],
    /// Packets that have passed.
    pub(super) sights: Vec<Sight>,
    /// Programs of others that run before the fault, for people.
    pub(super) ahead: Vec<String>,
    /// Whether an XDP program is on the device.
    pub(super) xdp: bool,
    /// Connections of which an end is translated.
    pub(super) translations: Vec<Translation>,
    /// Peers that the fault names, with the other device by which packets to them leave, where that one's counters have moved.
    pub(super) elsewhere: Vec<(IpAddr, String)>,
}

/// What of a packet is not as the fault would have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Miss {
    Way,
    Interface,
    Protocol,
    Port,
    Near,
    Peer,
    Established,
}

/// What a packet lacks to be met.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    /// These; none is nothing.
    Misses(Vec<Miss>),
    /// It is within this tunnel.
    Tunnel(&'static str),
    /// It is behind tags, and what is there lacks so much.
    Tags(Vec<u16>, usize),
    /// It is no IP.
    NotIp(u16),
}

impl Lack {
    /// How far it is from being met.
    fn distance(&self) -> usize {
        match self {
            Self::Misses(misses) => misses.len(),
            Self::Tunnel(_) => 1,
            Self::Tags(_, within) => within.saturating_add(1),
            Self::NotIp(_) => usize::MAX,
        }
    }
}

/// The likely reason, for people; `None` where nothing was seen that would be one.
pub(super) fn likely(sought: &Sought, seen: &Seen) -> Option<String> {
    let Met { matched, affected, protected } = seen.met;
    if affected > 0 {
        return None;
    }
    if matched > 0 && protected >= matched {
        return Some(format!(
            "all {matched} that matched are protected: by the policy, as a way in of operators, or because the link lives by them"
        ));
    }
    if matched > 0 {
        return Some(format!(
            "{matched} have matched, and none of them was to be acted on: the fault is about a share, or lets the first pass"
        ));
    }
    if seen.nobody {
        return Some(format!("nobody is in {}", sought.place));
    }
    if !seen.moved.contains(&true) {
        return elsewhere(sought, seen);
    }
    if seen.sights.is_empty() {
        return unseen(sought, seen);
    }
    by_packets(sought, seen)
}

/// Where packets pass and could not be looked at.
fn unseen(sought: &Sought, seen: &Seen) -> Option<String> {
    if seen.xdp && seen.moved[0] && sought.directions.contains(&Direction::Ingress) {
        let place = &sought.place;
        return Some(format!("an XDP program on {place} may take what arrives before the fault could"));
    }
    if let Some(ahead) = ahead(seen) {
        return Some(ahead);
    }
    if let Some(elsewhere) = elsewhere(sought, seen) {
        return Some(elsewhere);
    }
    match (sought.directions.as_slice(), seen.moved) {
        ([Direction::Egress], [true, false]) => Some(wrong_way(Way::Ingress)),
        ([Direction::Ingress], [false, true]) => Some(wrong_way(Way::Egress)),
        _ => None,
    }
}

fn ahead(seen: &Seen) -> Option<String> {
    let programs = seen.ahead.join(", ");
    (!programs.is_empty()).then(|| {
        format!("{programs} runs before the fault, and what it decides about does not meet the fault")
    })
}

fn elsewhere(sought: &Sought, seen: &Seen) -> Option<String> {
    let (peer, device) = seen.elsewhere.first()?;
    let place = &sought.place;
    Some(format!("packets to {peer} leave by {device}, and not by {place}: name that interface"))
}

fn wrong_way(way: Way) -> String {
    let (does, other, give) = match way {
        Way::Ingress => ("arrives", "leaves", "ingress"),
        Way::Egress => ("leaves", "arrives", "egress"),
    };
    format!("what passes {does}, and the fault is about what {other}: give direction \"{give}\" or \"both\"")
}

/// By the packets that come nearest to being met.
fn by_packets(sought: &Sought, seen: &Seen) -> Option<String> {
    let mut found: BTreeMap<Lack, Vec<&Sight>> = BTreeMap::new();
    for sight in &seen.sights {
        if let Some(lack) = lack(sought, sight) {
            found.entry(lack).or_default().push(sight);
        }
    }
    let looked_at: usize = found.values().map(Vec::len).sum();
    let nearest = |(lack, sights): &(&Lack, &Vec<&Sight>)| (lack.distance(), usize::MAX - sights.len());
    let (lack, sights) = found.iter().min_by_key(nearest)?;
    let first = sights.first()?;
    let place = &sought.place;
    let why = match lack {
        Lack::Misses(misses) if misses.is_empty() && sought.connects => translated_words(sought, seen)?,
        Lack::Misses(misses) if misses.is_empty() => return ahead(seen),
        Lack::Misses(misses) => {
            let of_addresses = misses.iter().any(|miss| matches!(miss, Miss::Peer | Miss::Near | Miss::Port));
            let translated = of_addresses || misses.contains(&Miss::Established);
            let translated = translated.then(|| translated_words(sought, seen)).flatten();
            let other = misses.contains(&Miss::Peer).then(|| elsewhere(sought, seen)).flatten();
            match translated.or(other) {
                Some(words) => words,
                None => missed(sought, misses, first)?,
            }
        }
        Lack::Tunnel(kind) => format!(
            "what it is about is within {kind}, and only the outer headers are looked at: aim at the tunnel's own interface"
        ),
        Lack::Tags(tags, _) => {
            let tags: Vec<_> = tags.iter().map(|tag| type_words(*tag)).collect();
            format!("what passes is behind tags ({}): aim at the interface of the VLAN", tags.join(", "))
        }
        Lack::NotIp(kind) => format!("what passes is no IP, but {}", type_words(*kind)),
    };
    let (count, packets) = (sights.len(), if looked_at == 1 { "packet" } else { "packets" });
    Some(format!("{why} ({count} of {looked_at} {packets} looked at on {place})"))
}

/// What a packet lacks; `None` of one that no fault is about.
fn lack(sought: &Sought, sight: &Sight) -> Option<Lack> {
    match &sight.what {
        What::Life | What::Unread => None,
        What::NotIp(kind) => Some(Lack::NotIp(*kind)),
        What::Tagged(tags, within) => {
            let lacking = within.map_or(0, |ip| misses(sought, sight, &ip).len());
            Some(Lack::Tags(tags.clone(), lacking))
        }
        What::Plain(ip, within) => {
            let misses = misses(sought, sight, ip);
            match within {
                Some((kind, inner))
                    if !misses.is_empty() && self::misses(sought, sight, inner).is_empty() =>
                {
                    Some(Lack::Tunnel(kind))
                }
                _ => Some(Lack::Misses(misses)),
            }
        }
    }
}

fn misses(sought: &Sought, sight: &Sight, ip: &Ip) -> Vec<Miss> {
    let way = sight.way;
    let direction = match way {
        Way::Egress => Direction::Egress,
        Way::Ingress => Direction::Ingress,
    };
    let mut misses = Vec::new();
    let mut add = |holds: bool, miss: Miss| misses.extend((!holds).then_some(miss));
    add(sought.directions.contains(&direction), Miss::Way);
    add(sought.interface.as_ref().is_none_or(|(index, _)| *index == sight.interface), Miss::Interface);
    let protocol_alone = PacketRule { protocol: sought.rule.protocol, ..any() };
    let is_protocol = protocol_alone.selects(&ip.packet, way);
    add(is_protocol, Miss::Protocol);
    let ports_alone = PacketRule { protocol: 0, ..sought.rule };
    add(ports_alone.selects(&ip.packet, way), Miss::Port);
    let [near, far] = ip.ends(way);
    let is_named = |address: IpAddr| sought.peers.is_empty() || names(&sought.peers, address);
    let far_is_named = is_named(far.0);
    add(far_is_named || is_named(near.0), Miss::Peer);
    add(far_is_named || !is_named(near.0), Miss::Near);
    let is_connection = sought.connects && ip.packet.protocol == TCP;
    add(!is_connection || ip.begins, Miss::Established);
    misses
}

fn names(peers: &[IpNet], address: IpAddr) -> bool {
    peers.iter().any(|peer| peer.contains(&address))
}

fn any() -> PacketRule {
    PacketRule { flags: chaos_common::rule::ENABLED | EVERY_PEER, ..PacketRule::default() }
}

/// What is not as the fault would have it, by the first of those packets.
fn missed(sought: &Sought, misses: &[Miss], sight: &Sight) -> Option<String> {
    let What::Plain(ip, _) = &sight.what else { return None };
    let [near, far] = ip.ends(sight.way);
    let place = &sought.place;
    let about = &sought.words;
    let mut words = Vec::new();
    let transport = misses.iter().any(|miss| matches!(miss, Miss::Protocol | Miss::Port));
    if transport {
        words.push(format!(
            "what passes is {}, and the fault is about {about}",
            transport_words(ip, sight.way)
        ));
    }
    for miss in misses {
        words.push(match miss {
            Miss::Protocol | Miss::Port => continue,
            Miss::Way if sought.connects => {
                "others connect to it, and the fault meets its own calls".to_owned()
            }
            Miss::Way => wrong_way(sight.way),
            Miss::Interface => {
                let device = sought.interface.as_ref().map(|(_, name)| name.as_str()).unwrap_or_default();
                format!("its packets pass another interface (index {}), and not {device}", sight.interface)
            }
            Miss::Near => format!(
                "{} is the near end of what passes {place}, whose peer is {}: aim at the interface on its other side, or in its own network namespace",
                near.0, far.0
            ),
            Miss::Peer => format!("what passes is of peer {}, and of none that the fault names", far.0),
            Miss::Established => {
                "its connections are there already, and a fault of connecting meets new ones".to_owned()
            }
        });
    }
    Some(words.join("; "))
}

/// `tcp, remote port 8080`: of two ports the lower, since the other is mostly one of those that are given out.
fn transport_words(ip: &Ip, way: Way) -> String {
    let name = match ip.packet.protocol {
        TCP => "tcp".to_owned(),
        UDP => "udp".to_owned(),
        ICMP | ICMP_V6 => "icmp".to_owned(),
        other => format!("IP protocol {other}"),
    };
    let (local, remote) = ip.packet.ports(way);
    match (ip.packet.has_ports, local < remote) {
        (false, _) => name,
        (true, true) => format!("{name}, local port {local}"),
        (true, false) => format!("{name}, remote port {remote}"),
    }
}

/// That the fault names an end as it is on the other side of a translation.
fn translated_words(sought: &Sought, seen: &Seen) -> Option<String> {
    seen.translations.iter().find_map(|translation| {
        let Translation { before, behind, protocol } = translation;
        // A call names whom it wants to reach; a packet has by then whom it will.
        let (named, passes) = if sought.connects { (behind, before) } else { (before, behind) };
        if !selects_ends(sought, *protocol, named) || selects_ends(sought, *protocol, passes) {
            return None;
        }
        let show = |(address, port): (IpAddr, u16)| match port {
            0 => address.to_string(),
            port => format!("{address} port {port}"),
        };
        let (before, behind) = (before.destination, behind.destination);
        let give = if sought.connects { before } else { behind };
        let (before, behind, give) = (show(before), show(behind), show(give));
        let when = if sought.connects { "after it was asked for" } else { "before the fault sees it" };
        Some(format!("{before} is translated to {behind} {when} (connection tracking): name {give}"))
    })
}

/// Whether the fault is about these ends, whichever of them is the peer.
fn selects_ends(sought: &Sought, protocol: u8, ends: &Ends) -> bool {
    let Ends { source, destination } = *ends;
    let version = if source.0.is_ipv4() { Version::V4 } else { Version::V6 };
    let has_ports = matches!(protocol, TCP | UDP);
    let packet = Packet {
        version,
        protocol,
        has_ports,
        source: source.1,
        destination: destination.1,
        ..Packet::default()
    };
    let is = |way: Way, peer: IpAddr| {
        sought.rule.selects(&packet, way) && (sought.peers.is_empty() || names(&sought.peers, peer))
    };
    is(Way::Egress, destination.0) || is(Way::Ingress, source.0)
}
