//! The only room whose code changes the node: packet programs, devices and queues, processes.

pub mod bpf;
pub mod clock;
pub mod down;
#[cfg(test)]
pub(crate) mod fake;
pub mod membership;
pub mod netlink;
pub mod node;
pub mod probe;
pub mod process;
pub mod proxy;
pub mod setting;
pub mod step;
pub mod systemd;
pub mod trace;
