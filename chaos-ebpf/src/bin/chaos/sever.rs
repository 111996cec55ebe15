//! What the sockets of a control group send, and what arrives for them: programs that the kernel runs for that group's packets
//! on every device, the loopback among them. A packet begins with its IP header here, whose link header is none.
//!
//! What is sent may be looked at while its sender's own context is interrupted, by what arrives for the same group. So everything
//! is counted atomically, and nothing is kept in a slot of this processor's.

use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_ktime_get_boot_ns};
use aya_ebpf::macros::cgroup_skb;
use aya_ebpf::programs::{SkBuffContext, TcContext};
use chaos_common::packet::peer_at;
use chaos_common::rule::{ALWAYS, EVERY_PEER, TCP, hits};
use chaos_common::socket::Peer;
use chaos_common::{Bytes, LINK_HEADER, Packet, PacketRule, Version, Way, lease};

use crate::failure::count;
use crate::loopback::LOOPBACK;
use crate::maps;
use crate::peer::{is_protected_peer, is_protected_port, is_selected};
use crate::view::Skb as _;

/// The packet goes on.
const KEEP: i32 = 1;
/// The packet is lost. Of one that leaves, whoever sends it within the kernel is told that it was not permitted: TCP takes that for a
/// loss, and sends it again when its timer says so. It would not of a congestion, for which it tries twice a second, and gives up after
/// so many tries (`tcp_send_probe0` and `tcp_retransmit_timer` in Linux net/ipv4).
const LOSE: i32 = 0;
/// The packet is lost, and whoever sends it within the kernel is told of a congestion (`NET_XMIT_DROP`, which is what
/// `BPF_PROG_CGROUP_INET_EGRESS_RUN_ARRAY` of include/linux/bpf-cgroup.h makes of the second bit without the first). UDP keeps that from its
/// caller, who would hear that it was not permitted.
const LOSE_UNSEEN: i32 = 2;

/// A packet without a link header, read as if it had one.
struct Headless<'a>(&'a SkBuffContext);

impl Bytes for Headless<'_> {
    #[inline(always)]
    fn u8(&self, at: usize) -> Option<u8> {
        self.0.load(at - LINK_HEADER).ok()
    }

    #[inline(always)]
    fn raw16(&self, at: usize) -> Option<u16> {
        self.0.load(at - LINK_HEADER).ok()
    }

    #[inline(always)]
    fn raw32(&self, at: usize) -> Option<u32> {
        self.0.load(at - LINK_HEADER).ok()
    }
}

/// The peer's address.
#[inline(always)]
fn peer(ctx: &SkBuffContext, version: Version, way: Way) -> Option<Peer> {
    let at = peer_at(version, way) - LINK_HEADER;
    Some(match version {
        Version::V4 => Peer::of_v4(ctx.load(at).ok()?),
        Version::V6 => Peer::of_v6(ctx.load(at).ok()?),
    })
}

/// The packet, if it is one of those that the rule is about, and where it comes from or goes to.
#[inline(always)]
fn selected(
    ctx: &SkBuffContext,
    rule: &PacketRule,
    version: Version,
    here: bool,
    way: Way,
) -> Option<(Packet, Peer)> {
    // What a service says to this host's own is not the network's, unless it is named.
    if here && rule.has(EVERY_PEER) {
        return None;
    }
    let packet = Packet::read(&Headless(ctx), version).ok()?;
    if !rule.selects(&packet, way) {
        return None;
    }
    let peer = peer(ctx, version, way)?;
    is_selected(rule, &peer).then_some((packet, peer))
}

/// Whether link, peer or port are exempt. Over the loopback both ends are this host's ports.
#[inline(always)]
fn is_exempt(rule: &PacketRule, packet: &Packet, peer: &Peer, here: bool, way: Way) -> bool {
    let (local, remote) = packet.ports(way);
    packet.is_link_life()
        || is_protected_peer(rule, peer)
        || packet.has_ports
            && (is_protected_port(rule, packet.protocol, local)
                || here && is_protected_port(rule, packet.protocol, remote))
}

/// The protocol of the packet, if the fault acts on it. Counts either way.
#[inline(always)]
fn hit(ctx: &SkBuffContext, way: Way) -> Option<u8> {
    // The fields that are read of it every packet's context has.
    let fields = TcContext::new(ctx.skb.skb);
    let (version, here) = (fields.version()?, fields.interface() == LOOPBACK);
    let rule = maps::RULE.get(0)?;
    let (packet, peer) = selected(ctx, rule, version, here, way)?;
    let counters = maps::COUNTERS.get_ptr_mut(0)?;
    // SAFETY: the slot of a map, like all that is counted here.
    unsafe { count(&raw mut (*counters).matched) };
    if is_exempt(rule, &packet, &peer, here, way) {
        // SAFETY: as above.
        unsafe { count(&raw mut (*counters).protected) };
        return None;
    }
    // SAFETY: the helper takes nothing and returns a number.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    if !lease::live(*maps::LEASE.get(0)?, now) {
        // SAFETY: as above.
        unsafe { count(&raw mut (*counters).expired) };
        return None;
    }
    // SAFETY: the helper takes nothing and returns a number.
    let random = if rule.probability == ALWAYS { 0 } else { unsafe { bpf_get_prandom_u32() as u32 } };
    if !hits(rule.probability, random) {
        return None;
    }
    // SAFETY: as above.
    unsafe { count(&raw mut (*counters).affected) };
    Some(packet.protocol)
}

/// Loses what leaves.
#[cgroup_skb(egress)]
pub fn sever_egress(ctx: SkBuffContext) -> i32 {
    match hit(&ctx, Way::Egress) {
        None => KEEP,
        Some(TCP) => LOSE,
        Some(_) => LOSE_UNSEEN,
    }
}

/// Loses what arrives.
#[cgroup_skb(ingress)]
pub fn sever_ingress(ctx: SkBuffContext) -> i32 {
    match hit(&ctx, Way::Ingress) {
        None => KEEP,
        Some(_) => LOSE,
    }
}
