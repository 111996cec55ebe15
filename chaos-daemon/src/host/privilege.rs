//! What this process may do: the capabilities a fault needs, checked once, carried as a value.

use std::collections::BTreeSet;

use caps::{CapSet, Capability};

/// Every capability the injector keeps; all others are dropped from its bounding set. CAP_CHOWN is used before that,
/// and only where the socket or the server's directory do not have their owners yet.
pub const INJECTOR: &[Capability] = &[
    Capability::CAP_NET_ADMIN,  // attach programs, create devices
    Capability::CAP_BPF,        // load programs and maps
    Capability::CAP_PERFMON,    // programs that read kernel memory by BTF
    Capability::CAP_SYS_ADMIN,  // setns(2), unshare(2) of a network namespace
    Capability::CAP_SYS_PTRACE, // open /proc/PID/ns/net of another user's process
    Capability::CAP_KILL,       // end the server, which runs as another user
    Capability::CAP_SETUID,     // become the server's user in the server's process
    Capability::CAP_SETGID,     // likewise its group
    Capability::CAP_SETPCAP,    // drop capabilities from the bounding set
];

/// What a holder of network faults keeps.
pub const NETWORK_HOLDER: &[Capability] =
    &[Capability::CAP_NET_ADMIN, Capability::CAP_BPF, Capability::CAP_PERFMON, Capability::CAP_SYS_ADMIN];

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
        let held: BTreeSet<_> = caps::read(None, CapSet::Effective)
            .unwrap_or_default()
            .into_iter()
            .map(|cap| cap.to_string())
            .collect();
        let missing: Vec<_> =
            INJECTOR.iter().map(ToString::to_string).filter(|cap| !held.contains(cap)).collect();
        if missing.is_empty() { Ok(Self(())) } else { Err(MissingPrivilege { missing }) }
    }
}

/// Why capabilities could not be given up.
#[derive(Debug, thiserror::Error)]
#[error("give up capabilities ({set})")]
pub struct LimitError {
    set: &'static str,
    #[source]
    source: caps::errors::CapsError,
}

/// Gives up every capability of this thread that is not in `keep`, for good: bounding, ambient, inheritable,
/// effective and permitted (capabilities(7)). What is spawned later has no more.
///
/// # Errors
/// Names the set that could not be reduced.
pub fn limit_to(keep: &[Capability]) -> Result<(), LimitError> {
    let keep: caps::CapsHashSet = keep.iter().copied().collect();
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).unwrap_or(false) {
        for cap in caps::runtime::procfs_all_supported(None).unwrap_or_else(|_| caps::all()) {
            if !keep.contains(&cap) {
                caps::drop(None, CapSet::Bounding, cap)
                    .map_err(|source| LimitError { set: "bounding", source })?;
            }
        }
    }
    caps::clear(None, CapSet::Inheritable).map_err(|source| LimitError { set: "inheritable", source })?;
    let held =
        caps::read(None, CapSet::Permitted).map_err(|source| LimitError { set: "permitted", source })?;
    let kept: caps::CapsHashSet = held.intersection(&keep).copied().collect();
    caps::set(None, CapSet::Effective, &kept).map_err(|source| LimitError { set: "effective", source })?;
    caps::set(None, CapSet::Permitted, &kept).map_err(|source| LimitError { set: "permitted", source })
}
