//! What is asked about names: that something goes on in one, that it is over, and that faults end, for which none is needed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use tokio::task::spawn_local;

use super::super::approvals::decide::take_for;
use super::super::approvals::leave::{OfRun, Run};
use super::super::aside::on_a_thread;
use super::super::state::Injector;
use super::super::{facts, owners};
use super::{By, Claims, Speaker};
use crate::policy::Intent;
use crate::request::claim::{Claim, Entrusted, Undertaking};
use crate::request::facts::Question;
use crate::request::wire::Ticket;
use crate::request::{Act, ApiError, ErrorCode, Reply, Request};
use crate::spec::{FaultRequest, GivenName, QualifiedName};

/// What goes on when the daemon is started again, below the state directory. It is root's.
const FILE: &str = "grants.json";
/// One that cannot be understood.
const BROKEN: &str = "grants.json.broken";

/// Reads who has entrusted what to a daemon before. What cannot be understood is moved aside: what it was for has to be begun again.
/// Nothing of it keeps the daemon from starting, since what is left of faults has to be undone.
pub fn read(state_dir: &Path) -> Claims {
    let path = state_dir.join(FILE);
    // OPENS: root, who starts the daemon | root | the folder is root's, with all above it (`own`)
    let kept = match fs::read(&path) {
        Ok(kept) => kept,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Claims::default(),
        Err(error) => {
            tracing::error!(%error, "what schedules and searches were begun by whom cannot be read: set them again");
            return Claims::default();
        }
    };
    Claims::new(Some(&kept)).unwrap_or_else(|error| {
        tracing::error!(%error, "what schedules and searches were begun by whom cannot be understood: set them again");
        // What cannot be moved aside is written over by what is begun next.
        let _kept = fs::rename(&path, state_dir.join(BROKEN));
        Claims::default()
    })
}

/// In whose name a request is, which may be asked by what that is.
///
/// # Errors
/// When nobody is meant any more, or it is not for what goes on to ask.
pub(in crate::injector) fn speaker(
    injector: &Injector,
    claim: Claim,
    request: &Request,
) -> Result<Speaker, ApiError> {
    let speaker = injector.claims().speaker(claim)?;
    speaker.may_ask(request)?;
    Ok(speaker)
}

/// For what a fault is: for itself where somebody asks who is connected, and in a run where that goes on. Of a run it is taken then, with
/// what others have approved of for it.
///
/// # Errors
/// When the run has no such fault, or not any more.
pub(in crate::injector) fn intent(
    injector: &Injector,
    speaker: &Speaker,
    (name, fault): (&QualifiedName, &FaultRequest),
) -> Result<(Intent, Option<OfRun>), ApiError> {
    match speaker.by {
        By::Connection => Ok((Intent::Single, None)),
        By::Grant(grant, _) => {
            let of_run = injector.claims().take_fault(grant, name.owner, fault)?;
            Ok((Intent::Run, of_run))
        }
    }
}

/// Has something go on in somebody's name, which takes the approvals that it needs. What outlives the server is on disk before it is said
/// to.
///
/// # Errors
/// When the policy forbids it, too much goes on, or it cannot be written down.
pub(in crate::injector) async fn entrust(
    injector: &Injector,
    (speaker, what): (&Speaker, &Entrusted),
    to_approve: Option<Run>,
    ticket: &mut Ticket,
) -> Result<Reply, ApiError> {
    let (policy, claim) = (injector.policy(), ticket.claim());
    policy.admit_to(&speaker.who, what.owner)?;
    match what.what {
        Undertaking::Run => {
            let question = Question::Experiment(Box::new(what.says.clone()));
            facts::look(&policy, question, &speaker.who, ticket).await?;
            facts::in_time(injector, &speaker.who, what.owner)?;
        }
        Undertaking::Schedule | Undertaking::Search => policy.admit(&speaker.who, Act::Schedule)?,
    }
    // Again: whoever it was may have left meanwhile.
    let (speaker, number) = {
        let mut claims = injector.claims();
        let speaker = claims.speaker(claim)?;
        let number = claims.entrust(&speaker, claim, what)?;
        (speaker, number)
    };
    let leave = match take_for(injector, &speaker.who, to_approve) {
        Ok(leave) => leave,
        Err(error) => {
            injector.claims().release(number);
            return Err(error);
        }
    };
    let approved = leave.by();
    injector.claims().approve(number, leave);
    if what.what == Undertaking::Run {
        injector.pace.begin(what.owner, Instant::now());
    }
    let (caller, kind, owner) = (speaker.who.caller, what.what, what.owner);
    tracing::info!(%caller, ?kind, %owner, experiment = what.name, document = what.document, "entrusted");
    if what.what != Undertaking::Run || speaker.by != By::Connection {
        let written = write(injector).await;
        if let Err(error) = written {
            injector.claims().release(number);
            let text = format!("nothing is begun that cannot be written down before: {error}");
            return Err(ApiError::new(ErrorCode::Unavailable, text)
                .hint("make room where the daemon keeps its state (--state-dir)"));
        }
    }
    Ok(Reply::Entrusted { grant: number, approved })
}

