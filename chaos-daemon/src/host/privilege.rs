//! What this process may do: the capabilities a fault needs, checked once, carried as a value.

use std::collections::BTreeSet;
use std::io;

use caps::{CapSet, Capability};
use nix::libc::RLIM_INFINITY;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::resource::{Resource, setrlimit};

/// Every capability the injector keeps; all others are dropped from its bounding set. CAP_CHOWN is used before that,
/// and only where the socket or the server's directory do not have their owners yet.
pub const INJECTOR: &[Capability] = &[
    Capability::CAP_NET_ADMIN,  // attach programs, create devices
    Capability::CAP_BPF,        // load programs and maps
    Capability::CAP_PERFMON,    // programs at security hooks, which read the kernel's memory
    Capability::CAP_SYS_ADMIN,  // setns(2), unshare(2) of a network namespace
    Capability::CAP_SYS_PTRACE, // open /proc/PID/ns/net of another user's process; see and trace targets
    Capability::CAP_KILL,       // end the server, which runs as another user; signal targets
    Capability::CAP_SETUID, // become the server's user in the server's process, and look at files as a caller
    Capability::CAP_SETGID, // likewise its group
    Capability::CAP_SETPCAP, // drop capabilities from the bounding set
];

/// What a holder of network faults keeps.
pub const NETWORK_HOLDER: &[Capability] =
    &[Capability::CAP_NET_ADMIN, Capability::CAP_BPF, Capability::CAP_PERFMON, Capability::CAP_SYS_ADMIN];

/// What a holder of faults of calls keeps once it knows its work.
pub const CALL_HOLDER: &[Capability] = &[Capability::CAP_NET_ADMIN, Capability::CAP_BPF];

/// What a holder of faults of files or sockets keeps once it knows its work.
pub const SECURITY_HOLDER: &[Capability] = &[Capability::CAP_BPF, Capability::CAP_PERFMON];

/// What the injector and the guard keep in addition where the policy allows the clock to be set wrong.
pub const CLOCK: Capability = Capability::CAP_SYS_TIME;

/// What the injector keeps in addition where its unit gives it: to take ports below 1024.
pub const LOW_PORTS: Capability = Capability::CAP_NET_BIND_SERVICE;

/// What a holder without packet programs keeps until it knows its work; see [`limit_to`] there.
pub const OTHER_HOLDER: &[Capability] = &[
    Capability::CAP_NET_ADMIN,
    Capability::CAP_SYS_ADMIN,
    CLOCK,
    LOW_PORTS,
    Capability::CAP_KILL,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
];

/// What a holder that opens something as a caller keeps until it is that caller; see [`super::Identity::assume`].
pub const CALLER_HOLDER: &[Capability] = &[Capability::CAP_SETUID, Capability::CAP_SETGID];

/// The same, of one that enters a network namespace before.
pub const CALLER_HOLDER_ELSEWHERE: &[Capability] =
    &[Capability::CAP_SYS_ADMIN, Capability::CAP_SETUID, Capability::CAP_SETGID];

/// What a holder of a port keeps: to enter its network namespace, which is given up after that, and to bind it.
pub const PORT_HOLDER: &[Capability] = &[Capability::CAP_SYS_ADMIN, LOW_PORTS];

/// What a holder that sends signals keeps: to send them, and to see which processes of other users its selector matches when
/// it sends them again.
pub const SIGNALLER: &[Capability] = &[Capability::CAP_KILL, Capability::CAP_SYS_PTRACE];

/// What a holder that stops or restarts a service keeps: systemd asks for it (`bus_verify_manage_units_async`).
pub const SERVICE_HOLDER: &[Capability] = &[Capability::CAP_SYS_ADMIN];

/// What a holder of a link keeps: to enter its network namespace, also by a process of another user, and to set it down and up.
pub const LINK_HOLDER: &[Capability] =
    &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN, Capability::CAP_SYS_PTRACE];

/// What a holder that has processes stand still keeps: to trace those of other users.
pub const TRACER: &[Capability] = &[Capability::CAP_SYS_PTRACE];

/// What the guard keeps: it undoes what any fault may have left, and ends an injector that hangs.
pub const GUARD: &[Capability] = &[
    Capability::CAP_NET_ADMIN,  // devices, queues, filters, routes
    Capability::CAP_SYS_ADMIN,  // setns(2) into the network namespaces they are in
    Capability::CAP_SYS_PTRACE, // find one that has lost its name
    Capability::CAP_KILL,       // end an injector that hangs, and the holder of a fault
    Capability::CAP_SETPCAP,    // drop capabilities from the bounding set
    CLOCK,                      // set the clock right; only if the unit allows it
];

