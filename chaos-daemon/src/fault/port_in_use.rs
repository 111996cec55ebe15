//! Port in use: a TCP or UDP port of this host is taken, so that no service can bind it.
//!
//! - **Mechanism**: a socket that is bound and does nothing else: it never listens, and reads nothing. Without an address it is an
//!   IPv6 socket that is bound for IPv4, too, and so in the way of every bind to that port.
//! - **Kernel requirement**: none. A port below 1024 (`ip_unprivileged_port_start`) takes CAP_NET_BIND_SERVICE.
//! - **Lifetime class**: kernel: the socket is closed with the process. A stopped one is killed by its timer when the lease runs
//!   out.
//! - **Undo**: end the holder.
//! - **Blast radius**: whoever binds this port of this address, in this network namespace (`EADDRINUSE`). A service that has it
//!   already keeps it: then the fault is refused, so stop that one first. Whoever connects to a TCP port that is held is refused,
//!   as to one that is not; datagrams to a UDP port vanish, where nobody would have answered with "port unreachable".
//! - **Reference**: bind(2), ip(7), ipv6(7) (`IPV6_V6ONLY`).

use std::time::Duration;

use super::{Goal, HoardWork, Plan, Work};
use crate::host::Identity;
use crate::spec::LifetimeClass;
use crate::spec::LocalPort;

/// Plans it. In which network namespace is not known here.
pub fn plan(port: LocalPort) -> Plan {
    Plan {
        work: Work::Hoard(HoardWork {
            goal: Goal::Port(port),
            ramp: Duration::ZERO,
            cgroup: None,
            identity: Identity::ROOT,
        }),
        steps: Vec::new(),
        lifetime: LifetimeClass::Kernel,
        description: format!("port_in_use: holds {port}"),
    }
}
