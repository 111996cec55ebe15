//! Whether a packet is hit: cheapest question first, the clock last.

use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_ktime_get_boot_ns, bpf_skb_ancestor_cgroup_id};
use aya_ebpf::maps::LpmTrie;
use aya_ebpf::maps::lpm_trie::Key;
use aya_ebpf::programs::TcContext;
use chaos_common::packet::peer_at;
use chaos_common::rule::{
    ALWAYS, ENABLED, EVERY_PEER, HOSTS_V4, HOSTS_V6, NETS_V4, NETS_V6, PROTECTED_V4, PROTECTED_V6, hits,
};
use chaos_common::{Bytes, Packet, PacketRule, Version, Way, lease, mark};

use crate::loopback::LOOPBACK;
use crate::maps;
use crate::peer::is_protected_port;
use crate::view::{self, Skb as _, View};

/// The rule and the packet, if the fault acts on this packet. Counts either way.
#[inline(always)]
pub(crate) fn hit(
    ctx: &TcContext,
    way: Way,
    wanted: impl Fn(&Packet) -> bool,
) -> Option<(&'static PacketRule, Packet)> {
    hit_within(ctx, way, wanted, |_| true)
}

/// As [`hit`], for a fault that is about something within the packet, too, which is looked at last of what has to match.
#[inline(always)]
pub(crate) fn hit_within(
    ctx: &TcContext,
    way: Way,
    wanted: impl Fn(&Packet) -> bool,
    meant: impl Fn(&Packet) -> bool,
) -> Option<(&'static PacketRule, Packet)> {
    if !is_selected(ctx, way, wanted)? {
        return None;
    }
    // Looked up anew: little is kept of the many ways that lead here, each of which the verifier would follow on.
    let (rule, packet) = (maps::RULE.get(0)?, view::last()?);
    if !meant(&packet) {
        return None;
    }
    // SAFETY: a slot of a per-CPU array, which only this program on this CPU changes now.
    let counters = unsafe { &mut *maps::COUNTERS.get_ptr_mut(0)? };
    counters.matched += 1;
    if packet.is_link_life() || is_protected(rule, ctx, &packet, way)? {
        counters.protected += 1;
        return None;
    }
    // SAFETY: the helper takes nothing and returns a number.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    if !lease::live(*maps::LEASE.get(0)?, now) {
        counters.expired += 1;
        return None;
    }
    // SAFETY: the helper takes nothing and returns a number.
    let random = if rule.probability == ALWAYS { 0 } else { unsafe { bpf_get_prandom_u32() as u32 } };
    if !hits(rule.probability, random) {
        return None;
    }
    counters.affected += 1;
    Some((rule, packet))
}

/// Whether the packet is one of those that the rule is about.
#[inline(always)]
fn is_selected(ctx: &TcContext, way: Way, wanted: impl Fn(&Packet) -> bool) -> Option<bool> {
    let version = ctx.version()?;
    let rule = maps::RULE.get(0)?;
    let mark = ctx.mark();
    if mark::skips(mark, rule.level) {
        let onward = mark::clear_if_own(mark, rule.level);
        if onward != mark {
            ctx.set_mark(onward);
        }
        return None;
    }
    if !rule.has(ENABLED) {
        return None;
    }
    let packet = view::read(ctx, version)?;
    if !wanted(&packet) || !rule.selects(&packet, way) || !selects_service(ctx, rule, way) {
        return None;
    }
    selects_peer(rule, &View::of(ctx), packet.version, way)
}

/// Whether a packet in the detour cannot be one that was diverted: the stack of either end speaks there too
/// (ARP, neighbour discovery), and its words must not get out through the target's device.
#[inline(always)]
pub(crate) fn is_foreign(ctx: &TcContext) -> bool {
    match ctx.version().and_then(|version| view::read(ctx, version)) {
        Some(packet) => packet.is_link_life(),
        None => true,
    }
}