/// Whether the calling thread may set the clock.
pub fn may_set_clock() -> bool {
    caps::has_cap(None, CapSet::Effective, CLOCK).unwrap_or(false)
}

/// Proof that this process has every capability in [`INJECTOR`]. Nothing that changes the node starts without.
#[derive(Debug, Clone, Copy)]
pub struct Privileges(());

/// Capabilities that are not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("missing {}", .missing.join(", "))]
pub struct MissingPrivilege {
    /// Names, e.g. `CAP_NET_ADMIN`.
    pub missing: Vec<String>,
}

impl Privileges {
    /// Checks the effective capabilities of the calling thread.
    ///
    /// # Errors
    /// Names every capability that is missing.
    pub fn check() -> Result<Self, MissingPrivilege> {
        has(INJECTOR.iter()).map(|()| Self(()))
    }

    /// That of a test, which changes nothing.
    #[cfg(test)]
    pub fn of_a_test() -> Self {
        Self(())
    }
}

/// Checks the effective capabilities of the calling thread for what the guard cannot do without.
///
/// # Errors
/// Names every capability that is missing.
pub fn check_guard() -> Result<(), MissingPrivilege> {
    has(GUARD.iter().filter(|cap| **cap != CLOCK))
}

fn has<'a>(wanted: impl Iterator<Item = &'a Capability>) -> Result<(), MissingPrivilege> {
    let held: BTreeSet<_> = caps::read(None, CapSet::Effective)
        .unwrap_or_default()
        .into_iter()
        .map(|cap| cap.to_string())
        .collect();
    let missing: Vec<_> = wanted.map(ToString::to_string).filter(|cap| !held.contains(cap)).collect();
    if missing.is_empty() { Ok(()) } else { Err(MissingPrivilege { missing }) }
}

/// Why rights could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// Capabilities.
    #[error("give up capabilities ({set})")]
    Capabilities {
        /// Of which set.
        set: &'static str,
        /// Why.
        #[source]
        source: caps::errors::CapsError,
    },
    /// New privileges by what is executed (prctl(2), `PR_SET_NO_NEW_PRIVS`).
    #[error("give up new privileges")]
    NewPrivileges(#[source] io::Error),
}

/// Lets this process and those that it starts have eBPF maps of any size. Before Linux 5.11 a map counts as locked memory, of which a
/// process may have 64 KiB (getrlimit(2), `RLIMIT_MEMLOCK`). The installed unit says the same by `LimitMEMLOCK=`.
///
/// # Errors
/// When the limit is lower, and may not be raised: without `CAP_SYS_RESOURCE`.
pub fn allow_maps() -> io::Result<()> {
    let release = nix::sys::utsname::uname()?;
    let numbers = release.release().to_str().unwrap_or_default().split(['.', '-']);
    let version: Vec<u32> = numbers.map_while(|number| number.parse().ok()).take(2).collect();
    if version.as_slice() >= [5, 11].as_slice() {
        return Ok(());
    }
    Ok(setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY)?)
}

/// Gives up every capability of this thread that is not in `keep`, for good: bounding, ambient, inheritable,
/// effective and permitted (capabilities(7)). What is spawned later has no more, whatever it executes (prctl(2),
/// `PR_SET_NO_NEW_PRIVS`).
///
/// # Errors
/// Names what could not be given up.
pub fn limit_to(keep: &[Capability]) -> Result<(), LimitError> {
    set_no_new_privs().map_err(|errno| LimitError::NewPrivileges(errno.into()))?;
    let keep: caps::CapsHashSet = keep.iter().copied().collect();
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).unwrap_or(false) {
        for cap in caps::runtime::procfs_all_supported(None).unwrap_or_else(|_| caps::all()) {
            if !keep.contains(&cap) {
                caps::drop(None, CapSet::Bounding, cap)
                    .map_err(|source| LimitError::Capabilities { set: "bounding", source })?;
            }
        }
    }
    caps::clear(None, CapSet::Inheritable)
        .map_err(|source| LimitError::Capabilities { set: "inheritable", source })?;
    let held = caps::read(None, CapSet::Permitted)
        .map_err(|source| LimitError::Capabilities { set: "permitted", source })?;
    let kept: caps::CapsHashSet = held.intersection(&keep).copied().collect();
    caps::set(None, CapSet::Effective, &kept)
        .map_err(|source| LimitError::Capabilities { set: "effective", source })?;
    caps::set(None, CapSet::Permitted, &kept)
        .map_err(|source| LimitError::Capabilities { set: "permitted", source })
}
