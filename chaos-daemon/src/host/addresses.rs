//! The interfaces of a network namespace with some of their addresses, and some of where packets go that leave by each. Whoever has
//! made a namespace can put as many there as he likes, so that of everything only so much is asked for.
//!
//! Reference: netdevice(7) (`SIOCGIFCONF`, `SIOCGIFNETMASK`, `SIOCGIFFLAGS`), proc(5) (`/proc/net/dev`, `/proc/net/route`), Linux
//! `net/ipv6/addrconf.c` (`if6_seq_show`), `net/ipv6/route.c` (`rt6_info_route`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use ipnet::IpNet;
use nix::libc::{self, c_char, ifconf, ifreq};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::interface::request;

nix::ioctl_readwrite_bad!(
    /// Lists IPv4 addresses with the labels of their interfaces, as many as there is room for (netdevice(7)).
    get_addresses, libc::SIOCGIFCONF, ifconf
);
nix::ioctl_readwrite_bad!(
    /// Reads the mask of one of them (netdevice(7)).
    get_mask, libc::SIOCGIFNETMASK, ifreq
);
nix::ioctl_readwrite_bad!(
    /// Reads whether an interface is up (netdevice(7)).
    get_flags, libc::SIOCGIFFLAGS, ifreq
);

/// How much of a table is read, in bytes.
const LONGEST_TABLE: u64 = 64 << 10;
/// How many interfaces of a namespace are told, IPv4 addresses of all of them, and addresses and routes of each.
const MOST_INTERFACES: usize = 256;
const MOST_ADDRESSES: usize = 512;
const MOST_OF_EACH: usize = 16;
/// `RTF_UP`, `RTF_REJECT` (linux/route.h).
const UP: u32 = 0x0001;
const REJECT: u32 = 0x0200;
/// `RTF_LOCAL` (linux/ipv6_route.h): an address of this host's own.
const LOCAL_V6: u32 = 0x8000_0000;

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addressed {
    /// Whether it is up.
    pub up: bool,
    /// Its addresses.
    pub addresses: BTreeSet<IpNet>,
    /// Where packets go that leave by it.
    pub routes: BTreeSet<IpNet>,
}

/// Whether a route of this prefix takes about everything: a default route, or one of the two halves that a VPN has in its place. All
/// global addresses of IPv6 (2000::/3) are as much.
pub fn is_default(route: &IpNet) -> bool {
    route.prefix_len() <= if route.network().is_ipv4() { 1 } else { 3 }
}

/// The interfaces of the namespace that the calling thread is in, by name.
///
/// # Errors
/// When the kernel does not list them.
pub fn interfaces() -> io::Result<BTreeMap<String, Addressed>> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let devices = table("dev")?;
    let names = devices.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    let mut found: BTreeMap<String, Addressed> = BTreeMap::new();
    for name in names.take(MOST_INTERFACES) {
        let up = is_up(&socket, &name);
        found.insert(name, Addressed { up, ..Addressed::default() });
    }
    let six = table("if_inet6")?;
    let addresses = addresses_v4(&socket)?.into_iter().chain(six.lines().filter_map(address_v6));
    add(&mut found, addresses, |interface| &mut interface.addresses);
    let (four, six) = (table("route")?, table("ipv6_route")?);
    let routes = four.lines().filter_map(route_v4).chain(six.lines().filter_map(route_v6));
    add(&mut found, routes, |interface| &mut interface.routes);
    Ok(found)
}

/// Adds each to its interface, unless that has gone, or has enough.
fn add(
    found: &mut BTreeMap<String, Addressed>,
    nets: impl Iterator<Item = (String, IpNet)>,
    part: impl Fn(&mut Addressed) -> &mut BTreeSet<IpNet>,
) {
    for (name, net) in nets {
        if let Some(set) = found.get_mut(&name).map(&part).filter(|set| set.len() < MOST_OF_EACH) {
            set.insert(net);
        }
    }
}

