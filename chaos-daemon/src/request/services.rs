//! What the services of this host are like right now, as far as a caller may see it: for advice.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spec::TargetRequest;

/// How many services one look is about, in the order of their names.
pub const MOST_SERVICES: usize = 100;
/// How many of those that a service speaks with are told.
pub const MOST_PEERS: usize = 16;

/// What is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicesWanted {
    /// Only the one of this name: a unit, a container, or the path of a control group.
    pub name: Option<String>,
    /// Also what is asked of the service manager, which does not change from moment to moment.
    pub whole: bool,
}

/// What was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServicesSeen {
    /// When, since this host has started.
    pub at: Duration,
    /// Services that may be aimed at.
    pub services: Vec<ServiceSeen>,
    /// Those that may not, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// What could not be looked at, and why.
    pub not_seen: Vec<String>,
    /// How many services more there are.
    pub more: usize,
}

/// How much there is, and how much there can be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// How much there is.
    pub used: u64,
    /// How much there can be.
    pub limit: u64,
}

/// Whom a service has connected to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// How many connections.
    pub connections: u32,
    /// By which interface of this host packets get there, if that is known.
    pub interface: Option<String>,
}

/// For how long something of a group has stood still since it was made (`Documentation/accounting/psi.rst` of Linux).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// For want of a processor.
    pub cpu: Duration,
    /// For want of memory.
    pub memory: Duration,
    /// For block devices.
    pub io: Duration,
}

/// One service: processes that have a unit, a container or a control group in common.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceSeen {
    /// What a fault would be aimed at.
    pub target: TargetRequest,
    /// Names of some of its programs.
    pub programs: Vec<String>,
    /// Its oldest process, by number and start: another one means that it was started anew.
    pub oldest: (i32, u64),
    /// Memory that it cannot give back, and its limit; without a limit of its own, what the host has left.
    pub memory: Option<Share>,
    /// Processes and threads, if they have a limit.
    pub tasks: Option<Share>,
    /// Open descriptors of the process that is closest to its limit.
    pub descriptors: Option<Share>,
    /// The file system to which it writes.
    pub disk: Option<Share>,
    /// A folder in that, in which it has a file open for writing.
    pub writes: Option<String>,
    /// How long it has stood still.
    pub stalls: Option<Stalls>,
    /// How many of its processes the kernel has killed for want of memory.
    pub oom_kills: u64,
    /// How often its service manager has started it again by itself.
    pub restarts: Option<u32>,
    /// Whether that starts it again when it is killed.
    pub supervised: bool,
    /// Where it accepts TCP connections in this host's network.
    pub listens: Vec<(IpAddr, u16)>,
    /// How many connections others have to it.
    pub sessions: u32,
    /// How many wait to be accepted.
    pub waiting: u32,
    /// Whom it has connected to, those with most connections first.
    pub peers: Vec<Peer>,
    /// The file into which its output goes.
    pub log: Option<String>,
}

impl ServicesSeen {
    /// The same with what an earlier look has asked of the service manager.
    #[must_use]
    pub fn with_manager_of(mut self, earlier: Self) -> Self {
        let known: BTreeMap<_, _> = earlier.services.into_iter().map(|it| (it.name(), it)).collect();
        for service in &mut self.services {
            if let Some(before) = known.get(&service.name()) {
                (service.restarts, service.supervised) = (before.restarts, before.supervised);
            }
        }
        self.not_seen.extend(earlier.not_seen);
        self
    }
}

impl ServiceSeen {
    /// What people call it, e.g. `unit shop.service`.
    pub fn name(&self) -> String {
        self.target.names().concat()
    }

    /// Those that it speaks with, each once.
    pub fn count_peers(all: impl Iterator<Item = (IpAddr, u16)>) -> Vec<Peer> {
        let mut counted = BTreeMap::<(IpAddr, u16), u32>::new();
        for peer in all {
            *counted.entry(peer).or_default() += 1;
        }
        let peer = |((address, port), connections)| Peer { address, port, connections, interface: None };
        let mut peers: Vec<_> = counted.into_iter().map(peer).collect();
        peers.sort_by_key(|peer| std::cmp::Reverse(peer.connections));
        peers.truncate(MOST_PEERS);
        peers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_service_manager_has_said_is_kept_for_the_services_that_are_still_there() {
        let seen = |unit: &str, restarts| ServicesSeen {
            services: vec![ServiceSeen {
                target: TargetRequest { unit: Some(unit.into()), ..TargetRequest::default() },
                supervised: restarts == Some(3),
                restarts,
                ..ServiceSeen::default()
            }],
            ..ServicesSeen::default()
        };
        let same = seen("a.service", None).with_manager_of(seen("a.service", Some(3)));
        assert_eq!((same.services[0].restarts, same.services[0].supervised), (Some(3), true));
        let other = seen("a.service", None).with_manager_of(seen("b.service", Some(3)));
        assert_eq!(other.services[0].restarts, None);
    }

    #[test]
    fn of_those_that_a_service_speaks_with_the_most_connected_come_first_and_not_all_of_many() {
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let many = (0..40).map(|last| (address(last), 80));
        let peers = ServiceSeen::count_peers(many.chain([(address(39), 80), (address(39), 81)]));
        assert_eq!(peers.len(), MOST_PEERS);
        assert_eq!((peers[0].address, peers[0].port, peers[0].connections), (address(39), 80, 2));
    }
}
