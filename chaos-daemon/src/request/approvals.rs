//! What is asked about approvals, and what is told of them. Who asks, the injector knows itself.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::spec::Owner;

/// What is asked about approvals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum ApprovalRequest {
    /// Which there are that concern who asks.
    List,
    /// Approve of a plan.
    Approve {
        /// The whole digest of the plan.
        plan: String,
        /// Whose plan it is, where several users have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Owner>,
        /// From when on it holds, if not from now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Timestamp>,
        /// For how long, if not as long as the policy lets it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lasts: Option<Duration>,
    },
    /// Take an approval back.
    Withdraw {
        /// Its number.
        id: String,
    },
}

/// A plan for which an approval was asked, as it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// The digest of the plan.
    pub plan: String,
    /// Who wants to carry it out.
    pub requester: Owner,
    /// The fault or the experiment.
    pub on: String,
    /// The stage, in percent, of a run that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<u8>,
    /// What would be done, a line for each fault.
    pub does: Vec<String>,
    /// The rule of the policy that asks for it, and why.
    pub rule: String,
    /// What it is about the plan.
    pub why: String,
    /// How many others have to approve of it.
    pub persons: usize,
    /// When it was last asked for.
    pub asked: Timestamp,
    /// Who has approved of it.
    pub given: Vec<Given>,
    /// What has used it up, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<String>,
}

/// That somebody has approved of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// By which it is withdrawn.
    pub id: String,
    /// Who.
    pub by: Owner,
    /// From when on it holds.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

/// By what the plan of a run is known: its document, its stage and whether that is skipped to, and the plans of its faults, in their
/// order.
pub fn digest_of_run(document: &str, (stage, skips): (Option<u8>, bool), faults: &[&str]) -> String {
    let all = json!({"document": document, "stage": stage, "skips": skips, "faults": faults}).to_string();
    Sha256::digest(all.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
