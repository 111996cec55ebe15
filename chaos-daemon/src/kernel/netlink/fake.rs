//! The kernel's routing netlink of a node that is not there: it answers from what the node has, and changes it, as the kernel
//! does.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ipnet::IpNet;
use netlink_packet_core::{Emitable, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    InfoData, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Stats64,
};
use netlink_packet_route::tc::{TcAttribute, TcFilterBpfOption, TcMessage, TcOption};
use nix::errno::Errno;
use nix::libc;

use super::error::{NetlinkError, Refusal};
use super::qdisc::Qdisc;
use super::wire::{Attributes, Wire};
use super::{Belongings, Line, Netlink};
use crate::host::netns::NetNs;
use crate::kernel::fake::{FakeFilter, FakeKernel, FakeLink, Objects, Place};

/// Lengths of ifaddrmsg, and of rtmsg and ndmsg.
const ADDRESS_HEADER: usize = 8;
const HEADER: usize = 12;
/// `IFA_ADDRESS`, `RTA_DST` and `NDA_DST`.
const DESTINATION: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;

impl Netlink {
    /// A connection into this node.
    pub(in crate::kernel) fn fake(kernel: &Arc<FakeKernel>, netns: NetNs) -> Result<Self, NetlinkError> {
        // Nothing is ever asked of it but a device's speed, which it does not know.
        let socket = OwnedFd::from(std::fs::File::open("/dev/null").map_err(NetlinkError::Open)?);
        Ok(Self { line: Line::Fake(Arc::clone(kernel)), socket, netns })
    }
}

impl FakeKernel {
    /// Answers a message: what comes before the acknowledgement, and whether the list changed meanwhile.
    pub(super) fn answer(
        &self,
        operation: &str,
        message: &Wire,
        flags: u16,
    ) -> Result<(Vec<Vec<u8>>, bool), NetlinkError> {
        if let Wire::Raw(libc::RTM_NEWROUTE, bytes) = message
            && Attributes::behind(bytes, HEADER).is_ok_and(|all| all.get(RTA_PREFSRC).is_some())
            && self.checks()
        {
            let refusal = Refusal { errno: Errno::EINVAL, words: None };
            return Err(NetlinkError::refused(operation.to_owned(), refusal));
        }
        self.operate(|objects| match message {
            Wire::Request(message) => answer(objects, message),
            Wire::Raw(kind, bytes) => answer_raw(objects, *kind, bytes, flags),
            Wire::Answer(_) => Err(Errno::EINVAL),
        })
        .map(|answers| (answers, false))
        .map_err(|errno| NetlinkError::refused(operation.to_owned(), Refusal { errno, words: None }))
    }
}

