//! Programs loaded, attached and armed in one breath: through tcx, or through stubs as on kernels before 6.6.

use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use chaos_common::PacketRule;
use chaos_common::rule::{ALWAYS, EVERY_PEER};
use chaos_daemon::fault::Attach;
use chaos_daemon::host::boot_time_ns;
use chaos_daemon::kernel::bpf::{Capacity, Family, Hook, LoopEnd, Programs, kernel_has_tcx};
use chaos_daemon::kernel::netlink::marks::{self, FILTER_HANDLE, FILTER_PREFIX};
use chaos_daemon::kernel::netlink::{Clsact, Netlink, NetlinkError};
use chaos_daemon::spec::Direction;
use chaos_tests::fault::LONG;
use ipnet::IpNet;
use nix::net::if_::if_nametoindex;

use super::net::{DEVICE, Net};

const ROOM: Capacity = Capacity { hosts: 1024, prefixes: 1024 };

/// Every way in which programs can be attached here, the daemon's choice first.
pub(crate) fn ways() -> &'static [Attach] {
    if kernel_has_tcx().unwrap() { &[Attach::Tcx, Attach::Stub] } else { &[Attach::Stub] }
}

/// Programs and the way they are attached. Dropping it ends the fault; a stub then stays, inert.
pub(crate) struct Fault {
    programs: Programs,
    attach: Attach,
}

impl Fault {
    /// Loads programs, to be attached in the way of this test.
    pub(crate) fn load(net: &Net, capacity: Capacity) -> Self {
        Self::of(net, Family::Packets, capacity)
    }

    /// Loads the programs of a family.
    pub(crate) fn of(net: &Net, family: Family, capacity: Capacity) -> Self {
        Self { programs: Programs::load(family, capacity).unwrap(), attach: net.attach }
    }

    /// Attaches to a device of the calling thread's namespace; a stub goes to the place of the rule's level.
    pub(crate) fn attach(&mut self, hook: Hook, direction: Direction, device: &str) {
        match self.attach {
            Attach::Tcx => self.programs.attach_tcx(hook, direction, index(device), device).unwrap(),
            Attach::Stub => {
                let level = self.programs.rule().unwrap().level;
                filter(device, direction, level, self.programs.stub_fd(hook, direction).unwrap());
            }
        }
    }

    /// Attaches to one end of a detour, in the calling thread's namespace.
    pub(crate) fn attach_end(&mut self, end: LoopEnd, device: &str) {
        match self.attach {
            Attach::Tcx => self.programs.attach_loop_tcx(end, index(device), device).unwrap(),
            Attach::Stub => filter(device, Direction::Ingress, 1, self.programs.program_fd(end).unwrap()),
        }
    }
}

impl Deref for Fault {
    type Target = Programs;

    fn deref(&self) -> &Programs {
        &self.programs
    }
}

impl DerefMut for Fault {
    fn deref_mut(&mut self) -> &mut Programs {
        &mut self.programs
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // The kernel empties a stub's array only some time after its last descriptor is gone, a link's hook at once.
        if self.attach == Attach::Stub {
            let detached = self.programs.detach();
            assert!(detached.is_ok() || std::thread::panicking(), "{detached:?}");
        }
    }
}

/// Puts a program onto a hook, in place of what an earlier fault of this test left there.
/// The index of a device of the calling thread's namespace.
pub(crate) fn index(device: &str) -> u32 {
    if_nametoindex(device).unwrap()
}

fn filter(device: &str, direction: Direction, level: u32, program: BorrowedFd<'_>) {
    let device = index(device);
    let pref = marks::filter_pref(level.try_into().unwrap()).unwrap();
    let add = async |netlink: &Netlink| -> Result<(), NetlinkError> {
        assert_ne!(netlink.add_clsact(device).await?, Clsact::IngressOnly);
        netlink.delete_bpf_filter(device, direction, pref, FILTER_HANDLE, FILTER_PREFIX).await?;
        netlink.add_bpf_filter(device, direction, pref, FILTER_HANDLE, program, FILTER_PREFIX).await
    };
    runtime().block_on(async { add(&Netlink::open().unwrap()).await }).unwrap();
}

/// The kind of runtime that holders use.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A rule that selects everything and hits always.
pub(crate) fn everything() -> PacketRule {
    PacketRule { probability: ALWAYS, flags: EVERY_PEER, level: 1, ..PacketRule::default() }
}

pub(crate) fn load(net: &Net) -> Fault {
    Fault::load(net, ROOM)
}

/// Loads the programs that this hook is among.
pub(crate) fn load_for(net: &Net, hook: Hook) -> Fault {
    let family = match hook {
        Hook::Reject => Family::Answers,
        Hook::Dns => Family::Dns,
        Hook::Drop | Hook::Reset | Hook::Divert => Family::Packets,
        Hook::Detain => Family::DnsDetour,
    };
    Fault::of(net, family, ROOM)
}

/// Loads, attaches to the node's device and arms for long.
pub(crate) fn armed(
    net: &Net,
    hook: Hook,
    directions: &[Direction],
    rule: &PacketRule,
    peers: &[&str],
) -> Fault {
    let mut fault = load_for(net, hook);
    set_rule(&mut fault, rule, peers);
    for direction in directions {
        fault.attach(hook, *direction, DEVICE);
    }
    renew(&mut fault, LONG);
    fault
}

pub(crate) fn set_rule(programs: &mut Programs, rule: &PacketRule, peers: &[&str]) {
    let peers: Vec<IpNet> = peers.iter().map(|peer| peer.parse().unwrap()).collect();
    let flags = if peers.is_empty() { rule.flags } else { rule.flags & !EVERY_PEER };
    programs.set_rule(&PacketRule { flags, ..*rule }, &peers).unwrap();
}

pub(crate) fn renew(programs: &mut Programs, for_so_long: Duration) {
    let nanos = u64::try_from(for_so_long.as_nanos()).unwrap();
    programs.renew(boot_time_ns() + nanos).unwrap();
}
