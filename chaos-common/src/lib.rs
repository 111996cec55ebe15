//! The contract between the eBPF programs and the daemon: names, map values, and every decision about a packet
//! as a pure function, so that the host's tests cover what the kernel will run.
//!
//! No allocation, no dependencies: this crate is compiled into the kernel object.
#![cfg_attr(not(test), no_std)]

pub mod call;
pub mod checksum;
pub mod counters;
pub mod dns;
pub mod file;
pub mod lease;
pub mod mark;
pub mod name;
pub mod packet;
pub mod reset;
pub mod rule;
pub mod socket;
pub mod unreachable;

pub use call::CallRule;
pub use counters::Counters;
pub use dns::{DnsRule, Question};
pub use file::{FileLayout, FileRule, Pin};
pub use packet::{Bytes, Packet, Unread, Version, Way};
pub use rule::PacketRule;
pub use socket::SocketLayout;

/// Changes whenever a name, a map value or the meaning of a field changes. The object carries it as the size
/// of the map [`name::ABI`], and the loader refuses an object with another one.
pub const ABI_VERSION: u32 = 6;

/// Every device is assumed to carry Ethernet headers of this length, as Ethernet, veth, bridges and the loopback
/// do. On a device without one (tun, WireGuard) no packet looks like IP to the programs, so that none is touched.
pub const LINK_HEADER: usize = 14;

/// An interface index that the kernel never gives out. Redirecting there is the one drop that is silent for the
/// sender on clsact and tcx alike: `TC_ACT_SHOT` on egress shows as ENOBUFS and TCP does not retransmit.
pub const NOWHERE: u32 = 0x7fff_ffff;

/// Slots of the map [`name::JUMP`], by direction.
pub const JUMP_SLOTS: u32 = 2;

/// Most peer prefixes and most local ports that can be protected.
pub const MOST_PROTECTED: u32 = 1024;
