//! What the sockets of a control group ask for: connect(2), and sending without a connection.

use core::ptr;

use aya_ebpf::bindings::bpf_sock_addr;
use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;
use chaos_common::socket::Peer;
use chaos_common::{Packet, Version, Way};

use crate::failure::{PASS, count, fail, strike};
use crate::maps;
use crate::peer::{is_protected, is_selected};

/// Reads what a program for IPv4 may read.
#[inline(always)]
fn peer_v4(call: *const bpf_sock_addr) -> Peer {
    // SAFETY: the kernel passes a valid context, and the verifier allows this field for IPv4.
    Peer::of_v4(unsafe { ptr::read_volatile(&raw const (*call).user_ip4) })
}

/// Reads what a program for IPv6 may read.
#[inline(always)]
fn peer_v6(call: *const bpf_sock_addr) -> Peer {
    // SAFETY: the kernel passes a valid context, and the verifier allows these fields for IPv6.
    let word = |at: usize| unsafe { ptr::read_volatile(&raw const (*call).user_ip6[at]) };
    Peer::of_v6([word(0), word(1), word(2), word(3)])
}

/// What the call returns, if the fault acts on it. Counts either way.
#[inline(always)]
fn hit(call: *const bpf_sock_addr, peer: &Peer) -> Option<i32> {
    let rule = maps::RULE.get(0)?;
    // SAFETY: the kernel passes a valid context, and the verifier allows these fields.
    let (protocol, port) = unsafe {
        (ptr::read_volatile(&raw const (*call).protocol), ptr::read_volatile(&raw const (*call).user_port))
    };
    let version = if peer.v4().is_some() { Version::V4 } else { Version::V6 };
    let destination = u16::from_be(port as u16);
    let packet =
        Packet { version, protocol: protocol as u8, has_ports: true, destination, ..Packet::default() };
    if !rule.selects(&packet, Way::Egress) || !is_selected(rule, peer) {
        return None;
    }
    // SAFETY: the slot of a map.
    unsafe { count(&raw mut (*maps::COUNTERS.get_ptr_mut(0)?).matched) };
    if is_protected(rule, peer, &packet) {
        // SAFETY: as above.
        unsafe { count(&raw mut (*maps::COUNTERS.get_ptr_mut(0)?).protected) };
        return None;
    }
    strike(rule)
}

#[inline(always)]
fn decide(call: *const bpf_sock_addr, peer: &Peer) -> i32 {
    match hit(call, peer) {
        None => PASS,
        Some(verdict) => fail(verdict),
    }
}

/// Fails connect(2) to an IPv4 address.
#[cgroup_sock_addr(connect4)]
pub fn connect4(ctx: SockAddrContext) -> i32 {
    decide(ctx.sock_addr, &peer_v4(ctx.sock_addr))
}

/// Fails connect(2) to an IPv6 address.
#[cgroup_sock_addr(connect6)]
pub fn connect6(ctx: SockAddrContext) -> i32 {
    decide(ctx.sock_addr, &peer_v6(ctx.sock_addr))
}

/// Fails sending to an IPv4 address without a connection.
#[cgroup_sock_addr(sendmsg4)]
pub fn sendmsg4(ctx: SockAddrContext) -> i32 {
    decide(ctx.sock_addr, &peer_v4(ctx.sock_addr))
}

/// Fails sending to an IPv6 address without a connection.
#[cgroup_sock_addr(sendmsg6)]
pub fn sendmsg6(ctx: SockAddrContext) -> i32 {
    decide(ctx.sock_addr, &peer_v6(ctx.sock_addr))
}