fn is_up(socket: &OwnedFd, name: &str) -> bool {
    let Some(mut request) = request(name) else { return false };
    // SAFETY: SIOCGIFFLAGS reads ifr_name and writes ifr_flags of the ifreq it is given.
    let asked = unsafe { get_flags(socket.as_raw_fd(), &raw mut request) };
    // SAFETY: the kernel has just written the flags.
    asked.is_ok() && libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0
}

/// Up to [`MOST_ADDRESSES`] of them, each with its interface.
fn addresses_v4(socket: &OwnedFd) -> io::Result<Vec<(String, IpNet)>> {
    // SAFETY: ifreq is plain old data; all zeroes is a valid value.
    let mut room: Vec<ifreq> = vec![unsafe { std::mem::zeroed() }; MOST_ADDRESSES];
    let size = size_of::<ifreq>();
    let mut list = ifconf {
        ifc_len: i32::try_from(room.len() * size).unwrap_or(i32::MAX),
        ifc_ifcu: libc::__c_anonymous_ifc_ifcu { ifcu_req: room.as_mut_ptr() },
    };
    // SAFETY: the kernel writes no more than ifc_len bytes to the buffer, which outlives the call, and says how many.
    unsafe { get_addresses(socket.as_raw_fd(), &raw mut list)? };
    room.truncate(usize::try_from(list.ifc_len).unwrap_or_default() / size);
    let with_mask = |mut request: ifreq| {
        let name = label(&request.ifr_name);
        let address = ip(&request);
        // SAFETY: SIOCGIFNETMASK reads name and address of the ifreq, and writes the mask in its place.
        unsafe { get_mask(socket.as_raw_fd(), &raw mut request) }.ok()?;
        let prefix = u8::try_from(u32::from(ip(&request)).leading_ones()).ok()?;
        // An alias is its interface's.
        let name = name.split(':').next().unwrap_or_default().to_owned();
        Some((name, IpNet::new(address.into(), prefix).ok()?))
    };
    Ok(room.into_iter().filter_map(with_mask).collect())
}

fn label(name: &[c_char]) -> String {
    let bytes: Vec<u8> = name.iter().map(|byte| byte.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The address in such a request, of IPv4.
fn ip(request: &ifreq) -> Ipv4Addr {
    // SAFETY: of an answer of AF_INET it is a sockaddr; sa_data begins with the port, and then has the address.
    let data = unsafe { request.ifr_ifru.ifru_addr.sa_data };
    let [a, b, c, d] = [2, 3, 4, 5].map(|at| data[at].cast_unsigned());
    Ipv4Addr::new(a, b, c, d)
}

/// Address, number of the interface, prefix, scope, flags, name.
fn address_v6(line: &str) -> Option<(String, IpNet)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let address = Ipv6Addr::from(u128::from_str_radix(words.first()?, 16).ok()?);
    let prefix = u8::from_str_radix(words.get(2)?, 16).ok()?;
    Some(((*words.get(5)?).to_owned(), IpNet::new(address.into(), prefix).ok()?))
}

/// Interface, destination, gateway, flags, references, use, metric, mask; numbers as the machine has them.
fn route_v4(line: &str) -> Option<(String, IpNet)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
    let is_up = number(3)? & (UP | REJECT) == UP;
    let to = IpAddr::from(number(1)?.to_ne_bytes());
    let prefix = u8::try_from(u32::from_be_bytes(number(7)?.to_ne_bytes()).leading_ones()).ok()?;
    let net = IpNet::new(to, prefix).ok().filter(|_| is_up)?;
    Some(((*words.first()?).to_owned(), net))
}

