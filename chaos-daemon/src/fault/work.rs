//! What a holder is told to do: everything resolved, nothing left to look up.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::detour::Replay;
use crate::host::CgroupRef;
use crate::host::directory::DirectoryRef;
use crate::host::panic::SYSRQ;
use crate::host::socket_file::SparedSockets;
use crate::host::{Identity, KernelFiles, KernelSockets, PlaceRef, ProcessId, Spared};
use crate::kernel::bpf::{Family, files, sever, sockets};
use crate::kernel::netlink::Netem;
use crate::kernel::setting::Setting;
use crate::spec::dns::Names;
use crate::spec::files::Operation;
use crate::spec::mcp::page::Order;
use crate::spec::process::{Rhythm, Volleys};
use crate::spec::sessions::{Amount, Server};
use crate::spec::sockets::Operation as SocketOperation;
use crate::spec::{
    Direction, Failure, HostDown, LinkRhythm, LocalPort, PortMatch, Ports, Probability, ProcessSelector,
    Protocol, QualifiedName, Questions, Refusal, Way,
};
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
    /// Something is taken and held.
    Hoard(HoardWork),
    /// Calls of a control group's sockets fail.
    Calls(CallWork),
    /// Packets of a control group's sockets vanish.
    Sever(SeverWork),
    /// Calls of a control group's processes about files fail.
    Files(FileWork),
    /// Calls of a control group's processes about sockets fail.
    Sockets(SocketWork),
    /// Settings of the node are changed, each of which is a step of the journal.
    Settings(Vec<Setting>),
    /// A link goes down and up by turns, as a step of the journal says.
    Flap(FlapWork),
    /// Processes get signals.
    Signals(SignalWork),
    /// Processes stand still.
    Pause(PauseWork),
    /// A service is restarted.
    Restart(RestartWork),
    /// Calls to MCP servers are spoilt.
    Spoil(SpoilWork),
    /// The host goes down.
    Down(DownWork),
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PacketAction {
    /// It vanishes, unseen by its sender.
    Drop,
    /// It is answered with an error.
    Refuse(Refusal),
    /// If it is a question about a name, it is answered.
    Answer(Questions),
}

impl PacketAction {
    /// The programs that it needs.
    pub fn family(&self) -> Family {
        match self {
            Self::Drop | Self::Refuse(Refusal::Reset) => Family::Packets,
            Self::Refuse(_) => Family::Answers,
            Self::Answer(_) => Family::Dns,
        }
    }
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
    /// What the queue of each direction does to them.
    pub queues: BTreeMap<Direction, Netem>,
    /// How they change, those that do.
    pub replays: BTreeMap<Direction, Replay>,
    /// How long one of them may hold a packet.
    pub longest: Duration,
    /// Whether `affected` counts packets that the queue has lost, instead of those that went through it.
    pub counts_losses: bool,
    /// Questions about these names alone; none is every packet.
    pub names: Vec<Names>,
}

impl LoopWork {
    /// The programs that it needs.
    pub fn family(&self) -> Family {
        if self.names.is_empty() { Family::Packets } else { Family::DnsDetour }
    }

    fn words(&self) -> Vec<String> {
        let pair = |(direction, netem): (&Direction, &Netem)| {
            format!(
                "make a veth pair for {}, its far end in a private network namespace, netem {netem} on its near end",
                direction.name()
            )
        };
        let change = |(direction, replay): (&Direction, &Replay)| {
            let rate =
                if replay.all_out().is_some() { ", and the rate of an htb on its far end" } else { "" };
            let (steps, period) = (replay.moments.len(), replay.period());
            format!("change the netem for {}{rate}, {steps} times in each {period:?}", direction.name())
        };
        let made = self.queues.iter().map(pair).chain(self.packets.attachments("divert"));
        made.chain(self.replays.iter().map(change)).collect()
    }
}

/// See [`Work::Cpu`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuWork {
    /// Percentage of each core.
    pub percent: f64,
    /// Number of cores.
    pub cores: u32,
    /// Which processors; empty is the first that the process may use.
    pub processors: Vec<u32>,
    /// How long it takes until all of it is burned.
    pub ramp: Duration,
    /// The control group that the holder joins first.
    pub cgroup: Option<CgroupRef>,
}

/// See [`Work::Hoard`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoardWork {
    /// What, and how much of it.
    pub goal: Goal,
    /// How long it takes until all of it is taken.
    pub ramp: Duration,
    /// The control group that the holder joins first.
    pub cgroup: Option<CgroupRef>,
    /// As whom the holder opens what is named, and connects.
    pub identity: Identity,
}

