//! The interfaces of a network namespace with their addresses, and where packets go that leave by each.
//!
//! Reference: getifaddrs(3), proc(5) (`/proc/net/route`), Linux `net/ipv6/route.c` (`rt6_info_route`, `/proc/net/ipv6_route`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use procfs::net::RouteEntries;
use procfs::prelude::FromBufRead;

/// How much of a table of routes is read, in bytes: a router of the Internet has more, and nobody would read them.
const LONGEST_TABLE: u64 = 1 << 20;
/// `RTF_UP` and not `RTF_REJECT` (linux/route.h).
const UP: u16 = 0x0001;
const REJECT: u16 = 0x0200;
/// `RTF_LOCAL` (linux/ipv6_route.h): an address of this host's own.
const LOCAL_V6: u32 = 0x8000_0000;

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addressed {
    /// Whether it is up.
    pub up: bool,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Where packets go that leave by it.
    pub routes: Vec<IpNet>,
}

/// The interfaces of the namespace that the calling thread is in, by name.
///
/// # Errors
/// When the kernel does not list them.
pub fn interfaces() -> io::Result<BTreeMap<String, Addressed>> {
    let mut found: BTreeMap<String, Addressed> = BTreeMap::new();
    for entry in getifaddrs()? {
        let interface = found.entry(entry.interface_name).or_default();
        interface.up |= entry.flags.contains(InterfaceFlags::IFF_UP);
        let address = entry.address.as_ref().and_then(ip);
        let prefix = entry.netmask.as_ref().and_then(ip).map(ones);
        let net = address.zip(prefix).and_then(|(address, prefix)| IpNet::new(address, prefix).ok());
        interface.addresses.extend(net);
    }
    for (name, to) in routes_v4()?.into_iter().chain(routes_v6()?) {
        // One that has gone meanwhile has no routes.
        if let Some(interface) = found.get_mut(&name)
            && !interface.routes.contains(&to)
        {
            interface.routes.push(to);
        }
    }
    Ok(found)
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let four = address.as_sockaddr_in().map(|four| four.ip().into());
    four.or_else(|| address.as_sockaddr_in6().map(|six| six.ip().into()))
}

/// The length of the prefix that a mask leaves.
fn ones(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => u32::from(mask).leading_ones(),
        IpAddr::V6(mask) => u128::from(mask).leading_ones(),
    };
    // At most 128.
    u8::try_from(ones).unwrap_or(u8::MAX)
}

fn routes_v4() -> io::Result<Vec<(String, IpNet)>> {
    let Some(table) = table("route")? else { return Ok(Vec::new()) };
    let entries = RouteEntries::from_buf_read(table.as_slice()).map_err(io::Error::other)?;
    let usable = entries.0.into_iter().filter(|entry| entry.flags & (UP | REJECT) == UP);
    let net = usable.filter_map(|entry| {
        let prefix = ones(entry.mask.into());
        Some((entry.iface, IpNet::new(entry.destination.into(), prefix).ok()?))
    });
    Ok(net.collect())
}

fn routes_v6() -> io::Result<Vec<(String, IpNet)>> {
    let table = table("ipv6_route")?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&table).lines().filter_map(route_v6).collect())
}

/// Destination, its prefix, source, its prefix, gateway, metric, references, use, flags, device. Of the link alone, and what has many
/// listeners, is everywhere.
fn route_v6(line: &str) -> Option<(String, IpNet)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let to = Ipv6Addr::from(u128::from_str_radix(words.first()?, 16).ok()?);
    let prefix = u8::from_str_radix(words.get(1)?, 16).ok()?;
    let flags = u32::from_str_radix(words.get(8)?, 16).ok()?;
    let is_up = flags & u32::from(UP | REJECT) == u32::from(UP) && flags & LOCAL_V6 == 0;
    let is_everywhere = to.is_multicast() || to.is_unicast_link_local();
    let net = IpNet::new(to.into(), prefix).ok().filter(|_| is_up && !is_everywhere)?;
    Some(((*words.get(9)?).to_owned(), net))
}

/// A table of the namespace that the calling thread is in; `None` of a kernel without it.
fn table(name: &str) -> io::Result<Option<Vec<u8>>> {
    let path = format!("/proc/thread-self/net/{name}");
    let mut text = Vec::new();
    // OPENS: nobody, its two names are above | root | a text of procfs, of which 1 MiB is read
    match File::open(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        opened => BufReader::new(opened?.take(LONGEST_TABLE)).read_to_end(&mut text)?,
    };
    // What is cut off in the middle of a line is not read.
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    text.truncate(end);
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_with_its_address() {
        let all = interfaces().unwrap();
        let loopback = &all["lo"];
        assert!(loopback.addresses.contains(&"127.0.0.1/8".parse().unwrap()), "{loopback:?}");
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

    #[test]
    fn a_mask_has_a_prefix() {
        assert_eq!(
            ["255.255.255.0", "0.0.0.0", "ffff:ffff::"].map(|mask| ones(mask.parse().unwrap())),
            [24, 0, 32]
        );
    }
}
