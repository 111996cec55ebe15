//! Facts about units, processes, logs and programs of this host, which only the injector can see or judge; what they mean is the
//! asker's business.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::act::Act;
use super::host_targets::{HostTargets, Wanted};
use super::leave::Leave;
use super::services::{ServicesSeen, ServicesWanted};
use crate::spec::{FaultRequest, HostLimits, LogRequest, Owner, Reach, TargetRequest};

/// What is asked. It is parsed again by who answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Question {
    /// How a systemd unit is.
    Unit(String),
    /// What the processes of a target are like.
    Processes(Box<TargetRequest>),
    /// Which entries of a log match.
    Log {
        /// Of which log, and which ones.
        request: Box<LogRequest>,
        /// How long the answer may take.
        limit: Duration,
    },
    /// What can be aimed at, and how much of it is wanted.
    Targets(Wanted),
    /// What services are like.
    Services(ServicesWanted),
    /// Whether the program at this path may be run for the asker.
    Command(String),
    /// Whether functions of these modules of Python may be called for the asker.
    Python(Vec<String>),
    /// Whether a cluster may be asked for the asker with the kubeconfig at this path.
    Kubeconfig(String),
    /// Whether what is in the file at this path may be shown for the asker to the server at an address.
    Credential {
        /// Path of the file.
        path: String,
        /// The address.
        url: String,
    },
    /// Whether this host, by its name or its address, may be asked for the asker.
    Address(String),
    /// Whether an experiment that says this of itself may begin for the asker now.
    Experiment(Box<Precautions>),
    /// Whether the asker may do this at all.
    Act(Act),
    /// Whether the asker may do this with what is named so.
    Named {
        /// What.
        act: Act,
        /// The names.
        texts: Vec<String>,
    },
    /// Whether the asker may do this with this fault, wherever that goes and however many are active.
    Fault {
        /// What.
        act: Act,
        /// The fault.
        fault: Box<FaultRequest>,
    },
    /// Whether an approval may let a stage be run out of its order.
    Skipping,
    /// What callers have to keep to here.
    Rules,
    /// What the asker may do here, whatever it is done to.
    Leave,
    /// Whether the asker may name what is this owner's.
    Naming(Owner),
}

/// What an experiment says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precautions {
    /// In which environments it may run; empty if it does not say.
    pub environments: Vec<String>,
    /// Whether a gate ends it before its time, also when nothing can be seen any more.
    pub gate: bool,
    /// Whether an alert has to fire because of it.
    pub alert: bool,
    /// Whether its blast radius has stages.
    pub stages: bool,
    /// What its document says, but for its prose: by this it is known whether it is about production.
    pub texts: Vec<String>,
}

/// What there is to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Facts {
    /// Of a unit.
    Unit(UnitFacts),
    /// Of processes.
    Processes(ProcessFacts),
    /// Of a log.
    Log(LogFacts),
    /// What can be aimed at.
    Targets(Box<HostTargets>),
    /// What services are like.
    Services(Box<ServicesSeen>),
    /// Of a program that may be run: the file that it is.
    Command(String),
    /// Of a kubeconfig that may be used: nothing of it.
    Kubeconfig,
    /// Of a credential that may be shown: nothing of it.
    Credential,
    /// Of a host that may be asked: which addresses it may have.
    Address(Reach),
    /// Of an experiment that may begin: within which limits of this host it has to stay.
    Experiment(Box<HostLimits>),
    /// Of what may be done, or named: nothing.
    Act,
    /// What callers have to keep to, as Markdown.
    Rules(String),
    /// What the asker may do.
    Leave(Box<Leave>),
}

/// A unit, as systemd knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitFacts {
    /// "active", "reloading", "inactive", "failed", "activating" or "deactivating".
    pub active: String,
    /// The state in the words of its kind, e.g. "running" or "auto-restart".
    pub sub: String,
    /// How often systemd has started it again by itself; `None` of what is no service.
    pub restarts: Option<u32>,
    /// How long it has been active; `None` when it is not.
    pub active_for: Option<Duration>,
}

/// All processes that match and may be a target, taken together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// How many there are.
    pub count: u32,
    /// How long the one has run that was started last.
    pub youngest: Option<Duration>,
    /// How long the one has run that was started first.
    pub oldest: Option<Duration>,
    /// Their open descriptors; `None` when those of one cannot be counted.
    pub descriptors: Option<u64>,
    /// Bytes of memory that they have resident; what several share counts for each.
    pub resident: Option<u64>,
}

/// The entries of a log that are meant, taken together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFacts {
    /// How many match.
    pub count: u64,
    /// How many were looked at, those among them.
    pub seen: u64,
    /// How many match and have a time that has not come yet by this host's clock; not counted.
    pub ahead: u64,
    /// The last few that match, cut, without anything that a terminal obeys.
    pub last: Vec<String>,
}
