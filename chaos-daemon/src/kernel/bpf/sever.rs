//! Programs that lose what the sockets of a control group send, and what arrives for them: where they are attached, and what they are
//! told.

use chaos_common::rule::EVERY_PEER;
use chaos_common::{PacketRule, name};
use ipnet::IpNet;

use super::{BpfError, CallPrograms, sys};
use crate::spec::Direction;

/// The program of each direction, and where it is attached.
const fn hook(direction: Direction) -> (&'static str, u32) {
    match direction {
        Direction::Egress => (name::SEVER_EGRESS, sys::BPF_CGROUP_INET_EGRESS),
        Direction::Ingress => (name::SEVER_INGRESS, sys::BPF_CGROUP_INET_INGRESS),
    }
}

/// Every program, and where it is attached.
pub(super) const HOOKS: [(&str, u32); 2] = [hook(Direction::Egress), hook(Direction::Ingress)];

/// The hooks at which packets of these directions are met.
pub fn hooks(directions: &[Direction]) -> Vec<(&'static str, u32)> {
    directions.iter().map(|direction| hook(*direction)).collect()
}

impl CallPrograms {
    /// Sets which packets, or calls, are meant (no peers are every peer). Programs of [`super::Family::Severance`] are told no more.
    ///
    /// # Errors
    /// When there are more peers than there is room for, or the kernel refuses.
    pub fn set_packets(&mut self, rule: &PacketRule, peers: &[IpNet]) -> Result<(), BpfError> {
        let flags = if peers.is_empty() { EVERY_PEER } else { 0 };
        // Neither calls nor these packets know a level; the rule wants one.
        self.programs.set_rule(&PacketRule { level: 1, flags, ..*rule }, peers)
    }
}
