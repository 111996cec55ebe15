//! What a device loses when it is set down and does not get back by itself when it comes up: IPv6 addresses, routes that
//! somebody has added, permanent neighbours, and those for which it answers (proxies). Kept as the kernel's own messages, and sent
//! back as they are.
//!
//! IPv4 addresses stay, and the routes that the kernel makes of addresses come back with them. What a router has announced
//! (routes, temporary addresses) comes back with its next announcement, which the kernel asks for. What cannot be had back
//! is an [`Unrestorable`].
//!
//! Reference: rtnetlink(7); Linux `net/ipv6/addrconf.c` (`addrconf_ifdown`), `net/ipv4/fib_frontend.c` (`fib_disable_ip`),
//! `net/core/neighbour.c` (`neigh_ifdown`, `pneigh_ifdown`).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink_packet_core::{DecodeError, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use nix::errno::Errno;
use nix::libc;
use serde::{Deserialize, Serialize};

use super::Netlink;
use super::error::NetlinkError;
use super::wire::{Attributes, Wire};

/// No more routes and addresses than these are kept in a journal.
const MOST: usize = 4096;
/// How long routes wait for their sources. To check an address for duplicates takes the kernel 1 to 2 s (`addrconf_dad_kick`),
/// from when there is a carrier. Who undoes tries again when it takes longer; others who would recover wait for it meanwhile.
const CHECK_LIMIT: Duration = Duration::from_secs(4);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// `RTM_GETNEXTHOP` (linux/rtnetlink.h).
const RTM_GETNEXTHOP: u16 = 106;
/// Lengths of ifinfomsg, ifaddrmsg, rtmsg, ndmsg, nhmsg.
const LINK_HEADER: usize = 16;
const ADDRESS_HEADER: usize = 8;
const ROUTE_HEADER: usize = 12;
const NEIGHBOUR_HEADER: usize = 12;
const NEXTHOP_HEADER: usize = 8;
/// Where ndmsg has its state, and its flags.
const NEIGHBOUR_STATE: usize = 8;
const NEIGHBOUR_FLAGS: usize = 10;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_NH_ID: u16 = 30;
const NHA_OIF: u16 = 5;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;

/// What a device had, as the kernel listed it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belongings {
    /// IPv6 addresses (ifaddrmsg).
    pub addresses: Vec<Vec<u8>>,
    /// Routes that neither the kernel nor a router has made (rtmsg), those that others need first.
    pub routes: Vec<Vec<u8>>,
    /// Permanent neighbours (ndmsg).
    pub neighbours: Vec<Vec<u8>>,
    /// Neighbours for which it answers (ndmsg with `NTF_PROXY`).
    #[serde(default)]
    pub proxies: Vec<Vec<u8>>,
}

/// What is known of a device before it is set down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// What can be restored.
    pub belongings: Belongings,
    /// What could not be, by name.
    pub unrestorable: Vec<String>,
    /// Every address of it, of both families.
    pub addresses: Vec<IpAddr>,
    /// Whether a default route leaves through it, or one of the routes that a VPN has in its place.
    pub default_route: bool,
}

