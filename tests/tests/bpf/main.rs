//! The eBPF programs and their loader against the running kernel, in network namespaces of the test's own. Needs root.

mod drops;
mod loops;
mod net;
mod resets;
mod stubs;

use std::time::Duration;

use chaos_common::PacketRule;
use chaos_common::rule::{ALWAYS, EVERY_PEER};
use chaos_daemon::host::boot_time_ns;
use chaos_daemon::kernel::bpf::{Capacity, Hook, Programs};
use chaos_daemon::spec::Direction;
use ipnet::IpNet;

/// A rule that selects everything and hits always.
fn everything() -> PacketRule {
    PacketRule { probability: ALWAYS, flags: EVERY_PEER, level: 1, ..PacketRule::default() }
}

fn load() -> Programs {
    Programs::load(Capacity { hosts: 1024, prefixes: 1024 }).unwrap()
}

/// Loads, attaches to the node's device and arms for long.
fn armed(hook: Hook, directions: &[Direction], rule: &PacketRule, peers: &[&str]) -> Programs {
    let mut programs = load();
    set_rule(&mut programs, rule, peers);
    for direction in directions {
        programs.attach_tcx(hook, *direction, net::DEVICE).unwrap();
    }
    renew(&mut programs, Duration::from_secs(60));
    programs
}

fn set_rule(programs: &mut Programs, rule: &PacketRule, peers: &[&str]) {
    let peers: Vec<IpNet> = peers.iter().map(|peer| peer.parse().unwrap()).collect();
    let flags = if peers.is_empty() { rule.flags } else { rule.flags & !EVERY_PEER };
    programs.set_rule(&PacketRule { flags, ..*rule }, &peers).unwrap();
}

fn renew(programs: &mut Programs, for_so_long: Duration) {
    let nanos = u64::try_from(for_so_long.as_nanos()).unwrap();
    programs.renew(boot_time_ns() + nanos).unwrap();
}