fn answer(objects: &mut Objects, message: &Message) -> Result<Vec<Vec<u8>>, Errno> {
    match message {
        Message::GetLink(message) => get_link(objects, message),
        Message::NewLink(message) => new_link(objects, message),
        Message::SetLink(message) => {
            let link = objects.links.get_mut(&message.header.index).ok_or(Errno::ENODEV)?;
            if message.header.change_mask.contains(LinkFlags::Up) {
                link.up = message.header.flags.contains(LinkFlags::Up);
            }
            if !link.up {
                goes_down(&mut link.has);
            }
            Ok(Vec::new())
        }
        Message::DelLink(message) => {
            remove_link(objects, message.header.index).ok_or(Errno::ENODEV).map(|()| Vec::new())
        }
        Message::GetQueueDiscipline(_) => Ok(objects.qdiscs.iter().map(qdisc).collect()),
        Message::NewQueueDiscipline(message) => {
            let place = (message.header.index.cast_unsigned(), message.header.parent.into());
            if objects.qdiscs.contains_key(&place) {
                return Err(Errno::EEXIST);
            }
            objects.links.get(&place.0).ok_or(Errno::ENODEV)?;
            objects.qdiscs.insert(place, kind(message));
            Ok(Vec::new())
        }
        Message::DelQueueDiscipline(message) => {
            let (device, parent) = (message.header.index.cast_unsigned(), message.header.parent.into());
            objects.qdiscs.remove(&(device, parent)).ok_or(Errno::ENOENT)?;
            objects.filters.retain(|(index, ..), _| *index != device);
            Ok(Vec::new())
        }
        Message::GetTrafficFilter(message) if message.header.info != 0 => get_filter(objects, message),
        Message::GetTrafficFilter(message) => {
            let hook = (message.header.index.cast_unsigned(), u32::from(message.header.parent));
            let on_it = |(place, _): &(&Place, &FakeFilter)| (place.0, place.1) == hook;
            Ok(objects.filters.iter().filter(on_it).flat_map(filter).collect())
        }
        Message::NewTrafficFilter(message) => {
            let place = place(message);
            objects.qdiscs.get(&(place.0, Qdisc::CLSACT)).ok_or(Errno::EINVAL)?;
            if objects.filters.contains_key(&place) {
                return Err(Errno::EEXIST);
            }
            objects.filters.insert(place, (kind(message), bpf_name(message)));
            Ok(Vec::new())
        }
        Message::DelTrafficFilter(message) => {
            objects.filters.remove(&place(message)).ok_or(Errno::ENOENT).map(|_| Vec::new())
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn get_link(objects: &Objects, message: &LinkMessage) -> Result<Vec<Vec<u8>>, Errno> {
    let named = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    let mut matching = objects.links.iter().filter(|(index, link)| match named {
        Some(name) => link.name == *name,
        None => **index == message.header.index,
    });
    matching.next().ok_or(Errno::ENODEV).map(|found| vec![link(found)])
}

fn link((index, link): (&u32, &FakeLink)) -> Vec<u8> {
    let mut message = LinkMessage::default();
    message.header.index = *index;
    message.header.flags = if link.up { LinkFlags::Up } else { LinkFlags::empty() };
    message.attributes = vec![
        LinkAttribute::IfName(link.name.clone()),
        LinkAttribute::Mtu(1500),
        LinkAttribute::Stats64(Stats64::default()),
    ];
    bytes(&message)
}

/// A veth pair.
fn new_link(objects: &mut Objects, message: &LinkMessage) -> Result<Vec<Vec<u8>>, Errno> {
    let peer = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))) => Some(peer),
            _ => None,
        }),
        _ => None,
    });
    let name = |message: &LinkMessage| {
        message.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        })
    };
    let names = [name(message), peer.and_then(name)].map(Option::unwrap_or_default);
    if objects.links.values().any(|link| names.contains(&link.name)) {
        return Err(Errno::EEXIST);
    }
    let first = objects.links.keys().last().copied().unwrap_or_default() + 1;
    for (index, (name, peer)) in (first..).zip(names.into_iter().zip([first + 1, first])) {
        objects.links.insert(index, FakeLink { name, peer: Some(peer), ..FakeLink::default() });
    }
    Ok(Vec::new())
}

/// A device goes with its other end, and with everything on either.
fn remove_link(objects: &mut Objects, index: u32) -> Option<()> {
    let link = objects.links.remove(&index)?;
    let gone: Vec<_> = link.peer.into_iter().chain([index]).collect();
    objects.links.retain(|index, _| !gone.contains(index));
    objects.qdiscs.retain(|(device, _), _| !gone.contains(device));
    objects.filters.retain(|(device, ..), _| !gone.contains(device));
    Some(())
}

fn qdisc((&(device, parent), kind): (&(u32, u32), &String)) -> Vec<u8> {
    let mut message = super::qdisc::tc_message(device, 0, parent);
    message.attributes.push(TcAttribute::Kind(kind.clone()));
    bytes(&message)
}

/// One filter, by its place.
fn get_filter(objects: &Objects, message: &TcMessage) -> Result<Vec<Vec<u8>>, Errno> {
    let place = place(message);
    objects.links.get(&place.0).ok_or(Errno::ENODEV)?;
    objects.qdiscs.get(&(place.0, Qdisc::CLSACT)).ok_or(Errno::EINVAL)?;
    let found = objects.filters.get(&place).ok_or(Errno::ENOENT)?;
    match found.0 == kind(message) {
        true => Ok(filter((&place, found)).split_off(1)),
        false => Err(Errno::EINVAL),
    }
}