/// What goes on by this claim is over.
pub(in crate::injector) async fn release(injector: &Injector, claim: Claim) -> Reply {
    if let Claim::Grant(grant) = claim {
        let outlived = injector.claims().release(grant);
        forget(injector, outlived).await;
    }
    Reply::Done
}

/// Of what outlives the server no others are in use than these. The server lets nobody in before it has this answer, so that a slow disk
/// is not waited for.
pub(in crate::injector) fn keep(injector: &Rc<Injector>, grants: &[u64]) -> Reply {
    let dropped = injector.claims().keep(grants);
    let injector = Rc::clone(injector);
    spawn_local(async move { forget(&injector, dropped).await });
    Reply::Done
}

/// What is not used any more is harmless on disk: it is dropped when the next server says what it has.
async fn forget(injector: &Injector, is_worth_it: bool) {
    if is_worth_it && let Err(error) = write(injector).await {
        tracing::warn!(%error, "what is over is still on file");
    }
}

/// Writes down what outlives the daemon, one after the other.
async fn write(injector: &Injector) -> io::Result<()> {
    let _turn = injector.writes.lock().await;
    let bytes = injector.claims().standing()?;
    let folder = injector.state_dir.clone();
    on_a_thread(move || write_in(&folder, &bytes)).await?
}

fn write_in(folder: &Path, bytes: &[u8]) -> io::Result<()> {
    let (path, fresh) = (folder.join(FILE), folder.join(format!("{FILE}.new")));
    // OPENS: root, who starts the daemon | root | the folder is root's, with all above it (`own`)
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, &path)?;
    // OPENS: root, who starts the daemon | root | the folder is root's, with all above it (`own`)
    File::open(folder)?.sync_all()
}

/// Ends a fault. Whoever has it end has to be somebody who may, or something that goes on. Otherwise it is ended in nobody's name, which
/// harms nobody: without the server every fault ends.
pub(in crate::injector) async fn remove(injector: &Injector, name: GivenName, claim: Claim) -> Reply {
    let ended = async {
        let by = ender(injector, claim)?;
        let name = match (by.as_ref(), &name.owner) {
            (Some(speaker), _) => owners::to_end(injector, name, speaker.who.caller)?,
            (None, Some(owner)) => QualifiedName::new(*owner, name.name),
            (None, None) => return Err(injector.claims().speaker(claim).err().unwrap_or_else(unnamed)),
        };
        let removal = injector.end(&name, &format!("removed by {}", words(by.as_ref()))).await;
        Ok(Reply::Removed(removal.into_iter().collect()))
    };
    ended.await.unwrap_or_else(Reply::Error)
}

fn unnamed() -> ApiError {
    ApiError::new(ErrorCode::FaultNotFound, "whose fault is meant is not said, and nobody asks")
}

/// Ends every fault, as [`remove`] does one.
pub(in crate::injector) async fn stop_all(injector: &Rc<Injector>, claim: Claim) -> Reply {
    match ender(injector, claim) {
        Ok(by) => {
            let by = words(by.as_ref());
            tracing::warn!(caller = by, "ending every fault");
            Reply::Removed(injector.end_all(&format!("stopped by {by}")).await)
        }
        Err(error) => Reply::Error(error),
    }
}

/// Who has a fault end, if it is somebody.
fn ender(injector: &Injector, claim: Claim) -> Result<Option<Speaker>, ApiError> {
    let Ok(speaker) = injector.claims().speaker(claim) else { return Ok(None) };
    // What goes on ends its faults whatever has become of its caller's role.
    if speaker.by == By::Connection {
        injector.policy().admit(&speaker.who, Act::End)?;
    }
    Ok(Some(speaker))
}

fn words(by: Option<&Speaker>) -> String {
    by.map_or_else(|| "the server, in nobody's name".to_owned(), |speaker| speaker.who.caller.to_string())
}
