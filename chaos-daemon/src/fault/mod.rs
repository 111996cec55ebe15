//! From a fault to a plan: what a holder does, which steps the journal must know, and what a person reads. One file per kind of
//! fault: `prepare` looks at this node, `plan` decides by what was found and looks at nothing. Nothing here changes the node.

pub mod affected;
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
pub mod hoard;
pub mod host_panic;
pub mod host_reboot;
pub mod inodes;
mod lifeline;
pub mod limit;
pub mod link_down;
pub mod look;
pub mod mcp_error;
pub mod memory;
pub mod oom;
pub mod packet_drop;
pub mod pause;
pub mod pids;
mod pins;
pub mod port_in_use;
pub mod ports;
pub mod process_kill;
pub mod process_pause;
pub mod profile;
mod requirements;
pub mod service_restart;
pub mod service_stop;
pub mod services;
pub mod sever;
pub mod socket_error;
mod sparing;
pub mod work;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::host::{CgroupRef, Identity, NetNs};
use crate::kernel::setting::Setting;
use crate::kernel::step::{NetNsRef, Step};
use crate::request::{ApiError, ErrorCode, TargetsReport};
use crate::spec::LifetimeClass;
use crate::spec::effect::Effect;
use crate::spec::process::signal_name;
use crate::spec::{
    Direction, Failure, Fault, HostDown, PortMatch, Probability, ProcessSelector, Protocol, QualifiedName,
    Traffic, Way, Whose,
};
use crate::target::NetworkTarget;

pub use cpu::ProcessorGround;
pub use detour::{Moment, Replay};
pub use disk_fill::DirectoryGround;
pub use lifeline::refuse_cut;
pub use look::{Crowd, Eyes};
pub use memory::MemoryGround;
pub use oom::OomGround;
pub use requirements::{called, lacks, parts, remedy, require};
pub use sparing::spared;
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

/// A fault of which everything is known that this node says of it.
#[derive(Debug)]
pub struct Ready {
    /// Its plan.
    pub plan: Planned,
    /// Those that were chosen, of a fault that goes to processes.
    pub targets: Option<TargetsReport>,
    /// The group in which the kernel is to kill.
    pub doomed: Option<Box<OomGround>>,
    /// The network namespace that the holder enters, of a fault without an interface.
    pub netns: Option<NetNs>,
}

/// A plan, or all of it but its place among the faults on its device.
pub enum Planned {
    /// All of it.
    Whole(Box<Plan>),
    /// What makes one of a place.
    OnDevice(Box<dyn FnOnce(&Place<'_>) -> Plan + Send>),
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(plan) => plan.fmt(f),
            Self::OnDevice(_) => f.write_str("OnDevice"),
        }
    }
}

impl From<Plan> for Ready {
    fn from(plan: Plan) -> Self {
        Self { plan: Planned::Whole(Box::new(plan)), targets: None, doomed: None, netns: None }
    }
}

impl Ready {
    /// The control group that its plan is about, as far as that is known without a place on a device.
    pub fn group(&self) -> Option<u64> {
        match &self.plan {
            Planned::Whole(plan) => plan.work.group().map(|group| group.id),
            Planned::OnDevice(_) => None,
        }
    }

    fn on_device(plan: impl FnOnce(&Place<'_>) -> Plan + Send + 'static) -> Self {
        Self { plan: Planned::OnDevice(Box::new(plan)), targets: None, doomed: None, netns: None }
    }

    fn of_processes(plan: Plan, crowd: &Crowd, selector: &ProcessSelector) -> Self {
        Self { targets: Some(crowd.selection.report(selector.seed)), ..plan.into() }
    }
}

impl Planned {
    /// The plan, of a fault on a device with its place there.
    ///
    /// # Errors
    /// When a device is needed and there is none.
    pub fn at(self, place: Option<&Place<'_>>) -> Result<Plan, ApiError> {
        match (self, place) {
            (Self::Whole(plan), _) => Ok(*plan),
            (Self::OnDevice(plan), Some(place)) => Ok(plan(place)),
            (Self::OnDevice(_), None) => Err(ApiError::new(
                ErrorCode::MissingParameter,
                "target.interface: this fault needs an interface",
            )),
        }
    }
}

/// What is known before this host goes down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownGround {
    /// The fault's name, by which it is known afterwards.
    pub name: QualifiedName,
    /// Where it is written down, below what outlives a boot.
    pub record: PathBuf,
}

impl DownGround {
    fn of(eyes: &Eyes<'_>) -> Self {
        Self { name: eyes.name.clone(), record: eyes.down_record.to_owned() }
    }
}

/// The plan of a fault that takes something, in words, and holds it.
fn held(what: &str, goal: Goal, ramp: Duration, cgroup: Option<CgroupRef>) -> Plan {
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

/// Looks at what a fault goes to, on a node which has all that [`require`] asks for, and plans it. Blocks.
///
/// # Errors
/// Names what cannot be a target, or what cannot be done with what was found.
pub fn prepare(fault: &Fault, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    Ok(match &fault.effect {
        Effect::Impair { traffic, impairment, packet_probability, names } => {
            detour::prepare(traffic, impairment, *packet_probability, names)
        }
        Effect::Refuse { traffic, refusal, packet_probability } => {
            error::prepare(traffic, *refusal, *packet_probability)
        }
        Effect::Names { traffic, questions, packet_probability } => {
            dns_error::prepare(traffic, questions, *packet_probability)
        }
        Effect::Drop { traffic, packet_probability, partition } => {
            packet_drop::prepare(traffic, *packet_probability, *partition)
        }
        Effect::Sever { packets, packet_probability, partition } => {
            sever::prepare(packets, *packet_probability, *partition, eyes)?
        }
        Effect::Cpu(load) => cpu::prepare(load, eyes)?,
        Effect::Hoard { what, ramp, whose, netns } => {
            hoard::prepare(what, *ramp, (whose.as_ref(), netns.as_ref()), eyes)?
        }
        Effect::Limit { whose, limit } => limit::prepare(whose, limit, &called(fault), eyes)?,
        Effect::Pause { whose } => pause::prepare(whose, eyes)?,
        Effect::LinkDown { interface, netns, rhythm } => {
            link_down::prepare(interface, netns.as_ref(), *rhythm, eyes)?
        }
        Effect::ClockSkew { offset_ns } => clock_skew::prepare(*offset_ns)?,
        Effect::ProcessKill { processes, volleys } => process_kill::prepare(processes, *volleys, eyes)?,
        Effect::ProcessPause { processes, rhythm } => process_pause::prepare(processes, *rhythm, eyes)?,
        Effect::ServiceStop { unit } => service_stop::prepare(unit, eyes)?,
        Effect::ServiceRestart { unit } => service_restart::prepare(unit, eyes)?,
        Effect::Connect { calls, failure } => connect_error::prepare(calls, failure, eyes)?,
        Effect::Load(load) => connection_load::prepare(load, eyes)?,
        Effect::Files { calls, failure } => file_error::prepare(calls, failure, eyes)?,
        Effect::Sockets { calls, failure } => socket_error::prepare(calls, failure, eyes)?,
        Effect::Spoil { processes, spoiling } => mcp_error::prepare(processes, spoiling, eyes)?,
        Effect::Down(HostDown { way: Way::Reboot { forced }, countdown }) => {
            host_reboot::prepare(*forced, *countdown, eyes)?
        }
        Effect::Down(HostDown { way: Way::Panic { sync, stay_down }, countdown }) => {
            host_panic::prepare((*sync, *stay_down), *countdown, eyes)?
        }
    })
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
    words.push_str(&format!(" on {}", packets.interface));
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
