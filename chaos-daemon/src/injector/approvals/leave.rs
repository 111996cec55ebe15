//! That others have approved of something, as it goes with a fault or a run.

use std::collections::BTreeMap;

use crate::policy::approval::Need;
use crate::request::claim::exactly;
use crate::spec::{FaultRequest, Owner};

/// What is to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::injector) struct Plan {
    /// The digest of all of it, targets included.
    pub(in crate::injector) digest: String,
    /// Who wants to.
    pub(in crate::injector) requester: Owner,
    /// As whom who wants to has logged in, where the kernel knows it.
    pub(in crate::injector) login: Option<u32>,
    /// The fault or the experiment.
    pub(in crate::injector) on: String,
    /// Stage in percent.
    pub(in crate::injector) stage: Option<u8>,
    /// What each of its faults would do.
    pub(in crate::injector) does: Vec<String>,
}

/// That a plan may be carried out: who has approved of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::injector) struct Leave {
    /// In words: `uid 1001 and uid 1002`.
    pub(in crate::injector) by: String,
    /// The numbers of the approvals.
    pub(in crate::injector) ids: Vec<String>,
    /// The digest of the plan.
    pub(in crate::injector) plan: String,
}

/// What was approved of for a fault of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfRun {
    /// What the fault was found to be when its run began.
    pub(in crate::injector) digest: String,
    pub(in crate::injector) leave: Leave,
}

/// What was approved of for a run that goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::injector) struct RunLeave {
    /// The digest of each fault, by what the fault is known by.
    pub(in crate::injector) faults: BTreeMap<String, String>,
    pub(in crate::injector) leave: Option<Leave>,
}

impl RunLeave {
    /// That of one of its faults.
    pub(in crate::injector) fn of(&self, fault: &FaultRequest) -> Option<OfRun> {
        let (digest, leave) = self.faults.get(&exactly(fault)).zip(self.leave.as_ref())?;
        Some(OfRun { digest: digest.clone(), leave: leave.clone() })
    }

    /// Who has approved of it, for people.
    pub(in crate::injector) fn by(&self) -> Option<String> {
        self.leave.as_ref().map(|leave| leave.by.clone())
    }
}

/// A run that has to be approved of, and what it would do.
pub(in crate::injector) struct Run {
    pub(in crate::injector) plan: Plan,
    pub(in crate::injector) need: Need,
    pub(in crate::injector) faults: BTreeMap<String, String>,
}
