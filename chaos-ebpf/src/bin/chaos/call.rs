//! What the sockets of a control group ask for: connect(2), and sending without a connection.

use core::ptr;

use aya_ebpf::bindings::bpf_sock_addr;
use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;
use chaos_common::rule::{EVERY_PEER, PROTECTED_PORTS, PROTECTED_V4, PROTECTED_V6, port_key};
use chaos_common::{Packet, PacketRule, Version, Way};

use crate::failure::{PASS, count, fail, strike};
use crate::maps;
use crate::verdict::{covers, selects_v4, selects_v6};

/// Where a call goes to, as it lies in an address.
enum Peer {
    V4(u32),
    V6([u32; 4]),
}

impl Peer {
    /// Reads what a program for IPv4 may read.
    #[inline(always)]
    fn v4(call: *const bpf_sock_addr) -> Self {
        // SAFETY: the kernel passes a valid context, and the verifier allows this field for IPv4.
        Self::V4(unsafe { ptr::read_volatile(&raw const (*call).user_ip4) })
    }

    /// Reads what a program for IPv6 may read. An IPv4 address in the clothes of IPv6 is one.
    #[inline(always)]
    fn v6(call: *const bpf_sock_addr) -> Self {
        // SAFETY: the kernel passes a valid context, and the verifier allows these fields for IPv6.
        let word = |at: usize| unsafe { ptr::read_volatile(&raw const (*call).user_ip6[at]) };
        let address = [word(0), word(1), word(2), word(3)];
        if address[0] == 0 && address[1] == 0 && address[2] == 0xffff_u32.to_be() {
            Self::V4(address[3])
        } else {
            Self::V6(address)
        }
    }

    #[inline(always)]
    fn is_selected(&self, rule: &PacketRule) -> bool {
        rule.has(EVERY_PEER)
            || match *self {
                Self::V4(address) => selects_v4(rule, address),
                Self::V6(address) => selects_v6(rule, address),
            }
    }

    #[inline(always)]
    fn is_protected(&self, rule: &PacketRule, packet: &Packet) -> bool {
        let (named, this_host) = match *self {
            Self::V4(address) => (
                rule.has(PROTECTED_V4) && covers(&maps::PROTECTED_V4, address),
                u32::from_be(address) >> 24 == 127,
            ),
            Self::V6(address) => (
                rule.has(PROTECTED_V6) && covers(&maps::PROTECTED_V6, address),
                address == [0, 0, 0, 1_u32.to_be()],
            ),
        };
        // The ports that are protected are this host's: where else a call goes, they mean nothing.
        named || this_host && rule.has(PROTECTED_PORTS) && is_protected_port(packet)
    }
}

#[inline(always)]
fn is_protected_port(packet: &Packet) -> bool {
    // SAFETY: presence is all that is asked; the value is not read.
    unsafe { maps::PROTECTED_PORTS.get(port_key(packet.protocol, packet.destination)) }.is_some()
}

/// What the call returns, if the fault acts on it. Counts either way.
#[inline(always)]
fn hit(call: *const bpf_sock_addr, peer: &Peer) -> Option<i32> {
    let rule = maps::RULE.get(0)?;
    // SAFETY: the kernel passes a valid context, and the verifier allows these fields.
    let (protocol, port) = unsafe {
        (ptr::read_volatile(&raw const (*call).protocol), ptr::read_volatile(&raw const (*call).user_port))
    };
    let version = if matches!(peer, Peer::V4(_)) { Version::V4 } else { Version::V6 };
    let destination = u16::from_be(port as u16);
    let packet =
        Packet { version, protocol: protocol as u8, has_ports: true, destination, ..Packet::default() };
    if !rule.selects(&packet, Way::Egress) || !peer.is_selected(rule) {
        return None;
    }
    // SAFETY: the slot of a map.
    unsafe { count(&raw mut (*maps::COUNTERS.get_ptr_mut(0)?).matched) };
    if peer.is_protected(rule, &packet) {
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
    decide(ctx.sock_addr, &Peer::v4(ctx.sock_addr))
}

/// Fails connect(2) to an IPv6 address.
#[cgroup_sock_addr(connect6)]
pub fn connect6(ctx: SockAddrContext) -> i32 {
    decide(ctx.sock_addr, &Peer::v6(ctx.sock_addr))
}

/// Fails sending to an IPv4 address without a connection.
#[cgroup_sock_addr(sendmsg4)]
pub fn sendmsg4(ctx: SockAddrContext) -> i32 {
    decide(ctx.sock_addr, &Peer::v4(ctx.sock_addr))
}

/// Fails sending to an IPv6 address without a connection.
#[cgroup_sock_addr(sendmsg6)]
pub fn sendmsg6(ctx: SockAddrContext) -> i32 {
    decide(ctx.sock_addr, &Peer::v6(ctx.sock_addr))
}
