//! Carrying out work: from inert plumbing to the one write that arms it, and back.

use std::io;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use chaos_common::rule::{self, EVERY_PEER, PortRange};
use chaos_common::{Counters, PacketRule};
use ipnet::IpNet;

use super::burner::Burner;
use super::countdown::Countdown;
use super::detour::{self, Loop};
use super::flapper::Flapper;
use super::group::{arm_calls, arm_files, arm_severance, arm_sockets};
use super::hoard::Keeper;
use super::pauser::Pauser;
use super::protocol::Unreached;
use super::restarter::Restarter;
use super::settings::Standing;
use super::signaller::Signaller;
use super::spoiler::Spoiler;
use crate::fault::{Attach, Goal, Match, PacketAction, PacketWork, Work};
use crate::host::privilege::{CALLER_HOLDER, LOW_PORTS, LimitError, limit_to};
use crate::host::{NetNs, NetNsError};
use crate::kernel::bpf::{BpfError, CallPrograms, Capacity, Family, Hook, NAMED_ROOM, Programs};
use crate::kernel::membership;
use crate::kernel::netlink::marks::{self, FILTER_HANDLE, FILTER_PREFIX};
use crate::kernel::netlink::{Clsact, Filter, Netlink, NetlinkError};
use crate::kernel::step::{Kernel, StepError};
use crate::kernel::systemd::SystemdError;
use crate::kernel::trace::TraceError;
use crate::request::Evidence;
use crate::sabotage::{self, Guard};
use crate::spec::dns::keys;
use crate::spec::{Direction, Ports, Protocol};

/// A few periods of a burning thread.
const FIRST_BURN: Duration = Duration::from_millis(40);
/// What a holder holds while its fault is active. Dropping it takes the fault away.
pub enum Armed {
    /// Programs on the target device.
    Packets(Box<Programs>),
    /// One loop per direction.
    Loops(Vec<Loop>),
    /// Programs on a control group.
    Calls(Box<CallPrograms>),
    /// Burning threads.
    Cpu(Burner),
    /// Something taken.
    Hoard(Keeper),
    /// Settings of the node.
    Settings(Standing),
    /// A link that goes down and up by turns. Dropping it leaves the link up, and who reads the journal undoes all of it.
    Flap(Flapper),
    /// Signals, sent in volleys.
    Signals(Signaller),
    /// Processes that stand still.
    Pause(Pauser),
    /// A service that was restarted, and is watched.
    Restart(Restarter),
    /// Proxies that spoil calls.
    Spoil(Spoiler),
    /// A host that goes down so long after it was first renewed.
    Down(Countdown, Duration),
}

