//! Answers questions about names in the name of whom they go to: turns the question into its own answer, and sends it back
//! where it came from.

use core::arch::asm;
use core::ptr;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::{bpf_csum_diff, bpf_skb_load_bytes, bpf_skb_store_bytes};
use aya_ebpf::maps::lpm_trie::Key;
use aya_ebpf::programs::TcContext;
use chaos_common::dns::{CHECKSUM_AT, KEY, MOST_SPARE, NAMED, SHORTEST, SILENT, UDP_HEADER, header};
use chaos_common::rule::{TCP, UDP};
use chaos_common::{DnsRule, Packet, PacketRule, Question, Way};

use crate::turn::{RECOMPUTE, is_partial, send_back, swap_link_addresses, trim, turn_header};
use crate::{answer, drop_silently, maps};

/// Over TCP the length of a message comes before it.
const TCP_PREFIX: usize = 2;

/// Whether there may be a question in the packet. None is so long that it would be sent in pieces.
#[inline(always)]
pub(crate) fn may_ask(packet: &Packet) -> bool {
    (packet.protocol == UDP || packet.protocol == TCP) && packet.fragment == 0
}

/// Whether there is a question in the packet about a name that is meant. Of TCP this is seen of a segment that begins with
/// it, as it is sent by everybody who asks once.
#[inline(always)]
pub(crate) fn asks(ctx: &TcContext, packet: &Packet) -> bool {
    is_meant(ctx, packet).is_some()
}

#[inline(always)]
fn is_meant(ctx: &TcContext, packet: &Packet) -> Option<()> {
    let at = message_at(ctx, packet)?;
    let there = ctx.len() as usize;
    if there < at + SHORTEST {
        return None;
    }
    let mut spare = there - at - SHORTEST;
    if spare > MOST_SPARE {
        spare = MOST_SPARE;
    }
    // Hides from the compiler that the bits which are cleared next are clear, so that the verifier sees them cleared.
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(reg) spare, options(nomem, nostack, preserves_flags)) };
    let length = SHORTEST + (spare & MOST_SPARE);
    let question = slot()?;
    let to = (&raw mut question.message).cast();
    // SAFETY: there is room for as many bytes, which the verifier checks on its own.
    if unsafe { bpf_skb_load_bytes(ctx.as_ptr().cast(), at as u32, to, length as u32) } != 0 {
        return None;
    }
    if !question.read(length) {
        return None;
    }
    if !maps::DNS.get(0)?.has(NAMED) {
        return Some(());
    }
    let key: *const Key<[u8; KEY]> = question.key()?.as_ptr().cast();
    // SAFETY: a key is its length, 32 bits, and as many bytes as were returned behind them, all of them packed.
    maps::NAMES.get(unsafe { &*key }).map(|_| ())
}

/// Where the message begins.
#[inline(always)]
fn message_at(ctx: &TcContext, packet: &Packet) -> Option<usize> {
    let at = packet.transport;
    if packet.protocol == UDP {
        return Some(at + UDP_HEADER);
    }
    let offset: u8 = ctx.load(at + 12).ok()?;
    Some(at + ((offset >> 4) * 4) as usize + TCP_PREFIX)
}

/// This CPU's own slot.
#[inline(always)]
fn slot() -> Option<&'static mut Question> {
    // SAFETY: as for a packet: nobody else has a reference to it while this program runs.
    maps::QUESTION.get_ptr_mut(0).map(|slot| unsafe { &mut *slot })
}

/// Answers the question that was found in the packet, or has it vanish. A connection, in which an answer would have to be
/// in its place, is reset.
#[inline(always)]
pub(crate) fn answer(ctx: &TcContext, rule: &PacketRule, packet: &Packet, way: Way) -> i32 {
    let Some(said) = maps::DNS.get(0) else { return drop_silently() };
    if said.has(SILENT) {
        return drop_silently();
    }
    if packet.protocol == TCP {
        return answer::refuse(ctx, rule, packet, way);
    }
    if rewrite(ctx, packet, said).is_none() {
        return drop_silently();
    }
    send_back(ctx, rule, way)
}

#[inline(always)]
fn rewrite(ctx: &TcContext, packet: &Packet, said: &DnsRule) -> Option<()> {
    let question = slot()?;
    question.answer(said);
    let length = question.length();
    let at = packet.transport;
    trim(ctx, at + UDP_HEADER + length)?;
    let partial = is_partial(ctx, at + CHECKSUM_AT)?;
    swap_link_addresses(ctx)?;
    let addresses = turn_header(ctx, packet, UDP_HEADER + length)?;
    let ports: u32 = ctx.load(at).ok()?;
    let sum = sum(question)?;
    ctx.store(at, &header(ports, length, addresses, sum, partial), RECOMPUTE).ok()?;
    let from = (&raw const question.message).cast();
    let length = question.length() as u32;
    // SAFETY: as many bytes are there, which the verifier checks on its own.
    let stored =
        unsafe { bpf_skb_store_bytes(ctx.skb.skb, (at + UDP_HEADER) as u32, from, length, RECOMPUTE) };
    if stored == 0 { Some(()) } else { None }
}

/// The sum of the answer, with the zeros behind it that make its length a multiple of four.
#[inline(always)]
fn sum(question: &mut Question) -> Option<u64> {
    let length = (question.length() + 3) & !3;
    let words = (&raw mut question.message).cast();
    // SAFETY: as many bytes are there, which the verifier checks on its own.
    let sum = unsafe { bpf_csum_diff(ptr::null_mut(), 0, words, length as u32, 0) };
    u64::try_from(sum).ok()
}
