//! What every answer has in common: a packet is cut, turned around and sent back where it came from.
//!
//! Slow path: everything goes through helpers, which read what is not linear, and keep the kernel's own idea of the
//! checksum right.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{BPF_F_INGRESS, BPF_F_RECOMPUTE_CSUM};
use aya_ebpf::helpers::generated::bpf_skb_change_tail;
use aya_ebpf::programs::TcContext;
use chaos_common::packet::V6_HEADER;
use chaos_common::reset::HOPS;
use chaos_common::{LINK_HEADER, Packet, PacketRule, Version, Way, checksum, mark};

use crate::loopback::LOOPBACK;
use crate::redirect;
use crate::view::Skb as _;

/// Keeps the kernel's sum over the packet right.
pub(crate) const RECOMPUTE: u64 = BPF_F_RECOMPUTE_CSUM as u64;

/// Gives the packet this length. Unshares and linearises the buffer, and takes segmentation offload off it.
#[inline(always)]
pub(crate) fn trim(ctx: &TcContext, length: usize) -> Option<()> {
    // SAFETY: the helper checks the context and the length; no pointer into the packet outlives it.
    let trimmed = unsafe { bpf_skb_change_tail(ctx.as_ptr().cast(), length as u32, 0) };
    if trimmed == 0 { Some(()) } else { None }
}

/// Sends an answer back where the packet came from.
#[inline(always)]
pub(crate) fn send_back(ctx: &TcContext, rule: &PacketRule, way: Way) -> i32 {
    let here = ctx.interface();
    // A packet that turns around here is a new one: it carries nothing but the level, by which this fault's own
    // program for the other direction lets it pass.
    ctx.set_mark(mark::stamp(0, rule.level));
    // Packets on the loopback keep the route they left with, and arriving without one they would be refused as
    // martians. So there the answer leaves once more, which on the loopback is the way to arrive.
    let flags = match way {
        Way::Egress if here != LOOPBACK => u64::from(BPF_F_INGRESS),
        _ => 0,
    };
    redirect(here, flags)
}

/// Whether the device is to complete this packet's transport checksum. The buffer does not show that to programs, but a
/// change of payload, which the helper is told of here, changes the field only if the device is not to.
#[inline(always)]
pub(crate) fn is_partial(ctx: &TcContext, field: usize) -> Option<bool> {
    let before: u16 = ctx.load(field).ok()?;
    ctx.l4_csum_replace(field, 0, 1, 2).ok()?;
    let after: u16 = ctx.load(field).ok()?;
    ctx.store(field, &before, 0).ok()?;
    Some(before == after)
}

/// The one it came from is the one it goes to.
#[inline(always)]
pub(crate) fn swap_link_addresses(ctx: &TcContext) -> Option<()> {
    let [destination, source]: [[u16; 3]; 2] = ctx.load(0).ok()?;
    ctx.store(0, &[source, destination], 0).ok()
}

/// Turns the IP header around, before a transport of this length; returns the sum of both addresses. Sums over the IPv4
/// header stay what they were, so the kernel's sum over the packet needs no update there; nor does it for addresses that
/// change places.
#[inline(always)]
pub(crate) fn turn_header(ctx: &TcContext, packet: &Packet, length: usize) -> Option<u64> {
    match packet.version {
        Version::V4 => turn_v4(ctx, packet, length),
        Version::V6 => turn_v6(ctx, packet, length),
    }
}

#[inline(always)]
fn turn_v4(ctx: &TcContext, packet: &Packet, length: usize) -> Option<u64> {
    let [source, destination]: [u32; 2] = ctx.load(LINK_HEADER + 12).ok()?;
    let length = ((packet.transport - LINK_HEADER + length) as u16).to_be();
    let hops = u16::from_ne_bytes([HOPS, packet.protocol]);
    for (field, to) in [(2, length), (8, hops)] {
        let from: u16 = ctx.load(LINK_HEADER + field).ok()?;
        ctx.l3_csum_replace(LINK_HEADER + 10, u64::from(from), u64::from(to), 2).ok()?;
        ctx.store(LINK_HEADER + field, &to, 0).ok()?;
    }
    ctx.store(LINK_HEADER + 12, &[destination, source], 0).ok()?;
    Some(checksum::add(checksum::add(0, source), destination))
}

#[inline(always)]
fn turn_v6(ctx: &TcContext, packet: &Packet, length: usize) -> Option<u64> {
    let [source, destination]: [[u32; 4]; 2] = ctx.load(LINK_HEADER + 8).ok()?;
    let next: u8 = ctx.load(LINK_HEADER + 6).ok()?;
    let length = ((packet.transport - LINK_HEADER - V6_HEADER + length) as u16).to_be();
    ctx.store(LINK_HEADER + 4, &length, RECOMPUTE).ok()?;
    let hops = u16::from_ne_bytes([next, HOPS]);
    ctx.store(LINK_HEADER + 6, &hops, RECOMPUTE).ok()?;
    ctx.store(LINK_HEADER + 8, &[destination, source], 0).ok()?;
    let mut sum = 0;
    for index in 0..4 {
        sum = checksum::add(checksum::add(sum, source[index]), destination[index]);
    }
    Some(sum)
}
