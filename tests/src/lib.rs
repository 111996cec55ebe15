//! Tests of chaos-daemon against real kernels: guards that clean up, independent measurements, and the tests that
//! run both on the host and in the VM.
//!
//! Two kinds of tests live here. Files in `tests/tests/` are plain `#[test]`s that need root. Modules of
//! [`kernel`] are registered in one binary, `kernel-tests`. `test-runner` runs either, one process per test, and
//! refuses a skip that its environment does not excuse. Which of them a VM runs, `xtask/src/vm/image.rs` lists.

pub mod aftermath;
mod agent;
pub mod asked;
pub mod bench;
pub mod bpf;
pub mod bystander;
pub mod caller;
pub mod cells;
pub mod cgroup;
pub mod claimant;
pub mod daemon;
pub mod demo;
pub mod disk;
mod error;
pub mod fault;
pub mod flow;
pub mod guard;
pub mod hostile;
pub mod jobs;
pub mod kernel;
pub mod kills;
pub mod kinds;
pub mod late;
pub mod matrix;
pub mod mcp;
pub mod measure;
pub mod mounts;
pub mod name_server;
pub mod netns;
pub mod pair;
pub mod plug;
pub mod process;
pub mod programs;
pub mod rate;
pub mod residue;
pub mod runner;
pub mod sabotage;
pub mod sandbox;
pub mod seccomp;
pub mod shop;
pub mod skip;
pub mod soak;
pub mod stall;
pub mod sweep;
pub mod systemd;
pub mod terminal;
pub mod tools;
pub mod touch;
pub mod trace;
pub mod uptime;
pub mod victim;
pub mod weak;
pub mod wire;
pub mod worker;

pub use daemon::Daemon;
pub use error::{Error, Result};
pub use flow::UdpFlow;
pub use late::HANG;
pub use mcp::Mcp;
pub use netns::NetNs;
pub use pair::Pair;
pub use residue::Residue;
pub use skip::{Reason, skip};
pub use wire::Wire;

#[cfg(test)]
mod readme;
mod server;
#[cfg(test)]
mod switches;
