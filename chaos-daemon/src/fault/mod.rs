//! From a fault and its target to a plan: what a holder does, which steps the journal must know, and what a
//! person reads. Pure: nothing here asks or changes the node. One file per kind of fault.

mod bandwidth;
pub mod clock_skew;
pub mod connect_error;
pub mod connection_load;
pub mod cpu;
pub mod descriptors;
pub mod detour;
pub mod disk_fill;
pub mod disk_io;
pub mod dns_error;
pub mod error;
pub mod file_error;
pub mod host_panic;
pub mod host_reboot;
pub mod inodes;
mod latency;
pub mod limit;
pub mod link_down;
mod link_profile;
pub mod mcp_error;
pub mod memory;
pub mod oom;
mod packet_corrupt;
pub mod packet_drop;
mod packet_duplicate;
mod packet_loss;
mod packet_reorder;
pub mod pause;
pub mod pids;
pub mod port_in_use;
pub mod ports;
pub mod process_kill;
pub mod process_pause;
pub mod profile;
mod queue;
mod requirements;
pub mod service_restart;
pub mod service_stop;
pub mod sever;
pub mod socket_error;
pub mod work;

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::host::panic::AfterPanic;
use crate::host::socket_file::SparedSockets;
use crate::host::supply::{Descriptors, Tasks};
use crate::host::{CgroupRef, Facts, Identity, PlaceRef, Spared};
use crate::kernel::netlink::marks::recognise_device;
use crate::kernel::setting::{Knob, LinkSetting, Setting};
use crate::kernel::step::{NetNsRef, Step};
use crate::kernel::systemd::Unit;
use crate::request::{ApiError, ErrorCode};
use crate::spec::LifetimeClass;
use crate::spec::effect::Effect;
use crate::spec::process::signal_name;
use crate::spec::{
    Direction, Failure, FaultName, FaultType, Hoard, HostDown, PortMatch, Probability, Protocol, Traffic,
    Way, Whose,
};
use crate::target::NetworkTarget;
use crate::target::process::Selection;

pub use cpu::ProcessorGround;
pub use disk_fill::DirectoryGround;
pub use memory::MemoryGround;
pub use oom::OomGround;
pub use requirements::{called, lacks, parts, remedy, require};
pub use work::{
    Attach, CallWork, Callers, CpuWork, DownWork, FileWork, FlapWork, Goal, HoardWork, LoopWork, Match,
    PacketAction, PacketWork, PauseWork, RestartWork, SeverWork, SignalWork, SocketWork, SpoilWork, Work,
};

/// What is needed to carry out a fault, and to undo it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What the holder does.
    pub work: Work,
    /// Kernel objects that could outlive the holder, in the order they are made. Those that die with it are
    /// not here: ending the holder is their undo.
    pub steps: Vec<Step>,
    /// What binds the fault to its end.
    pub lifetime: LifetimeClass,
    /// One line for people.
    pub description: String,
}

/// What the injector assigns to one network fault.
#[derive(Debug)]
pub struct Place<'a> {
    /// Pinned target.
    pub target: &'a NetworkTarget,
    /// The target's namespace, as the journal writes it.
    pub netns: NetNsRef,
    /// Identity of the fault, for the names of its devices.
    pub id: u32,
    /// Place among the faults on the device.
    pub level: u8,
    /// How to attach.
    pub attach: Attach,
    /// Whether the device's clsact qdisc is ours to delete: it was not there before our first fault.
    pub owns_clsact: bool,
    /// Peers to spare.
    pub protected_peers: &'a [IpNet],
    /// TCP ports of this node to spare.
    pub protected_tcp_ports: &'a [u16],
}

/// The processes that a fault goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crowd {
    /// Who matches now, and which of them are hit.
    pub selection: Selection,
    /// Who is never hit, also of those that match later.
    pub spared: Spared,
    /// Which programs are meant, by what the path that is named leads to for the caller.
    pub programs: Vec<String>,
}

