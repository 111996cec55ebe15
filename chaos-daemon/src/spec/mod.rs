//! The words of the project: faults, targets, units. Pure data, parsed and bounded at the edge, so that
//! nothing further in has to check again.

pub mod answer;
pub mod blast;
pub mod calls;
pub mod category;
pub mod command;
pub mod dns;
pub mod expression;
pub mod fault;
pub mod fault_type;
pub mod files;
pub mod hoard;
pub mod host;
pub mod host_limits;
pub mod impairment;
pub mod ip;
pub mod load;
pub mod log;
pub mod mcp;
pub mod netns;
pub mod origin;
#[cfg(test)]
pub(crate) mod parameters;
mod ports;
pub mod process;
pub mod service;
pub mod sessions;
pub mod settings;
pub mod sockets;
pub mod target;
pub mod units;
pub mod windows;

pub use answer::Refusal;
pub use calls::{Connections, Errno, Failure};
pub use dns::Questions;
pub use fault::{Fault, FaultRequest};
pub use fault_type::{FAULT_TYPES, FaultType};
pub use files::FileCalls;
pub use hoard::{DiskFill, Hoard, LocalPort, MemorySize};
pub use host::{HostDown, Way};
pub use host_limits::HostLimits;
pub use impairment::{Delay, Distribution, Impairment, Loss};
pub use load::CpuLoad;
pub use log::{Log, LogRequest, LogSearch};
pub use netns::NetNsRule;
pub use ports::{PortText, Ports};
pub use process::{ProcessSelector, Share, Whose};
pub use service::ServicePackets;
pub use sessions::ConnectionLoad;
pub use settings::{CgroupSelector, IoRates, Limit, LinkRhythm};
pub use sockets::SocketCalls;
pub use target::{Direction, PortMatch, Protocol, TargetRequest, Traffic};
pub use units::{FaultName, Probability, SpecError};
