//! What goes on in the name of somebody who was connected when it was begun: a run, a schedule, a search. Each is bound to who began
//! it, to the owner of its faults, and to these faults. The server can begin none for who is not connected.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::approvals::leave::{OfRun, RunLeave};
use crate::host::boot_time_ns;
use crate::policy::Who;
use crate::request::claim::{Entrusted, Undertaking, exactly, roughly};
use crate::request::{ApiError, ErrorCode};
use crate::spec::{FaultRequest, Owner};

/// The most runs that go on: more than the server has.
const MOST_RUNS: usize = 128;
/// The most schedules and searches: more than the server keeps.
const MOST_STANDING: usize = 256;
/// The most faults of one, at all the stages of its document.
const MOST_FAULTS: usize = 4096;
/// The longest text for people.
const LONGEST_TEXT: usize = 512;
/// How long a run may go on at most, whatever it says.
const LONGEST_RUN: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug, Default)]
pub(super) struct Grants {
    all: BTreeMap<u64, Grant>,
}

/// Something that goes on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Grant {
    what: Undertaking,
    /// In whose name.
    pub(super) who: Who,
    /// The process that has begun it.
    #[serde(skip)]
    pub(super) process: Option<Arc<OwnedFd>>,
    /// Whose its faults are.
    owner: Owner,
    /// The name and the digest of the experiment, for people.
    name: String,
    document: String,
    /// What may be injected: of a run each once.
    faults: Vec<String>,
    /// What others have approved of, of a run.
    #[serde(skip)]
    leave: RunLeave,
    /// How many runs may still be begun, of what has a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runs: Option<u32>,
    /// When it is over, in nanoseconds of boot time, of a run.
    #[serde(skip)]
    until: Option<u64>,
}

impl Grant {
    pub(super) fn what(&self) -> Undertaking {
        self.what
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| boot_time_ns() >= until)
    }
}

impl Grants {
    /// Those that were written down.
    pub(super) fn read(text: &[u8]) -> serde_json::Result<Self> {
        Ok(Self { all: serde_json::from_slice(text)? })
    }

    /// All that outlive the server.
    pub(super) fn write(&self) -> serde_json::Result<Vec<u8>> {
        let standing = self.all.iter().filter(|(_, grant)| grant.what != Undertaking::Run);
        serde_json::to_vec(&standing.collect::<BTreeMap<_, _>>())
    }

    /// The one of this number.
    pub(super) fn find(&mut self, number: u64) -> Option<&Grant> {
        if self.all.get(&number).is_some_and(Grant::is_over) {
            self.all.remove(&number);
        }
        self.all.get(&number)
    }

    /// Another one, in the name of `who`; returns its number.
    pub(super) fn add(
        &mut self,
        who: Who,
        process: Option<Arc<OwnedFd>>,
        entrusted: &Entrusted,
    ) -> Result<u64, ApiError> {
        let Entrusted { what, owner, name, document, faults, runs, lasts, .. } = entrusted;
        let is_run = *what == Undertaking::Run;
        self.all.retain(|_, grant| !grant.is_over());
        let most = if is_run { MOST_RUNS } else { MOST_STANDING };
        let too_many = |text: String| Err(ApiError::new(ErrorCode::LimitReached, text));
        let alike = || self.all.values().filter(|grant| (grant.what == Undertaking::Run) == is_run);
        let asker = who.caller.owner();
        // One user has half, and the last are root's.
        let (all, own) = if asker.is_root() { (most, most) } else { (most - most / 8, most / 2) };
        if alike().count() >= all || alike().filter(|grant| grant.who.caller.owner() == asker).count() >= own
        {
            return too_many(format!(
                "{own} of what goes on by itself may be one user's, and {all} all users'"
            ));
        }
        if faults.len() > MOST_FAULTS || name.len() > LONGEST_TEXT || document.len() > LONGEST_TEXT {
            return too_many(format!(
                "its faults are more than {MOST_FAULTS}, or its name is longer than {LONGEST_TEXT} bytes"
            ));
        }
        let known = if *what == Undertaking::Search { roughly } else { exactly };
        let lasts = lasts.unwrap_or(LONGEST_RUN).min(LONGEST_RUN);
        let until = boot_time_ns().saturating_add(u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX));
        // What outlives the daemon is by no process: another one may have its number by then.
        let who = match is_run {
            true => who,
            false => Who { caller: who.caller.without_process(), ..who },
        };
        let grant = Grant {
            what: *what,
            who,
            process: process.filter(|_| is_run),
            owner: *owner,
            name: name.clone(),
            document: document.clone(),
            faults: faults.iter().map(known).collect(),
            leave: RunLeave::default(),
            runs: runs.filter(|_| !is_run),
            until: is_run.then_some(until),
        };
        let number = rand::random();
        self.all.insert(number, grant);
        Ok(number)
    }

    /// Begins a run by what outlives the server: of the same owner, and with no fault that it has not.
    pub(super) fn begin_run(&mut self, number: u64, run: &Entrusted) -> Result<(), ApiError> {
        let grant = self.all.get_mut(&number).ok_or_else(|| not_of_it("it has ended"))?;
        let known = if grant.what == Undertaking::Search { roughly } else { exactly };
        if run.owner != grant.owner || run.faults.iter().any(|fault| !grant.faults.contains(&known(fault))) {
            return Err(not_of_it("it has another fault, or another owner"));
        }
        if let Some(runs) = &mut grant.runs {
            *runs = runs.checked_sub(1).ok_or_else(|| not_of_it("all its runs were begun"))?;
        }
        Ok(())
    }

    /// Notes what others have approved of for a run.
    pub(super) fn approve(&mut self, number: u64, leave: RunLeave) {
        if let Some(grant) = self.all.get_mut(&number) {
            grant.leave = leave;
        }
    }

    /// Takes a fault of a run. Returns what others have approved of for it.
    pub(super) fn take_fault(
        &mut self,
        number: u64,
        owner: Owner,
        fault: &FaultRequest,
    ) -> Result<Option<OfRun>, ApiError> {
        let grant = self.all.get_mut(&number).filter(|grant| grant.what == Undertaking::Run);
        let grant = grant.ok_or_else(|| not_of_it("it has ended"))?;
        let known = exactly(fault);
        let place = grant.faults.iter().position(|granted| *granted == known);
        match place {
            Some(place) if grant.owner == owner => {
                grant.faults.swap_remove(place);
                Ok(grant.leave.of(fault))
            }
            _ => Err(not_of_it("it has no such fault, or not any more")),
        }
    }

    /// Whether the one that is gone outlives the server.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        self.all.remove(&number).is_some_and(|grant| grant.what != Undertaking::Run)
    }

    /// Drops those that outlive the server and are none of these; whether there were some.
    pub(super) fn keep(&mut self, numbers: &[u64]) -> bool {
        let before = self.all.len();
        self.all.retain(|number, grant| grant.what == Undertaking::Run || numbers.contains(number));
        self.all.len() < before
    }

    /// Drops those that do not outlive the server.
    pub(super) fn forget_runs(&mut self) {
        self.all.retain(|_, grant| grant.what != Undertaking::Run);
    }
}

fn not_of_it(why: &str) -> ApiError {
    let text = format!("what goes on in somebody's name does not do this: {why}");
    ApiError::new(ErrorCode::PolicyDenied, text)
}