/// Destination, its prefix, source, its prefix, gateway, metric, references, use, flags, device. Of the link alone, and what has many
/// listeners, is everywhere.
fn route_v6(line: &str) -> Option<(String, IpNet)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let to = Ipv6Addr::from(u128::from_str_radix(words.first()?, 16).ok()?);
    let prefix = u8::from_str_radix(words.get(1)?, 16).ok()?;
    let flags = u32::from_str_radix(words.get(8)?, 16).ok()?;
    let is_up = flags & (UP | REJECT) == UP && flags & LOCAL_V6 == 0;
    let is_everywhere = to.is_multicast() || to.is_unicast_link_local();
    let net = IpNet::new(to.into(), prefix).ok().filter(|_| is_up && !is_everywhere)?;
    Some(((*words.get(9)?).to_owned(), net))
}

/// The whole lines at the beginning of a table of the namespace that the calling thread is in; nothing of a kernel without it.
fn table(name: &str) -> io::Result<String> {
    let path = format!("/proc/thread-self/net/{name}");
    let mut text = Vec::new();
    // OPENS: nobody, its names are above | root | a text of procfs, of which 64 KiB are read
    match File::open(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(String::new()),
        opened => opened?.take(LONGEST_TABLE).read_to_end(&mut text)?,
    };
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    text.truncate(end);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_with_its_address() {
        let all = interfaces().unwrap();
        let loopback = &all["lo"];
        assert!(loopback.up && loopback.addresses.contains(&"127.0.0.1/8".parse().unwrap()), "{loopback:?}");
    }

    #[test]
    fn an_interface_has_so_many_addresses_at_most_and_one_that_has_gone_none() {
        let mut found = BTreeMap::from([("a".to_owned(), Addressed::default())]);
        let net = |number: u32| IpNet::new(Ipv4Addr::from(number).into(), 32).unwrap();
        let many =
            (0..100).flat_map(|number| [("a".to_owned(), net(number)), ("gone".to_owned(), net(number))]);
        add(&mut found, many, |interface| &mut interface.addresses);
        assert_eq!((found.len(), found["a"].addresses.len()), (1, MOST_OF_EACH));
    }

    #[test]
    fn an_address_of_version_6_is_read() {
        let line = "20010db8000000000000000000000001 02 40 00 80     eth0";
        assert_eq!(address_v6(line), Some(("eth0".into(), "2001:db8::1/64".parse().unwrap())));
        assert_eq!(address_v6("garbled"), None);
    }

    #[test]
    fn a_route_of_version_4_is_read_whatever_its_metric() {
        let line = |flags: &str| {
            let mask = format!("{:08X}", u32::from_ne_bytes([255, 255, 255, 0]));
            let to = format!("{:08X}", u32::from_ne_bytes([10, 77, 0, 0]));
            format!("eth0\t{to}\t00000000\t{flags}\t0\t0\t-16769024\t{mask}\t0\t0\t0")
        };
        assert_eq!(route_v4(&line("0001")), Some(("eth0".into(), "10.77.0.0/24".parse().unwrap())));
        assert_eq!(route_v4(&line("0201")), None);
        assert_eq!(route_v4("Iface\tDestination"), None);
    }

    #[test]
    fn a_route_of_version_6_is_read_and_what_is_everywhere_or_ones_own_is_none() {
        let line = |to: &str, prefix: &str, flags: &str| {
            let zero = "0".repeat(32);
            route_v6(&format!("{to} {prefix} {zero} 00 {zero} 00000400 00000001 00000000 {flags} eth0"))
        };
        let documentation = "20010db8000000000000000000000000";
        assert_eq!(
            line(documentation, "20", "00000001"),
            Some(("eth0".into(), "2001:db8::/32".parse().unwrap()))
        );
        assert_eq!(line(&"0".repeat(32), "00", "00450003"), Some(("eth0".into(), "::/0".parse().unwrap())));
        for (to, prefix, flags) in [
            ("fe800000000000000000000000000000", "40", "00000001"),
            ("ff000000000000000000000000000000", "08", "00000001"),
            (documentation, "80", "80200001"),
            (documentation, "20", "00200200"),
            ("garbled", "20", "00000001"),
        ] {
            assert_eq!(line(to, prefix, flags), None, "{to}/{prefix} {flags}");
        }
    }
}
