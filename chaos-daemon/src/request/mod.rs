//! The only door between the unprivileged server and the privileged injector: one [`Request`], one [`Reply`].
//!
//! Both sides speak length-prefixed JSON over a socketpair (see [`wire`]).

pub mod act;
mod advice;
pub mod approvals;
mod causes;
pub mod claim;
pub mod descriptors;
pub mod evidence;
pub mod facts;
pub mod fields;
pub mod host_targets;
pub mod leave;
pub mod line;
pub mod names;
pub mod residue;
pub mod services;
pub mod targets;
pub mod wire;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spec::{FaultRequest, FaultType, GivenName, LifetimeClass, Owner, QualifiedName, SpecError};
pub use act::Act;
pub use causes::chain;
pub use evidence::{Evidence, Shortfall};
pub use residue::{Leftover, Level, ResidueReport};
pub use targets::TargetsReport;

/// Where an installed daemon keeps its socket and its kernel journal.
pub const RUNTIME_DIR: &str = "/run/chaos-daemon";

/// Where an installed daemon keeps what outlives a boot.
pub const STATE_DIR: &str = "/var/lib/chaos-daemon";

/// The folder with the audit, below that for what outlives a boot.
pub const AUDIT: &str = "audit";

/// Who asked, as the kernel says it (`SO_PEERCRED`); never what the caller says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caller {
    /// A process on this host.
    Unix {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// Process id when it connected, or 0 if it is not known; for log and history only.
        pid: i32,
    },
    /// The far side of a vsock, which carries no user.
    Vsock {
        /// Context id.
        cid: u32,
    },
}

impl Caller {
    /// Whose what this caller makes is.
    pub fn owner(self) -> Owner {
        match self {
            Self::Unix { uid, .. } => Owner::User(uid),
            Self::Vsock { cid } => Owner::Context(cid),
        }
    }

    /// Whether what is this owner's is for the caller to name without being an admin: one's own, and for root all.
    pub fn may_name(self, owner: Owner) -> bool {
        let own = self.owner();
        owner == own || own.is_root()
    }

    /// The same without the process: another one may have its number by now.
    #[must_use]
    pub fn without_process(self) -> Self {
        match self {
            Self::Unix { uid, gid, .. } => Self::Unix { uid, gid, pid: 0 },
            Self::Vsock { .. } => self,
        }
    }

    /// The process that asks; 0 is nobody on this host.
    pub fn process(self) -> i32 {
        match self {
            Self::Unix { pid, .. } => pid,
            Self::Vsock { .. } => 0,
        }
    }
}

impl From<Caller> for Owner {
    fn from(caller: Caller) -> Self {
        caller.owner()
    }
}

impl fmt::Display for Caller {
    /// `uid 1000, pid 4711`, without the process where it is not known; or `vsock context 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { uid, pid: 0, .. } => write!(f, "uid {uid}"),
            Self::Unix { uid, pid, .. } => write!(f, "uid {uid}, pid {pid}"),
            Self::Vsock { cid } => write!(f, "vsock context {cid}"),
        }
    }
}

/// What the server asks of the injector, in the name that its [`claim::Claim`] stands for: none of it says itself who asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Start a fault under a name that has none active: by itself for who is connected, in a run by its grant.
    Inject {
        /// Name: the caller's own, or any of an admin.
        name: QualifiedName,
        /// The fault as the caller wrote it: the injector parses it again, for it trusts nobody.
        fault: Box<FaultRequest>,
        /// What was planned: nothing else is to be done.
        plan_digest: Option<String>,
    },
    /// What `Inject` would do, without doing it.
    Plan {
        /// Name, as of `Inject`.
        name: QualifiedName,
        /// The fault as the caller wrote it.
        fault: Box<FaultRequest>,
    },
    /// What the faults of one experiment would do, without doing it.
    PlanAll {
        /// The faults.
        faults: Vec<Planned>,
    },
    /// End a fault. Succeeds when there is none, unless others have one of a name that does not say whose it is.
    Remove {
        /// Name.
        name: GivenName,
    },
    /// End every fault.
    StopAll,
    /// What is active.
    Status,
    /// Record in the audit what the server does for somebody.
    Record {
        /// What it is to the shares of the audit.
        kind: chaos_audit::Kind,
        /// What is done. Who does it the injector says.
        record: Box<chaos_audit::Record>,
    },
    /// The latest of the audit, as far as somebody may see it.
    Audit {
        /// No more lines than so many.
        most: usize,
    },
    /// What this kernel can do.
    Doctor,
    /// What of ours is left anywhere on the node.
    Residue,
    /// What a unit, processes or a log are like.
    Look {
        /// Of which, and what.
        question: facts::Question,
    },
    /// Have something go on in the caller's name when the caller is no longer connected.
    Entrust(Box<claim::Entrusted>),
    /// Whether this would be entrusted as far as others have to approve of it, without doing it.
    Approved(Box<claim::Entrusted>),
    /// What approvals there are; give one, or take one back.
    Approvals(approvals::ApprovalRequest),
    /// What was entrusted by this grant is over.
    Release,
    /// Of all that outlives the server, these grants are still in use.
    Keep {
        /// Their numbers.
        grants: Vec<u64>,
    },
}

