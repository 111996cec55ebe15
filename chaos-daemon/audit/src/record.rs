//! What is recorded of an act.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::chain::Hash;

/// No text of a record is longer, in characters: what callers name is theirs to choose.
const LONGEST_TEXT: usize = 400;
/// No more groups are told.
const MOST_GROUPS: usize = 32;

/// What came of an act, as far as its line knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is about to happen: a line of the same `id` says how it went, unless the daemon has died.
    Intent,
    /// It has happened.
    #[default]
    Done,
    /// It was refused, or makes no sense, and nothing has changed.
    Refused,
    /// It was tried, and went wrong.
    Failed,
}

/// One line of the audit, but for its place in the chain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When.
    pub time: Timestamp,
    /// What was done, by a stable name.
    pub act: String,
    /// What came of it.
    pub outcome: Outcome,
    /// By which the lines of one act are known; what is told at once has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Who has asked for it; without it, the daemon did it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Who>,
    /// Whether the process that speaks with callers says so, and the injector has not decided it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told_by_server: bool,
    /// On what: a fault, an experiment, a run, a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// The rest of what was asked for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The rule of the policy by which it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The stable name of why it was refused or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why, or how it went, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The approval by which it was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// By what the plan is known that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_digest: Option<String>,
    /// By what the policy is known that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The stage, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<u32>,
    /// The run that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The trace that it belongs to (W3C Trace Context).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Of how many acts this line is, where it is of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u64>,
    /// When the first of these was; `time` is when the last was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Segments that were dropped to keep within the bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Dropped>,
    /// What was mended when the chain was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mended: Option<Mended>,
}

/// The last of the lines that were dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Its number.
    pub seq: u64,
    /// Its hash, which the first line that is left has.
    pub hash: Hash,
}

/// What was found at the end of a chain that was not closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mended {
    /// How many bytes of a line that had been begun were cut off.
    pub bytes: u64,
    /// How many lines are missing of which the head says that they were synced; more than 0 is no crash.
    pub lost: u64,
}

/// Who has asked, as far as the kernel says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// User id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Supplementary groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
    /// Process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its program, as `/proc/PID/exe` has it: in the caller's own mount namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
    /// As whom its user has logged in, whoever they have become since (`/proc/PID/loginuid`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loginuid: Option<u32>,
    /// Context id of a vsock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cid: Option<u32>,
    /// What they are to the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// By which socket they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
}

/// Who has a share of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// The daemon itself.
    Daemon,
    /// A user, whatever process of theirs it is.
    User(u32),
    /// The far side of a vsock.
    Context(u32),
    /// Everybody else, when there are too many to tell apart.
    Others,
}

impl Party {
    /// Whether there is no bound on what they do: who is root can delete the files.
    pub fn is_trusted(self) -> bool {
        matches!(self, Self::Daemon | Self::User(0))
    }
}

impl Record {
    /// Whose it is.
    pub fn party(&self) -> Party {
        match &self.who {
            Some(Who { uid: Some(uid), .. }) => Party::User(*uid),
            Some(Who { cid: Some(cid), .. }) => Party::Context(*cid),
            Some(_) => Party::Others,
            None => Party::Daemon,
        }
    }

    /// The same with no text longer than the bound.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let Self { id, on, what, rule, code, reason, approval, plan_digest, policy, run, trace, .. } =
            &mut self;
        let all = [id, on, what, rule, code, reason, approval, plan_digest, policy, run, trace];
        all.into_iter().flatten().for_each(shorten);
        shorten(&mut self.act);
        if let Some(who) = &mut self.who {
            who.groups.truncate(MOST_GROUPS);
            [&mut who.exe, &mut who.role, &mut who.socket].into_iter().flatten().for_each(shorten);
        }
        self
    }
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT) {
        text.truncate(end);
        text.push('…');
    }
}
