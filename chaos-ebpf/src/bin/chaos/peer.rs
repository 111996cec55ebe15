//! Whether the rule is about the peer of a call or a packet of a control group, and whether peer or port are protected.

use chaos_common::rule::{EVERY_PEER, PROTECTED_PORTS, PROTECTED_V4, PROTECTED_V6, port_key};
use chaos_common::socket::Peer;
use chaos_common::{Packet, PacketRule};

use crate::maps;
use crate::verdict::{covers, selects_v4, selects_v6};

#[inline(always)]
pub(crate) fn is_selected(rule: &PacketRule, peer: &Peer) -> bool {
    rule.has(EVERY_PEER)
        || match peer.v4() {
            Some(address) => selects_v4(rule, address),
            None => selects_v6(rule, peer.v6()),
        }
}

/// The packet's destination is the peer's port.
#[inline(always)]
pub(crate) fn is_protected(rule: &PacketRule, peer: &Peer, packet: &Packet) -> bool {
    // The ports that are protected are this host's: where else a call goes, they mean nothing.
    is_protected_peer(rule, peer)
        || peer.is_this_host() && is_protected_port(rule, packet.protocol, packet.destination)
}

/// Whether the peer is protected by its address.
#[inline(always)]
pub(crate) fn is_protected_peer(rule: &PacketRule, peer: &Peer) -> bool {
    match peer.v4() {
        Some(address) => rule.has(PROTECTED_V4) && covers(&maps::PROTECTED_V4, address),
        None => rule.has(PROTECTED_V6) && covers(&maps::PROTECTED_V6, peer.v6()),
    }
}

/// Whether a port of this host is protected.
#[inline(always)]
pub(crate) fn is_protected_port(rule: &PacketRule, protocol: u8, port: u16) -> bool {
    // SAFETY: presence is all that is asked; the value is not read.
    rule.has(PROTECTED_PORTS) && unsafe { maps::PROTECTED_PORTS.get(port_key(protocol, port)) }.is_some()
}
