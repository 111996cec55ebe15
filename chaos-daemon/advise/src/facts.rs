//! What is known of a service.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Something that a service has an amount of, up to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gauge {
    /// Memory, in bytes.
    Memory,
    /// Open descriptors of the process that is closest to its limit.
    Descriptors,
    /// Connections that others have to it, up to the descriptors of who has them.
    Sessions,
    /// Bytes of the file system to which it writes.
    Disk,
    /// Processes and threads.
    Tasks,
}

/// Every gauge.
pub const GAUGES: &[Gauge] = &[Gauge::Memory, Gauge::Descriptors, Gauge::Sessions, Gauge::Disk, Gauge::Tasks];

impl Gauge {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Descriptors => "open descriptors",
            Self::Sessions => "sessions",
            Self::Disk => "disk",
            Self::Tasks => "tasks",
        }
    }

    /// Whether it is counted in bytes.
    pub fn in_bytes(self) -> bool {
        matches!(self, Self::Memory | Self::Disk)
    }
}

/// How much there is, and how much there can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// How much there is.
    pub used: f64,
    /// How much there can be.
    pub limit: f64,
}

/// For how long something of a service has stood still for want of something, in seconds since it is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stalled {
    /// For want of a processor.
    pub cpu: f64,
    /// For want of memory.
    pub memory: f64,
    /// For block devices.
    pub io: f64,
}

/// One look at a service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// When, in seconds by a clock that does not jump.
    pub at: f64,
    /// What it had.
    pub gauges: BTreeMap<Gauge, Level>,
    /// How long it has stood still, if the kernel says so.
    pub stalled: Option<Stalled>,
    /// Connections that wait to be accepted.
    pub waiting: u32,
}

/// Lines of a log that tell of errors.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Errors {
    /// How many are recent.
    pub recent: u64,
    /// How many there would be by what was usual before.
    pub expected: f64,
    /// The last one.
    pub example: String,
}

/// Somebody to whom a service has connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// How many connections.
    pub connections: u32,
    /// Whether a run has cut it off, or disturbed it.
    pub failed_before: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The service bore it.
    Held,
    /// It did not.
    Broke,
    /// Nothing was shown.
    Nothing,
}

/// At which stage of its blast radius a run was, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage(pub u8);

/// A run with a fault that was aimed at the service.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// Its handle.
    pub run_id: String,
    /// What was run.
    pub experiment: String,
    /// Types of its faults.
    pub kinds: Vec<String>,
    /// How long ago it began, in seconds.
    pub seconds_ago: f64,
    /// How it ended.
    pub outcome: Outcome,
    /// The stage, of one with stages.
    pub stage: Option<Stage>,
    /// Whether an alert fired because of it.
    pub alerted: bool,
}

/// Another service that broke, and is like this one.
#[derive(Debug, Clone, PartialEq)]
pub struct Likeness {
    /// The run in which that one broke.
    pub run_id: String,
    /// The type of fault by which it did.
    pub kind: String,
    /// How alike the two are, from 0 to 1.
    pub similarity: f64,
}

/// What is known of one service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Service {
    /// Name, by which it is told.
    pub name: String,
    /// Looks at it, the oldest first.
    pub looks: Vec<Look>,
    /// How often it was started anew.
    pub restarts: u32,
    /// How many of its processes the kernel has killed for want of memory.
    pub oom_kills: u64,
    /// What its log says of errors; none where nobody has looked.
    pub errors: Option<Errors>,
    /// To whom it has connections.
    pub dependencies: Vec<Dependency>,
    /// Where it accepts connections on this host.
    pub listens: Vec<(IpAddr, u16)>,
    /// A file of its own that it has open for writing.
    pub writes: Option<String>,
    /// Whether a service manager can restart it.
    pub managed: bool,
    /// Whether somebody starts it again by itself.
    pub supervised: bool,
    /// Runs that were about it, the oldest first.
    pub tried: Vec<Tried>,
    /// What it is like.
    pub likeness: Option<Likeness>,
}