/// What a fault finds on the node: what it takes something from, what a supervised one will restore, or whom it goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ground {
    /// Processors.
    Processors(ProcessorGround),
    /// Memory.
    Memory(MemoryGround),
    /// A control group that runs out of memory.
    Oom(Box<OomGround>),
    /// A directory of a file system, the cgroup to join, and how many descriptors a process may have.
    Directory(Box<DirectoryGround>, Option<CgroupRef>, u64),
    /// Open files.
    Descriptors(Descriptors),
    /// Open files, sockets that nobody is to be connected to, and as whom others are.
    Reach(Descriptors, SparedSockets, Identity),
    /// Processes and threads, and the cgroup to join.
    Tasks(Tasks, Option<CgroupRef>),
    /// A value of a control group.
    Cgroup {
        /// Whose.
        cgroup: CgroupRef,
        /// Which.
        knob: Knob,
        /// As the kernel prints it.
        old: String,
    },
    /// A device that is up, and what it has.
    Link(LinkSetting),
    /// Wall clock minus boot clock, in nanoseconds.
    Clock(i64),
    /// Processes.
    Crowd(Box<Crowd>),
    /// A control group whose calls fail, or whose packets vanish.
    Callers(Callers),
    /// A control group whose calls about files fail, and which files.
    Files(CgroupRef, PlaceRef),
    /// A service that is active.
    Service(Box<Unit>),
    /// This host.
    Host(Box<DownGround>),
}

/// What is known before this host goes down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownGround {
    /// The fault's name, by which it is known afterwards.
    pub name: FaultName,
    /// Where it is written down, below what outlives a boot.
    pub record: PathBuf,
    /// What the kernel does after a panic; `None` where none is planned.
    pub after_panic: Option<AfterPanic>,
}

/// The plan of a fault that takes something, in words, and holds it.
fn hoard(what: &str, goal: Goal, ramp: Duration, cgroup: Option<CgroupRef>) -> Plan {
    let mut description = format!("resource_exhaustion: holds {what}");
    if let Some(cgroup) = &cgroup {
        description.push_str(&format!(", in cgroup {}", cgroup.path.display()));
    }
    if !ramp.is_zero() {
        description.push_str(&format!(", all of it after {ramp:?}"));
    }
    Plan {
        work: Work::Hoard(HoardWork { goal, ramp, cgroup, identity: Identity::ROOT }),
        steps: Vec::new(),
        lifetime: LifetimeClass::Kernel,
        description,
    }
}

/// The plan of a fault that changes one setting of the node.
fn settings(description: String, setting: Setting) -> Plan {
    Plan {
        work: Work::Settings(vec![setting.clone()]),
        steps: vec![Step::Setting(setting)],
        lifetime: LifetimeClass::Supervised,
        description,
    }
}

/// The plan of a fault that takes the host down.
fn down(what: String, down: HostDown, ground: &DownGround) -> Plan {
    let countdown = down.countdown;
    let description = format!(
        "{what}; it happens {countdown:?} after the injection, and a removal before that prevents it; every other fault ends with this boot"
    );
    let DownGround { name, record, .. } = ground.clone();
    Plan {
        work: Work::Down(DownWork { down, name, record, description: description.clone() }),
        steps: Vec::new(),
        lifetime: LifetimeClass::Irreversible,
        description,
    }
}