/// Whether the packet is of the service that the rule names, if it names one.
#[inline(always)]
fn selects_service(ctx: &TcContext, rule: &PacketRule, way: Way) -> bool {
    if rule.cgroup == 0 {
        return true;
    }
    // On its way in a packet meets the device before it finds its socket.
    if matches!(way, Way::Ingress) {
        return false;
    }
    // SAFETY: the kernel passes a valid context; the helper returns a number, 0 where there is no socket.
    rule.cgroup == unsafe { bpf_skb_ancestor_cgroup_id(ctx.skb.skb, rule.cgroup_level as i32) }
}

/// `None`: the address cannot be read.
#[inline(always)]
fn selects_peer(rule: &PacketRule, bytes: &View, version: Version, way: Way) -> Option<bool> {
    if rule.has(EVERY_PEER) {
        return Some(true);
    }
    let at = peer_at(version, way);
    Some(match version {
        Version::V4 => rule.has(HOSTS_V4 | NETS_V4) && selects_v4(rule, bytes.raw32(at)?),
        Version::V6 => rule.has(HOSTS_V6 | NETS_V6) && selects_v6(rule, address_v6(bytes, at)?),
    })
}

/// Whether this is one of the peers that the rule names.
#[inline(always)]
pub(crate) fn selects_v4(rule: &PacketRule, peer: u32) -> bool {
    // SAFETY: presence is all that is asked; the value is not read.
    (rule.has(HOSTS_V4) && unsafe { maps::HOSTS_V4.get(peer) }.is_some())
        || (rule.has(NETS_V4) && covers(&maps::NETS_V4, peer))
}

/// Whether this is one of the peers that the rule names.
#[inline(always)]
pub(crate) fn selects_v6(rule: &PacketRule, peer: [u32; 4]) -> bool {
    // SAFETY: as above.
    (rule.has(HOSTS_V6) && unsafe { maps::HOSTS_V6.get(peer) }.is_some())
        || (rule.has(NETS_V6) && covers(&maps::NETS_V6, peer))
}

/// Whether port or peer are exempt. Over the loopback both ends are this host's ports, and each is the other's peer. `None`: an
/// address cannot be read.
#[inline(always)]
fn is_protected(rule: &PacketRule, ctx: &TcContext, packet: &Packet, way: Way) -> Option<bool> {
    let here = ctx.interface() == LOOPBACK;
    let (local, remote) = packet.ports(way);
    if packet.has_ports
        && (is_protected_port(rule, packet.protocol, local)
            || here && is_protected_port(rule, packet.protocol, remote))
    {
        return Some(true);
    }
    let bytes = View::of(ctx);
    Some(
        is_protected_peer(rule, &bytes, packet.version, way)?
            || here && is_protected_peer(rule, &bytes, packet.version, way.back())?,
    )
}

/// Whether the policy exempts who is at the other end of this way. `None`: the address cannot be read.
#[inline(always)]
fn is_protected_peer(rule: &PacketRule, bytes: &View, version: Version, way: Way) -> Option<bool> {
    let at = peer_at(version, way);
    Some(match version {
        Version::V4 => rule.has(PROTECTED_V4) && covers(&maps::PROTECTED_V4, bytes.raw32(at)?),
        Version::V6 => rule.has(PROTECTED_V6) && covers(&maps::PROTECTED_V6, address_v6(bytes, at)?),
    })
}

/// Whether one of the prefixes covers the address.
#[inline(always)]
pub(crate) fn covers<K>(nets: &LpmTrie<K, u8>, address: K) -> bool {
    nets.get(Key::new(size_of::<K>() as u32 * 8, address)).is_some()
}

/// The IPv6 address at an offset.
#[inline(always)]
fn address_v6(bytes: &impl Bytes, at: usize) -> Option<[u32; 4]> {
    Some([bytes.raw32(at)?, bytes.raw32(at + 4)?, bytes.raw32(at + 8)?, bytes.raw32(at + 12)?])
}
