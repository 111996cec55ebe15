//! The eBPF programs of chaos-daemon: tc classifiers that drop, refuse or divert what their rule selects, and programs of
//! control groups that fail what sockets ask for, or what processes ask of files or sockets, or lose what sockets send and get.
//!
//! Plumbing only: they read the context, ask `chaos-common`, and act. A packet that is left alone always goes on
//! to the next program (`TC_ACT_UNSPEC`), never past it (`TC_ACT_OK`).
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![expect(
    missing_docs,
    unreachable_pub,
    reason = "the macro exports the programs, and copies neither docs nor scope"
)]

mod answer;
mod call;
mod dns;
mod failure;
mod file;
mod loopback;
mod maps;
mod memory;
mod peer;
mod reject;
mod sever;
mod socket;
mod turn;
mod verdict;
mod view;

use aya_ebpf::bindings::{BPF_F_INGRESS, TC_ACT_UNSPEC};
use aya_ebpf::helpers::generated::bpf_redirect;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use chaos_common::rule::{RETURN_INGRESS, TCP};
use chaos_common::{NOWHERE, Packet, Way, mark, unreachable};

use view::Skb as _;

/// Goes on to the next program.
const NEXT: i32 = TC_ACT_UNSPEC;

/// Sends the packet to an interface that does not exist.
#[inline(always)]
fn drop_silently() -> i32 {
    redirect(NOWHERE, 0)
}

#[inline(always)]
fn redirect(interface: u32, flags: u64) -> i32 {
    // SAFETY: the helper takes two numbers; the kernel checks the interface when it acts.
    unsafe { bpf_redirect(interface, flags) as i32 }
}

#[inline(always)]
fn dropped(ctx: &TcContext, way: Way) -> i32 {
    match verdict::hit(ctx, way, |_| true) {
        Some(_) => drop_silently(),
        None => NEXT,
    }
}

/// Drops what leaves.
#[classifier]
pub fn drop_egress(ctx: TcContext) -> i32 {
    dropped(&ctx, Way::Egress)
}

/// Drops what arrives.
#[classifier]
pub fn drop_ingress(ctx: TcContext) -> i32 {
    dropped(&ctx, Way::Ingress)
}

#[inline(always)]
fn refused(ctx: &TcContext, way: Way) -> i32 {
    match verdict::hit(ctx, way, |packet| packet.protocol == TCP) {
        Some((rule, packet)) => answer::refuse(ctx, &rule, &packet, way),
        None => NEXT,
    }
}

/// Answers TCP segments that leave with a reset to their local sender.
#[classifier]
pub fn reset_egress(ctx: TcContext) -> i32 {
    refused(&ctx, Way::Egress)
}

/// Answers TCP segments that arrive with a reset to the peer.
#[classifier]
pub fn reset_ingress(ctx: TcContext) -> i32 {
    refused(&ctx, Way::Ingress)
}

#[inline(always)]
fn rejected(ctx: &TcContext, way: Way) -> i32 {
    match verdict::hit(ctx, way, unreachable::deserves) {
        Some((rule, packet)) => reject::reject(ctx, &rule, &packet, way),
        None => NEXT,
    }
}

/// Tells the local sender of packets that leave that they cannot arrive.
#[classifier]
pub fn reject_egress(ctx: TcContext) -> i32 {
    rejected(&ctx, Way::Egress)
}

/// Tells the peer whose packets arrive that they cannot.
#[classifier]
pub fn reject_ingress(ctx: TcContext) -> i32 {
    rejected(&ctx, Way::Ingress)
}

#[inline(always)]
fn asked(ctx: &TcContext, way: Way) -> i32 {
    match verdict::hit_within(ctx, way, dns::may_ask, |packet| dns::asks(ctx, packet)) {
        Some((rule, packet)) => dns::answer(ctx, &rule, &packet, way),
        None => NEXT,
    }
}

/// Answers questions about names that leave, in the name of whom they go to.
#[classifier]
pub fn dns_egress(ctx: TcContext) -> i32 {
    asked(&ctx, Way::Egress)
}

/// Answers questions about names that arrive.
#[classifier]
pub fn dns_ingress(ctx: TcContext) -> i32 {
    asked(&ctx, Way::Ingress)
}

#[inline(always)]
fn diverted(ctx: &TcContext, way: Way) -> i32 {
    match verdict::hit_within(ctx, way, |_| true, |packet| loopback::leads_back(ctx, packet)) {
        Some((rule, _)) => redirect(rule.divert_to, 0),
        None => NEXT,
    }
}

/// Sends what leaves on the detour.
#[classifier]
pub fn divert_egress(ctx: TcContext) -> i32 {
    diverted(&ctx, Way::Egress)
}

/// Sends what arrives on the detour.
#[classifier]
pub fn divert_ingress(ctx: TcContext) -> i32 {
    diverted(&ctx, Way::Ingress)
}

#[inline(always)]
fn detained(ctx: &TcContext, way: Way) -> i32 {
    let meant = |packet: &Packet| loopback::leads_back(ctx, packet) && dns::asks(ctx, packet);
    match verdict::hit_within(ctx, way, dns::may_ask, meant) {
        Some((rule, _)) => redirect(rule.divert_to, 0),
        None => NEXT,
    }
}

/// Sends questions about names that leave on the detour.
#[classifier]
pub fn detain_egress(ctx: TcContext) -> i32 {
    detained(&ctx, Way::Egress)
}

/// Sends questions about names that arrive on the detour.
#[classifier]
pub fn detain_ingress(ctx: TcContext) -> i32 {
    detained(&ctx, Way::Ingress)
}

/// Turns packets around at the far end of the detour.
#[classifier]
pub fn hairpin(ctx: TcContext) -> i32 {
    if verdict::is_foreign(&ctx) { drop_silently() } else { redirect(ctx.interface(), 0) }
}

/// Sends packets that come back from the detour to their device, marked so that this fault lets them pass. There
/// is no deadline here: what is still under way when the fault ends must arrive.
#[classifier]
pub fn comeback(ctx: TcContext) -> i32 {
    let Some(rule) = maps::RULE.get(0) else { return drop_silently() };
    if verdict::is_foreign(&ctx) {
        return drop_silently();
    }
    ctx.set_mark(mark::stamp(ctx.mark(), rule.level));
    if rule.return_to == loopback::LOOPBACK {
        return loopback::leave_again(&ctx);
    }
    let flags = if rule.has(RETURN_INGRESS) { u64::from(BPF_F_INGRESS) } else { 0 };
    redirect(rule.return_to, flags)
}

#[inline(always)]
fn jump(ctx: &TcContext, way: Way) -> i32 {
    let Some(rule) = maps::RULE.get(0) else { return NEXT };
    // SAFETY: the map holds classifiers only; nothing of this program is left to drop when the jump succeeds.
    unsafe { maps::JUMP.tail_call(ctx, rule.first_slot.wrapping_add(way as u32)) };
    // The owner of the program array is dead: this fault is over.
    NEXT
}

/// Jumps to the egress program.
#[classifier]
pub fn stub_egress(ctx: TcContext) -> i32 {
    jump(&ctx, Way::Egress)
}

/// Jumps to the ingress program.
#[classifier]
pub fn stub_ingress(ctx: TcContext) -> i32 {
    jump(&ctx, Way::Ingress)
}

// The kernel reads the licence from this section; helpers reserved for the GPL need it.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier admits no program from which this could be reached.
    loop {}
}
