//! Turns a TCP segment into the reset that refuses it, and sends it back where it came from.

use aya_ebpf::programs::TcContext;
use chaos_common::packet::V6_HEADER;
use chaos_common::reset::{self, CHECKSUM_AT, HEADER, HOPS, Segment};
use chaos_common::rule::TCP;
use chaos_common::{LINK_HEADER, Packet, PacketRule, Version, Way, checksum};

use crate::turn::{LOOPBACK, RECOMPUTE, is_partial, send_back, swap_link_addresses, trim};
use crate::view::Skb as _;
use crate::{NEXT, drop_silently};

/// What a packet's TCP header says, and its IP header about its length.
struct Old {
    segment: Segment,
    /// IPv4 total length or IPv6 payload length, raw.
    length: u16,
    /// TTL and protocol (IPv4), raw.
    hops: u16,
}

/// Answers the segment, or drops it silently if nothing can answer it: a reset, a fragment, a broken header.
#[inline(always)]
pub(crate) fn refuse(ctx: &TcContext, rule: &PacketRule, packet: &Packet, way: Way) -> i32 {
    let here = ctx.interface();
    let Some(old) = read(ctx, packet) else { return drop_silently() };
    let Some(header) = old.segment.refusal() else {
        // On the loopback what left arrives at once, so this may be our own answer, on its way from one program of
        // this fault to the other. A reset that passes does no less harm than one that is lost.
        return if here == LOOPBACK { NEXT } else { drop_silently() };
    };
    if packet.fragment != 0 || rewrite(ctx, packet, &old, &header).is_none() {
        return drop_silently();
    }
    send_back(ctx, rule, way)
}

/// Has the sender of a SYN send it again almost at once. Unlike an error, this waits until the socket is free.
#[inline(always)]
pub(crate) fn urge(ctx: &TcContext, rule: &PacketRule, packet: &Packet, way: Way) -> i32 {
    let Some(old) = read(ctx, packet) else { return drop_silently() };
    if rewrite(ctx, packet, &old, &old.segment.urge()).is_none() {
        return drop_silently();
    }
    send_back(ctx, rule, way)
}

#[inline(always)]
fn rewrite(ctx: &TcContext, packet: &Packet, old: &Old, header: &[u32; 5]) -> Option<()> {
    let at = packet.transport;
    trim(ctx, at + HEADER)?;
    let partial = is_partial(ctx, at + CHECKSUM_AT)?;
    swap_link_addresses(ctx)?;
    let pseudo = match packet.version {
        Version::V4 => rewrite_v4(ctx, old, at)?,
        Version::V6 => rewrite_v6(ctx, at)?,
    };
    let sum = reset::checksum(pseudo, header, partial);
    ctx.store(at, header, RECOMPUTE).ok()?;
    ctx.store(at + CHECKSUM_AT, &sum, RECOMPUTE).ok()
}

#[inline(always)]
fn read(ctx: &TcContext, packet: &Packet) -> Option<Old> {
    let at = packet.transport;
    let [ports, sequence, acknowledgement, rest] = ctx.load::<[u32; 4]>(at).ok()?.map(u32::from_be);
    let offset = ((rest >> 28) * 4) as usize;
    if offset < HEADER {
        return None;
    }
    let (length_at, base) = match packet.version {
        Version::V4 => (LINK_HEADER + 2, LINK_HEADER),
        Version::V6 => (LINK_HEADER + 4, LINK_HEADER + V6_HEADER),
    };
    let length: u16 = ctx.load(length_at).ok()?;
    let hops: u16 = ctx.load(LINK_HEADER + 8).ok()?;
    // Jumbo segments say 0; then the buffer, which has no padding at that size, knows.
    let end = if length == 0 { ctx.len() as usize } else { base + u16::from_be(length) as usize };
    let segment = Segment {
        source: (ports >> 16) as u16,
        destination: ports as u16,
        sequence,
        acknowledgement,
        flags: (rest >> 16) as u8,
        data: end.saturating_sub(at + offset) as u32,
    };
    Some(Old { segment, length, hops })
}

/// Returns the sum of the pseudo header. Sums over the IPv4 header stay what they were, so the kernel's sum over
/// the packet needs no update here; nor does it for addresses that change places.
#[inline(always)]
fn rewrite_v4(ctx: &TcContext, old: &Old, transport: usize) -> Option<u64> {
    let [source, destination]: [u32; 2] = ctx.load(LINK_HEADER + 12).ok()?;
    let length = ((transport - LINK_HEADER + HEADER) as u16).to_be();
    let hops = u16::from_ne_bytes([HOPS, TCP]);
    for (field, from, to) in [(2, old.length, length), (8, old.hops, hops)] {
        ctx.l3_csum_replace(LINK_HEADER + 10, u64::from(from), u64::from(to), 2).ok()?;
        ctx.store(LINK_HEADER + field, &to, 0).ok()?;
    }
    ctx.store(LINK_HEADER + 12, &[destination, source], 0).ok()?;
    Some(checksum::add(checksum::add(reset::pseudo_header(), source), destination))
}

/// Returns the sum of the pseudo header.
#[inline(always)]
fn rewrite_v6(ctx: &TcContext, transport: usize) -> Option<u64> {
    let [source, destination]: [[u32; 4]; 2] = ctx.load(LINK_HEADER + 8).ok()?;
    let next: u8 = ctx.load(LINK_HEADER + 6).ok()?;
    let length = ((transport - LINK_HEADER - V6_HEADER + HEADER) as u16).to_be();
    ctx.store(LINK_HEADER + 4, &length, RECOMPUTE).ok()?;
    let hops = u16::from_ne_bytes([next, HOPS]);
    ctx.store(LINK_HEADER + 6, &hops, RECOMPUTE).ok()?;
    ctx.store(LINK_HEADER + 8, &[destination, source], 0).ok()?;
    let mut pseudo = reset::pseudo_header();
    for index in 0..4 {
        pseudo = checksum::add(checksum::add(pseudo, source[index]), destination[index]);
    }
    Some(pseudo)
}
