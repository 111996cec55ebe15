//! The interface of a fault that names none: the one by which packets to its peers leave, as the kernel says when it is asked for a
//! route. It is found when the fault starts; from then on the fault is what it would be if the interface had been named.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::host::addresses::interfaces;
use crate::host::{NetNs, Spared};
use crate::kernel::step;
use crate::request::{ApiError, ErrorCode, chain};
use crate::spec::{Fault, FaultRequest, TargetRequest, Traffic};
use crate::target::{self, Entrance};

/// What is added to a description.
pub(super) const WORDS: &str = "; that interface by the route, taken at the start";

/// By which packets to this host's own addresses leave.
const LOOPBACK: &str = "lo";
/// For so many addresses the route is looked up, at most.
const MOST_ASKED: usize = 1024;
/// An address of everybody, for who is asked when no peer is named (RFC 5737, RFC 3849: for documentation only).
const ANYBODY_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const ANYBODY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
/// Below such a length a prefix has addresses that are nobody's.
const WIDE: u8 = 8;

/// The fault on the interface by the route, if it names none itself. `named` are the addresses of the host that it names. Blocks.
///
/// # Errors
/// When there is no way, or there are several, or the fault cannot be on that interface.
pub(super) fn on_its_way(
    fault: &Fault,
    request: &FaultRequest,
    named: &[IpNet],
    (home, entrance, spared): (&NetNs, &Entrance, &Spared),
) -> Result<Option<Fault>, ApiError> {
    let Some(traffic) = fault.effect.traffic().filter(|traffic| traffic.interface.is_none()) else {
        return Ok(None);
    };
    let netns = target::namespace(traffic, home, entrance, spared)?;
    let found = find(traffic, named, netns)?;
    let target = TargetRequest { interface: Some(found), ..request.target.clone() };
    Ok(Some(FaultRequest { target, ..request.clone() }.parse()?))
}

fn find(traffic: &Traffic, named: &[IpNet], netns: NetNs) -> Result<String, ApiError> {
    let failed = |error: &dyn std::error::Error| {
        let text = format!("target.interface: look up the route to the peers: {}", chain(error));
        ApiError::new(ErrorCode::InjectionFailed, text).hint("name the interface")
    };
    let peers: Vec<_> = traffic.peers.iter().chain(named).copied().collect();
    let known = netns.inside(interfaces).map_err(|error| failed(&error))?;
    let routes: Vec<_> = known.into_values().flat_map(|interface| interface.routes).collect();
    let asked: Vec<_> = addresses(&peers, &routes)?.into_iter().collect();
    let ways = step::ways(netns, &asked).map_err(|error| failed(&error))?;
    let mut by: BTreeMap<String, IpAddr> = BTreeMap::new();
    for (address, way) in asked.iter().zip(ways) {
        let Some(name) = way else { continue };
        let is_named = peers.contains(&IpNet::from(*address));
        by.entry(name)
            .and_modify(|known| *known = if is_named { *address } else { *known })
            .or_insert(*address);
    }
    // Of a network of which this host is a part, its own address is not meant, unless it is named by itself.
    if by.len() > 1 && by.get(LOOPBACK).is_some_and(|own| !peers.contains(&IpNet::from(*own))) {
        by.remove(LOOPBACK);
    }
    only(by, &asked)
}

/// The one interface by which all leave.
fn only(by: BTreeMap<String, IpAddr>, asked: &[IpAddr]) -> Result<String, ApiError> {
    let several = by.len() > 1;
    let words: Vec<_> = by.iter().map(|(name, address)| format!("{name} (to {address})")).collect();
    match by.into_keys().next() {
        Some(name) if !several => Ok(name),
        Some(_) => {
            let text = format!(
                "target.interface: missing: packets to the peers leave by several interfaces: {}",
                words.join(", ")
            );
            Err(ApiError::new(ErrorCode::InvalidParameter, text)
                .hint("a fault goes to one interface: name it, and inject one fault for each"))
        }
        None => {
            let to = asked.first().map(ToString::to_string).unwrap_or_default();
            let text =
                format!("target.interface: missing: no route leads to the peers, such as {to}, from here");
            Err(ApiError::new(ErrorCode::TargetNotFound, text)
                .hint("name the interface; `ip route get` shows by which one packets leave"))
        }
    }
}

