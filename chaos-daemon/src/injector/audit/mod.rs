//! The audit of the injector: who did what, written beside the loop by a thread of its own. What begins waits until its line is
//! written; what ends never waits.

mod door;
mod ear;
mod fault;
mod read;
mod who;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chaos_audit::{Audit, AuditOptions, Fallen, Folder, Kind, Limits, Outcome, Record};
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Options;
use super::aside::Places;
use super::state::Injector;
use crate::policy::Who;
use crate::request::{AUDIT, ApiError, Caller, ErrorCode};

pub(super) use door::{Noted, told};
pub(super) use fault::Begun;
pub(super) use who::login_of;

/// How much one segment takes, in bytes.
const SEGMENT: u64 = 16 << 20;
/// How long whatever begins waits until its line is written: a disk that takes longer does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How much of a processor one look at the audit may take.
const LONGEST_LOOK: Duration = Duration::from_secs(4);
/// So many look at once, one of a user.
static PLACES: Places = Places::new(2, 1, Some(LONGEST_LOOK), "looks at the audit");

/// Begins the audit of a daemon.
///
/// # Errors
/// When there are no threads to be had. A folder that cannot be written is tried again and again, and nothing begins meanwhile.
pub(super) fn open(options: &Options) -> io::Result<Audit> {
    let folder = folder(&options.state_dir);
    let all = options.audit_megabytes << 20;
    let limits = Limits { segment: SEGMENT.min(all / 4), all };
    let (ear, mut looker) = (ear::Told::new(&folder), who::Looker::default());
    Audit::start(AuditOptions {
        open: move || Folder::open(&folder, limits),
        complete: move |record: &mut Record| looker.complete(record),
        ear,
    })
}

/// What the daemon does by itself, or what is done to it from outside.
fn of_daemon(act: &str) -> Record {
    Record { time: Timestamp::now(), act: act.to_owned(), ..Record::default() }
}

/// The latest lines that a caller may see.
///
/// # Errors
/// When they cannot be read now.
pub(super) async fn lines(injector: &Injector, most: usize, caller: Caller) -> Result<Vec<String>, ApiError> {
    let folder = injector.site.audit.clone();
    PLACES.look(caller.into(), move || read::latest(&folder, caller.owner(), most)).await
}

/// What is said of an error.
fn because(record: Record, error: &ApiError) -> Record {
    let outcome = match error.code {
        ErrorCode::InjectionFailed | ErrorCode::RevertFailed => Outcome::Failed,
        _ => Outcome::Refused,
    };
    let code = serde_json::to_value(error.code).ok();
    Record {
        time: Timestamp::now(),
        outcome,
        code: code.and_then(|code| code.as_str().map(str::to_owned)),
        rule: error.rule.clone(),
        reason: Some(error.message.clone()),
        ..record
    }
}

impl Injector {
    /// A record of what somebody wants, now.
    pub(super) fn record(&self, act: &str, who: Option<&Who>) -> Record {
        let policy = self.policy();
        let who = who.map(|who| {
            let roles = policy.roles.of(who).into_iter().map(|role| role.name());
            who::who(who, roles.collect::<Vec<_>>().join(","))
        });
        Record { who, policy: Some(policy.digest.clone()), ..of_daemon(act) }
    }

    /// Records what the daemon does by itself.
    pub(super) fn note(&self, act: &str, what: impl Into<String>) {
        let policy = Some(self.policy().digest.clone());
        self.audit.put(Kind::Start, Record { what: Some(what.into()), policy, ..of_daemon(act) });
    }

    /// Records what a caller was refused, or what has failed for them.
    fn refused(&self, record: Record, error: &mut ApiError) {
        if !error.recorded {
            error.recorded = true;
            self.audit.put(Kind::Act, because(record, error));
        }
    }

    /// Waits until the line of what is to begin is written.
    ///
    /// # Errors
    /// When it cannot be: what cannot be recorded does not begin.
    pub(super) async fn before(&self, record: Record) -> Result<(), ApiError> {
        let (tell, told) = oneshot::channel();
        // Who waits no more has gone.
        self.audit.before(record, move |done| drop(tell.send(done)));
        let why = match timeout(PATIENCE, told).await {
            Ok(Ok(Ok(()))) => return Ok(()),
            Ok(Ok(Err(fallen))) => fallen,
            Ok(Err(_)) => Fallen::Unwritten("the thread that writes has ended".to_owned()),
            Err(_) => Fallen::Unwritten(format!("the disk has not answered within {PATIENCE:?}")),
        };
        let (code, hint) = match why {
            Fallen::TooOften => (ErrorCode::LimitReached, "wait, or do less often what changes this host"),
            Fallen::Full | Fallen::Unwritten(_) => (
                ErrorCode::Unavailable,
                "make room where the daemon keeps its state (--state-dir); stopping works all the same",
            ),
        };
        let text = format!("{why}: what cannot be recorded does not begin");
        Err(ApiError::new(code, text).hint(hint))
    }
}

/// Where a daemon with this folder for what outlives a boot has its audit.
pub(super) fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join(AUDIT)
}