/// A fault that is planned with others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Planned {
    /// Name, as of [`Request::Inject`].
    pub name: QualifiedName,
    /// The fault as the caller wrote it.
    pub fault: FaultRequest,
    /// The numbers of those others that may be active when this one is injected.
    pub beside: Vec<usize>,
}

/// What the injector answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// The fault is active, as read back from the kernel.
    Injected(Box<FaultStatus>),
    /// What would be done.
    Planned(Box<PlanReport>),
    /// What would be done for each, or why it would be refused, in their order.
    PlannedAll(Vec<Result<PlanReport, ApiError>>),
    /// Ended: everything that was removed, and whether residue was looked for and none found.
    Removed(Vec<Removal>),
    /// What is active, and what ended a short while ago.
    Status(Vec<FaultStatus>),
    /// It is recorded.
    Recorded,
    /// Lines of the audit.
    Audit(Vec<String>),
    /// What this kernel can do.
    Doctor(Box<DoctorReport>),
    /// What of ours is left anywhere on the node.
    Residue(Box<ResidueReport>),
    /// What a unit, processes or a log are like.
    Seen(facts::Facts),
    /// It goes on in the caller's name.
    Entrusted {
        /// By this number.
        grant: u64,
        /// Who has approved of it, where somebody had to, for people.
        approved: Option<String>,
    },
    /// Approvals: all that were asked for, or the one that was given or taken back.
    Approvals(Vec<approvals::Approval>),
    /// It is so.
    Done,
    /// Refused or failed. Nothing was changed, or all that was changed has been undone.
    Error(ApiError),
}

/// Where a fault is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultState {
    /// Being applied; not read back yet.
    Starting,
    /// Applied and read back, but nothing has met it yet.
    NoTraffic,
    /// Applied, and seen to act.
    Effective,
    /// Its target has gone, and nothing of it is on the node until the target is there again.
    Waiting,
    /// Being undone.
    Ending,
    /// Undone; nothing was left.
    Ended,
    /// Undoing failed and is being retried.
    Stuck,
}

/// One fault, as `status` shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultStatus {
    /// Name.
    pub name: QualifiedName,
    /// Type.
    pub fault_type: FaultType,
    /// Where it is in its life.
    pub state: FaultState,
    /// What binds it to its end.
    pub lifetime: LifetimeClass,
    /// Who sees to its end when the daemon cannot, for people.
    #[serde(default)]
    pub guard: String,
    /// One line for people: what it does to what.
    pub description: String,
    /// Time since it started.
    pub age: Duration,
    /// Time until it ends by itself.
    pub remaining: Duration,
    /// What it has met.
    pub evidence: Evidence,
    /// What the host that it names stands for now, and what it stood for one look-up ago.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Why it ended or what is stuck.
    pub note: Option<String>,
    /// Why it has most likely met nothing, of one that has not.
    #[serde(default)]
    pub likely: Option<String>,
    /// Who began it, for people; nobody is known of what a daemon that died has left.
    #[serde(default)]
    pub began: Option<String>,
}

/// A fault that has taken the host down before this boot, as the injector tells the server when it starts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WentDown {
    /// Name.
    pub fault: QualifiedName,
    /// Type.
    pub fault_type: FaultType,
    /// When, and for how long the host was gone, for people.
    pub words: String,
}

