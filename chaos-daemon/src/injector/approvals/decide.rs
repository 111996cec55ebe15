//! Whether a fault or a run may begin as far as others have to approve of it.

use chaos_audit::{Kind, Record};
use jiff::Timestamp;

use super::super::audit::login_of;
use super::super::state::Injector;
use super::book::{Lack, Moment};
use super::leave::{Leave, OfRun, Plan, Run, RunLeave};
use crate::host::boot_time_ns;
use crate::policy::approval::{Need, Risk};
use crate::policy::{Intent, Who};
use crate::request::{Act, ApiError, Caller, ErrorCode};
use crate::spec::{Fault, FaultRequest, QualifiedName};

/// What was found for a fault that was decided upon.
pub(in crate::injector) struct Found<'a> {
    pub(in crate::injector) request: &'a FaultRequest,
    pub(in crate::injector) fault: &'a Fault,
    /// The share of the processes that match which it would hit, in percent.
    pub(in crate::injector) percent: Option<f64>,
    /// By what all of it is known.
    pub(in crate::injector) digest: &'a str,
    pub(in crate::injector) description: &'a str,
}

pub(super) fn now() -> Moment {
    Moment { wall: Timestamp::now(), boot_ns: boot_time_ns() }
}

/// The refusal of what has to be approved of, and what to do.
fn needed(plan: &Plan, need: &Need, lack: &Lack) -> ApiError {
    let Need { rule, persons, why } = need;
    let text = format!("{} needs an approval, because {why}: {lack}", plan.on);
    let who = if *persons == 1 {
        "another user who is an approver here has"
    } else {
        "two other users who are approvers here have"
    };
    let error = ApiError::new(ErrorCode::ApprovalNeeded, text).hint(format!(
        "rule `{rule}` of the daemon's policy file: {who} to run `chaosctl approve {}`; then ask again",
        plan.digest
    ));
    ApiError { rule: Some(rule.clone()), ..error }
}

/// Asks for the leave to carry a plan out now; without it, notes that it is wanted.
pub(super) fn ask(injector: &Injector, plan: &Plan, need: &Need) -> Result<Leave, ApiError> {
    let policy = injector.policy();
    let is_approver = |who: &Who| policy.admit(who, Act::Approve).is_ok();
    let mut book = injector.approvals.borrow_mut();
    let key = (plan.requester, plan.digest.as_str());
    book.leave(key, (need, &plan.on), now(), is_approver).map_err(|lack| {
        book.ask(plan.clone(), need.clone(), now());
        needed(plan, need, &lack)
    })
}

/// Takes the leave to carry a plan out: its approvals are used up, whatever becomes of it.
fn take(injector: &Injector, who: &Who, plan: &Plan, need: &Need) -> Result<Leave, ApiError> {
    let leave = ask(injector, plan, need)?;
    let used = format!("{} at {:.0}", plan.on, Timestamp::now());
    injector.approvals.borrow_mut().use_up((plan.requester, &plan.digest), used);
    let record = Record {
        on: Some(plan.on.clone()),
        what: Some(format!("approved by {}", leave.by)),
        approval: Some(leave.ids.join(",")),
        plan_digest: Some(plan.digest.clone()),
        stage: plan.stage.map(u32::from),
        rule: Some(need.rule.clone()),
        ..injector.record("use_approval", Some(who))
    };
    injector.audit.put(Kind::Start, record);
    Ok(leave)
}

/// Notes that nothing of what was let was begun.
pub(in crate::injector) fn give_back(injector: &Injector, who: &Who, leave: Option<&Leave>) {
    if let Some(leave) = leave {
        injector.approvals.borrow_mut().give_back(who.caller.owner(), leave);
    }
}

/// What about a fault that is to be injected decides whether it has to be approved of.
fn need_of(injector: &Injector, found: &Found<'_>) -> Option<Need> {
    let risk = Risk { request: found.request, fault: found.fault, found_percent: found.percent };
    injector.policy().approval.need(&[risk], false)
}

/// As whom somebody has logged in who asks now; nothing where that is not known. It reads a few lines of procfs, which never wait.
pub(super) fn login_now(caller: Caller) -> Option<u32> {
    match caller {
        Caller::Unix { uid, pid, .. } => login_of(uid, pid).flatten(),
        Caller::Vsock { .. } => None,
    }
}

fn plan_of(name: &QualifiedName, who: &Who, (digest, description): (&str, &str)) -> Plan {
    Plan {
        digest: digest.to_owned(),
        requester: who.caller.owner(),
        login: login_now(who.caller),
        on: format!("fault {name}"),
        stage: None,
        does: vec![description.to_owned()],
    }
}

/// The leave to inject a fault that was decided upon, if it needs one. By itself it is approved of now. In a run it was when that began, and
/// is what was found then.
///
/// # Errors
/// [`ErrorCode::ApprovalNeeded`] with the rule and what to do; [`ErrorCode::PlanChanged`] in a run whose target is another by now.
pub(in crate::injector) fn admit(
    injector: &Injector,
    (name, who): (&QualifiedName, &Who),
    found: &Found<'_>,
    (intent, of_run): (Intent, Option<OfRun>),
) -> Result<Option<Leave>, ApiError> {
    let shown = name.shown_to(who.caller);
    if let Some(OfRun { digest, leave }) = of_run {
        if digest == found.digest {
            return Ok(Some(leave));
        }
        let text = format!(
            "inject {shown}: {} approved of another target: what would be hit now is not what was there when its run began",
            leave.by
        );
        return Err(
            ApiError::new(ErrorCode::PlanChanged, text).hint("plan it again, and have it approved again")
        );
    }
    let Some(need) = need_of(injector, found) else { return Ok(None) };
    let plan = plan_of(name, who, (found.digest, found.description));
    match intent {
        Intent::Single => take(injector, who, &plan, &need).map(Some),
        _ => {
            let Need { rule, why, .. } = need;
            let text = format!(
                "inject {shown}: it needs an approval, because {why}, and its run has begun without one"
            );
            let error = ApiError::new(ErrorCode::ApprovalNeeded, text);
            Err(ApiError { rule: Some(rule), ..error.hint("begin the run anew, which asks for one") })
        }
    }
}

/// Says with the plan of a single fault whether an approval has to come first, and notes that it is wanted.
pub(in crate::injector) fn tell(
    injector: &Injector,
    (name, who): (&QualifiedName, &Who),
    found: &Found<'_>,
) -> Option<String> {
    let need = need_of(injector, found)?;
    let plan = plan_of(name, who, (found.digest, found.description));
    Some(match ask(injector, &plan, &need) {
        Ok(leave) => format!("approved by {}, once", leave.by),
        Err(error) => error.in_full(),
    })
}

/// Takes the leave for a run that begins.
///
/// # Errors
/// When it was used meanwhile, withdrawn, or is over.
pub(in crate::injector) fn take_for(
    injector: &Injector,
    who: &Who,
    run: Option<Run>,
) -> Result<RunLeave, ApiError> {
    let Some(Run { plan, need, faults }) = run else { return Ok(RunLeave::default()) };
    let leave = take(injector, who, &plan, &need)?;
    Ok(RunLeave { faults, leave: Some(leave) })
}
