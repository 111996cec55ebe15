//! A fault whose target has gone, and that follows it: it waits, with nothing of it on the node, and is applied anew when what it
//! names is there again.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::inject::{self, Failed, Freshness};
use super::life::{self, Applied, TIME_UP, time_left};
use super::orders::{End, Next, Orders};
use super::state::Injector;
use super::survey::Surveyed;
use crate::host::boot_time_ns;
use crate::policy::Who;
use crate::request::{ApiError, ErrorCode, FaultState, Removal};
use crate::spec::{FaultRequest, QualifiedName};

/// How often it is looked for the target.
const LOOK: Duration = Duration::from_millis(500);
/// The most that lies between two looks, when it could not be applied again and again.
const LEAST_OFTEN: Duration = Duration::from_secs(8);

/// A fault that has lost its target.
pub(super) struct Lost<'a> {
    pub(super) name: &'a QualifiedName,
    pub(super) who: &'a Arc<Who>,
    /// What was asked for.
    pub(super) request: &'a FaultRequest,
    /// When its time is up, in nanoseconds of boot time.
    pub(super) end_ns: u64,
    /// What has gone, for people.
    pub(super) reason: &'a str,
    /// When that was noticed.
    pub(super) since: Instant,
}

/// Waits until the target is there again, and applies the fault to it. `None` when the fault has ended meanwhile.
pub(super) async fn wait(injector: &Rc<Injector>, lost: &Lost<'_>, orders: &mut Orders) -> Option<Applied> {
    let Lost { name, who, reason, .. } = *lost;
    let caller = who.caller;
    waits(injector, name, format!("{reason}; the fault waits for it"));
    tracing::info!(%name, %caller, reason, "waits for its target");
    let mut pause = LOOK;
    let (mut seen, mut refused) = (None, false);
    loop {
        let found = look(injector, lost, pause, orders).await?;
        let surveyed = match found {
            Ok(found) => found,
            // Once may be chance: a guard that stood still, a target that is somebody else's for a moment.
            Err(error) if is_final(&error) && refused => {
                end(injector, name, &format!("{reason}, and it cannot follow: {error}"), orders);
                return None;
            }
            Err(error) => {
                refused = is_final(&error);
                waits(injector, name, format!("{reason}; the fault waits for it: {error}"));
                seen = None;
                continue;
            }
        };
        // What comes into being is in other namespaces and groups for a moment: what is seen twice is there.
        let target = Some(surveyed.0.identity());
        if std::mem::replace(&mut seen, target) != target && lost.request.target.container.is_some() {
            continue;
        }
        match inject::apply_again(injector, name, lost.request, surveyed, lost.end_ns).await {
            Ok(applied) => {
                let gap = lost.since.elapsed().as_secs_f64();
                let words = format!("{reason}; it was there again, and the fault with it, after {gap:.1} s");
                tracing::info!(%name, %caller, words, "follows its target");
                injector.note_fault("fault_follows", name, Some(&words));
                injector.update(name, |active| active.note = Some(words));
                return Some(applied);
            }
            Err(Failed { error, left: None }) if is_final(&error) && refused => {
                end(injector, name, &format!("{reason}, and it cannot follow: {error}"), orders);
                return None;
            }
            Err(Failed { error, left: None }) => {
                refused = is_final(&error);
                waits(injector, name, format!("{reason}; the fault waits for it: {error}"));
                (pause, seen) = ((pause * 2).min(LEAST_OFTEN), None);
            }
            Err(Failed { error, left: Some((journal, residue)) }) => {
                let words = format!("{reason}, and it cannot follow: {error}");
                injector.update(name, |active| active.note = Some(words));
                life::undo_what_is_left(injector, name, journal, orders, &residue).await;
                return None;
            }
        }
    }
}

type Found = Result<(Surveyed, Freshness), ApiError>;

/// Looks for the target after a pause. `None` when the fault has ended meanwhile.
async fn look(injector: &Injector, lost: &Lost<'_>, pause: Duration, orders: &mut Orders) -> Option<Found> {
    let Lost { name, who, request, end_ns, reason, .. } = *lost;
    let looked = async {
        sleep(pause).await;
        inject::look_again(injector, name, request, who).await
    };
    tokio::pin!(looked);
    loop {
        // Tokio's clock stands still while the host is suspended, and boot time does not.
        let left = time_left(end_ns, boot_time_ns());
        let due = sleep_until(Instant::now() + left.unwrap_or_default());
        let ended = tokio::select! {
            biased;
            next = orders.next(due, true) => match next {
                Next::Due => format!("{TIME_UP}; {reason}"),
                Next::End(End { reason, done }) => {
                    let removal = end(injector, name, &reason, orders);
                    tell(done, removal);
                    return None;
                }
                // It has nothing to say.
                Next::Ask(_) => continue,
            },
            found = &mut looked => match time_left(end_ns, boot_time_ns()) {
                Some(_) => return Some(found),
                None => format!("{TIME_UP}; {reason}"),
            },
        };
        end(injector, name, &ended, orders);
        return None;
    }
}

fn tell(done: oneshot::Sender<Removal>, removal: Option<Removal>) {
    if let Some(removal) = removal {
        // Nobody listening any more is fine.
        drop(done.send(removal));
    }
}

fn waits(injector: &Injector, name: &QualifiedName, note: String) {
    injector.update(name, |active| {
        active.state = FaultState::Waiting;
        active.note = Some(note);
    });
}

/// Whether this will not be otherwise soon. Whatever else keeps the fault from its target may pass. The target may not be there yet, or
/// come and go, or be set up by somebody who is protected, or this node may have been too busy to look.
fn is_final(error: &ApiError) -> bool {
    matches!(error.code, ErrorCode::PolicyDenied | ErrorCode::MissingPrivilege | ErrorCode::GuardMissing)
}

/// Ends a fault of which nothing is on the node, and tells everybody who wants that.
fn end(injector: &Injector, name: &QualifiedName, reason: &str, orders: &mut Orders) -> Option<Removal> {
    injector.update(name, |active| active.note = Some(reason.to_owned()));
    let removal = injector.status_of(name).map(|status| Removal {
        name: name.clone(),
        fault_type: status.fault_type,
        evidence: status.evidence,
        likely: status.likely,
        residue: Vec::new(),
        kept: Vec::new(),
    });
    injector.retire(name);
    tracing::info!(%name, reason, "ended");
    for done in orders.take_ends() {
        tell(done, removal.clone());
    }
    removal
}
