//! What is different on the loopback: whatever leaves arrives, with the route that it was sent by, and without that route IPv4
//! refuses it as a martian, for it comes from an address of this host (`ip_route_input_slow` of Linux
//! `net/ipv4/route.c`). A detour through another device takes the route away.

use core::ptr;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::{bpf_redirect_neigh, bpf_skb_change_type};
use aya_ebpf::programs::TcContext;
use chaos_common::{Bytes as _, LINK_HEADER, Packet, Version};

use crate::redirect;
use crate::view::{Skb as _, View};

/// The loopback device has this index in every network namespace (`LOOPBACK_IFINDEX`).
pub(crate) const LOOPBACK: u32 = 1;
/// Where the destination stands, after the start of the IPv4 header.
const DESTINATION: usize = 16;
/// First octet of the addresses that are always routed over the loopback.
const LOCAL_NET: u8 = 127;
/// A packet for this host (`PACKET_HOST`).
const HOST: u32 = 0;

/// Whether a packet that is on its way out here finds back from a detour. The route to an address that the host has on
/// another device is not found again for the loopback.
#[inline(always)]
pub(crate) fn leads_back(ctx: &TcContext, packet: &Packet) -> bool {
    ctx.interface() != LOOPBACK
        || matches!(packet.version, Version::V6)
        || View::of(ctx).u8(LINK_HEADER + DESTINATION) == Some(LOCAL_NET)
}

/// Sends a packet that comes back from a detour out on the loopback, with a route.
#[inline(always)]
pub(crate) fn leave_again(ctx: &TcContext) -> i32 {
    // Where it has been its addresses of the link layer were a stranger's, and on the loopback they say nothing.
    // SAFETY: the helper checks the context and the type.
    unsafe { bpf_skb_change_type(ctx.as_ptr().cast(), HOST) };
    if !matches!(ctx.version(), Some(Version::V4)) {
        return redirect(LOOPBACK, 0);
    }
    // SAFETY: without parameters the helper looks the route up by the packet's own addresses.
    unsafe { bpf_redirect_neigh(LOOPBACK, ptr::null_mut(), 0, 0) as i32 }
}
