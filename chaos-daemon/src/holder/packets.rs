//! Packets that are dropped or answered on the device itself, and what every fault of packets is made of.

use std::os::fd::BorrowedFd;

use caps::Capability;
use chaos_common::rule::{self, EVERY_PEER, PortRange};
use chaos_common::{Counters, PacketRule};
use ipnet::IpNet;

use super::arm::{Arm, ArmError, Armed, Means};
use crate::fault::{Attach, Match, PacketAction, PacketWork};
use crate::host::privilege::NETWORK_HOLDER;
use crate::kernel::bpf::{BpfError, Capacity, Family, Hook, NAMED_ROOM, Programs};
use crate::kernel::netlink::marks::{self, FILTER_HANDLE, FILTER_PREFIX};
use crate::kernel::netlink::{Clsact, Filter, Netlink};
use crate::request::Evidence;
use crate::request::evidence::Met;
use crate::spec::dns::keys;
use crate::spec::{Direction, PortMatch, Ports, Protocol};

impl Arm for PacketWork {
    fn needed(&self) -> &'static [Capability] {
        NETWORK_HOLDER
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        let packets = &self.packets;
        means.netns()?.enter().map_err(ArmError::Namespace)?;
        let mut programs = prepare(means.warm, self.action.family(), packets)?;
        let (hook, answer) = match &self.action {
            PacketAction::Drop => (Hook::Drop, 0),
            PacketAction::Refuse(refusal) => {
                refusal.codes().map_or((Hook::Reset, 0), |codes| (Hook::Reject, codes))
            }
            PacketAction::Answer(questions) => {
                programs.set_names(&questions.answer.rule(), &keys(&questions.names))?;
                (Hook::Dns, 0)
            }
        };
        programs.set_rule(&PacketRule { answer, ..rule(packets) }, &packets.peers)?;
        // Nothing is attached yet, so that this arms nothing; the attachment that follows does.
        programs.renew(means.deadline_ns)?;
        for direction in &packets.directions {
            attach(&mut programs, hook, *direction, packets)?;
        }
        check_attached(&programs)?;
        Ok(Box::new(programs))
    }
}

/// Programs on the target device.
impl Armed for Programs {
    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        Ok(Self::renew(self, deadline_ns)?)
    }

    fn aim(&mut self, peers: &[IpNet]) -> Result<(), ArmError> {
        Ok(self.change_hosts(peers)?)
    }

    fn spare(&mut self, peers: &[IpNet], tcp_ports: &[u16]) -> Result<(), ArmError> {
        Ok(spare(self, peers, tcp_ports)?)
    }

    fn evidence(&self) -> Result<Evidence, ArmError> {
        Ok(Evidence::Met(counted(self.counters()?)))
    }
}

/// What programs have counted.
pub(super) fn counted(counters: Counters) -> Met {
    let Counters { matched, affected, protected, .. } = counters;
    Met { matched, affected, protected }
}

/// Room for as many peers as the fault names.
pub fn capacity(peers: &[IpNet]) -> Capacity {
    let single = |peer: &&IpNet| peer.prefix_len() == peer.max_prefix_len();
    let hosts = peers.iter().filter(single).count();
    let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
    Capacity { hosts: count(hosts), prefixes: count(peers.len() - hosts) }
}

/// The same, and room for what a host that is named may stand for later.
pub fn roomy(peers: &[IpNet]) -> Capacity {
    let Capacity { hosts, prefixes } = capacity(peers);
    Capacity { hosts: hosts.saturating_add(NAMED_ROOM), prefixes }
}

/// Runs `act` with a connection into the namespace this thread is in.
pub(super) fn netlink<T>(act: impl AsyncFnOnce(&Netlink) -> Result<T, ArmError>) -> Result<T, ArmError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ArmError::Runtime)?;
    runtime.block_on(async { act(&Netlink::open()?).await })
}

/// The number by which the programs know a protocol.
pub(super) fn number(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Any => 0,
        Protocol::Tcp => rule::TCP.into(),
        Protocol::Udp => rule::UDP.into(),
        Protocol::Icmp => rule::ICMP.into(),
    }
}