/// What a holder takes and holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Goal {
    /// Memory.
    Memory {
        /// How much, in bytes.
        bytes: u64,
        /// How much stays available on the host, in bytes.
        reserve: u64,
    },
    /// Memory that is nobody's, charged to the control group, until the kernel kills there.
    Oom {
        /// How much at most, in bytes.
        bytes: u64,
        /// How much stays available on the host, in bytes.
        reserve: u64,
    },
    /// Room of a file system.
    Disk {
        /// Where its file without a name is.
        directory: DirectoryRef,
        /// How much, in bytes.
        bytes: u64,
        /// How much stays free, in bytes.
        leave: u64,
    },
    /// Open files.
    Descriptors {
        /// How many.
        count: u64,
        /// How many entries of the host's table stay free.
        leave: u64,
    },
    /// Processes and threads.
    Tasks {
        /// How many.
        count: u64,
        /// How many more the host can have still.
        leave: u64,
        /// How many more the holder's own control group can have still; `None` where that is the target, which may be full.
        own_leave: Option<u64>,
    },
    /// Files of a file system.
    Inodes {
        /// Where they are.
        directory: DirectoryRef,
        /// How many.
        count: u64,
        /// How many stay free.
        leave: u64,
    },
    /// Ports.
    Ports {
        /// UDP ports instead of TCP ports.
        #[serde(default)]
        udp: bool,
        /// Of which address.
        address: IpAddr,
        /// First and last; `None` is the range for connections.
        range: Option<(u16, u16)>,
        /// How many.
        count: u64,
    },
    /// One port.
    Port(LocalPort),
    /// Bandwidth of a file system.
    DiskIo {
        /// Where its file without a name is.
        directory: DirectoryRef,
        /// Size of the file, in bytes.
        bytes: u64,
        /// Bytes per second, read and written together.
        rate: u64,
    },
    /// Connections to a server.
    Connections {
        /// To whom.
        server: Server,
        /// How many.
        amount: Amount,
        /// How long one may take to open, and each answer to come.
        limit: Duration,
        /// Sockets that nobody is to be connected to, wherever the path leads by then.
        spared: SparedSockets,
    },
}

/// See [`Work::Flap`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlapWork {
    /// The link that is down, and its undo.
    pub setting: Setting,
    /// How it alternates.
    pub rhythm: LinkRhythm,
}

/// See [`Work::Signals`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalWork {
    /// Who is meant, for repeats and for who comes in their place.
    pub selector: ProcessSelector,
    /// Which programs the selector means, as the caller's path of one was followed.
    pub programs: Vec<String>,
    /// Those of the first volley.
    pub targets: Vec<ProcessId>,
    /// Who is never hit.
    pub spared: Box<Spared>,
    /// Which signal, and how often.
    pub volleys: Volleys,
}

/// See [`Work::Pause`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseWork {
    /// Who stands still.
    pub targets: Vec<ProcessId>,
    /// How it alternates; `None` is all the time.
    pub rhythm: Option<Rhythm>,
}

/// See [`Work::Restart`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartWork {
    /// Name of the unit.
    pub unit: String,
    /// Identity of the start that is ended.
    pub invocation: String,
}

/// See [`Work::Spoil`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpoilWork {
    /// The proxies.
    pub targets: Vec<ProcessId>,
    /// What they are to do.
    pub order: Order,
}

/// See [`Work::Down`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownWork {
    /// By what, and when.
    pub down: HostDown,
    /// The fault's name, by which it is known afterwards.
    pub name: QualifiedName,
    /// The file in which it is written down before.
    pub record: PathBuf,
    /// What it is, for people.
    pub description: String,
}

/// Whose calls or packets, and where to.
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
    /// Ports of the destination.
    pub ports: Option<Ports>,
    /// How they fail.
    pub failure: Failure,
}

/// See [`Work::Sever`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeverWork {
    /// Whose packets, and from and to whom.
    pub callers: Callers,
    /// Protocol.
    pub protocol: Protocol,
    /// Ports.
    pub ports: PortMatch,
    /// Directions.
    pub directions: Vec<Direction>,
    /// Share of the matching packets that vanishes.
    pub packet_probability: Probability,
}

/// See [`Work::Files`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileWork {
    /// The control group, pinned.
    pub cgroup: CgroupRef,
    /// Which file, or below which folder.
    pub place: PlaceRef,
    /// Which calls.
    pub operations: Vec<Operation>,
    /// How they fail.
    pub failure: Failure,
    /// What the programs have to know of this kernel.
    pub kernel: KernelFiles,
}

/// See [`Work::Sockets`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SocketWork {
    /// Whose calls; the peers are empty.
    pub callers: Callers,
    /// Protocol.
    pub protocol: Protocol,
    /// Ports.
    pub ports: PortMatch,
    /// Which calls.
    pub operations: Vec<SocketOperation>,
    /// How they fail.
    pub failure: Failure,
    /// What the programs have to know of this kernel.
    pub kernel: KernelSockets,
}

impl Work {
    /// The programs that it needs, and the peers that they have to know; `None` when it needs none.
    pub fn programs(&self) -> Option<(Family, &[IpNet])> {
        match self {
            Self::Packets(work) => Some((work.action.family(), &work.packets.peers)),
            Self::Loop(work) => Some((work.family(), &work.packets.peers)),
            Self::Calls(work) => Some((Family::Calls, &work.callers.peers)),
            Self::Sever(work) => Some((Family::Severance, &work.callers.peers)),
            Self::Files(work) => Some((Family::Files(work.kernel), &[])),
            Self::Sockets(work) => Some((Family::Sockets(work.kernel), &[])),
            Self::Cpu(_)
            | Self::Hoard(_)
            | Self::Settings(_)
            | Self::Flap(_)
            | Self::Signals(_)
            | Self::Pause(_)
            | Self::Spoil(_)
            | Self::Restart(_)
            | Self::Down(_) => None,
        }
    }