/// Plans a fault on this node, which has all that [`require`] asks for. `place` must be there for an effect that has traffic,
/// `ground` for one that changes a setting or goes to a cgroup.
///
/// # Errors
/// Names what cannot be done with what was found.
pub fn plan(
    effect: &Effect,
    place: Option<&Place<'_>>,
    ground: Option<&Ground>,
    facts: &Facts,
) -> Result<Plan, ApiError> {
    if let Some(name) = place.map(|place| &place.target.interface.name).filter(|name| is_ours(name)) {
        let text = format!("target.interface: {name} is a device that a fault of chaos-daemon has made");
        return Err(ApiError::new(ErrorCode::InvalidParameter, text)
            .hint("name the device that the fault is on: faults on one device add up"));
    }
    let needs_interface = || {
        let name = effect.fault_type().name();
        ApiError::new(ErrorCode::MissingParameter, format!("target.interface: {name} needs an interface"))
    };
    Ok(match effect {
        Effect::Cpu(load) => match ground {
            Some(Ground::Processors(ground)) => cpu::plan(load, ground)?,
            _ => return Err(not_looked_at(effect.fault_type())),
        },
        Effect::Impair { traffic, impairment, packet_probability, names } => {
            let place = place.ok_or_else(needs_interface)?;
            detour::plan(traffic, impairment, *packet_probability, names, place)
        }
        Effect::Refuse { traffic, refusal, packet_probability } => {
            error::plan(traffic, *refusal, *packet_probability, place.ok_or_else(needs_interface)?)
        }
        Effect::Names { traffic, questions, packet_probability } => {
            let place = place.ok_or_else(needs_interface)?;
            dns_error::plan(traffic, questions, *packet_probability, place)
        }
        Effect::Drop { traffic, packet_probability, partition } => {
            packet_drop::plan(traffic, *packet_probability, *partition, place.ok_or_else(needs_interface)?)
        }
        Effect::Files { calls, failure } => match (ground, facts.files.get()) {
            (Some(Ground::Files(cgroup, place)), Ok(kernel)) => {
                file_error::plan(calls, failure, cgroup, place, *kernel)
            }
            _ => return Err(not_looked_at(effect.fault_type())),
        },
        Effect::Sockets { calls, failure } => match (ground, facts.sockets.get()) {
            (Some(Ground::Callers(callers)), Ok(kernel)) => {
                socket_error::plan(calls, failure, callers, *kernel)
            }
            _ => return Err(not_looked_at(effect.fault_type())),
        },
        Effect::Hoard { .. }
        | Effect::Limit { .. }
        | Effect::Pause { .. }
        | Effect::LinkDown { .. }
        | Effect::ClockSkew { .. }
        | Effect::ProcessKill { .. }
        | Effect::ProcessPause { .. }
        | Effect::ServiceStop { .. }
        | Effect::ServiceRestart { .. }
        | Effect::Sever { .. }
        | Effect::Connect { .. }
        | Effect::Spoil { .. }
        | Effect::Down(_)
        | Effect::Load(_) => return on_ground(effect, ground),
    })
}

/// A fault there would cut what a delay promises to bring back.
fn is_ours(device: &str) -> bool {
    recognise_device(device).is_some()
}

fn on_ground(effect: &Effect, ground: Option<&Ground>) -> Result<Plan, ApiError> {
    match (effect, ground) {
        (Effect::Hoard { what, ramp, .. }, Some(ground)) => on_supply(what, *ramp, ground),
        (Effect::Limit { limit, .. }, Some(Ground::Cgroup { cgroup, knob, old })) => {
            Ok(limit::plan(limit, cgroup, knob, old))
        }
        (Effect::Pause { .. }, Some(Ground::Cgroup { cgroup, old, .. })) => Ok(pause::plan(cgroup, old)),
        (Effect::LinkDown { rhythm, .. }, Some(Ground::Link(setting))) => {
            Ok(link_down::plan(setting, *rhythm))
        }
        (Effect::ClockSkew { offset_ns }, Some(Ground::Clock(base_ns))) => {
            Ok(clock_skew::plan(*offset_ns, *base_ns))
        }
        (Effect::ProcessKill { processes, volleys }, Some(Ground::Crowd(crowd))) => {
            Ok(process_kill::plan(processes, *volleys, crowd))
        }
        (Effect::Connect { calls, failure }, Some(Ground::Callers(callers))) => {
            Ok(connect_error::plan(calls, failure, callers))
        }
        (Effect::Sever { packets, packet_probability, partition }, Some(Ground::Callers(callers))) => {
            Ok(sever::plan(packets, *packet_probability, *partition, callers))
        }
        (Effect::Load(load), Some(Ground::Reach(found, spared, identity))) => {
            connection_load::plan(load, found.process, spared, identity)
        }
        (Effect::ServiceStop { .. }, Some(Ground::Service(unit))) => Ok(service_stop::plan(unit)),
        (Effect::ServiceRestart { .. }, Some(Ground::Service(unit))) => Ok(service_restart::plan(unit)),
        (Effect::ProcessPause { processes, rhythm }, Some(Ground::Crowd(crowd))) => {
            Ok(process_pause::plan(processes, *rhythm, crowd))
        }
        (Effect::Spoil { processes, spoiling }, Some(Ground::Crowd(crowd))) => {
            Ok(mcp_error::plan(processes, spoiling, crowd))
        }
        (Effect::Down(HostDown { way, countdown }), Some(Ground::Host(ground))) => {
            match (*way, ground.after_panic) {
                (Way::Reboot { forced }, _) => Ok(host_reboot::plan(forced, *countdown, ground)),
                (Way::Panic { sync, stay_down }, Some(after)) => {
                    host_panic::plan((sync, stay_down), *countdown, after, ground)
                }
                (Way::Panic { .. }, None) => Err(not_looked_at(effect.fault_type())),
            }
        }
        _ => Err(not_looked_at(effect.fault_type())),
    }
}