/// Why work could not be carried out. Whatever had been done goes with the values that held it.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The order came without a namespace.
    #[error("the order names a device but brings no network namespace")]
    NoNamespace,
    /// The namespace cannot be entered or made.
    #[error("enter a network namespace")]
    Namespace(#[source] NetNsError),
    /// A packet program.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// A device, queue or filter.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// What was read back is not what was asked for.
    #[error("read back {subject}: asked for {asked}, found {found}")]
    ReadBack {
        /// What was read.
        subject: String,
        /// What it should be.
        asked: String,
        /// What it is.
        found: String,
    },
    /// The device has an "ingress" qdisc of somebody else's, where clsact would be.
    #[error("attach to the egress of {0}: an `ingress` qdisc is in the place of clsact; remove it first")]
    IngressOnly(String),
    /// The control group has gone since it was resolved.
    #[error("attach to cgroup {0}: it is gone")]
    NoCgroup(String),
    /// The file or folder cannot be opened, or is another by now.
    #[error("take hold of {path}")]
    Place {
        /// Its path.
        path: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// The control group cannot be opened.
    #[error("open cgroup {path}")]
    Cgroup {
        /// Its path.
        path: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// No runtime to talk to the kernel in.
    #[error("start a runtime for netlink")]
    Runtime(#[source] io::Error),
    /// A setting of the node.
    #[error(transparent)]
    Setting(#[from] StepError),
    /// Signals.
    #[error("send signals")]
    Signals(#[source] io::Error),
    /// Tracing processes.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Processes could not be stopped again, or a link not be set down or up again.
    #[error("{0}")]
    Rhythm(String),
    /// A restart.
    #[error(transparent)]
    Restart(#[from] SystemdError),
    /// A proxy.
    #[error("have a proxy spoil calls")]
    Spoil(#[source] io::Error),
    /// A countdown.
    #[error("count down")]
    Countdown(#[source] io::Error),
    /// Why the host is still there.
    #[error("{0}")]
    Down(String),
    /// A burning thread.
    #[error("start burning")]
    Burn(#[source] io::Error),
    /// Capabilities.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// What was to be taken.
    #[error("take and hold")]
    Hoard(#[source] io::Error),
}

impl ArmError {
    /// Why what the caller has named could not be reached, if that is it: only what is taken and held is reached as the caller.
    pub fn unreached(&self) -> Option<Unreached> {
        let Self::Hoard(error) = self else { return None };
        match error.kind() {
            io::ErrorKind::PermissionDenied => Some(Unreached::Denied),
            io::ErrorKind::NotFound => Some(Unreached::Gone),
            _ => None,
        }
    }
}

impl Armed {
    /// Carries out `work` until `deadline_ns`, with `warm` programs when there are some.
    ///
    /// # Errors
    /// Names the operation that failed; nothing of the work is left then.
    pub fn new(
        work: &Work,
        warm: Option<Programs>,
        netns: Option<NetNs>,
        deadline_ns: u64,
    ) -> Result<Self, ArmError> {
        match work {
            Work::Packets(work) => {
                let netns = netns.ok_or(ArmError::NoNamespace)?;
                Ok(Self::Packets(Box::new(arm_packets(work, warm, &netns, deadline_ns)?)))
            }
            Work::Loop(work) => {
                let netns = netns.ok_or(ArmError::NoNamespace)?;
                let mut warm = warm;
                let mut loops = Vec::new();
                for direction in &work.packets.directions {
                    loops.push(detour::arm(work, *direction, warm.take(), &netns, deadline_ns)?);
                }
                Ok(Self::Loops(loops))
            }
            Work::Calls(work) => Ok(Self::Calls(Box::new(arm_calls(work, warm, deadline_ns)?))),
            Work::Sever(work) => Ok(Self::Calls(Box::new(arm_severance(work, warm, deadline_ns)?))),
            Work::Files(work) => Ok(Self::Calls(Box::new(arm_files(work, warm, deadline_ns)?))),
            Work::Sockets(work) => Ok(Self::Calls(Box::new(arm_sockets(work, warm, deadline_ns)?))),
            Work::Cpu(work) => {
                if let Some(group) = &work.cgroup {
                    membership::enter(group).map_err(ArmError::Burn)?;
                }
                let burner = Burner::start(work, deadline_ns).map_err(ArmError::Burn)?;
                // Long enough for every thread to have burned: what is reported next is an effect, not a hope.
                thread::sleep(FIRST_BURN);
                Ok(Self::Cpu(burner))
            }
            Work::Hoard(work) => {
                if let Some(netns) = netns {
                    netns.enter().map_err(ArmError::Namespace)?;
                }
                limit_to(match &work.goal {
                    Goal::Port(_) => &[LOW_PORTS],
                    _ if work.identity.is_root() => &[],
                    // Given up as soon as it is the caller.
                    _ => CALLER_HOLDER,
                })?;
                Ok(Self::Hoard(Keeper::start(work, deadline_ns).map_err(ArmError::Hoard)?))
            }
            Work::Settings(settings) => Ok(Self::Settings(Standing::apply(settings)?)),
            Work::Flap(work) => Ok(Self::Flap(Flapper::start(work, deadline_ns)?)),
            Work::Signals(work) => {
                Signaller::start(work, deadline_ns).map(Self::Signals).map_err(ArmError::Signals)
            }
            Work::Restart(work) => Ok(Self::Restart(Restarter::start(work)?)),
            Work::Down(work) => {
                let countdown = Countdown::start(work, Kernel, deadline_ns).map_err(ArmError::Countdown)?;
                Ok(Self::Down(countdown, work.down.countdown))
            }
            Work::Pause(work) => Ok(Self::Pause(Pauser::start(work, deadline_ns)?)),
            Work::Spoil(work) => {
                let spoiler = Spoiler::start(work, deadline_ns).map_err(ArmError::Spoil)?;
                limit_to(&[])?;
                Ok(Self::Spoil(spoiler))
            }
        }
    }

    /// Whether what the fault was applied to is still where it was.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(&self) -> Result<(), ArmError> {
        match self {
            Self::Loops(loops) => loops.iter().try_for_each(Loop::check),
            // These go with their target, or say themselves what has become of it.
            _ => Ok(()),
        }
    }

    /// Goes on until `deadline_ns`.
    ///
    /// # Errors
    /// When the deadline cannot be written; the fault then ends at the old one.
    pub fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        match self {
            Self::Packets(programs) => programs.renew(deadline_ns)?,
            Self::Loops(loops) => {
                for each in loops {
                    each.programs.renew(deadline_ns)?;
                }
            }
            Self::Calls(programs) => programs.renew(deadline_ns)?,
            Self::Cpu(burner) => burner.renew(deadline_ns),
            Self::Hoard(keeper) => keeper.renew(deadline_ns),
            Self::Signals(signaller) => signaller.renew(deadline_ns),
            Self::Flap(flapper) => flapper.renew(deadline_ns),
            Self::Pause(pauser) => pauser.renew(deadline_ns),
            Self::Spoil(spoiler) => spoiler.renew(deadline_ns).map_err(ArmError::Spoil)?,
            Self::Down(countdown, long) => countdown.renew(*long, deadline_ns),
            // These know no deadline: the guard sees to it, and what is done is done.
            Self::Settings(_) | Self::Restart(_) => {}
        }
        Ok(())
    }

    /// Is about these peers from now on. Those that stay are met all the time.
    ///
    /// # Errors
    /// When there is no room for them, or the kernel refuses.
    pub fn aim(&mut self, peers: &[IpNet]) -> Result<(), ArmError> {
        match self {
            Self::Packets(programs) => programs.change_hosts(peers)?,
            Self::Loops(loops) => {
                for each in loops {
                    each.programs.change_hosts(peers)?;
                }
            }
            Self::Calls(programs) => programs.change_hosts(peers)?,
            // These have no peers.
            Self::Cpu(_)
            | Self::Hoard(_)
            | Self::Signals(_)
            | Self::Restart(_)
            | Self::Pause(_)
            | Self::Spoil(_)
            | Self::Down(..)
            | Self::Flap(_)
            | Self::Settings(_) => {}
        }
        Ok(())
    }

    /// Spares these peers, and these TCP ports of this node, and no others from now on.
    ///
    /// # Errors
    /// When there is no room for them, or the kernel refuses.
    pub fn spare(&mut self, peers: &[IpNet], tcp_ports: &[u16]) -> Result<(), ArmError> {
        match self {
            Self::Packets(programs) => spare(programs, peers, tcp_ports)?,
            Self::Loops(loops) => {
                for each in loops {
                    spare(&mut each.programs, peers, tcp_ports)?;
                }
            }
            Self::Calls(programs) => programs.protect(peers, &ports(tcp_ports))?,
            // These are not in the way of packets.
            Self::Cpu(_)
            | Self::Hoard(_)
            | Self::Signals(_)
            | Self::Restart(_)
            | Self::Pause(_)
            | Self::Spoil(_)
            | Self::Down(..)
            | Self::Flap(_)
            | Self::Settings(_) => {}
        }
        Ok(())
    }

    /// What the fault has met so far.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn evidence(&self) -> Result<Evidence, ArmError> {
        let mut sum = Evidence::default();
        let mut add = |counters: Counters| {
            sum.matched += counters.matched;
            sum.affected += counters.affected;
            sum.protected += counters.protected;
        };
        match self {
            Self::Packets(programs) => add(programs.counters()?),
            Self::Loops(loops) => {
                for each in loops {
                    add(each.counters()?);
                }
            }
            Self::Calls(programs) => add(programs.counters()?),
            Self::Cpu(burner) => sum.cpu_time = burner.burned(),
            Self::Hoard(keeper) => sum = keeper.evidence(),
            Self::Signals(signaller) => sum.processes = signaller.evidence(),
            Self::Restart(restarter) => sum.processes = restarter.evidence(),
            Self::Pause(pauser) => sum.processes = pauser.evidence().map_err(ArmError::Rhythm)?,
            Self::Spoil(spoiler) => sum = spoiler.evidence().map_err(ArmError::Spoil)?,
            Self::Down(countdown, _) => sum.host_downs = countdown.downs().map_err(ArmError::Down)?,
            Self::Flap(flapper) => sum = flapper.evidence().map_err(ArmError::Rhythm)?,
            Self::Settings(standing) => sum = standing.evidence()?,
        }
        Ok(sum)
    }

    /// Stops acting: from here on no new packet is affected.
    ///
    /// # Errors
    /// When the deadline cannot be written; it then ends by itself.
    pub fn disarm(&mut self) -> Result<(), ArmError> {
        if sabotage::without(Guard::DisarmFirst) {
            return self.remove_devices();
        }
        self.renew(0)
    }

    /// Takes the devices away from under the programs. Sabotage: disarming comes first.
    fn remove_devices(&self) -> Result<(), ArmError> {
        let Self::Loops(loops) = self else { return Ok(()) };
        loops.iter().try_for_each(|each| {
            netlink(async |netlink| {
                Ok(netlink.delete_link(each.near.ifindex, &each.near.name).await.map(drop)?)
            })
        })
    }

    /// Lets packets that are still queued out, for at most the longest delay they can have.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn drain(&self) -> Result<(), ArmError> {
        let Self::Loops(loops) = self else { return Ok(()) };
        for each in loops {
            let limit = Instant::now() + each.longest + Duration::from_millis(200);
            while each.backlog()? > 0 && Instant::now() < limit {
                thread::sleep(Duration::from_millis(5).min(each.longest.max(Duration::from_millis(1))));
            }
        }
        Ok(())
    }
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

/// The rule as the programs read it, without a detour.
pub(super) fn rule(packets: &Match) -> PacketRule {
    PacketRule {
        protocol: number(packets.protocol),
        ports: range(packets.ports.either),
        local_ports: range(packets.ports.local),
        remote_ports: range(packets.ports.remote),
        probability: packets.packet_probability.threshold(),
        flags: if packets.peers.is_empty() { EVERY_PEER } else { 0 },
        level: packets.level.into(),
        cgroup: packets.service.as_ref().map_or(0, |service| service.cgroup.id),
        cgroup_level: packets.service.as_ref().map_or(0, |service| service.level),
        ..PacketRule::default()
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
fn ports(tcp_ports: &[u16]) -> Vec<(u8, u16)> {
    tcp_ports.iter().map(|port| (rule::TCP, *port)).collect()
}

fn arm_packets(
    work: &PacketWork,
    warm: Option<Programs>,
    netns: &NetNs,
    deadline_ns: u64,
) -> Result<Programs, ArmError> {
    let packets = &work.packets;
    netns.enter().map_err(ArmError::Namespace)?;
    let mut programs = prepare(warm, work.action.family(), packets)?;
    let (hook, answer) = match &work.action {
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
    programs.renew(deadline_ns)?;
    for direction in &packets.directions {
        attach(&mut programs, hook, *direction, packets)?;
    }
    check_attached(&programs)?;
    Ok(programs)
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
