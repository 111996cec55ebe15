//! Process kill: processes get a signal, once or again and again.
//!
//! - **Mechanism**: `pidfd_send_signal` to processes pinned by pidfd and start time, from the holder. A repeat selects anew,
//!   because it means the service, not the processes that it had. Between volleys it watches the pidfds for the end of those
//!   that were hit, and procfs for a new process that matches.
//! - **Kernel requirement**: none (pidfds are in Linux 5.3).
//! - **Lifetime class**: irreversible: what a process does with a signal, its end most of all, cannot be taken back. That more
//!   signals come ends with the holder, and none is sent when the lease is over.
//! - **Undo**: none. A removal before a repeat prevents it.
//! - **Blast radius**: the selected processes, and who relies on them. Who is protected (`host/protected/`) is never hit, by no
//!   volley.
//! - **Reference**: pidfd_send_signal(2), signal(7).

use super::Ready;
use super::look::{Crowd, Eyes, crowd};
use super::{Plan, Work, work::SignalWork};
use crate::host::Open;
use crate::host::protected::{opens, opens_interval};
use crate::request::{ApiError, ErrorCode};
use crate::spec::LifetimeClass;
use crate::spec::ProcessSelector;
use crate::spec::process::Volleys;

/// Looks who matches, and plans it.
///
/// # Errors
/// When nobody matches, or none of those may be hit.
pub(super) fn prepare(
    selector: &ProcessSelector,
    volleys: Volleys,
    eyes: &Eyes<'_>,
) -> Result<Ready, ApiError> {
    refuse_volleys(selector, volleys, eyes.permit.open())?;
    let crowd = crowd(selector, eyes)?;
    Ok(Ready::of_processes(plan(selector, volleys, &crowd), &crowd, selector))
}

/// Volleys go to what was pinned, and leave time between two of them in which somebody can act.
fn refuse_volleys(selector: &ProcessSelector, volleys: Volleys, open: &Open) -> Result<(), ApiError> {
    let ProcessSelector { pid, cgroup, exe, container, .. } = selector;
    let is_pinned = pid.is_some() || cgroup.is_some() || exe.is_some() || container.is_some();
    let least = open.between_volleys();
    if volleys.times == 1 {
        return Ok(());
    }
    if !is_pinned && !open.host_wide_selectors {
        let text = format!("params.times: {selector} may be anybody by the next time");
        let hint = format!(
            "name unit, cgroup, container or exe beside it; {}",
            opens("host_wide_selectors", "true")
        );
        return Err(ApiError::new(ErrorCode::TargetProtected, text).hint(hint));
    }
    let shortest = volleys.interval.saturating_sub(volleys.jitter);
    if shortest < least {
        let text = format!(
            "params.interval_seconds: {shortest:?} may be between two volleys, and {least:?} is the least"
        );
        let hint = format!("give more; {}", opens_interval(shortest));
        return Err(ApiError::new(ErrorCode::PolicyDenied, text).hint(hint));
    }
    Ok(())
}

/// Plans it for those that are selected now.
pub fn plan(selector: &ProcessSelector, volleys: Volleys, crowd: &Crowd) -> Plan {
    let name = volleys.signal_name();
    let repeats = match volleys.times {
        1 => String::new(),
        times => format!(
            ", {times} times, {:?}{} apart, each time to those that match then",
            volleys.interval,
            super::give_or_take(volleys.jitter)
        ),
    };
    Plan {
        steps: Vec::new(),
        lifetime: LifetimeClass::Irreversible,
        description: format!("process_kill: sends {name} to {}{repeats}", crowd.selection.words(selector)),
        work: Work::Signals(SignalWork {
            selector: selector.clone(),
            programs: crowd.programs.clone(),
            targets: crowd.selection.ids(),
            spared: Box::new(crowd.spared.clone()),
            volleys,
        }),
    }
}
