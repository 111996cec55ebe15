//! Process kill: processes get a signal, once or again and again.
//!
//! - **Mechanism**: `pidfd_send_signal` to processes pinned by pidfd and start time, from the holder. A repeat selects anew,
//!   because it means the service, not the processes that it had. Between volleys it watches the pidfds for the end of those
//!   that were hit, and procfs for a new process that matches.
//! - **Kernel requirement**: none (pidfds are in Linux 5.3).
//! - **Lifetime class**: irreversible: what a process does with a signal, its end most of all, cannot be taken back. That more
//!   signals come ends with the holder, and none is sent when the lease is over.
//! - **Undo**: none. A removal before a repeat prevents it.
//! - **Blast radius**: the selected processes, and who relies on them. PID 1, threads of the kernel, systemd, sshd, the message
//!   bus, this daemon, and the caller with its ancestors are never hit.
//! - **Reference**: pidfd_send_signal(2), signal(7).

use super::Ready;
use super::look::{Crowd, Eyes, crowd};
use super::{Plan, Work, work::SignalWork};
use crate::request::ApiError;
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
    let crowd = crowd(selector, eyes)?;
    Ok(Ready::of_processes(plan(selector, volleys, &crowd), &crowd, selector))
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
            spared: crowd.spared.clone(),
            volleys,
        }),
    }
}
