//! What matrix and sweep strike, of every kind of fault: that it is complete is the compiler's to say. A kind is tried here, or
//! left out for a reason that shows as a skip.

use std::path::Path;

use chaos_daemon::spec::{FAULT_TYPES, FaultType};

use super::bench::{Sign, Thing};
use crate::kernel::supervised::service;
use crate::kernel::supervised::stage::{self, Make};
use crate::kernel::{Attach, Context};
use crate::skip::Environment;
use crate::victim::has_controllers;

/// How a kind is tried.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// On an interface, by the programs that the warm holder has.
    Packets(Sign),
    /// On an interface, by programs of its own, for which a holder is started.
    Answers(Sign),
    /// In a control group, by programs of its own.
    Calls(Sign),
    /// By a holder without programs, which makes no request to the kernel of those that count.
    Plain(Sign),
    /// On a stage, with a guard.
    Guarded(Make),
    /// By other tests, for this reason.
    Elsewhere(&'static str),
}

/// What a kind needs of the machine.
#[derive(Debug, Clone, Copy)]
enum Needs {
    Nothing,
    Netem,
    Lsm,
    /// These controllers of cgroup v2.
    Controllers(&'static [&'static str]),
    /// A clock that is nobody else's.
    OwnClock,
    /// A service manager that is nobody else's.
    OwnManager,
}

/// A kind of fault. What uses something up is called by what that is, for processors `resource_exhaustion`.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// What it is called in reports.
    pub name: &'static str,
    way: Way,
    needs: Needs,
}

impl Kind {
    /// The attachments that it is tried with on the bench, on a kernel that has all; none when it is not tried there.
    pub(crate) fn attachments(&self) -> &'static [Attach] {
        match self.way {
            Way::Packets(_) | Way::Answers(_) => const { &[Attach::Auto, Attach::Clsact] },
            Way::Calls(_) | Way::Plain(_) => const { &[Attach::Auto] },
            Way::Guarded(_) | Way::Elsewhere(_) => const { &[] },
        }
    }

    /// Whether other tests try it, and no cell does.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.way, Way::Elsewhere(_))
    }

    /// What its faults are called, by who ends them: the kernel, or a guard.
    pub fn class(&self) -> &'static str {
        match self.way {
            Way::Guarded(_) => "supervised faults",
            _ => "kernel faults",
        }
    }

    /// Whether few machines can do it: it needs a kernel that has everything, or a machine of its own. What needs systemd is for
    /// tests that have one.
    pub fn is_rare(&self) -> bool {
        match self.needs {
            Needs::Nothing | Needs::OwnManager => false,
            Needs::Netem | Needs::Lsm | Needs::Controllers(_) | Needs::OwnClock => true,
        }
    }

    /// How it shows on the bench that it acts; a stage knows by itself.
    pub(crate) fn sign(&self) -> Option<Sign> {
        match self.way {
            Way::Packets(sign) | Way::Answers(sign) | Way::Calls(sign) | Way::Plain(sign) => Some(sign),
            Way::Guarded(_) | Way::Elsewhere(_) => None,
        }
    }

    /// Whether the warm holder takes it, and none is started for it.
    pub(crate) fn is_for_warm_holder(&self) -> bool {
        matches!(self.way, Way::Packets(_))
    }

    /// Whether it makes requests to the kernel of those that count: netlink or bpf(2).
    pub(crate) fn makes_requests(&self) -> bool {
        !matches!(self.way, Way::Plain(_))
    }
}

/// What this machine has of what kinds need.
#[derive(Debug)]
pub struct Machine {
    netem: bool,
    lsm: bool,
    own_clock: bool,
    own_manager: bool,
}

impl Machine {
    /// Finds it out.
    pub fn of(context: &Context) -> Self {
        let is_own = context.environment == Environment::Vm;
        // There only where systemd has booted the machine (sd_booted(3)).
        let own_manager = is_own && Path::new("/run/systemd/system").is_dir();
        Self { netem: context.has_netem(), lsm: context.has_bpf_lsm(), own_clock: is_own, own_manager }
    }

    /// Why a kind cannot be tried here.
    pub fn lacks(&self, kind: &Kind) -> Option<&'static str> {
        match (kind.way, kind.needs) {
            (Way::Elsewhere(why), _) => Some(why),
            (_, Needs::Netem) if !self.netem => Some("this kernel has no sch_netem"),
            (_, Needs::Lsm) if !self.lsm => {
                Some("bpf is not among the kernel's security modules, or lockdown is on")
            }
            (_, Needs::Controllers(wanted)) if !has_controllers(wanted) => {
                Some("the controllers of cgroup v2 are not there")
            }
            (_, Needs::OwnClock) if !self.own_clock => Some("the clock of a host is not a test's to change"),
            (_, Needs::OwnManager) if !self.own_manager => Some(NO_MANAGER),
            _ => None,
        }
    }
}

/// Every kind that is tried here.
pub(crate) fn here(context: &Context) -> impl Iterator<Item = &'static Kind> {
    let machine = Machine::of(context);
    all().filter(move |kind| machine.lacks(kind).is_none())
}

/// Those of all kinds that have a guard, and their stages, with their places among all.
pub(crate) fn guarded() -> impl Iterator<Item = (usize, &'static Kind, Make)> {
    all().enumerate().filter_map(|(position, kind)| match kind.way {
        Way::Guarded(make) => Some((position, kind, make)),
        _ => None,
    })
}

/// Every kind.
pub(crate) fn all() -> impl Iterator<Item = &'static Kind> {
    FAULT_TYPES.iter().flat_map(|kind| struck(*kind))
}