/// A filter as it is listed: its preference for itself, with handle 0, and the filter.
fn filter((&(device, hook, pref, handle), (kind, name)): (&Place, &FakeFilter)) -> Vec<Vec<u8>> {
    let entry = |handle: u32, named: bool| {
        let mut message = super::qdisc::tc_message(device, handle, hook);
        message.header.info = u32::from(pref) << 16;
        message.attributes.push(TcAttribute::Kind(kind.clone()));
        if let (true, Some(name)) = (named, name) {
            let name = TcOption::Bpf(TcFilterBpfOption::ProgName(name.clone()));
            message.attributes.push(TcAttribute::Options(vec![name]));
        }
        bytes(&message)
    };
    vec![entry(0, false), entry(handle, true)]
}

fn place(message: &TcMessage) -> Place {
    let header = &message.header;
    let device = header.index.cast_unsigned();
    (device, header.parent.into(), (header.info >> 16) as u16, header.handle.into())
}

fn kind(message: &TcMessage) -> String {
    let mut kinds = message.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.clone()),
        _ => None,
    });
    kinds.next_back().unwrap_or_default()
}

fn bpf_name(message: &TcMessage) -> Option<String> {
    message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Options(options) => options.iter().find_map(|option| match option {
            TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => Some(name.clone()),
            _ => None,
        }),
        _ => None,
    })
}

