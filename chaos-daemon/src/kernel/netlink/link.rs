//! Network devices: look one up, make a silent veth pair across two namespaces, bring it up, take it away.
//!
//! Reference: rtnetlink(7), veth(4), linux/if_link.h, drivers/net/veth.c.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{DecodeError, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkHeader, LinkInfo, LinkMessage,
};
use nix::errno::Errno;
use nix::libc;
use tokio::time::{Instant, sleep};

use super::Netlink;
use super::error::NetlinkError;
use super::wire::Attributes;

/// The largest packet a veth takes (`ETH_MAX_MTU`): no packet that the target device could carry is too large.
const LOOP_MTU: u32 = 65_535;

/// Length of `struct ifinfomsg`.
const HEADER: usize = 16;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_STATS64: u16 = 23;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_PROG_ID: u16 = 4;

/// What kind of packets a device carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet frames.
    Ethernet,
    /// The loopback device: Ethernet headers with empty addresses.
    Loopback,
    /// Anything else, by its ARPHRD number (linux/if_arp.h); may have no link-layer header at all.
    Other(u16),
}

/// A network device, as the kernel described it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its number in its namespace.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// What it carries.
    pub layer: LinkLayer,
    /// Administratively up.
    pub up: bool,
    /// Up, with carrier, and its queue in place: packets given to it are sent.
    pub running: bool,
    /// Nominal speed in Mbit/s, where the driver knows one.
    pub speed_mbit: Option<u32>,
    /// Packets received since it was made.
    pub rx_packets: u64,
    /// Packets sent since it was made.
    pub tx_packets: u64,
    /// Id of an XDP program that takes packets before all else, if there is one.
    pub xdp: Option<u32>,
}

/// Both ends of a fresh veth pair, each with its number in its own namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethPair {
    /// The end beside the target device.
    pub near: Device,
    /// The end in the namespace of the [`Netlink`] that made the pair.
    pub far: Device,
}

