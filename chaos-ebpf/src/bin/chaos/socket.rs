//! What the processes of a control group ask of sockets: programs at the kernel's security hooks, which the kernel runs for that group
//! only. Sockets of IPv4 and IPv6 only: whatever else a service needs, it speaks with its manager over unix sockets.

use aya_ebpf::macros::lsm_cgroup;
use aya_ebpf::programs::LsmContext;
use chaos_common::socket::{Name, Peer, Socket};
use chaos_common::{PacketRule, SocketLayout, Way};

use crate::failure::{PASS, count, fail, strike_hard};
use crate::maps;
use crate::memory::{argument, pointer, read};
use crate::peer::{is_protected, is_protected_port};

/// The address that lies there.
#[inline(always)]
fn name(address: u64) -> Option<Name> {
    // SAFETY: numbers.
    unsafe { read(address, 0) }
}

/// The socket that lies there.
#[inline(always)]
fn socket(sock: u64, layout: &SocketLayout) -> Option<Socket> {
    // SAFETY: numbers.
    let half = |offset| unsafe { read::<u16>(sock, offset) };
    Some(Socket {
        family: half(layout.family)?,
        protocol: half(layout.protocol)?,
        local_port: half(layout.local_port)?,
        remote_port: half(layout.remote_port)?,
    })
}

/// The socket that lies there, and where it is connected to.
#[inline(always)]
fn connected(sock: u64, layout: &SocketLayout) -> Option<(Socket, Peer)> {
    let socket = socket(sock, layout)?;
    // SAFETY: numbers.
    let peer = match socket.is_v6() {
        true => Peer::of_v6(unsafe { read(sock, layout.remote_v6) }?),
        false => Peer::of_v4(unsafe { read(sock, layout.remote_v4) }?),
    };
    Some((socket, peer))
}

/// What the call returns, if the fault acts on it. Counts either way.
#[inline(always)]
fn hit(ctx: &LsmContext, look: impl FnOnce(u64, &SocketLayout) -> Option<(Socket, Peer)>) -> Option<i32> {
    let (rule, layout): (&PacketRule, &SocketLayout) = (maps::RULE.get(0)?, maps::SOCKET.get(0)?);
    let sock = pointer(argument(ctx, 0), layout.socket_sock)?;
    let (socket, peer) = look(sock, layout)?;
    let packet = socket.packet()?;
    if !rule.selects(&packet, Way::Egress) {
        return None;
    }
    // SAFETY: the slot of a map.
    unsafe { count(&raw mut (*maps::COUNTERS.get_ptr_mut(0)?).matched) };
    if is_protected_port(rule, packet.protocol, packet.source) || is_protected(rule, &peer, &packet) {
        // SAFETY: as above.
        unsafe { count(&raw mut (*maps::COUNTERS.get_ptr_mut(0)?).protected) };
        return None;
    }
    strike_hard(rule)
}

#[inline(always)]
fn decide(ctx: &LsmContext, look: impl FnOnce(u64, &SocketLayout) -> Option<(Socket, Peer)>) -> i32 {
    match hit(ctx, look) {
        None => PASS,
        Some(verdict) => fail(verdict),
    }
}

/// Fails binding a socket to an address.
#[lsm_cgroup(hook = "socket_bind")]
pub fn socket_bind(ctx: LsmContext) -> i32 {
    decide(&ctx, |sock, layout| {
        let (mut socket, peer) = connected(sock, layout)?;
        socket.local_port = u16::from_be(name(argument(&ctx, 1))?.port);
        Some((socket, peer))
    })
}

/// Fails listening.
#[lsm_cgroup(hook = "socket_listen")]
pub fn socket_listen(ctx: LsmContext) -> i32 {
    decide(&ctx, connected)
}

/// Fails accepting a connection, which stays where it waits.
#[lsm_cgroup(hook = "socket_accept")]
pub fn socket_accept(ctx: LsmContext) -> i32 {
    decide(&ctx, connected)
}

/// Fails sending.
#[lsm_cgroup(hook = "socket_sendmsg")]
pub fn socket_sendmsg(ctx: LsmContext) -> i32 {
    decide(&ctx, |sock, layout| {
        let (mut socket, peer) = connected(sock, layout)?;
        match pointer(argument(&ctx, 1), layout.message_name) {
            Some(address) if !socket.keeps_its_peer() => {
                let name = name(address)?;
                socket.remote_port = name.port;
                Some((socket, name.peer()))
            }
            _ => Some((socket, peer)),
        }
    })
}

/// Fails receiving, before there is anything, and before it is waited for.
#[lsm_cgroup(hook = "socket_recvmsg")]
pub fn socket_recvmsg(ctx: LsmContext) -> i32 {
    decide(&ctx, connected)
}