fn bytes(message: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

/// What a device loses with going down (`addrconf_ifdown`, `fib_disable_ip`, `neigh_ifdown`).
fn goes_down(has: &mut Belongings) {
    has.addresses.retain(|bytes| i32::from(bytes[0]) == libc::AF_INET);
    has.routes.clear();
    has.neighbours.clear();
    has.proxies.clear();
}

/// What is sent as it came: lists of what devices have, and what is to be had again.
fn answer_raw(objects: &mut Objects, kind: u16, bytes: &[u8], flags: u16) -> Result<Vec<Vec<u8>>, Errno> {
    let list = |of: fn(&Belongings) -> &Vec<Vec<u8>>| {
        Ok(objects.links.values().flat_map(|link| of(&link.has)).cloned().collect())
    };
    match kind {
        libc::RTM_GETLINK => Ok(objects.links.iter().map(link).collect()),
        libc::RTM_GETADDR => list(|has| &has.addresses),
        libc::RTM_GETROUTE => list(|has| &has.routes),
        libc::RTM_GETNEIGH if is_proxy(bytes) => list(|has| &has.proxies),
        libc::RTM_GETNEIGH => list(|has| &has.neighbours),
        libc::RTM_NEWADDR => {
            let has = &mut device(objects, &bytes[4..8])?.has;
            insert(&mut has.addresses, bytes, flags)
        }
        libc::RTM_NEWNEIGH => {
            let has = &mut device(objects, &bytes[4..8])?.has;
            let entries = if is_proxy(bytes) { &mut has.proxies } else { &mut has.neighbours };
            insert(entries, bytes, flags)
        }
        libc::RTM_NEWROUTE => {
            let attributes = Attributes::behind(bytes, HEADER).ok().ok_or(Errno::EINVAL)?;
            let link = device(objects, attributes.get(RTA_OIF).ok_or(Errno::EINVAL)?)?;
            if !link.up {
                return Err(Errno::ENETDOWN);
            }
            if let Some(gateway) = attributes.get(RTA_GATEWAY) {
                reaches(&link.has, gateway).then_some(()).ok_or(Errno::ENETUNREACH)?;
            }
            insert(&mut link.has.routes, bytes, flags)
        }
        // A kernel without nexthop objects.
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// By the flags of a ndmsg.
fn is_proxy(bytes: &[u8]) -> bool {
    bytes[10] & libc::NTF_PROXY != 0
}

fn device<'a>(objects: &'a mut Objects, index: &[u8]) -> Result<&'a mut FakeLink, Errno> {
    let index = index.try_into().map(u32::from_ne_bytes).ok().ok_or(Errno::EINVAL)?;
    objects.links.get_mut(&index).ok_or(Errno::ENODEV)
}

fn insert(entries: &mut Vec<Vec<u8>>, entry: &[u8], flags: u16) -> Result<Vec<Vec<u8>>, Errno> {
    match entries.binary_search_by(|there| there.as_slice().cmp(entry)) {
        Ok(_) if flags & NLM_F_EXCL != 0 => return Err(Errno::EEXIST),
        Ok(_) => {}
        Err(place) => entries.insert(place, entry.to_vec()),
    }
    Ok(Vec::new())
}

/// Whether a gateway is on the link: in the prefix of an address, or of a route without a gateway.
fn reaches(has: &Belongings, gateway: &[u8]) -> bool {
    let covers = |bytes: &[u8], header: usize| {
        let attributes = Attributes::behind(bytes, header).unwrap();
        let prefix = attributes.get(DESTINATION).and_then(ip).and_then(|to| IpNet::new(to, bytes[1]).ok());
        let on_link = header == ADDRESS_HEADER || attributes.get(RTA_GATEWAY).is_none();
        on_link && prefix.zip(ip(gateway)).is_some_and(|(prefix, gateway)| prefix.contains(&gateway))
    };
    has.addresses.iter().any(|bytes| covers(bytes, ADDRESS_HEADER))
        || has.routes.iter().any(|bytes| covers(bytes, HEADER))
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

fn entry(header: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    for (kind, value) in attributes {
        let length = u16::try_from(4 + value.len()).unwrap();
        bytes.extend([length.to_ne_bytes(), kind.to_ne_bytes()].concat());
        bytes.extend(*value);
    }
    bytes
}

/// An address of a device, as the kernel lists it.
pub(crate) fn address(ifindex: u32, prefix: IpNet) -> Vec<u8> {
    // ifa_flags: IFA_F_PERMANENT.
    let header =
        [&[family(prefix.addr()), prefix.prefix_len(), 0x80, 0][..], &ifindex.to_ne_bytes()].concat();
    entry(&header, &[(DESTINATION, &octets(prefix.addr()))])
}

/// A route through a device that somebody has added.
pub(crate) fn route(ifindex: u32, to: IpNet, gateway: Option<IpAddr>) -> Vec<u8> {
    let header = [family(to.addr()), to.prefix_len(), 0, 0, 254, libc::RTPROT_STATIC, 0, 1, 0, 0, 0, 0];
    let (to, gateway, index) = (octets(to.addr()), gateway.map(octets), ifindex.to_ne_bytes());
    let mut attributes = vec![(DESTINATION, &to[..]), (RTA_OIF, &index)];
    attributes.extend(gateway.as_ref().map(|gateway| (RTA_GATEWAY, &gateway[..])));
    entry(&header, &attributes)
}

/// The same route with a preferred source.
pub(crate) fn sourced(route: &[u8], source: IpAddr) -> Vec<u8> {
    entry(route, &[(RTA_PREFSRC, &octets(source))])
}

/// A permanent neighbour, whose address on the link ends so.
pub(crate) fn neighbour(ifindex: u32, ip: IpAddr, last: u8) -> Vec<u8> {
    const NDA_LLADDR: u16 = 2;
    let state = libc::NUD_PERMANENT.to_ne_bytes();
    let header = [&[family(ip), 0, 0, 0][..], &ifindex.to_ne_bytes(), &state, &[0, 1]].concat();
    entry(&header, &[(DESTINATION, &octets(ip)), (NDA_LLADDR, &[2, 0, 0, 0, 0, 0, 0, last])])
}

/// A neighbour for which a device answers.
pub(crate) fn proxy(ifindex: u32, ip: IpAddr) -> Vec<u8> {
    let state = libc::NUD_PERMANENT.to_ne_bytes();
    let header = [&[family(ip), 0, 0, 0][..], &ifindex.to_ne_bytes(), &state, &[libc::NTF_PROXY, 1]].concat();
    entry(&header, &[(DESTINATION, &octets(ip))])
}
