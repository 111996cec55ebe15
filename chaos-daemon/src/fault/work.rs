//! What a holder is told to do: everything resolved, nothing left to look up.

use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::host::CgroupRef;
use crate::kernel::setting::Setting;
use crate::spec::{Direction, Failure, PortMatch, Probability, Protocol};
use crate::target::Service;

/// The work of one holder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Packets are dropped or answered on the device itself.
    Packets(PacketWork),
    /// Packets take a detour through a queue of ours.
    Loop(LoopWork),
    /// CPU time is burned.
    Cpu(CpuWork),
    /// Calls of a control group's sockets fail.
    Calls(CallWork),
    /// Settings of the node are changed, each of which is a step of the journal.
    Settings(Vec<Setting>),
}

/// How a packet program is attached to its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attach {
    /// A tcx link (Linux 6.6 and later): the kernel detaches it when the holder dies.
    Tcx,
    /// A clsact filter that only jumps through a program array, which the kernel empties when the holder dies.
    Stub,
}

/// The device and the packets on it that a network fault is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Match {
    /// Device name when it was resolved.
    pub interface: String,
    /// Device index, its identity.
    pub ifindex: u32,
    /// Directions.
    pub directions: Vec<Direction>,
    /// Place among the faults on this device: a packet passes them in this order.
    pub level: u8,
    /// How to attach.
    pub attach: Attach,
    /// Protocol.
    pub protocol: Protocol,
    /// Ports.
    pub ports: PortMatch,
    /// Whose packets; `None` is everybody's.
    pub service: Option<Service>,
    /// Peers; empty means every peer.
    pub peers: Vec<IpNet>,
    /// Share of the matching packets that is acted on.
    pub packet_probability: Probability,
    /// Peers that are spared whatever the rule says.
    pub protected_peers: Vec<IpNet>,
    /// TCP ports of this node that are spared.
    pub protected_tcp_ports: Vec<u16>,
}

/// What happens to a packet on the device itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PacketAction {
    /// It vanishes, unseen by its sender.
    Drop,
    /// It is answered with a TCP reset.
    Reset,
}

/// See [`Work::Packets`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketWork {
    /// Which packets.
    pub packets: Match,
    /// What happens to them.
    pub action: PacketAction,
}

/// See [`Work::Loop`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopWork {
    /// Which packets.
    pub packets: Match,
    /// Identity of the fault, from which its devices are named.
    pub id: u32,
    /// How late.
    pub delay: Duration,
    /// Uniform variation.
    pub jitter: Duration,
    /// Length of the queue, in packets.
    pub limit: u32,
}

/// See [`Work::Cpu`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuWork {
    /// Percentage of each core.
    pub percent: f64,
    /// Number of cores.
    pub cores: u32,
}

/// Whose calls, and where to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callers {
    /// The control group, pinned.
    pub cgroup: CgroupRef,
    /// Destinations, a named host's addresses included; empty means every destination.
    pub peers: Vec<IpNet>,
    /// Destinations that are spared whatever the rule says.
    pub protected_peers: Vec<IpNet>,
    /// TCP ports of this node that are spared.
    pub protected_tcp_ports: Vec<u16>,
}

/// See [`Work::Calls`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallWork {
    /// Whose calls, and where to.
    pub callers: Callers,
    /// Protocol.
    pub protocol: Protocol,
    /// Port of the destination.
    pub port: Option<u16>,
    /// How they fail.
    pub failure: Failure,
}

impl Work {
    /// How long a packet may stay with the fault: so long its end may take to let packets out.
    pub fn longest_stay(&self) -> Duration {
        match self {
            Self::Loop(work) => work.delay + work.jitter,
            Self::Packets(_) | Self::Cpu(_) | Self::Calls(_) | Self::Settings(_) => Duration::ZERO,
        }
    }

    /// What the holder does, in order, for people.
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Packets(work) => {
                let verb = match work.action {
                    PacketAction::Drop => "drop",
                    PacketAction::Reset => "reset",
                };
                work.packets.attachments(verb)
            }
            Self::Loop(work) => {
                let pair = format!(
                    "make a veth pair per direction, its far end in a private network namespace, netem delay {:?} \
                     limit {} on its near end",
                    work.delay, work.limit
                );
                std::iter::once(pair).chain(work.packets.attachments("divert")).collect()
            }
            Self::Cpu(work) => vec![format!("burn {} % on each of {} processors", work.percent, work.cores)],
            Self::Calls(work) => vec![format!(
                "attach programs connect4, connect6, sendmsg4 and sendmsg6 to cgroup {} by links",
                work.callers.cgroup.path.display()
            )],
            // The steps say it all.
            Self::Settings(_) => Vec::new(),
        }
    }
}

impl Match {
    fn attachments(&self, verb: &str) -> Vec<String> {
        let (interface, level) = (&self.interface, self.level);
        let how = match self.attach {
            Attach::Tcx => "a tcx link",
            Attach::Stub => "the stub",
        };
        let each = |direction: &Direction| {
            let side = match direction {
                Direction::Egress => "egress",
                Direction::Ingress => "ingress",
            };
            format!(
                "attach program {verb}_{side} to {interface} (device {}), level {level}, by {how}",
                self.ifindex
            )
        };
        self.directions.iter().map(each).collect()
    }
}
