//! What somebody may do on this host by the policy, as the injector tells it. It is what concerns who asks, and of no list more than
//! the rules of the host tell everybody.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a caller may do on this host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leave {
    /// Who asks, as the kernel says it.
    pub caller: String,
    /// The caller's roles.
    pub roles: Vec<String>,
    /// What this host is, e.g. "staging"; absent where nobody has said so, and then there are dry runs alone.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// By what the policy in force is told from another.
    pub policy: String,
    /// What the caller may not do, whatever it is done to: "plan", "probe", "register", "inject", "run" and so on.
    pub may_not: Vec<Forbidden>,
    /// The longest fault, in seconds.
    pub longest_seconds: u64,
    /// The most faults that are active at once.
    pub most_active: u64,
    /// What else bounds the caller, a line each.
    pub limits: Vec<String>,
    /// Interfaces that may be targets; absent where all may.
    #[schemars(with = "Vec<String>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Vec<String>>,
    /// When runs and faults may begin, if not at any time.
    #[schemars(with = "Windows")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// Why nothing may begin right now, if so.
    #[schemars(with = "Forbidden")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Forbidden>,
    /// What an experiment needs to be run here, each with the rule that asks for it.
    pub experiments_need: Vec<Needed>,
    /// Types of faults that nobody may inject here.
    pub forbidden_types: Vec<Forbidden>,
}

/// What is not allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forbidden {
    /// What: an act, a type of fault, or to begin.
    pub what: String,
    /// The rule of the policy file.
    pub rule: String,
    /// Why.
    pub why: String,
}

/// What an experiment needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Needed {
    /// What it is, and where it stands in a document.
    pub what: String,
    /// The rule of the policy file.
    pub rule: String,
}

/// When something may begin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Windows {
    /// Whose clock counts, by its IANA name.
    pub time_zone: String,
    /// When something may begin; empty for any time.
    pub only: Vec<String>,
    /// When nothing begins, whatever `only` says.
    pub never: Vec<String>,
}
