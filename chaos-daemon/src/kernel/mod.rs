//! The only room whose code changes the node.

pub mod bpf;
pub mod netlink;
pub mod netns;
