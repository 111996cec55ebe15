//! Answers a packet with the message that it cannot reach its destination: puts the headers of the message before those of
//! the packet, which are what it quotes, and sends it back where it came from.

use aya_ebpf::bindings::bpf_adj_room_mode::BPF_ADJ_ROOM_MAC;
use aya_ebpf::helpers::generated::{bpf_sk_fullsock, bpf_tcp_sock};
use aya_ebpf::programs::TcContext;
use chaos_common::packet::V6_HEADER;
use chaos_common::reset::{ACK, RST, SYN};
use chaos_common::rule::TCP;
use chaos_common::unreachable::{self, V4_HEADER, checksum_at, grown, quoted};
use chaos_common::{LINK_HEADER, Packet, PacketRule, Version, Way, checksum};

use crate::loopback::LOOPBACK;
use crate::turn::{RECOMPUTE, is_partial, send_back, swap_link_addresses, trim};
use crate::view::Skb as _;
use crate::{NEXT, answer, drop_silently};

/// Answers the packet, or drops it silently if nothing may answer it: a reset, a fragment, what goes to many.
#[inline(always)]
pub(crate) fn reject(ctx: &TcContext, rule: &PacketRule, packet: &Packet, way: Way) -> i32 {
    if packet.protocol == TCP
        && let Ok([sequence, _, rest]) = ctx.load::<[u32; 3]>(packet.transport + 4)
    {
        let flags = (u32::from_be(rest) >> 16) as u8;
        // What urges a caller on the loopback arrives at once, so that this may be our own, on its way from one program
        // of this fault to the other.
        if flags == ACK && sequence == 0 && ctx.interface() == LOOPBACK {
            return NEXT;
        }
        if flags & RST != 0 {
            return drop_silently();
        }
        // The kernel does not hear of errors while a call holds the socket, and connect(2) holds it while it sends its
        // first SYN. So that one only has it send a second, which its timer does, and which gets the message.
        if flags & (SYN | ACK) == SYN && is_first(ctx) {
            return answer::urge(ctx, rule, packet, way);
        }
    }
    if is_mute(ctx, packet) != Some(false) || rewrite(ctx, rule, packet).is_none() {
        return drop_silently();
    }
    send_back(ctx, rule, way)
}

/// Whether the packet is of a TCP socket of this node that has never sent anything again.
#[inline(always)]
fn is_first(ctx: &TcContext) -> bool {
    // SAFETY: the kernel passes a valid context, and checks that every pointer was compared with null.
    unsafe {
        let socket = (*ctx.skb.skb).__bindgen_anon_2.sk;
        if socket.is_null() {
            return false;
        }
        let socket = bpf_sk_fullsock(socket);
        if socket.is_null() {
            return false;
        }
        let tcp = bpf_tcp_sock(socket);
        !tcp.is_null() && (*tcp).total_retrans == 0
    }
}

/// Whether nothing may answer this packet (RFC 1122, 3.2.2). What goes to many shows in the link address.
#[inline(always)]
fn is_mute(ctx: &TcContext, packet: &Packet) -> Option<bool> {
    Some(packet.fragment != 0 || ctx.load::<u8>(0).ok()? & 1 != 0)
}

#[inline(always)]
fn rewrite(ctx: &TcContext, rule: &PacketRule, packet: &Packet) -> Option<()> {
    let header = match packet.version {
        Version::V4 => V4_HEADER,
        Version::V6 => V6_HEADER,
    };
    // Behind options nobody would find the ports.
    if packet.transport != LINK_HEADER + header {
        return None;
    }
    let quote = quoted(packet.protocol);
    trim(ctx, LINK_HEADER + header + quote)?;
    let sum = sum(ctx, packet, header)?;
    // Leaves what is quoted, and with it what the device may still have to complete, where it is in the buffer.
    ctx.adjust_room(grown(packet.version) as i32, BPF_ADJ_ROOM_MAC, 0).ok()?;
    swap_link_addresses(ctx)?;
    let old = LINK_HEADER + grown(packet.version);
    match packet.version {
        Version::V4 => {
            let [source, destination]: [u32; 2] = ctx.load(old + 12).ok()?;
            let words = unreachable::v4(rule.answer, source, destination, sum, V4_HEADER + quote);
            ctx.store(LINK_HEADER, &words, RECOMPUTE).ok()
        }
        Version::V6 => {
            let [source, destination]: [[u32; 4]; 2] = ctx.load(old + 8).ok()?;
            let words = unreachable::v6(rule.answer, source, destination, sum, V6_HEADER + quote);
            ctx.store(LINK_HEADER, &words, RECOMPUTE).ok()
        }
    }
}

/// The sum of what is quoted, as it will be when it arrives.
#[inline(always)]
fn sum(ctx: &TcContext, packet: &Packet, header: usize) -> Option<u64> {
    let mut sum = match packet.version {
        Version::V4 => add::<5>(ctx, LINK_HEADER, 0)?,
        Version::V6 => add::<10>(ctx, LINK_HEADER, 0)?,
    };
    let transport = LINK_HEADER + header;
    if let Some(field) = checksum_at(packet.protocol)
        && is_partial(ctx, transport + field)?
    {
        // The device will make the transport sum to the complement of what the field holds now: the sum of the pseudo
        // header.
        let pseudo: u16 = ctx.load(transport + field).ok()?;
        return Some(checksum::add(sum, u32::from(!pseudo)));
    }
    sum = add::<2>(ctx, transport, sum)?;
    if packet.protocol == TCP { add::<3>(ctx, transport + 8, sum) } else { Some(sum) }
}

/// Adds so many words of the packet to a sum.
#[inline(always)]
fn add<const WORDS: usize>(ctx: &TcContext, at: usize, sum: u64) -> Option<u64> {
    let words: [u32; WORDS] = ctx.load(at).ok()?;
    Some(words.iter().fold(sum, |sum, &word| checksum::add(sum, word)))
}