fn on_supply(what: &Hoard, ramp: Duration, ground: &Ground) -> Result<Plan, ApiError> {
    let mut plan = supply_plan(what, ramp, ground)?;
    if let (Work::Hoard(work), Ground::Directory(ground, ..)) = (&mut plan.work, ground) {
        if let Some(why) = &ground.closed {
            return Err(ApiError::new(ErrorCode::TargetProtected, format!("params.path: {why}")));
        }
        work.identity = ground.identity.clone();
    }
    Ok(plan)
}

fn supply_plan(what: &Hoard, ramp: Duration, ground: &Ground) -> Result<Plan, ApiError> {
    match (what, ground) {
        (Hoard::Memory { size, reserve }, Ground::Memory(ground)) => {
            memory::plan(*size, *reserve, ramp, ground)
        }
        (Hoard::Oom { reserve }, Ground::Oom(ground)) => oom::plan(*reserve, ramp, ground),
        (Hoard::Disk(fill), Ground::Directory(ground, ..)) => disk_fill::plan(fill, ramp, ground),
        (Hoard::Inodes { count, .. }, Ground::Directory(ground, _, most)) => {
            inodes::plan(*count, ramp, ground, *most)
        }
        (Hoard::DiskIo { rate, bytes, .. }, Ground::Directory(ground, cgroup, _)) => {
            disk_io::plan(*rate, *bytes, cgroup.clone(), ground)
        }
        (Hoard::Descriptors { count, leave }, Ground::Descriptors(found)) => {
            descriptors::plan(*count, *leave, ramp, *found)
        }
        (Hoard::Tasks { count }, Ground::Tasks(found, cgroup)) => {
            pids::plan(*count, ramp, cgroup.clone(), *found)
        }
        (Hoard::Ports { udp, address, range, count }, Ground::Descriptors(found)) => {
            ports::plan(*udp, *address, *range, *count, ramp, found.process)
        }
        (Hoard::Port(port), Ground::Descriptors(_)) => Ok(port_in_use::plan(*port)),
        _ => Err(not_looked_at(FaultType::ResourceExhaustion)),
    }
}

/// So many percent of a number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a number of bytes is no exact number, and no larger than it"
)]
fn share(percent: f64, whole: u64) -> u64 {
    (whole as f64 * percent / 100.0) as u64
}

fn not_looked_at(fault_type: FaultType) -> ApiError {
    let name = fault_type.name();
    ApiError::new(ErrorCode::TargetNotFound, format!("what {name} would change was not looked at"))
}

