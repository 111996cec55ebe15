//! What the injector would do for each fault of an experiment, asked before anything is done.

use super::{Experiment, Impact};
use crate::request::wire::Door;
use crate::request::{ApiError, ErrorCode, PlanReport, Planned, Reply, Request};
use crate::spec::{FaultRequest, FaultType, QualifiedName};

/// A fault of an experiment, planned.
#[derive(Debug)]
pub struct Ahead {
    /// The number of its activity.
    pub activity: usize,
    /// What was asked.
    pub planned: Planned,
    /// What the injector would do, and who would be affected how badly; or why it would be refused.
    pub plan: Result<(PlanReport, Impact), ApiError>,
}

/// Plans every fault of an experiment; `names` has the name of each, in their order. By the door of a run it is for one that is about to
/// begin, which is admitted by what a run is admitted by.
///
/// # Errors
/// When none can be planned now.
pub async fn plan_all(
    experiment: &Experiment,
    names: Vec<QualifiedName>,
    door: &Door,
) -> Result<Vec<Ahead>, ApiError> {
    let faults = experiment.faults().zip(experiment.beside()).zip(names);
    let faults: Vec<_> = faults
        .map(|(((activity, _, fault), beside), name)| {
            (activity, Planned { name, fault: fault.clone(), beside })
        })
        .collect();
    let asked = faults.iter().map(|(_, planned)| planned.clone()).collect();
    let reports = match door.call(Request::PlanAll { faults: asked }).await? {
        Reply::PlannedAll(reports) if reports.len() == faults.len() => reports,
        other => return Err(unexpected(&other)),
    };
    let planned = faults.into_iter().zip(reports).map(|((activity, planned), report)| {
        let plan = report.and_then(|mut report| {
            report.warnings.extend(later(experiment, activity, &planned.fault));
            Ok((report.clone(), Impact::of(&planned.fault, report.targets.as_ref())?))
        });
        Ahead { activity, planned, plan }
    });
    Ok(planned.collect())
}

/// Which faults of a run that is about to begin would be refused, and why, for people.
pub(super) async fn refused(
    experiment: &Experiment,
    names: Vec<QualifiedName>,
    door: &Door,
) -> Vec<(ErrorCode, String)> {
    let refusal = |code, text: &str| (code, experiment.variables.hide(text));
    match plan_all(experiment, names, door).await {
        Ok(all) => all
            .into_iter()
            .filter_map(|ahead| {
                let (error, action) = (ahead.plan.err()?, experiment.method.get(ahead.activity)?);
                Some(refusal(error.code, &format!("{:?}: {error}", action.name)))
            })
            .collect(),
        Err(error) => vec![refusal(error.code, &format!("its faults cannot be planned: {error}"))],
    }
}

/// An answer that does not belong to the question: what was done is unknown.
pub(crate) fn unexpected(reply: &Reply) -> ApiError {
    ApiError::new(
        ErrorCode::Unavailable,
        format!("the injector's answer does not fit the question: {reply:?}"),
    )
}

/// What the plan of a fault cannot say yet: what an earlier action does to its processes.
fn later(experiment: &Experiment, activity: usize, fault: &FaultRequest) -> Option<String> {
    if !fault.target.names_group() {
        return None;
    }
    let ends = |kind: FaultType| {
        matches!(kind, FaultType::ProcessKill | FaultType::ServiceRestart | FaultType::ServiceStop)
    };
    let mut earlier = experiment.faults().take_while(|(index, ..)| *index < activity);
    let (index, ..) = earlier.find(|(_, _, fault)| ends(fault.fault_type))?;
    let earlier = experiment.method.get(index)?;
    Some(format!(
        "planned for the processes there are now: {:?} comes before it and ends some, so whom it will meet is not known",
        earlier.name
    ))
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
