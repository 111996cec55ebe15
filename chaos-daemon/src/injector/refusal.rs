//! Why two faults cannot be active at once, or one would be none.

use std::time::Duration;

use super::state::{Injector, settings};
use crate::fault::Plan;
use crate::kernel::setting::{CgroupSetting, Setting};
use crate::kernel::step::Step;
use crate::request::{ApiError, Caller, ErrorCode};

/// Both would change the setting at this place. Names are as the caller reads them.
pub(super) fn changed_already(other: &str, place: &str) -> ApiError {
    let text = format!("fault {other} has changed {place} already, and one at a time can");
    ApiError::new(ErrorCode::LimitReached, text).hint("remove it first, or wait until it ends")
}

/// Both have this name.
pub(super) fn active_already(name: &str, remaining: Duration) -> ApiError {
    let text = format!("fault {name} is already active, for another {:.1} s", remaining.as_secs_f64());
    ApiError::new(ErrorCode::FaultActive, text).hint("remove it first, or inject under another name")
}

/// Of a fault that would give back, at its end, a value that was not the node's own.
pub(super) fn unsteady(name: &str) -> ApiError {
    let text = format!(
        "inject {name}: each time this node was looked at, another fault ended and gave back what it had set"
    );
    ApiError::new(ErrorCode::Unavailable, text).hint("ask again")
}

/// Of two faults that change one setting, the second would take the first's value for the node's own.
pub(super) fn refuse_overlap(injector: &Injector, plan: &Plan, caller: Caller) -> Result<(), ApiError> {
    for place in settings(&plan.steps) {
        if let Some(other) = injector.changer_of(&place) {
            return Err(changed_already(&other.shown_to(caller), &place));
        }
    }
    Ok(())
}

/// A limit that is there already, by somebody else, would be taken for ours, and have no effect.
pub(super) fn refuse_unchanged(plan: &Plan) -> Result<(), ApiError> {
    for step in &plan.steps {
        if let Step::Setting(setting @ Setting::Cgroup(CgroupSetting { old, new, .. })) = step
            && old == new
        {
            let text = format!("{} is {old:?} already, so the fault would change nothing", setting.place());
            return Err(ApiError::new(ErrorCode::InvalidParameter, text).hint("ask for a lower limit"));
        }
    }
    Ok(())
}
