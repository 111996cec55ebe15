//! What the server does for callers, said to the injector, which has the audit. What only looks is counted here, so that a flood of it
//! does not go through the door.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chaos_audit::{Kind, Outcome, Party, Record, Shares, Who};
use jiff::Timestamp;

use super::history::ExperimentResult;
use super::runs::Run;
use crate::experiment;
use crate::request::wire::Door;
use crate::request::{ApiError, Caller, ErrorCode, Reply, Request};
use crate::spec::Owner;

/// How often it is looked what was counted for long enough.
const LOOK: Duration = Duration::from_secs(5);
/// Of how many callers it is known who they are while something of theirs is counted.
const MOST_CALLERS: usize = 1024;

/// The way to the audit. Clones share it.
#[derive(Debug, Clone)]
pub struct Ledger {
    door: Door,
    counted: Arc<Mutex<Counted>>,
}

#[derive(Debug, Default)]
struct Counted {
    shares: Shares,
    /// The way in the name of who acted last of each party.
    doors: BTreeMap<Party, Door>,
}

/// Who it is, as far as that tells one share from another; the injector says the rest.
fn who(caller: Caller) -> Who {
    match caller {
        Caller::Unix { uid, .. } => Who { uid: Some(uid), ..Who::default() },
        Caller::Vsock { cid } => Who { cid: Some(cid), ..Who::default() },
    }
}

impl Ledger {
    /// Through this door.
    pub fn new(door: Door) -> Self {
        Self { door, counted: Arc::default() }
    }

    /// The same, by this door.
    #[must_use]
    pub fn through(&self, door: Door) -> Self {
        Self { door, ..self.clone() }
    }

    /// Records what happens next, and waits until it is written.
    ///
    /// # Errors
    /// When it cannot be written, so that it must not happen.
    pub async fn before(&self, record: Record) -> Result<(), ApiError> {
        let record = Record { time: Timestamp::now(), outcome: Outcome::Intent, ..record };
        send(&self.door, Kind::Start, record).await
    }

    /// Records what has happened. What the share of the caller has no room for is counted.
    pub async fn put(&self, kind: Kind, record: Record, caller: Caller) {
        let record = Record { time: Timestamp::now(), who: Some(who(caller)), ..record };
        let party = record.party();
        let record = {
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            if counted.doors.len() >= MOST_CALLERS {
                counted.doors.clear();
            }
            counted.doors.insert(party, self.door.clone());
            counted.shares.admit(kind, record, Instant::now())
        };
        if let Some(record) = record {
            tell(&self.door, kind, record).await;
        }
    }

    /// Records what was counted for long enough, for ever.
    pub async fn keep(&self) -> Infallible {
        loop {
            tokio::time::sleep(LOOK).await;
            let due: Vec<_> = {
                let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
                let due = counted.shares.due(Instant::now(), false);
                let whose = |record: Record| {
                    let door = counted.doors.get(&record.party()).unwrap_or(&self.door).clone();
                    (record, door)
                };
                due.into_iter().map(whose).collect()
            };
            for (record, door) in due {
                tell(&door, Kind::Start, record).await;
            }
        }
    }

    /// The latest of the audit, as far as the caller may see it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn latest(&self, most: usize) -> Result<Vec<String>, ApiError> {
        match self.door.call(Request::Audit { most }).await? {
            Reply::Audit(lines) => Ok(lines),
            _ => Err(ApiError::new(ErrorCode::Unavailable, "the injector has answered something else")),
        }
    }
}

/// What cannot be said is in the log of whoever could not write it.
async fn tell(door: &Door, kind: Kind, record: Record) {
    if let Err(error) = send(door, kind, record).await {
        tracing::debug!(%error, "an act is not recorded");
    }
}

async fn send(door: &Door, kind: Kind, record: Record) -> Result<(), ApiError> {
    match door.call(Request::Record { kind, record: Box::new(record) }).await? {
        Reply::Recorded => Ok(()),
        _ => Err(ApiError::new(ErrorCode::Unavailable, "the injector has answered something else")),
    }
}

/// A record of this act, with what was refused or has failed.
pub fn refused(record: Record, error: &ApiError) -> Record {
    let code = serde_json::to_value(error.code).ok().and_then(|code| code.as_str().map(str::to_owned));
    let outcome = match error.code {
        ErrorCode::InjectionFailed | ErrorCode::RevertFailed => Outcome::Failed,
        _ => Outcome::Refused,
    };
    Record { outcome, code, rule: error.rule.clone(), reason: Some(error.message.clone()), ..record }
}

/// What is recorded of the end of a run.
pub(super) fn ended(begun: Record, result: &ExperimentResult, stopped_by: Option<&String>) -> Record {
    let verdict = result.verdict.map_or_else(|| "no verdict".to_owned(), |verdict| verdict.to_string());
    let by = stopped_by.map(|by| format!(", stopped by {by}")).unwrap_or_default();
    let (outcome, left) = match result.left.join("; ") {
        left if left.is_empty() => (Outcome::Done, left),
        left => (Outcome::Failed, format!("; left behind: {left}")),
    };
    Record { outcome, reason: Some(format!("{verdict}{by}{left}")), ..begun }
}

/// What is recorded of a run that `by` begins.
pub(super) fn begun(run: &Run, by: &str) -> Record {
    Record {
        act: "run".to_owned(),
        id: Some(run.run_id.clone()),
        run: Some(run.run_id.clone()),
        on: Some(run.name_for(Owner::ROOT)),
        what: Some(format!("begun by {by}")),
        stage: run.stage.map(|stage| stage.percent().into()),
        ..Record::default()
    }
}

/// Says in the log that a run has ended.
pub(super) fn log_end(
    caller: Caller,
    ExperimentResult { experiment_name, run_id, .. }: &ExperimentResult,
    outcome: &experiment::Outcome,
) {
    tracing::info!(%caller, experiment = experiment_name, run = run_id, ?outcome, "experiment finished");
}
