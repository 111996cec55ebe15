//! What is asked about approvals: which there are, that one is given, and that one is taken back.

use std::time::Duration;

use chaos_audit::{Kind, Outcome, Record};
use jiff::Timestamp;

use super::super::aside::on_a_thread;
use super::super::audit;
use super::super::state::Injector;
use super::book::{Approver, Window};
use super::decide::now;
use crate::policy::{Role, Who};
use crate::request::approvals::{Approval, ApprovalRequest};
use crate::request::{Act, ApiError, Caller, ErrorCode, Reply};
use crate::spec::Owner;

/// Answers what is asked about approvals.
///
/// # Errors
/// When the policy or the rules of approvals forbid it, or it cannot be recorded.
pub(in crate::injector) async fn answer(
    injector: &Injector,
    what: ApprovalRequest,
    who: &Who,
) -> Result<Reply, ApiError> {
    let policy = injector.policy();
    policy.admit(who, Act::Look)?;
    let owner = who.caller.owner();
    let told = match what {
        ApprovalRequest::List => {
            let sees_all = policy.admit(who, Act::Approve).is_ok();
            injector.approvals.borrow().list(owner, sees_all)
        }
        ApprovalRequest::Approve { plan, of, from, lasts } => {
            let given = approve(injector, who, (&plan, of), Window { from, lasts }).await?;
            vec![given]
        }
        ApprovalRequest::Withdraw { id } => {
            let is_admin = policy.roles.of(who).contains(&Role::Admin) && who.ceiling == Role::Admin;
            let left = injector.approvals.borrow_mut().withdraw(&id, owner, is_admin)?;
            let record = Record {
                on: Some(left.on.clone()),
                approval: Some(id),
                plan_digest: Some(left.plan.clone()),
                ..injector.record("withdraw_approval", Some(who))
            };
            injector.audit.put(Kind::Act, record);
            vec![left]
        }
    };
    Ok(Reply::Approvals(told))
}

async fn approve(
    injector: &Injector,
    who: &Who,
    (plan, of): (&str, Option<Owner>),
    window: Window,
) -> Result<Approval, ApiError> {
    injector.policy().admit(who, Act::Approve)?;
    let caller = who.caller;
    let login = on_a_thread(move || login(caller)).await.unwrap_or_else(|error| Err(unknown(&error)))?;
    let record = Record {
        outcome: Outcome::Intent,
        id: Some(format!("{:016x}", rand::random::<u64>())),
        plan_digest: Some(plan.to_owned()),
        ..injector.record("approve", Some(who))
    };
    injector.before(record.clone()).await?;
    let by = Approver { who: who.clone(), login };
    let policy = injector.policy();
    policy.admit(who, Act::Approve)?;
    let valid = Duration::from_secs(policy.approval.valid_seconds);
    let given = injector.approvals.borrow_mut().sign((plan, of), by, (window, valid), now())?;
    let id = given.given.iter().find(|given| given.by == caller.owner()).map(|given| given.id.clone());
    let what = format!("of {}, {}", given.requester, given.does.join("; "));
    let (time, outcome) = (Timestamp::now(), Outcome::Done);
    let record =
        Record { time, outcome, on: Some(given.on.clone()), what: Some(what), approval: id, ..record };
    injector.audit.put(Kind::Act, record);
    Ok(given)
}

fn unknown(error: &dyn std::fmt::Display) -> ApiError {
    let text = format!("approve: it is not known who has logged in: {error}");
    ApiError::new(ErrorCode::Unavailable, text)
        .hint("let the command that approves go on until it is answered")
}

/// As whom the user of a caller's process has logged in; `None` where the kernel does not know. Blocks.
fn login(caller: Caller) -> Result<Option<u32>, ApiError> {
    match caller {
        Caller::Vsock { .. } => Ok(None),
        Caller::Unix { uid, pid, .. } => {
            audit::login_of(uid, pid).ok_or_else(|| unknown(&"the process that has connected has ended"))
        }
    }
}