/// The ports as the programs know them; none named is any.
pub(super) fn range(ports: Option<Ports>) -> PortRange {
    ports.map_or(PortRange::default(), Ports::range)
}

/// Protocol and ports as the programs read them.
pub fn transport(protocol: Protocol, ports: &PortMatch) -> PacketRule {
    PacketRule {
        protocol: number(protocol),
        ports: range(ports.either),
        local_ports: range(ports.local),
        remote_ports: range(ports.remote),
        ..PacketRule::default()
    }
}

/// The rule as the programs read it, without a detour.
pub(super) fn rule(packets: &Match) -> PacketRule {
    PacketRule {
        probability: packets.packet_probability.threshold(),
        flags: if packets.peers.is_empty() { EVERY_PEER } else { 0 },
        level: packets.level.into(),
        cgroup: packets.service.as_ref().map_or(0, |service| service.cgroup.id),
        cgroup_level: packets.service.as_ref().map_or(0, |service| service.level),
        ..transport(packets.protocol, &packets.ports)
    }
}

/// Those that are loaded already, or others with so much room.
pub(super) fn loaded(warm: Option<Programs>, family: Family, room: Capacity) -> Result<Programs, BpfError> {
    warm.map_or_else(|| Programs::load(family, room), Ok)
}

/// Programs with enough room that spare what is protected.
pub(super) fn prepare(warm: Option<Programs>, family: Family, packets: &Match) -> Result<Programs, ArmError> {
    let mut programs = loaded(warm, family, roomy(&packets.peers))?;
    spare(&mut programs, &packets.protected_peers, &packets.protected_tcp_ports)?;
    Ok(programs)
}

/// Has the programs spare these peers, and these TCP ports of this node.
pub(super) fn spare(programs: &mut Programs, peers: &[IpNet], tcp_ports: &[u16]) -> Result<(), BpfError> {
    programs.protect(peers, &ports(tcp_ports))
}

/// TCP ports as the programs know them.
pub(super) fn ports(tcp_ports: &[u16]) -> Vec<(u8, u16)> {
    tcp_ports.iter().map(|port| (rule::TCP, *port)).collect()
}

/// Attaches the fault's program to its device: the last step, after which packets meet it.
pub(super) fn attach(
    programs: &mut Programs,
    hook: Hook,
    direction: Direction,
    packets: &Match,
) -> Result<(), ArmError> {
    match packets.attach {
        Attach::Tcx => Ok(programs.attach_tcx(hook, direction, packets.ifindex, &packets.interface)?),
        Attach::Stub => {
            let program = programs.stub_fd(hook, direction)?;
            filter(packets.ifindex, &packets.interface, direction, packets.level, program)
        }
    }
}

/// Puts a program into a filter of a clsact qdisc, and reads it back.
///
/// # Errors
/// When the kernel refuses, or does not show it.
pub(super) fn filter(
    ifindex: u32,
    name: &str,
    direction: Direction,
    level: u8,
    program: BorrowedFd<'_>,
) -> Result<(), ArmError> {
    let pref = marks::filter_pref(level).unwrap_or(marks::PREF_BASE);
    netlink(async |here| {
        if here.add_clsact(ifindex).await? == Clsact::IngressOnly && direction == Direction::Egress {
            return Err(ArmError::IngressOnly(name.to_owned()));
        }
        here.add_bpf_filter(ifindex, direction, pref, FILTER_HANDLE, program, FILTER_PREFIX).await?;
        let there = here.bpf_filter(ifindex, direction, pref, FILTER_HANDLE).await?;
        if there.as_ref().is_some_and(Filter::is_ours) {
            return Ok(());
        }
        Err(ArmError::ReadBack {
            subject: format!("filter {FILTER_PREFIX} pref {pref} on {name}"),
            asked: "attached".to_owned(),
            found: format!("{there:?}"),
        })
    })
}

/// Reads every link back.
pub(super) fn check_attached(programs: &Programs) -> Result<(), ArmError> {
    match programs.read_back()?.into_iter().find(|attachment| !attachment.present) {
        None => Ok(()),
        Some(missing) => Err(ArmError::ReadBack {
            subject: format!("program {} on {}", missing.program, missing.interface),
            asked: "attached".to_owned(),
            found: "not attached".to_owned(),
        }),
    }
}
