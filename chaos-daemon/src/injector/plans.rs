//! What injecting would do: the way of an injection up to where it would begin.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::iter;
use tokio::task::yield_now;

use super::approvals::decide::tell;
use super::aside::Purpose;
use super::claims::{By, Speaker};
use super::inject::{Admitted, Freshness, ask, decide};
use super::owners::Taken;
use super::state::{Injector, Standing, settings};
use super::survey::{self, Preview};
use super::together::{Seat, refuse_beside};
use super::watch::words as guard_words;
use crate::host::budget;
use crate::kernel::step::Step;
use crate::policy::{Intent, Who};
use crate::request::{ApiError, PlanReport, Planned};
use crate::spec::LifetimeClass;
use crate::spec::{FaultRequest, QualifiedName};

/// How many hosts that the faults of one experiment name are looked up at once.
const MOST_NAMES_AT_ONCE: usize = 4;
/// How much of a processor the looks at the faults of one experiment may take, all of them.
const LONGEST_OF_ALL: Duration = Duration::from_secs(15);

/// What an injection would do; refused where the injection would be.
pub(super) async fn plan(
    injector: &Injector,
    name: &QualifiedName,
    request: &FaultRequest,
    who: &Arc<Who>,
) -> Result<PlanReport, ApiError> {
    let asked = ask(injector, name, request, (who, Purpose::Look, Intent::Plan), Standing::New).await?;
    let turn = survey::turn(who.caller, Purpose::Look).await?;
    let site = Arc::clone(&injector.site);
    let surveyed = turn.run(move || survey::look(&site, asked)).await?;
    let admitted = decide(injector, request, surveyed, Freshness::Fresh)?;
    let approval = tell(injector, (name, who), &admitted.found());
    let mut preview = preview(admitted);
    preview.report.warnings.extend(approval);
    turn.run(move || Ok(survey::tell(preview))).await
}

/// What injecting each of these would do, at a time when those that it names are active beside it. In the name of a
/// run they come before who only looks.
///
/// # Errors
/// When they cannot be looked at now.
pub(super) async fn plan_all(
    injector: &Injector,
    faults: &[Planned],
    speaker: &Speaker,
) -> Result<Vec<Result<PlanReport, ApiError>>, ApiError> {
    let (purpose, intent) = match speaker.by {
        By::Grant(..) => (Purpose::Injection, Intent::Run),
        By::Connection => (Purpose::Look, Intent::PlanOfRun),
    };
    let who = &speaker.who;
    let look = (who, purpose, intent);
    let asked = faults.iter().map(|fault| ask(injector, &fault.name, &fault.fault, look, Standing::New));
    let asked: Vec<_> = iter(asked).buffered(MOST_NAMES_AT_ONCE).collect().await;
    let turn = survey::turn(who.caller, purpose).await?.of(LONGEST_OF_ALL);
    let site = Arc::clone(&injector.site);
    let surveyed = turn.run(move || {
        let mut all = Vec::new();
        for asked in asked {
            all.push(asked.and_then(|asked| survey::look(&site, asked)));
            budget::check()?;
        }
        Ok(all)
    });
    let mut plans = Vec::new();
    for (fault, surveyed) in faults.iter().zip(surveyed.await?) {
        // Heartbeats, and whoever wants a fault to end, come between two of them.
        yield_now().await;
        plans.push(surveyed.and_then(|surveyed| decide(injector, &fault.fault, surveyed, Freshness::Fresh)));
    }
    let refusals: Vec<_> = (0..faults.len())
        .map(|number| refuse_together(injector, (who, intent), (faults, &plans), number).err())
        .collect();
    let previews = plans.into_iter().zip(refusals).map(|(admitted, refused)| match refused {
        Some(refused) => Err(refused),
        None => admitted.map(preview),
    });
    let previews: Vec<_> = previews.collect();
    turn.run(move || Ok(previews.into_iter().map(|preview| preview.map(survey::tell)).collect())).await
}

/// Refuses the fault of this number for those that would be active beside it.
fn refuse_together(
    injector: &Injector,
    asker: (&Who, Intent),
    (faults, plans): (&[Planned], &[Result<Admitted, ApiError>]),
    number: usize,
) -> Result<(), ApiError> {
    let seat = |number: usize| {
        let (planned, admitted) = (faults.get(number)?, plans.get(number)?.as_ref().ok()?);
        Some(Seat {
            name: &planned.name,
            fault: &admitted.fault,
            lifetime: admitted.plan.lifetime,
            settings: settings(&admitted.plan.steps),
        })
    };
    let (Some(new), Some(planned)) = (seat(number), faults.get(number)) else { return Ok(()) };
    let beside: Vec<_> = planned.beside.iter().filter_map(|other| seat(*other)).collect();
    let active = Taken::of(injector.active.borrow().keys().map(|name| name.owner), new.name.owner);
    refuse_beside(&injector.policy(), asker, active, &new, &beside.iter().collect::<Vec<_>>())
}

/// What is to be told of a plan.
fn preview(admitted: Admitted) -> Preview {
    let report = report(&admitted);
    let named = admitted.target.as_ref().is_some_and(|target| target.netns_name.is_some());
    let netns = admitted.place.map(|(netns, ..)| netns).filter(|_| named);
    Preview { report, netns, targets: admitted.targets, work: admitted.plan.work }
}

fn report(admitted: &Admitted) -> PlanReport {
    let holder = "start a holder process, which owns the fault; undo: end it".to_owned();
    let steps = admitted.plan.steps.iter().map(Step::words);
    let lasting = admitted.plan.lifetime;
    let work = admitted.plan.work.words().into_iter().map(|words| match lasting {
        LifetimeClass::Irreversible => format!("{words}; undo: none"),
        _ => format!("{words}; undo: goes with the holder"),
    });
    PlanReport {
        description: admitted.plan.description.clone(),
        lifetime: admitted.plan.lifetime,
        guard: guard_words(&admitted.guard, admitted.plan.lifetime),
        duration: admitted.fault.duration,
        digest: admitted.digest.clone(),
        targets: None,
        restarts: Vec::new(),
        warnings: admitted.refused_now.iter().chain(&admitted.warning).cloned().collect(),
        steps: std::iter::once(holder).chain(steps).chain(work).collect(),
    }
}