    /// How long a packet may stay with the fault: so long its end may take to let packets out.
    pub fn longest_stay(&self) -> Duration {
        match self {
            Self::Loop(work) => work.longest,
            // These hold nothing back.
            _ => Duration::ZERO,
        }
    }

    /// What the holder does, in order, for people.
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Packets(work) => {
                let verb = match work.action {
                    PacketAction::Drop => "drop",
                    PacketAction::Refuse(Refusal::Reset) => "reset",
                    PacketAction::Refuse(_) => "reject",
                    PacketAction::Answer(_) => "dns",
                };
                work.packets.attachments(verb)
            }
            Self::Loop(work) => work.words(),
            Self::Cpu(work) => {
                let burn = format!("burn {:.1} % on each of {} processors", work.percent, work.cores);
                work.cgroup.iter().map(join).chain(std::iter::once(burn)).collect()
            }
            Self::Hoard(work) => {
                work.cgroup.iter().map(join).chain(std::iter::once(work.goal.words())).collect()
            }
            Self::Calls(work) => vec![format!(
                "attach programs connect4, connect6, sendmsg4 and sendmsg6 to cgroup {} by links",
                work.callers.cgroup.path.display()
            )],
            Self::Files(work) => vec![
                format!("open {} without reading it, so that its inode stays", work.place.path.display()),
                attach(&files::hooks(&work.operations), &work.cgroup),
            ],
            Self::Sever(work) => vec![attach(&sever::hooks(&work.directions), &work.callers.cgroup)],
            Self::Sockets(work) => vec![attach(&sockets::hooks(&work.operations), &work.callers.cgroup)],
            Self::Signals(work) => {
                let (signal, count) = (work.volleys.signal_name(), work.targets.len());
                vec![format!("send {signal} by pidfd to each of them ({count}), which cannot be taken back")]
            }
            Self::Pause(work) => {
                vec![format!(
                    "trace every thread of each of them ({}), and stop it there",
                    work.targets.len()
                )]
            }
            Self::Flap(work) => {
                let LinkRhythm { down, up, .. } = work.rhythm;
                vec![format!("undo that after {down:?}, do it again after {up:?}, and so on")]
            }
            Self::Restart(work) => vec![format!("have systemd restart {}, and watch it", work.unit)],
            Self::Spoil(work) => vec![
                format!(
                    "open the page of each of them ({}), and lock it against other faults",
                    work.targets.len()
                ),
                "write there what becomes of calls, and lock that, which brings it into force".to_owned(),
            ],
            Self::Down(work) => {
                let act = match work.down.way {
                    Way::Reboot { forced: false } => {
                        "have systemd start reboot.target, whatever else it is about to do".to_owned()
                    }
                    Way::Reboot { forced: true } => {
                        "have systemd reboot without stopping services".to_owned()
                    }
                    Way::Panic { .. } => format!("write c to {SYSRQ}"),
                };
                vec![format!("write down in {}, synced, that the host goes down", work.record.display()), act]
            }
            // The steps say it all.
            Self::Settings(_) => Vec::new(),
        }
    }
}

fn attach(hooks: &[(&str, u32)], group: &CgroupRef) -> String {
    let programs: Vec<_> = hooks.iter().map(|(program, _)| *program).collect();
    format!("attach programs {} to cgroup {} by links", programs.join(", "), group.path.display())
}

fn join(group: &CgroupRef) -> String {
    format!("join cgroup {}", group.path.display())
}

impl Goal {
    fn words(&self) -> String {
        match self {
            Self::Memory { bytes, .. } => {
                format!("populate {} MiB of memory, on huge pages where there are some", bytes >> 20)
            }
            Self::Oom { .. } => "fill a file in memory until the OOM killer has killed there".to_owned(),
            Self::Disk { directory, bytes, .. } => {
                let path = directory.path.display();
                format!("open a file without a name in {path} and allocate {} MiB for it", bytes >> 20)
            }
            Self::Descriptors { count, .. } => format!("open the null device {count} times"),
            Self::Tasks { count, .. } => format!("start {count} threads that sleep"),
            Self::Inodes { directory, count, .. } => {
                format!("open {count} files without a name in {}", directory.path.display())
            }
            Self::Ports { udp, address, count, .. } => {
                format!("bind {count} {} sockets to {address}", if *udp { "UDP" } else { "TCP" })
            }
            Self::Port(port) => format!("bind a socket to {port}"),
            Self::DiskIo { directory, rate, .. } => {
                let path = directory.path.display();
                format!("write and read a file without a name in {path}, {rate} bytes per second")
            }
            Self::Connections { server, amount: Amount::Held(count), .. } => {
                format!("open {count} {} to {}, and hold them", server.exchange, server.place)
            }
            Self::Connections { server, amount: Amount::PerSecond(rate), .. } => {
                format!("open {rate} {} a second to {}, and close each", server.exchange, server.place)
            }
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
