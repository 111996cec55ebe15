//! Facts about this node and its kernel, read and never changed; and what a process of ours gives up.

pub mod accounts;
pub mod addresses;
pub mod boot;
pub mod btf;
pub mod budget;
pub mod cgroup;
pub mod connections;
pub mod controller;
pub mod directory;
pub mod facts;
pub mod identity;
pub mod inherited;
pub mod interface;
#[cfg(feature = "kubernetes")]
pub mod kubeconfig;
pub mod listening;
pub mod log;
pub mod log_rates;
pub mod module;
pub mod mounts;
pub mod nameless;
pub mod nearness;
pub mod netns;
pub mod oom;
pub mod panic;
pub mod part;
pub mod place;
pub mod privilege;
pub mod process;
pub mod program;
pub mod protected;
pub mod proxy;
pub mod sandbox;
pub mod secret;
pub mod socket_file;
pub mod sshd;
pub mod supply;
mod syscalls;
pub mod usage;
pub mod words;

pub use boot::{BootId, boot_time_ns};
pub use btf::{KernelFiles, KernelSockets};
pub use cgroup::{Cgroup, CgroupRef};
pub use facts::{Facts, Lack, WhenAsked};
pub use identity::Identity;
pub use interface::Interface;
pub use module::Unusable;
pub use mounts::MountNamespace;
pub use netns::{NetNs, NetNsError, NetNsIdentity};
pub use part::Part;
pub use place::PlaceRef;
pub use privilege::{MissingPrivilege, Privileges};
pub use process::{ProcessId, Running};
pub use protected::{Aim, Open, Protected, Spared};
#[cfg(test)]
pub(crate) use syscalls::refuse;