impl Netlink {
    /// The device of that name, or `None`.
    ///
    /// # Errors
    /// When the kernel's answer is anything but the device or "no such device".
    pub async fn link(&self, name: &str) -> Result<Option<Device>, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.one_link(&format!("look up interface {name}"), message).await
    }

    /// The device of that number, or `None`.
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub async fn link_by_index(&self, ifindex: u32) -> Result<Option<Device>, NetlinkError> {
        self.one_link(&format!("look up interface {ifindex}"), with_index(ifindex)).await
    }

    async fn one_link(&self, operation: &str, message: LinkMessage) -> Result<Option<Device>, NetlinkError> {
        let answers = match self.request(operation, Message::GetLink(message), 0).await {
            Err(error) if error.errno() == Some(Errno::ENODEV) => return Ok(None),
            answers => answers?,
        };
        answers.first().map(|bytes| self.device(operation, bytes)).transpose()
    }

    /// Every device of the namespace.
    ///
    /// # Errors
    /// When one cannot be read: a list with holes would be taken for complete.
    pub async fn links(&self) -> Result<Vec<Device>, NetlinkError> {
        let operation = "list interfaces";
        let answers = self.dump(operation, || Message::GetLink(LinkMessage::default())).await?;
        answers.iter().map(|bytes| self.device(operation, bytes)).collect()
    }

    fn device(&self, operation: &str, bytes: &[u8]) -> Result<Device, NetlinkError> {
        let mut device = parse_device(bytes)
            .map_err(|source| NetlinkError::Unreadable { operation: operation.to_owned(), source })?;
        device.speed_mbit = speed_mbit(self.socket(), &device.name);
        Ok(device)
    }

    /// Makes a veth pair: `near` in the namespace of `near_side`, `far` in this one. Both carry packets of any
    /// size and emit none of their own: no ARP, no multicast, no IPv6 address. Both are down.
    ///
    /// The pair ends with either namespace. On an error nothing of it is left.
    ///
    /// # Errors
    /// When a name is taken, the kernel has no veth, or CAP_NET_ADMIN is missing on one side.
    pub async fn create_veth_pair(
        &self,
        near: &str,
        near_side: &Self,
        far: &str,
    ) -> Result<VethPair, NetlinkError> {
        let operation = format!("create the veth pair {near} - {far}");
        let mut peer = silent(near);
        peer.attributes.push(LinkAttribute::NetNsFd(near_side.netns().as_fd().as_raw_fd()));
        let mut message = silent(far);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        self.request(&operation, Message::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
            .await
            // "Unknown device type" (net/core/rtnetlink.c).
            .map_err(|error| error.meaning_missing(Errno::EOPNOTSUPP, "veth"))?;
        let pair = self.finish_veth_pair(&operation, near, near_side, far).await;
        if pair.is_err()
            && let Ok(Some(device)) = self.link(far).await
        {
            // The first error is the one to report; a pair that stays is found by its name later.
            let _ = self.delete_link(device.ifindex, far).await;
        }
        pair
    }

    async fn finish_veth_pair(
        &self,
        operation: &str,
        near: &str,
        near_side: &Self,
        far: &str,
    ) -> Result<VethPair, NetlinkError> {
        let vanished = || NetlinkError::Vanished { operation: operation.to_owned() };
        let pair = VethPair {
            near: near_side.link(near).await?.ok_or_else(vanished)?,
            far: self.link(far).await?.ok_or_else(vanished)?,
        };
        near_side.no_ipv6_address(&pair.near).await?;
        self.no_ipv6_address(&pair.far).await?;
        Ok(pair)
    }

    /// Has a device send no segment that stands for several packets: the kernel cuts it up before (`gso_features_check` in
    /// net/core/dev.c).
    ///
    /// # Errors
    /// When it is not there, or the kernel refuses.
    pub async fn cut_up_segments(&self, device: &Device) -> Result<(), NetlinkError> {
        let mut message = with_index(device.ifindex);
        message.attributes.push(LinkAttribute::GsoMaxSegs(1));
        let operation = format!("have {} send single packets", device.name);
        self.request(&operation, Message::SetLink(message), 0).await.map(drop)
    }

    /// Keeps IPv6 from giving the device a link-local address when it comes up, and from announcing it. The
    /// kernel takes this only for a device that exists already.
    async fn no_ipv6_address(&self, device: &Device) -> Result<(), NetlinkError> {
        let mut message = with_index(device.ifindex);
        message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![
            AfSpecInet6::AddrGenMode(In6AddrGenMode::None),
        ])]));
        let operation = format!("turn IPv6 address generation off on {}", device.name);
        match self.request(&operation, Message::SetLink(message), 0).await {
            // Without IPv6 in the kernel or on the device there is nothing to turn off.
            Err(error) if matches!(error.errno(), Some(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP)) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Brings a device up. It sends packets only when [`Netlink::wait_until_running`] says so.
    ///
    /// # Errors
    /// When the device is gone, or CAP_NET_ADMIN is missing.
    pub async fn set_up(&self, ifindex: u32) -> Result<(), NetlinkError> {
        let mut message = with_index(ifindex);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(&format!("set interface {ifindex} up"), Message::SetLink(message), 0).await.map(drop)
    }

    /// Sets a device down. What that costs it, see [`super::Belongings`].
    ///
    /// # Errors
    /// When the device is gone, or CAP_NET_ADMIN is missing.
    pub async fn set_down(&self, ifindex: u32) -> Result<(), NetlinkError> {
        let mut message = with_index(ifindex);
        message.header.change_mask = LinkFlags::Up;
        self.request(&format!("set interface {ifindex} down"), Message::SetLink(message), 0).await.map(drop)
    }

    /// Waits until a device sends packets: the kernel puts its queue in place some time after it came up, and
    /// drops packets until then. `false` when that has not happened within `limit`, or the device is gone.
    ///
    /// # Errors
    /// As [`Netlink::link_by_index`].
    pub async fn wait_until_running(&self, ifindex: u32, limit: Duration) -> Result<bool, NetlinkError> {
        let end = Instant::now() + limit;
        loop {
            match self.link_by_index(ifindex).await? {
                Some(device) if device.running => return Ok(true),
                Some(_) if Instant::now() < end => sleep(Duration::from_millis(1)).await,
                _ => return Ok(false),
            }
        }
    }

    /// Deletes the device that has both this number and this name. `false` when there is none.
    ///
    /// # Errors
    /// When the kernel refuses, e.g. because it is no virtual device.
    pub async fn delete_link(&self, ifindex: u32, name: &str) -> Result<bool, NetlinkError> {
        match self.link_by_index(ifindex).await? {
            Some(device) if device.name == name => {}
            _ => return Ok(false),
        }
        let operation = format!("delete interface {name}");
        match self.request(&operation, Message::DelLink(with_index(ifindex)), 0).await {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == Some(Errno::ENODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn with_index(ifindex: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message
}

/// One end of a veth pair to be.
fn silent(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.flags = LinkFlags::Noarp;
    // Multicast is in the mask and not in the flags: no IGMP and MLD reports either.
    message.header.change_mask = LinkFlags::Noarp | LinkFlags::Multicast;
    message.attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::Mtu(LOOP_MTU)];
    message
}

pub(super) fn parse_device(bytes: &[u8]) -> Result<Device, DecodeError> {
    let header = LinkHeader::parse(bytes)?;
    let attributes = Attributes::behind(bytes, HEADER)?;
    let packets = |index: usize| {
        let counter = attributes.get(IFLA_STATS64)?.get(index * 8..(index + 1) * 8)?;
        counter.try_into().map(u64::from_ne_bytes).ok()
    };
    Ok(Device {
        ifindex: header.index,
        name: attributes.text(IFLA_IFNAME)?.ok_or_else(|| DecodeError::from("no IFLA_IFNAME"))?,
        mtu: attributes.u32(IFLA_MTU)?.ok_or_else(|| DecodeError::from("no IFLA_MTU"))?,
        layer: match u16::from(header.link_layer_type) {
            libc::ARPHRD_ETHER => LinkLayer::Ethernet,
            libc::ARPHRD_LOOPBACK => LinkLayer::Loopback,
            other => LinkLayer::Other(other),
        },
        up: header.flags.contains(LinkFlags::Up),
        running: header.flags.contains(LinkFlags::Up | LinkFlags::Running),
        speed_mbit: None,
        // struct rtnl_link_stats64 (linux/if_link.h): rx_packets, tx_packets.
        rx_packets: packets(0).ok_or_else(|| DecodeError::from("no IFLA_STATS64"))?,
        tx_packets: packets(1).ok_or_else(|| DecodeError::from("no IFLA_STATS64"))?,
        xdp: attributes.nested(IFLA_XDP)?.map(|xdp| xdp.u32(IFLA_XDP_PROG_ID)).transpose()?.flatten(),
    })
}

/// `struct ethtool_cmd` (linux/ethtool.h), as far as it is read.
#[repr(C)]
#[derive(Default)]
struct EthtoolCmd {
    cmd: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    /// duplex, port, phy_address, transceiver, autoneg, mdio_support.
    modes: [u8; 6],
    maxtxpkt: u32,
    maxrxpkt: u32,
    speed_hi: u16,
    rest: [u8; 14],
}

/// The speed of a device, by the ioctl that every driver answers; `None` when it knows none.
fn speed_mbit(socket: BorrowedFd<'_>, name: &str) -> Option<u32> {
    const ETHTOOL_GSET: u32 = 1;
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    let mut command = EthtoolCmd { cmd: ETHTOOL_GSET, ..EthtoolCmd::default() };
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut command).cast() },
    };
    if name.len() >= libc::IFNAMSIZ {
        return None;
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte.cast_signed();
    }
    // SAFETY: the request points to a whole `struct ethtool_cmd`, which is all the kernel reads and writes for
    // ETHTOOL_GSET; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    let speed = u32::from(command.speed_hi) << 16 | u32::from(command.speed);
    // 0 and SPEED_UNKNOWN (all ones, or its lower half alone) are how drivers say that they do not know.
    (result == 0 && !matches!(speed, 0 | 0xffff | u32::MAX)).then_some(speed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ethtool_request_has_the_kernels_size() {
        assert_eq!(size_of::<EthtoolCmd>(), 44);
        assert_eq!(std::mem::offset_of!(EthtoolCmd, speed_hi), 28);
    }

    #[test]
    fn a_device_that_cannot_be_read_is_an_error() {
        assert!(parse_device(&[0; 15]).is_err());
        assert!(parse_device(&[0; 16]).is_err());
    }
}