/// What is struck of a fault type: a new one does not compile without a place here.
fn struck(kind: FaultType) -> &'static [Kind] {
    match kind {
        FaultType::Latency => const { &[netem("latency", Sign::Echoes)] },
        FaultType::Error => const { &[packets("error", Sign::Resets)] },
        FaultType::Timeout => const { &[packets("timeout", Sign::Echoes)] },
        FaultType::ResourceExhaustion => RESOURCES,
        FaultType::NetworkPartition => PARTITIONS,
        FaultType::PacketLoss => const { &[netem("packet_loss", Sign::Echoes)] },
        FaultType::PacketDuplicate => const { &[netem("packet_duplicate", Sign::Twins)] },
        FaultType::PacketCorrupt => const { &[netem("packet_corrupt", Sign::Echoes)] },
        FaultType::PacketReorder => const { &[netem("packet_reorder", Sign::Echoes)] },
        FaultType::Bandwidth => const { &[netem("bandwidth", Sign::Echoes)] },
        FaultType::LinkProfile => const { &[netem("link_profile", Sign::Echoes)] },
        FaultType::Pause => const { &[guarded_by("pause", stage::pause, Needs::Nothing)] },
        FaultType::LinkDown => LINKS,
        FaultType::ClockSkew => const { &[guarded_by("clock_skew", stage::clock, Needs::OwnClock)] },
        FaultType::ProcessKill => const { &[plain("process_kill", Sign::Continued)] },
        FaultType::ProcessPause => const { &[plain("process_pause", Sign::Traced)] },
        FaultType::ConnectError => const { &[of("connect_error", Way::Calls(Sign::Calls), Needs::Nothing)] },
        FaultType::PortInUse => const { &[plain("port_in_use", Sign::Port)] },
        FaultType::ConnectionLoad => const { &[plain("connection_load", Sign::Clients(5))] },
        FaultType::FileError => const { &[of("file_error", Way::Calls(Sign::Files), Needs::Lsm)] },
        // Who associates a socket binds it first.
        FaultType::SocketError => const { &[of("socket_error", Way::Calls(Sign::Calls), Needs::Lsm)] },
        FaultType::ServiceStop => {
            const { &[guarded_by("service_stop", service::stopped, Needs::OwnManager)] }
        }
        FaultType::ServiceRestart => const { &[elsewhere("service_restart", NO_MANAGER)] },
        FaultType::DnsError => const { &[of("dns_error", Way::Answers(Sign::Questions), Needs::Nothing)] },
        FaultType::McpError => const { &[plain("mcp_error", Sign::Proxy)] },
        FaultType::HostReboot => const { &[elsewhere("host_reboot", TAKES_DOWN)] },
        FaultType::HostPanic => const { &[elsewhere("host_panic", TAKES_DOWN)] },
    }
}

const NO_MANAGER: &str = "no service manager is PID 1 here that is a test's own; the tests on systemd do it";
const TAKES_DOWN: &str = "it would take down the host that judges; the tests on systemd do it, in a VM";

const RESOURCES: &[Kind] = &[
    holds("resource_exhaustion", Thing::Time, 5_000_000),
    holds("memory", Thing::Memory, 16 << 20),
    holds("disk_fill", Thing::Room, 4 << 20),
    holds("file_descriptors", Thing::Descriptors, 20),
    holds("pids", Thing::Threads, 20),
    holds("inodes", Thing::Files, 20),
    holds("ports", Thing::Sockets, 20),
    holds("disk_io", Thing::Transfer, 1 << 16),
    guarded_by("cpu_limit", stage::cpu, Needs::Controllers(stage::CONTROLLERS)),
    guarded_by("memory_limit", stage::memory, Needs::Controllers(stage::CONTROLLERS)),
    guarded_by("pids_limit", stage::pids, Needs::Controllers(stage::CONTROLLERS)),
    guarded_by("io_limit", stage::disk, Needs::Controllers(&["io"])),
];

const PARTITIONS: &[Kind] = &[
    packets("network_partition", Sign::Echoes),
    of("network_partition_of_a_cgroup", Way::Calls(Sign::Trips), Needs::Nothing),
];

const LINKS: &[Kind] = &[
    guarded_by("link_down", stage::link, Needs::Nothing),
    guarded_by("link_down_in_a_rhythm", stage::flaps, Needs::Nothing),
];

const fn of(name: &'static str, way: Way, needs: Needs) -> Kind {
    Kind { name, way, needs }
}

const fn packets(name: &'static str, sign: Sign) -> Kind {
    of(name, Way::Packets(sign), Needs::Nothing)
}

const fn netem(name: &'static str, sign: Sign) -> Kind {
    of(name, Way::Packets(sign), Needs::Netem)
}

const fn plain(name: &'static str, sign: Sign) -> Kind {
    of(name, Way::Plain(sign), Needs::Nothing)
}

/// At least so much.
const fn holds(name: &'static str, thing: Thing, least: u64) -> Kind {
    plain(name, Sign::Holds(thing, least))
}

const fn guarded_by(name: &'static str, stage: Make, needs: Needs) -> Kind {
    of(name, Way::Guarded(stage), needs)
}

const fn elsewhere(name: &'static str, why: &'static str) -> Kind {
    of(name, Way::Elsewhere(why), Needs::Nothing)
}

#[cfg(test)]
mod tests {
    use chaos_daemon::spec::resource;

    use super::*;

    #[test]
    fn every_fault_type_and_every_resource_is_tried_or_left_out_for_a_reason() {
        let has = |name: &str| all().any(|kind| kind.name == name);
        // Processors are called by the fault type.
        let resources = resource::names().filter(|resource| *resource != "cpu");
        let names = FAULT_TYPES.iter().map(|kind| kind.name()).chain(resources);
        assert_eq!(names.filter(|name| !has(name)).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn no_two_kinds_have_one_name() {
        let mut names: Vec<_> = all().map(|kind| kind.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
