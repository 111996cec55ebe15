//! Turns a TCP segment into the reset that refuses it, and sends it back where it came from.

use aya_ebpf::programs::TcContext;
use chaos_common::packet::V6_HEADER;
use chaos_common::reset::{self, CHECKSUM_AT, HEADER, Segment};
use chaos_common::{LINK_HEADER, Packet, PacketRule, Version, Way};

use crate::loopback::LOOPBACK;
use crate::turn::{RECOMPUTE, is_partial, send_back, swap_link_addresses, trim, turn_header};
use crate::view::Skb as _;
use crate::{NEXT, drop_silently};

/// Answers the segment, or drops it silently if nothing can answer it: a reset, a fragment, a broken header.
#[inline(always)]
pub(crate) fn refuse(ctx: &TcContext, rule: &PacketRule, packet: &Packet, way: Way) -> i32 {
    let here = ctx.interface();
    let Some(segment) = read(ctx, packet) else { return drop_silently() };
    let Some(header) = segment.refusal() else {
        // On the loopback what left arrives at once, so this may be our own answer, on its way from one program of
        // this fault to the other. A reset that passes does no less harm than one that is lost.
        return if here == LOOPBACK { NEXT } else { drop_silently() };
    };
    if packet.fragment != 0 || rewrite(ctx, packet, &header).is_none() {
        return drop_silently();
    }
    send_back(ctx, rule, way)
}

/// Has the sender of a SYN send it again almost at once. Unlike an error, this waits until the socket is free.
#[inline(always)]
pub(crate) fn urge(ctx: &TcContext, rule: &PacketRule, packet: &Packet, way: Way) -> i32 {
    let Some(segment) = read(ctx, packet) else { return drop_silently() };
    if rewrite(ctx, packet, &segment.urge()).is_none() {
        return drop_silently();
    }
    send_back(ctx, rule, way)
}

#[inline(always)]
fn rewrite(ctx: &TcContext, packet: &Packet, header: &[u32; 5]) -> Option<()> {
    let at = packet.transport;
    trim(ctx, at + HEADER)?;
    let partial = is_partial(ctx, at + CHECKSUM_AT)?;
    swap_link_addresses(ctx)?;
    let pseudo = reset::pseudo_header() + turn_header(ctx, packet, HEADER)?;
    let sum = reset::checksum(pseudo, header, partial);
    ctx.store(at, header, RECOMPUTE).ok()?;
    ctx.store(at + CHECKSUM_AT, &sum, RECOMPUTE).ok()
}

/// What a packet's TCP header says, and its IP header about its length.
#[inline(always)]
fn read(ctx: &TcContext, packet: &Packet) -> Option<Segment> {
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
    // Jumbo segments say 0; then the buffer, which has no padding at that size, knows.
    let end = if length == 0 { ctx.len() as usize } else { base + u16::from_be(length) as usize };
    Some(Segment {
        source: (ports >> 16) as u16,
        destination: ports as u16,
        sequence,
        acknowledgement,
        flags: (rest >> 16) as u8,
        data: end.saturating_sub(at + offset) as u32,
    })
}