impl WentDown {
    /// As one word of a command line.
    pub fn to_argument(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// What [`WentDown::to_argument`] has written.
    ///
    /// # Errors
    /// When it is something else.
    pub fn from_argument(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// What removing a fault found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Removal {
    /// Name.
    pub name: QualifiedName,
    /// Type, when a fault of this name was active.
    pub fault_type: FaultType,
    /// What it had met.
    pub evidence: Evidence,
    /// Why it had most likely met nothing, of one that had not.
    #[serde(default)]
    pub likely: Option<String>,
    /// What is left on the node; empty when residue was looked for and none found.
    pub residue: Vec<String>,
    /// What somebody else has changed since, so that it was left as it is.
    #[serde(default)]
    pub kept: Vec<String>,
}

/// What an injection would do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlanReport {
    /// One line for people.
    pub description: String,
    /// What binds the fault to its end.
    pub lifetime: LifetimeClass,
    /// Who would see to its end when the daemon cannot, for people.
    #[serde(default)]
    pub guard: String,
    /// How long it would last.
    pub duration: Duration,
    /// Kernel operations, in order, each with its undo.
    pub steps: Vec<String>,
    /// What all of it is known by, for who injects it later: the fault, and what its target was found to be.
    #[serde(default)]
    pub digest: String,
    /// The processes that would be hit, but of a fault that is the whole host's.
    #[serde(default)]
    pub targets: Option<TargetsReport>,
    /// Who would start the processes anew that it kills, a line each, for people.
    #[serde(default)]
    pub restarts: Vec<String>,
    /// What to see to before it is injected, for people.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// What this kernel can do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DoctorReport {
    /// Kernel release, as `uname -r`.
    pub kernel: String,
    /// Version of the daemon.
    pub version: String,
    /// Per fault type, whether it is possible.
    pub faults: Vec<Ability>,
    /// Facts worth knowing, as `name: value`.
    pub facts: Vec<(String, String)>,
    /// Our own leftovers in the daemon's network namespace; [`Request::Residue`] looks everywhere.
    pub residue: Vec<String>,
}

/// Whether one type of fault is possible here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ability {
    /// Type.
    pub fault_type: FaultType,
    /// What is missing, by the name of module, option or capability; empty when possible.
    pub missing: Vec<String>,
    /// What would supply it.
    pub remedy: Option<String>,
    /// Of a type that is about several resources, each of them; of others, parts that need something else.
    #[serde(default)]
    pub resources: Vec<ResourceAbility>,
}

/// Whether a fault of one resource, or part of a type, is possible here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResourceAbility {
    /// Its name, as callers write it; of a part, what it is.
    pub resource: String,
    /// As in [`Ability`].
    pub missing: Vec<String>,
    /// As in [`Ability`].
    pub remedy: Option<String>,
}

/// Why a request was refused or failed, by a stable name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// A required parameter is not there.
    MissingParameter,
    /// A parameter has a value it cannot have.
    InvalidParameter,
    /// A probability is not a number from 0 to 1.
    InvalidProbability,
    /// No fault is registered under this name.
    FaultNotFound,
    /// A fault of this name is already active.
    FaultActive,
    /// No experiment is registered under this name.
    ExperimentNotFound,
    /// No run, or more than one, has this handle.
    RunNotFound,
    /// There is no schedule of this name.
    ScheduleNotFound,
    /// There is no search of this name.
    SearchNotFound,
    /// The target does not exist.
    TargetNotFound,
    /// The target is protected.
    TargetProtected,
    /// The policy does not allow it.
    PolicyDenied,
    /// The kernel lacks something.
    UnsupportedKernel,
    /// A capability or root is missing.
    MissingPrivilege,
    /// The fault outlives the daemon's processes, and no guard watches.
    GuardMissing,
    /// Too many at once.
    LimitReached,
    /// What would be done now is not what was planned.
    PlanChanged,
    /// A smaller stage of the blast radius comes first.
    StageNotDue,
    /// Others have to approve of it first.
    ApprovalNeeded,
    /// Something else was begun with this idempotency key.
    IdempotencyKeyReused,
    /// A kernel operation failed; what had been done was undone.
    InjectionFailed,
    /// Undoing failed; it is being retried.
    RevertFailed,
    /// The request is not one of the protocol's.
    MalformedRequest,
    /// The daemon cannot be reached, or a part of it died.
    Unavailable,
}

/// An error for callers: what was asked, why it cannot be, what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Stable name.
    pub code: ErrorCode,
    /// Operation, subject and cause.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The rule of the policy that refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whether the injector has recorded it in the audit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,
}

impl ApiError {
    /// An error without advice.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, rule: None, recorded: false }
    }

    /// What it says, and what to do about it, where there is one line for both.
    pub fn in_full(&self) -> String {
        match &self.hint {
            None => self.message.clone(),
            Some(hint) => format!("{}: {hint}", self.message),
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<SpecError> for ApiError {
    fn from(error: SpecError) -> Self {
        let code = match error.field.as_str() {
            field if field.ends_with("probability") => ErrorCode::InvalidProbability,
            _ if error.problem.starts_with("missing") => ErrorCode::MissingParameter,
            _ => ErrorCode::InvalidParameter,
        };
        Self::new(code, error.to_string())
    }
}
