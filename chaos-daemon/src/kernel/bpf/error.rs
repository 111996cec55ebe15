//! What can go wrong with the eBPF programs.

use std::io;

use chaos_common::ABI_VERSION;
use chaos_common::mark::MOST_LEVEL;

/// An operation on programs, maps or links that failed.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The object cannot be understood.
    #[error("reading the eBPF object")]
    Object(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The kernel refused a map.
    #[error("creating the eBPF map {map} (needs CAP_BPF)")]
    CreateMap {
        /// Name of the map.
        map: String,
        /// The kernel's reason.
        #[source]
        source: Box<aya::maps::MapError>,
    },
    /// The kernel refused a program.
    #[error("loading the eBPF program {program} (needs CAP_BPF, and CAP_NET_ADMIN or CAP_PERFMON){log}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// The last words of the verifier, each on a line of its own; empty if it was not asked.
        log: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// The object lacks a map or program, or has it in another type: it was not built from this source.
    #[error("the eBPF object has no usable {name}: rebuild it with `cargo xtask ebpf build`")]
    Missing {
        /// Name of the map or program.
        name: &'static str,
    },
    /// The object speaks another version of the contract.
    #[error("the eBPF object has contract version {found}, this program {ABI_VERSION}")]
    Abi {
        /// The object's version.
        found: u32,
    },
    /// A map could not be read or written.
    #[error("accessing the eBPF map {map}")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// The kernel's reason.
        #[source]
        source: Box<aya::maps::MapError>,
    },
    /// Many entries of a map could not be written or removed at once.
    #[error("{operation} {count} entries of the eBPF map {map}")]
    Batch {
        /// "writing" or "removing".
        operation: &'static str,
        /// Entries in the batch.
        count: usize,
        /// Name of the map.
        map: &'static str,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// More peers or protected addresses than the maps hold.
    #[error("{wanted} {what} are more than the {room} there is room for")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many were asked for.
        wanted: usize,
        /// How many fit.
        room: usize,
    },
    /// A level outside the mark's field.
    #[error("level {0} of a packet rule is not within 1 to {MOST_LEVEL}")]
    Level(u32),
    /// Neither peers nor "every peer", or both.
    #[error("a packet rule selects either peers or every peer, not both and not neither")]
    Peers,
    /// A flag that only the loader may set.
    #[error("flags {0:#x} of a packet rule are set by the loader only")]
    Flags(u32),
    /// A program could not be attached.
    #[error("attaching {program} to {interface}")]
    Attach {
        /// Name of the program.
        program: &'static str,
        /// Name of the interface.
        interface: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// A program could not be attached to a control group.
    #[error("attaching {program} to cgroup {cgroup}{}", exclusive(source))]
    AttachCgroup {
        /// Name of the program.
        program: &'static str,
        /// Path of the group.
        cgroup: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// A program could not be attached to a security hook, or what it is to see could not be shown to it.
    #[error("attaching {program} to the security hook of that name")]
    AttachSecurity {
        /// Name of the program.
        program: &'static str,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// Programs at security hooks are attached, and never run.
    #[error(
        "the kernel asks no eBPF program at its security hooks: `bpf` is not in its list of security modules"
    )]
    NotAsked,
    /// The kernel did not say what a link to a control group holds.
    #[error("reading back {program} on cgroup {cgroup}")]
    ReadBackCgroup {
        /// Name of the program.
        program: &'static str,
        /// Path of the group.
        cgroup: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// The kernel did not say what a link holds.
    #[error("reading back {program} on {interface}")]
    ReadBack {
        /// Name of the program.
        program: &'static str,
        /// Name of the interface.
        interface: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// The kernel did not say whether it has tcx.
    #[error("asking the kernel for tcx (needs CAP_NET_ADMIN)")]
    Probe(#[source] io::Error),
    /// A name does not fit into a question.
    #[error("the name {0:?} is longer than names can be")]
    Name(String),
    /// The stub could not be pointed at a program.
    #[error("letting the stub jump to {program}")]
    Jump {
        /// Name of the program.
        program: &'static str,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// Two programs want one slot of the stub.
    #[error("the stub for this direction already jumps to {occupant}")]
    StubTaken {
        /// The program that is there.
        occupant: &'static str,
    },
}

/// Why the kernel refuses what it usually allows.
fn exclusive(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            " (somebody's program there, or above, allows no others beside it: `bpftool cgroup tree` shows them)"
        }
        _ => "",
    }
}

impl BpfError {
    pub(super) fn map(map: &'static str, source: impl Into<aya::maps::MapError>) -> Self {
        Self::Map { map, source: Box::new(source.into()) }
    }

    pub(super) fn too_many(what: &'static str, wanted: usize, room: u32) -> Result<(), Self> {
        let room = room as usize;
        if wanted > room { Err(Self::TooMany { what, wanted, room }) } else { Ok(()) }
    }
}
