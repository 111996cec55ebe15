//! From a fault and its target to a plan: what a holder does, which steps the journal must know, and what a
//! person reads. Pure: nothing here asks or changes the node. One file per kind of fault.

pub mod clock_skew;
pub mod connect_error;
pub mod cpu;
pub mod latency;
pub mod limit;
pub mod link_down;
pub mod packet_drop;
pub mod pause;
pub mod reset;
pub mod work;

use ipnet::IpNet;

use crate::host::{CgroupRef, Facts, Lack, Requirement};
use crate::kernel::netlink::marks::recognise_device;
use crate::kernel::setting::{Knob, LinkSetting, Setting};
use crate::kernel::step::{NetNsRef, Step};
use crate::request::{ApiError, ErrorCode, LifetimeClass};
use crate::spec::fault::Effect;
use crate::spec::{Direction, FaultType, PortMatch, Probability, Protocol, Traffic};
use crate::target::NetworkTarget;

pub use work::{Attach, CallWork, Callers, CpuWork, LoopWork, Match, PacketAction, PacketWork, Work};

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

/// What a fault of a cgroup, a link or the clock finds on the node: the target pinned, and what a supervised one will restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ground {
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
    /// A control group whose calls fail.
    Callers(Callers),
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

/// Plans a fault on this node. `place` must be there for an effect that has traffic, `ground` for one that changes a
/// setting or goes to a cgroup.
///
/// # Errors
/// [`ErrorCode::UnsupportedKernel`] names what the kernel lacks.
pub fn plan(
    effect: &Effect,
    place: Option<&Place<'_>>,
    ground: Option<&Ground>,
    facts: &Facts,
) -> Result<Plan, ApiError> {
    require(effect.fault_type(), facts)?;
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
        Effect::Cpu { percent, cores } => cpu::plan(*percent, *cores, facts),
        Effect::Latency { traffic, queue, packet_probability } => {
            latency::plan(traffic, queue, *packet_probability, place.ok_or_else(needs_interface)?)
        }
        Effect::Reset { traffic, packet_probability } => {
            reset::plan(traffic, *packet_probability, place.ok_or_else(needs_interface)?)
        }
        Effect::Drop { traffic, packet_probability, partition } => {
            packet_drop::plan(traffic, *packet_probability, *partition, place.ok_or_else(needs_interface)?)
        }
        Effect::Limit { .. }
        | Effect::Pause { .. }
        | Effect::LinkDown { .. }
        | Effect::ClockSkew { .. }
        | Effect::Connect { .. } => return on_ground(effect, ground),
    })
}

/// A fault there would cut what a delay promises to bring back.
fn is_ours(device: &str) -> bool {
    recognise_device(device).is_some()
}

fn on_ground(effect: &Effect, ground: Option<&Ground>) -> Result<Plan, ApiError> {
    match (effect, ground) {
        (Effect::Limit { limit, .. }, Some(Ground::Cgroup { cgroup, knob, old })) => {
            Ok(limit::plan(limit, cgroup, knob, old))
        }
        (Effect::Pause { .. }, Some(Ground::Cgroup { cgroup, old, .. })) => Ok(pause::plan(cgroup, old)),
        (Effect::LinkDown { .. }, Some(Ground::Link(setting))) => Ok(link_down::plan(setting)),
        (Effect::ClockSkew { offset_ns }, Some(Ground::Clock(base_ns))) => {
            Ok(clock_skew::plan(*offset_ns, *base_ns))
        }
        (Effect::Connect { calls, failure }, Some(Ground::Callers(callers))) => {
            Ok(connect_error::plan(calls, failure, callers))
        }
        _ => {
            let name = effect.fault_type().name();
            Err(ApiError::new(
                ErrorCode::TargetNotFound,
                format!("what {name} would change was not looked at"),
            ))
        }
    }
}

/// What a fault type needs of the kernel.
pub fn requirements(fault_type: FaultType) -> &'static [Requirement] {
    match fault_type {
        FaultType::Latency => latency::REQUIREMENTS,
        FaultType::Error => reset::REQUIREMENTS,
        FaultType::Timeout | FaultType::NetworkPartition => packet_drop::REQUIREMENTS,
        FaultType::ResourceExhaustion => cpu::REQUIREMENTS,
        FaultType::Pause => pause::REQUIREMENTS,
        FaultType::LinkDown | FaultType::ClockSkew => &[],
        FaultType::ConnectError => connect_error::REQUIREMENTS,
    }
}

/// Everything that `fault_type` lacks on this kernel.
pub fn lacks(fault_type: FaultType, facts: &Facts) -> Vec<Lack> {
    requirements(fault_type).iter().filter_map(|requirement| facts.lack(*requirement)).collect()
}

fn require(fault_type: FaultType, facts: &Facts) -> Result<(), ApiError> {
    let lacks = lacks(fault_type, facts);
    let Some(first) = lacks.first() else { return Ok(()) };
    let names: Vec<_> = lacks.iter().map(|lack| lack.what.as_str()).collect();
    Err(ApiError::new(
        ErrorCode::UnsupportedKernel,
        format!(
            "{} is not possible on kernel {}: missing {}",
            fault_type.name(),
            facts.release,
            names.join(", ")
        ),
    )
    .hint(first.remedy.clone()))
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
    let mut words = match traffic.protocol {
        Protocol::Any => "all packets",
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Icmp => "icmp",
    }
    .to_owned();
    if *share != Probability::CERTAIN {
        words.insert_str(0, &format!("{} % of ", share.get() * 100.0));
    }
    let PortMatch { either, local, remote } = traffic.ports;
    for (label, port) in [("port", either), ("local port", local), ("remote port", remote)] {
        if let Some(port) = port {
            words.push_str(&format!(" {label} {port}"));
        }
    }
    match peers.as_slice() {
        [] => {}
        [one] => words.push_str(&format!(", peer {one}")),
        [first, ..] => words.push_str(&format!(", {} peer prefixes ({first}, …)", peers.len())),
    }
    if let Some(service) = service {
        words.push_str(&format!(" of cgroup {}", service.cgroup.path.display()));
    }
    words.push_str(&format!(" on {}", traffic.interface));
    if let Some(netns) = &traffic.netns {
        words.push_str(&format!(" in namespace {netns}"));
    }
    words.push_str(match traffic.directions.as_slice() {
        [Direction::Egress] => ", egress",
        [Direction::Ingress] => ", ingress",
        _ => ", both ways",
    });
    words
}
