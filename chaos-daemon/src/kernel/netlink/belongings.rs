//! What a device loses when it is set down and does not get back by itself when it comes up: IPv6 addresses, routes that
//! somebody has added, permanent neighbours. Kept as the kernel's own messages, and sent back as they are.
//!
//! IPv4 addresses stay, and the routes that the kernel makes of addresses come back with them. What a router has announced
//! (routes, temporary addresses) comes back with its next announcement, which the kernel asks for. What cannot be had back
//! is an [`Unrestorable`].
//!
//! Reference: rtnetlink(7); Linux `net/ipv6/addrconf.c` (`addrconf_ifdown`), `net/ipv4/fib_frontend.c` (`fib_disable_ip`),
//! `net/core/neighbour.c` (`neigh_ifdown`).

use std::net::IpAddr;

use netlink_packet_core::{DecodeError, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use nix::errno::Errno;
use nix::libc;
use serde::{Deserialize, Serialize};

use super::Netlink;
use super::error::NetlinkError;
use super::wire::{Attributes, Wire};

/// No more routes and addresses than these are kept in a journal.
const MOST: usize = 4096;

/// `RTM_GETNEXTHOP` (linux/rtnetlink.h).
const RTM_GETNEXTHOP: u16 = 106;
/// Lengths of ifinfomsg, ifaddrmsg, rtmsg, ndmsg, nhmsg.
const LINK_HEADER: usize = 16;
const ADDRESS_HEADER: usize = 8;
const ROUTE_HEADER: usize = 12;
const NEIGHBOUR_HEADER: usize = 12;
const NEXTHOP_HEADER: usize = 8;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_MULTIPATH: u16 = 9;
const RTA_VIA: u16 = 18;
const RTA_NH_ID: u16 = 30;
const NHA_OIF: u16 = 5;
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
    /// Whether a default route leaves through it.
    pub default_route: bool,
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
            let state = u16::from_ne_bytes([number(&bytes, 8), number(&bytes, 9)]);
            let of_ip = matches!(i32::from(number(&bytes, 0)), libc::AF_INET | libc::AF_INET6);
            if index(&bytes, 4) == ifindex && of_ip && state & libc::NUD_PERMANENT != 0 {
                found.belongings.neighbours.push(bytes);
            }
        }
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
        for (operation, kind, flags, had, now) in [
            ("restore an address", libc::RTM_NEWADDR, NLM_F_REPLACE, &had.addresses, &now.addresses),
            ("restore a route", libc::RTM_NEWROUTE, NLM_F_EXCL, &had.routes, &now.routes),
            ("restore a neighbour", libc::RTM_NEWNEIGH, NLM_F_REPLACE, &had.neighbours, &now.neighbours),
        ] {
            for bytes in had.iter().filter(|bytes| !now.iter().any(|there| same(kind, there, bytes))) {
                lacked = true;
                let operation = format!("{operation} of interface {ifindex}");
                match self.replay(&operation, kind, bytes, NLM_F_CREATE | flags).await {
                    // Back already.
                    Err(error) if error.errno() == Some(Errno::EEXIST) => {}
                    done => first = first.and(done),
                }
            }
        }
        first.map(|()| lacked)
    }

    async fn list(&self, operation: &str, kind: u16, header: usize) -> Result<Vec<Vec<u8>>, NetlinkError> {
        self.dump_wire(operation, || Wire::Raw(kind, vec![0; header])).await
    }

    /// Devices that stand on this one and go down with it.
    async fn stacked(&self, ifindex: u32, found: &mut Inventory) -> Result<(), NetlinkError> {
        let operation = "list interfaces";
        for bytes in self.list(operation, libc::RTM_GETLINK, LINK_HEADER).await? {
            read(&bytes, operation, |bytes| {
                let attributes = Attributes::behind(bytes, LINK_HEADER)?;
                let name = attributes.text(IFLA_IFNAME)?.unwrap_or_default();
                let kind = match attributes.nested(IFLA_LINKINFO)? {
                    Some(info) => info.text(IFLA_INFO_KIND)?.unwrap_or_default(),
                    None => String::new(),
                };
                // The link of a veth is its peer, which stands on its own feet; one with a namespace is elsewhere.
                let below = kind != "veth" && attributes.get(IFLA_LINK_NETNSID).is_none();
                let above = below && attributes.u32(IFLA_LINK)? == Some(ifindex)
                    || attributes.u32(IFLA_MASTER)? == Some(ifindex);
                if above && index(bytes, 4) != ifindex {
                    found.unrestorable.push(format!("{name}, which stands on it"));
                }
                Ok(())
            })?;
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
            let of_it =
                |bytes: &[u8]| Ok(Attributes::behind(bytes, NEXTHOP_HEADER)?.u32(NHA_OIF)? == Some(ifindex));
            if read(&bytes, operation, of_it)? {
                found.unrestorable.push("a nexthop object (`ip nexthop`)".to_owned());
            }
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
    found.default_route |= number(bytes, 1) == 0 && number(bytes, 7) == libc::RTN_UNICAST;
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

/// Whether two entries are the same thing. Of an address, lifetimes and the state of its check for duplicates tell of the
/// moment: the address itself and its prefix decide.
fn same(kind: u16, one: &[u8], other: &[u8]) -> bool {
    if kind != libc::RTM_NEWADDR {
        return one == other;
    }
    let identity = |bytes: &[u8]| {
        let attributes = Attributes::behind(bytes, ADDRESS_HEADER).ok()?;
        Some((number(bytes, 1), attributes.get(IFA_ADDRESS)?.to_vec()))
    };
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nexthop_among_several_is_found_by_its_device() {
        let hop = |ifindex: u32| [&[8_u8, 0, 0, 0][..], &ifindex.to_ne_bytes()].concat();
        let hops = [hop(3), hop(7)].concat();
        assert!(hops_through(&hops, 7) && hops_through(&hops, 3) && !hops_through(&hops, 8));
        assert!(!hops_through(&[0; 7], 0));
    }

    #[test]
    fn an_address_is_the_same_whatever_time_it_has_left() {
        // ifaddrmsg, IFA_ADDRESS of four bytes, and one byte of state behind it.
        let entry = |prefix: u8, state: u8| {
            let mut bytes = vec![10, prefix, 0, 0, 1, 0, 0, 0, 8, 0, 1, 0, 1, 2, 3, 4];
            bytes.extend([5, 0, 9, 0, state, 0, 0, 0]);
            bytes
        };
        assert!(same(libc::RTM_NEWADDR, &entry(64, 1), &entry(64, 2)));
        assert!(!same(libc::RTM_NEWADDR, &entry(64, 1), &entry(65, 1)));
        assert!(!same(libc::RTM_NEWROUTE, &entry(64, 1), &entry(64, 2)));
    }
}