/// What tells one entry from another: length of its header, how much of that counts, and which attributes do. Lifetimes, counters
/// and the state of a check for duplicates tell of the moment.
type Identity = (usize, usize, &'static [u16]);

const OF_ADDRESS: Identity = (ADDRESS_HEADER, 2, &[IFA_ADDRESS]);
const OF_ROUTE: Identity =
    (ROUTE_HEADER, 8, &[RTA_DST, RTA_SRC, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_TABLE, RTA_VIA]);
const OF_NEIGHBOUR: Identity = (NEIGHBOUR_HEADER, 1, &[NDA_DST]);
const OF_NEIGHBOUR_AS_IT_IS: Identity = (NEIGHBOUR_HEADER, 1, &[NDA_DST, NDA_LLADDR]);

impl Inventory {
    /// What going down would cost for good and is not in `had`, for people. An address that the kernel or a router has made comes
    /// back by itself.
    pub fn beyond(&self, had: &Belongings) -> Vec<String> {
        // ifa_flags: IFA_F_PERMANENT, which a router's has not. ifa_scope: one of the link alone is the kernel's.
        let by_hand =
            |bytes: &[u8]| number(bytes, 2) & 0x80 != 0 && number(bytes, 3) == libc::RT_SCOPE_UNIVERSE;
        let more = |identity: Identity, now: &[Vec<u8>], had: &[Vec<u8>], counts: &dyn Fn(&[u8]) -> bool| {
            now.iter().any(|bytes| counts(bytes) && !had.iter().any(|there| same(identity, there, bytes)))
        };
        let Belongings { addresses, routes, neighbours, proxies } = &self.belongings;
        let found = [
            ("an IPv6 address", more(OF_ADDRESS, addresses, &had.addresses, &by_hand)),
            ("a route", more(OF_ROUTE, routes, &had.routes, &|_| true)),
            ("a permanent neighbour", more(OF_NEIGHBOUR_AS_IT_IS, neighbours, &had.neighbours, &|_| true)),
            ("a proxy neighbour", more(OF_NEIGHBOUR, proxies, &had.proxies, &|_| true)),
        ];
        let found = found.into_iter().filter(|(_, is_more)| *is_more).map(|(what, _)| what.to_owned());
        found.chain(self.unrestorable.iter().cloned()).collect()
    }
}

impl Netlink {
    /// Lists what the device has.
    ///
    /// # Errors
    /// When a list cannot be read: what is not known cannot be restored.
    pub async fn inventory(&self, ifindex: u32) -> Result<Inventory, NetlinkError> {
        let mut found = Inventory::default();
        self.stacked(ifindex, &mut found).await?;
        for bytes in self.list("list addresses", libc::RTM_GETADDR, ADDRESS_HEADER).await? {
            read(&bytes, "list addresses", |bytes| address(bytes, ifindex, &mut found))?;
        }
        for bytes in self.list("list routes", libc::RTM_GETROUTE, ROUTE_HEADER).await? {
            read(&bytes, "list routes", |bytes| route(bytes, ifindex, &mut found))?;
        }
        for bytes in self.list("list neighbours", libc::RTM_GETNEIGH, NEIGHBOUR_HEADER).await? {
            neighbour(bytes, ifindex, &mut found);
        }
        let mut proxies = self.proxies().await?;
        proxies.retain(|bytes| is_neighbour(bytes, ifindex));
        found.belongings.proxies = proxies.into_iter().map(lasting).collect();
        self.nexthops(ifindex, &mut found).await?;
        // Routes on the link before those through a gateway that is on it.
        found.belongings.routes.sort_by_key(|bytes| through_gateway(bytes));
        let count = found.belongings.addresses.len() + found.belongings.routes.len();
        if count > MOST {
            found.unrestorable.push(format!("{count} addresses and routes (at most {MOST} are kept)"));
        }
        Ok(found)
    }

    /// Gives a device that is up what it lacks of its belongings; `true` when it lacked something.
    ///
    /// # Errors
    /// When something cannot be restored; the rest was tried.
    pub async fn restore(&self, ifindex: u32, had: &Belongings) -> Result<bool, NetlinkError> {
        let now = self.inventory(ifindex).await?.belongings;
        let mut lacked = false;
        let mut first = Ok(());
        for ((thing, identity, kind), flags, had, now) in [
            (("an address", OF_ADDRESS, libc::RTM_NEWADDR), NLM_F_REPLACE, &had.addresses, &now.addresses),
            // One that was learnt meanwhile gives way.
            (
                ("a neighbour", OF_NEIGHBOUR, libc::RTM_NEWNEIGH),
                NLM_F_REPLACE,
                &had.neighbours,
                &now.neighbours,
            ),
            (
                ("a proxy neighbour", OF_NEIGHBOUR, libc::RTM_NEWNEIGH),
                NLM_F_REPLACE,
                &had.proxies,
                &now.proxies,
            ),
            // Last: they may have to wait.
            (("a route", OF_ROUTE, libc::RTM_NEWROUTE), NLM_F_EXCL, &had.routes, &now.routes),
        ] {
            let lacks = |bytes: &&Vec<u8>| !now.iter().any(|there| same(identity, there, bytes));
            let lacking: Vec<_> = had.iter().filter(lacks).collect();
            lacked |= !lacking.is_empty();
            let operation = format!("restore {thing} of interface {ifindex}");
            first = first.and(self.give_back(&operation, kind, flags, lacking).await);
        }
        first.map(|()| lacked)
    }

    /// Sends these again, in order, each whatever becomes of the others. A route is refused while its source is checked for
    /// duplicates, and so are those that need it: then what was refused is sent again until that is over, within bounds.
    async fn give_back(
        &self,
        operation: &str,
        kind: u16,
        flags: u16,
        mut lacking: Vec<&Vec<u8>>,
    ) -> Result<(), NetlinkError> {
        let end = Instant::now() + CHECK_LIMIT;
        loop {
            let (mut refused, mut first, mut waits) = (Vec::new(), Ok(()), false);
            for bytes in lacking {
                match self.replay(operation, kind, bytes, NLM_F_CREATE | flags).await {
                    Ok(()) => {}
                    // Back already.
                    Err(error) if error.errno() == Some(Errno::EEXIST) => {}
                    Err(error) => {
                        waits |= kind == libc::RTM_NEWROUTE && may_lack_source(bytes, &error);
                        refused.push(bytes);
                        first = first.and(Err(error));
                    }
                }
            }
            if !waits || Instant::now() >= end {
                return first;
            }
            lacking = refused;
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn list(&self, operation: &str, kind: u16, header: usize) -> Result<Vec<Vec<u8>>, NetlinkError> {
        self.dump_wire(operation, || Wire::Raw(kind, vec![0; header])).await
    }

    /// Those that are no neighbours but answered for, of which no other list tells.
    async fn proxies(&self) -> Result<Vec<Vec<u8>>, NetlinkError> {
        let wanted = || {
            let mut header = vec![0; NEIGHBOUR_HEADER];
            header[NEIGHBOUR_FLAGS] = libc::NTF_PROXY;
            Wire::Raw(libc::RTM_GETNEIGH, header)
        };
        self.dump_wire("list proxy neighbours", wanted).await
    }

    /// Devices that stand on this one and go down with it.
    async fn stacked(&self, ifindex: u32, found: &mut Inventory) -> Result<(), NetlinkError> {
        let operation = "list interfaces";
        for bytes in self.list(operation, libc::RTM_GETLINK, LINK_HEADER).await? {
            read(&bytes, operation, |bytes| link(bytes, ifindex, found))?;
        }
        Ok(())
    }

    async fn nexthops(&self, ifindex: u32, found: &mut Inventory) -> Result<(), NetlinkError> {
        let operation = "list nexthop objects";
        let listed = match self.list(operation, RTM_GETNEXTHOP, NEXTHOP_HEADER).await {
            // A kernel without them.
            Err(error) if matches!(error.errno(), Some(Errno::EOPNOTSUPP | Errno::EINVAL)) => return Ok(()),
            listed => listed?,
        };
        for bytes in listed {
            read(&bytes, operation, |bytes| nexthop(bytes, ifindex, found))?;
        }
        Ok(())
    }
}

fn read<T>(
    bytes: &[u8],
    operation: &str,
    parse: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
) -> Result<T, NetlinkError> {
    parse(bytes).map_err(|source| NetlinkError::Unreadable { operation: operation.to_owned(), source })
}

fn number(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

fn index(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn is_neighbour(bytes: &[u8], ifindex: u32) -> bool {
    index(bytes, 4) == ifindex && matches!(i32::from(number(bytes, 0)), libc::AF_INET | libc::AF_INET6)
}

/// A proxy that stays when the carrier goes, as `ip` makes them. Which do so no list tells: each is listed without a state.
fn lasting(mut proxy: Vec<u8>) -> Vec<u8> {
    if let Some(state) = proxy.get_mut(NEIGHBOUR_STATE..NEIGHBOUR_FLAGS) {
        state.copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
    }
    proxy
}

/// A device, which may stand on this one.
fn link(bytes: &[u8], ifindex: u32, found: &mut Inventory) -> Result<(), DecodeError> {
    let attributes = Attributes::behind(bytes, LINK_HEADER)?;
    let name = attributes.text(IFLA_IFNAME)?.unwrap_or_default();
    let kind = match attributes.nested(IFLA_LINKINFO)? {
        Some(info) => info.text(IFLA_INFO_KIND)?.unwrap_or_default(),
        None => String::new(),
    };
    // The link of a veth is its peer, which stands on its own feet; one with a namespace is elsewhere.
    let below = kind != "veth" && attributes.get(IFLA_LINK_NETNSID).is_none();
    let above =
        below && attributes.u32(IFLA_LINK)? == Some(ifindex) || attributes.u32(IFLA_MASTER)? == Some(ifindex);
    if above && index(bytes, 4) != ifindex {
        found.unrestorable.push(format!("{name}, which stands on it"));
    }
    Ok(())
}

fn nexthop(bytes: &[u8], ifindex: u32, found: &mut Inventory) -> Result<(), DecodeError> {
    if Attributes::behind(bytes, NEXTHOP_HEADER)?.u32(NHA_OIF)? == Some(ifindex) {
        found.unrestorable.push("a nexthop object (`ip nexthop`)".to_owned());
    }
    Ok(())
}

fn neighbour(bytes: Vec<u8>, ifindex: u32, found: &mut Inventory) {
    let state = [NEIGHBOUR_STATE, NEIGHBOUR_STATE + 1].map(|at| number(&bytes, at));
    let state = u16::from_ne_bytes(state);
    if is_neighbour(&bytes, ifindex) && state & libc::NUD_PERMANENT != 0 {
        found.belongings.neighbours.push(bytes);
    }
}

fn address(bytes: &[u8], ifindex: u32, found: &mut Inventory) -> Result<(), DecodeError> {
    if index(bytes, 4) != ifindex {
        return Ok(());
    }
    let attributes = Attributes::behind(bytes, ADDRESS_HEADER)?;
    let text = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS)).unwrap_or_default();
    if let Ok(four) = <[u8; 4]>::try_from(text) {
        found.addresses.push(four.into());
    } else if let Ok(sixteen) = <[u8; 16]>::try_from(text) {
        found.addresses.push(sixteen.into());
    }
    // ifa_flags; IFA_F_TEMPORARY is 1: those are made anew when a router announces its prefix.
    if i32::from(number(bytes, 0)) == libc::AF_INET6 && number(bytes, 2) & 1 == 0 {
        found.belongings.addresses.push(bytes.to_vec());
    }
    Ok(())
}

fn route(bytes: &[u8], ifindex: u32, found: &mut Inventory) -> Result<(), DecodeError> {
    // struct rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags.
    let attributes = Attributes::behind(bytes, ROUTE_HEADER)?;
    let through = attributes.u32(RTA_OIF)?;
    let multipath = attributes.get(RTA_MULTIPATH).is_some_and(|hops| hops_through(hops, ifindex));
    let by_object = attributes.get(RTA_NH_ID).is_some() && through.is_none_or(|through| through == ifindex);
    if !multipath && !by_object && through != Some(ifindex) {
        return Ok(());
    }
    const CLONED: u32 = 0x200;
    if index(bytes, 8) & CLONED != 0 || !matches!(i32::from(number(bytes, 0)), libc::AF_INET | libc::AF_INET6)
    {
        return Ok(());
    }
    let longest = if i32::from(number(bytes, 0)) == libc::AF_INET { 1 } else { 3 };
    found.default_route |= number(bytes, 1) <= longest && number(bytes, 7) == libc::RTN_UNICAST;
    if multipath || by_object {
        found.unrestorable.push("a route over several nexthops, or by a nexthop object".to_owned());
        return Ok(());
    }
    // RTPROT_REDIRECT, RTPROT_KERNEL, RTPROT_RA: the kernel's own, and what a router announces.
    if matches!(number(bytes, 5), 1 | 2 | 9) {
        return Ok(());
    }
    let mut bytes = bytes.to_vec();
    // Of the flags only RTNH_F_ONLINK is the administrator's; others tell of the moment.
    const ONLINK: u32 = 4;
    let flags = index(&bytes, 8) & ONLINK;
    if let Some(place) = bytes.get_mut(8..12) {
        place.copy_from_slice(&flags.to_ne_bytes());
    }
    found.belongings.routes.push(bytes);
    Ok(())
}

/// Whether one of the nexthops (struct rtnexthop: length, flags, hops, ifindex; then attributes) goes through the device.
fn hops_through(mut hops: &[u8], ifindex: u32) -> bool {
    while hops.len() >= 8 {
        if index(hops, 4) == ifindex {
            return true;
        }
        let length = usize::from(u16::from_ne_bytes([number(hops, 0), number(hops, 1)])).next_multiple_of(4);
        hops = hops.get(length.max(8)..).unwrap_or_default();
    }
    false
}

fn through_gateway(bytes: &[u8]) -> bool {
    Attributes::behind(bytes, ROUTE_HEADER)
        .is_ok_and(|attributes| attributes.get(RTA_GATEWAY).or_else(|| attributes.get(RTA_VIA)).is_some())
}

/// Whether a route may be refused for its source: an address that is checked for duplicates is none yet (`ipv6_chk_addr`).
fn may_lack_source(route: &[u8], refusal: &NetlinkError) -> bool {
    refusal.errno() == Some(Errno::EINVAL)
        && i32::from(number(route, 0)) == libc::AF_INET6
        && Attributes::behind(route, ROUTE_HEADER)
            .is_ok_and(|attributes| attributes.get(RTA_PREFSRC).is_some())
}

/// Whether two entries are the same thing; what cannot be read is like nothing.
fn same((header, counted, kinds): Identity, one: &[u8], other: &[u8]) -> bool {
    let parts = |bytes: &[u8]| {
        let attributes = Attributes::behind(bytes, header).ok()?;
        let values: Vec<_> = kinds.iter().map(|kind| attributes.get(*kind).map(<[u8]>::to_vec)).collect();
        Some((bytes.get(..counted)?.to_vec(), values))
    };
    parts(one).is_some_and(|one| parts(other) == Some(one))
}

#[cfg(any(test, fuzzing))]
#[path = "belongings_fuzzed.rs"]
pub(super) mod fuzzed;

#[cfg(test)]
mod tests {
    use super::super::fake::{address, neighbour, proxy, route};
    use super::*;

    #[test]
    fn a_nexthop_among_several_is_found_by_its_device() {
        let hop = |ifindex: u32| [&[8_u8, 0, 0, 0][..], &ifindex.to_ne_bytes()].concat();
        let hops = [hop(3), hop(7)].concat();
        assert!(hops_through(&hops, 7) && hops_through(&hops, 3) && !hops_through(&hops, 8));
        assert!(!hops_through(&[0; 7], 0));
    }

    #[test]
    fn half_of_everything_is_a_default_route_as_well() {
        let is_default = |to: &str| {
            let mut found = Inventory::default();
            super::route(&route(2, to.parse().unwrap(), None), 2, &mut found).unwrap();
            found.default_route
        };
        for to in ["0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "::/0", "8000::/1", "2000::/3"] {
            assert!(is_default(to), "{to}");
        }
        for to in ["10.0.0.0/8", "192.0.0.0/2", "2001:db8::/32"] {
            assert!(!is_default(to), "{to}");
        }
    }

    #[test]
    fn an_address_is_the_same_whatever_time_it_has_left() {
        // ifaddrmsg, IFA_ADDRESS of four bytes, and one byte of state behind it.
        let entry = |prefix: u8, state: u8| {
            let mut bytes = vec![10, prefix, 0, 0, 1, 0, 0, 0, 8, 0, 1, 0, 1, 2, 3, 4];
            bytes.extend([5, 0, 9, 0, state, 0, 0, 0]);
            bytes
        };
        assert!(same(OF_ADDRESS, &entry(64, 1), &entry(64, 2)));
        assert!(!same(OF_ADDRESS, &entry(64, 1), &entry(65, 1)));
        assert!(!same(OF_ADDRESS, &[10, 64], &[10, 64]));
    }

    #[test]
    fn a_proxy_is_given_back_so_that_it_stays_when_the_carrier_goes() {
        let kept = proxy(2, "10.0.0.6".parse().unwrap());
        let mut listed = kept.clone();
        listed[NEIGHBOUR_STATE..NEIGHBOUR_FLAGS].fill(0);
        assert_ne!(listed, kept);
        assert_eq!(lasting(listed), kept);
        assert_eq!(kept[NEIGHBOUR_FLAGS], libc::NTF_PROXY);
    }

    #[test]
    fn only_what_somebody_has_added_since_and_would_lose_is_beyond_what_a_device_had() {
        let one = |text: &str| address(2, text.parse().unwrap());
        let through =
            |gateway: &str| route(2, "10.1.0.0/16".parse().unwrap(), Some(gateway.parse().unwrap()));
        let at = |last: u8| neighbour(2, "10.0.0.5".parse().unwrap(), last);
        let answered = |ip: &str| proxy(2, ip.parse().unwrap());
        let had = Belongings {
            addresses: vec![one("2001:db8::1/64")],
            routes: vec![through("10.0.0.1")],
            neighbours: vec![at(1)],
            proxies: vec![answered("10.0.0.6")],
        };
        let with = |change: &dyn Fn(&mut Belongings)| {
            let mut found = Inventory { belongings: had.clone(), ..Inventory::default() };
            change(&mut found.belongings);
            found.beyond(&had)
        };
        assert_eq!(with(&|_| {}), [""; 0]);
        assert_eq!(with(&|now| *now = Belongings::default()), [""; 0]);
        assert_eq!(with(&|now| now.addresses.push(one("2001:db8::2/64"))), ["an IPv6 address"]);
        assert_eq!(with(&|now| now.routes.push(through("10.0.0.2"))), ["a route"]);
        assert_eq!(with(&|now| now.neighbours = vec![at(2)]), ["a permanent neighbour"]);
        // Also where it is a neighbour.
        assert_eq!(with(&|now| now.proxies.push(answered("10.0.0.5"))), ["a proxy neighbour"]);
        // Of a router, and of the link alone.
        for (place, value) in [(2, 0), (3, libc::RT_SCOPE_LINK)] {
            let mut other = one("2001:db8::2/64");
            other[place] = value;
            assert_eq!(with(&|now| now.addresses.push(other.clone())), [""; 0]);
        }
        let stacked =
            Inventory { unrestorable: vec!["eth0.5, which stands on it".into()], ..Inventory::default() };
        assert_eq!(stacked.beyond(&had), ["eth0.5, which stands on it"]);
    }
}