/// Which of the calls that match fail, for people: nothing if all do.
fn failure_words(failure: &Failure) -> String {
    let mut words = String::new();
    if failure.probability != Probability::CERTAIN {
        words.push_str(&format!(", for {} % of the calls", failure.probability.get() * 100.0));
    }
    if failure.after_calls > 0 {
        words.push_str(&format!(", after the first {}", failure.after_calls));
    }
    if let Some(times) = failure.times {
        words.push_str(&format!(", {times} times at most"));
    }
    if let Some(signal) = failure.signal {
        words.push_str(&format!("; whoever makes the call is sent {}", signal_name(signal)));
    }
    words
}

/// A signal that was sent cannot be taken back; an error of a call is over with the call.
fn failure_lifetime(failure: &Failure) -> LifetimeClass {
    match failure.signal {
        Some(_) => LifetimeClass::Irreversible,
        None => LifetimeClass::Kernel,
    }
}

/// A variation, for people: ` ± 50ms`, or nothing.
fn give_or_take(jitter: Duration) -> String {
    if jitter.is_zero() { String::new() } else { format!(" ± {jitter:?}") }
}

/// The match that a network fault's programs are given.
fn matching(traffic: &Traffic, packet_probability: Probability, place: &Place<'_>) -> Match {
    Match {
        interface: place.target.interface.name.clone(),
        ifindex: place.target.interface.index,
        directions: traffic.directions.clone(),
        level: place.level,
        attach: place.attach,
        protocol: traffic.protocol,
        ports: traffic.ports,
        service: place.target.service.clone(),
        peers: place.target.peers.clone(),
        packet_probability,
        protected_peers: place.protected_peers.to_vec(),
        protected_tcp_ports: place.protected_tcp_ports.to_vec(),
    }
}

/// The steps of attaching to the target device: none with tcx, whose links die with their holder.
fn attach_steps(packets: &Match, place: &Place<'_>) -> Vec<Step> {
    if packets.attach == Attach::Tcx {
        return Vec::new();
    }
    let ifindex = packets.ifindex;
    let netns = || place.netns.clone();
    let clsact = place.owns_clsact.then(|| Step::Clsact { netns: netns(), ifindex });
    let stub = |direction: &Direction| Step::Stub {
        netns: netns(),
        ifindex,
        direction: *direction,
        level: packets.level,
    };
    clsact.into_iter().chain(packets.directions.iter().map(stub)).collect()
}

/// The traffic in words: "tcp port 5432, peer 10.0.0.0/8 on eth0, egress".
fn traffic_words(traffic: &Traffic, packets: &Match) -> String {
    let Match { peers, service, packet_probability: share, .. } = packets;
    let mut words = transport_words(traffic.protocol, traffic.ports, *share);
    words.push_str(&peer_words(peers));
    if let Some(service) = service {
        words.push_str(&format!(" of cgroup {}", service.cgroup.path.display()));
    }
    words.push_str(&format!(" on {}", traffic.interface));
    match (&traffic.netns, &traffic.whose) {
        (Some(netns), _) => words.push_str(&format!(" in namespace {netns}")),
        (None, Some(Whose::Processes(selector))) => {
            words.push_str(&format!(" in the namespace of {selector}"));
        }
        (None, _) => {}
    }
    words + direction_words(&traffic.directions)
}

/// Which packets of all: "25 % of tcp port 5432".
fn transport_words(protocol: Protocol, ports: PortMatch, share: Probability) -> String {
    let mut words = match protocol {
        Protocol::Any => "all packets",
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Icmp => "icmp",
    }
    .to_owned();
    if share != Probability::CERTAIN {
        words.insert_str(0, &format!("{} % of ", share.get() * 100.0));
    }
    words + &ports.words()
}

/// Whom they come from or go to: nothing if that is everybody.
fn peer_words(peers: &[IpNet]) -> String {
    match peers {
        [] => String::new(),
        [one] => format!(", peer {one}"),
        [first, ..] => format!(", {} peer prefixes ({first}, …)", peers.len()),
    }
}

fn direction_words(directions: &[Direction]) -> &'static str {
    match directions {
        [Direction::Egress] => ", egress",
        [Direction::Ingress] => ", ingress",
        _ => ", both ways",
    }
}