/// The addresses that are asked for: the ends and the middle of each prefix, and of what has a route of its own within it. Without
/// peers, anybody.
fn addresses(peers: &[IpNet], routes: &[IpNet]) -> Result<BTreeSet<IpAddr>, ApiError> {
    if peers.is_empty() {
        return Ok([ANYBODY_V4, ANYBODY_V6].into());
    }
    let mut asked = BTreeSet::new();
    for peer in peers {
        let within = routes.iter().filter(|route| peer != *route && peer.contains(*route));
        asked.extend(within.chain([peer]).flat_map(ends).filter(|address| !is_nobody(peer, address)));
        asked.extend([ANYBODY_V4, ANYBODY_V6].iter().filter(|address| peer.contains(*address)));
        if asked.len() > MOST_ASKED {
            let text = format!(
                "target.interface: missing: the route to more than {MOST_ASKED} peers is not looked up"
            );
            return Err(ApiError::new(ErrorCode::InvalidParameter, text).hint("name the interface"));
        }
    }
    Ok(asked)
}

/// The first and the last address of a prefix that may be a host's, and one in its middle.
fn ends(net: &IpNet) -> Vec<IpAddr> {
    match net {
        IpNet::V4(net) if net.prefix_len() >= 31 => vec![net.network().into(), net.broadcast().into()],
        IpNet::V4(net) => {
            let (first, last) = (u32::from(net.network()), u32::from(net.broadcast()));
            [first + 1, first + (last - first) / 2 + 1, last - 1].map(|it| Ipv4Addr::from(it).into()).to_vec()
        }
        IpNet::V6(net) if net.prefix_len() >= 127 => vec![net.network().into(), net.broadcast().into()],
        IpNet::V6(net) => {
            let (first, last) = (u128::from(net.network()), u128::from(net.broadcast()));
            [first + 1, first + (last - first) / 2 + 1, last].map(|it| Ipv6Addr::from(it).into()).to_vec()
        }
    }
}

/// Whether it is only in a wide prefix an address that is no host's elsewhere.
fn is_nobody(peer: &IpNet, address: &IpAddr) -> bool {
    const LOCAL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 8);
    const LOW: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 8);
    peer.prefix_len() < WIDE
        && match address {
            IpAddr::V4(it) => it.octets()[0] == 0 || LOCAL.contains(it) || it.octets()[0] >= 224,
            IpAddr::V6(it) => LOW.contains(it) || it.is_multicast(),
        }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(peers: &[&str], routes: &[&str]) -> Vec<String> {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        addresses(&nets(peers), &nets(routes)).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_ends_of_a_prefix_are_asked_for_and_the_routes_within_it() {
        assert_eq!(asked(&["10.0.0.7/32"], &["0.0.0.0/0"]), ["10.0.0.7"]);
        assert_eq!(asked(&["10.0.0.0/24"], &[]), ["10.0.0.1", "10.0.0.128", "10.0.0.254"]);
        let within = asked(&["10.0.0.0/8"], &["10.9.0.0/30", "11.0.0.0/24", "0.0.0.0/0"]);
        assert!(within.contains(&"10.9.0.1".to_owned()) && !within.iter().any(|it| it.starts_with("11.")));
        assert_eq!(asked(&[], &["10.0.0.0/8"]), ["192.0.2.1", "2001:db8::1"]);
    }

    #[test]
    fn nobody_is_asked_for_but_where_he_is_meant() {
        assert_eq!(asked(&["0.0.0.0/0"], &["127.0.0.0/8", "224.0.0.0/4"]), ["128.0.0.0", "192.0.2.1"]);
        assert_eq!(asked(&["::/0"], &[]), ["2001:db8::1", "8000::"]);
        assert_eq!(
            asked(&["127.0.0.1/32", "224.0.0.18/32", "::1/128"], &[]),
            ["127.0.0.1", "224.0.0.18", "::1"]
        );
    }

    #[test]
    fn too_many_peers_are_not_looked_up() {
        let many: Vec<IpNet> =
            (0..3000).map(|number| IpNet::from(IpAddr::from(Ipv4Addr::from(number << 8)))).collect();
        assert_eq!(addresses(&many, &[]).unwrap_err().code, ErrorCode::InvalidParameter);
    }

    #[test]
    fn one_way_is_taken_and_several_or_none_are_refused_by_name() {
        let by = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), ANYBODY_V4)).collect();
        assert_eq!(only(by(&["eth0"]), &[]).unwrap(), "eth0");
        let several = only(by(&["eth0", "eth1"]), &[]).unwrap_err();
        assert!(several.message.contains("eth0 (to 192.0.2.1), eth1 (to 192.0.2.1)"), "{several}");
        assert_eq!(only(by(&[]), &[ANYBODY_V4]).unwrap_err().code, ErrorCode::TargetNotFound);
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_is_one_of_the_peers(address: u32, length in 0_u8..=32, route: u32, of in 0_u8..=32) {
            let net = |address: u32, length| IpNet::new(Ipv4Addr::from(address).into(), length).unwrap().trunc();
            let (peer, route) = (net(address, length), net(route, of));
            for asked in addresses(&[peer], &[route]).unwrap() {
                prop_assert!(peer.contains(&asked), "{asked} of {peer}");
            }
        }
    }
}
