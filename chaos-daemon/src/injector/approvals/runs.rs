//! What a run would do, as far as others have to approve of it.

use super::super::claims::{By, Speaker};
use super::super::inject::cancelled;
use super::super::plans;
use super::super::state::Injector;
use super::decide::{ask, login_now};
use super::leave::{Plan, Run};
use crate::policy::approval::Risk;
use crate::request::approvals::digest_of_run;
use crate::request::claim::{Entrusted, Undertaking, exactly};
use crate::request::wire::Ticket;
use crate::request::{ApiError, PlanReport, Planned};
use crate::spec::{Fault, FaultName, FaultRequest, Owner, QualifiedName, SpecError};

/// A run as far as it has to be approved of: what its faults would hit now. `None` of one that needs no approval.
///
/// # Errors
/// [`ErrorCode::ApprovalNeeded`] without approvals; why its faults cannot be planned; and as of [`cancelled`].
pub(in crate::injector) async fn for_run(
    injector: &Injector,
    what: &Entrusted,
    speaker: &Speaker,
    ticket: &mut Ticket,
) -> Result<Option<Run>, ApiError> {
    let policy = injector.policy();
    if what.skips {
        policy.admit_skipping()?;
    }
    if policy.approval.ask_for_nothing() || what.what != Undertaking::Run {
        return Ok(None);
    }
    let faults: Vec<FaultRequest> =
        what.faults.iter().map(|fault| policy.aimed(fault).into_owned()).collect();
    let parsed: Vec<Fault> = faults.iter().map(FaultRequest::parse).collect::<Result<_, SpecError>>()?;
    let planned = tokio::select! {
        biased;
        () = ticket.cancelled() => return Err(cancelled()),
        planned = look(injector, what.owner, &faults, speaker) => planned?,
    };
    let found = planned.iter().map(|plan| {
        let targets = plan.as_ref().ok().and_then(|plan| plan.targets.as_ref());
        targets.map(|targets| targets.share * 100.0)
    });
    let risks = faults.iter().zip(&parsed).zip(found);
    let risks: Vec<_> =
        risks.map(|((request, fault), found_percent)| Risk { request, fault, found_percent }).collect();
    let Some(need) = policy.approval.need(&risks, what.skips) else { return Ok(None) };
    let planned: Vec<PlanReport> = planned.into_iter().collect::<Result<_, _>>()?;
    let digests: Vec<_> = planned.iter().map(|plan| plan.digest.as_str()).collect();
    let plan = Plan {
        digest: digest_of_run(&what.document, (what.stage, what.skips), &digests),
        requester: speaker.who.caller.owner(),
        login: login_now(speaker.who.caller),
        on: format!("experiment {}", what.owner.name_for(Owner::ROOT, &what.name)),
        stage: what.stage,
        does: planned.iter().map(|plan| plan.description.clone()).collect(),
    };
    ask(injector, &plan, &need)?;
    let known = what.faults.iter().map(exactly);
    let faults = known.zip(planned.iter().map(|plan| plan.digest.clone())).collect();
    Ok(Some(Run { plan, need, faults }))
}

/// What the faults of a run would hit now.
async fn look(
    injector: &Injector,
    owner: Owner,
    faults: &[FaultRequest],
    speaker: &Speaker,
) -> Result<Vec<Result<PlanReport, ApiError>>, ApiError> {
    let planned = faults.iter().zip(1..).map(|(fault, number)| {
        let name = QualifiedName::new(owner, FaultName::new(format!("approval.{number}"))?);
        Ok(Planned { name, fault: fault.clone(), beside: Vec::new() })
    });
    let planned: Vec<_> = planned.collect::<Result<_, SpecError>>()?;
    // As who only looks.
    let speaker = Speaker { by: By::Connection, ..speaker.clone() };
    plans::plan_all(injector, &planned, &speaker).await
}
