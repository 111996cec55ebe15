//! Process pause: processes stand still, all the time or in a rhythm.
//!
//! - **Mechanism**: `PTRACE_SEIZE` and `PTRACE_INTERRUPT` of every thread, by one thread of the holder, which detaches when its
//!   lease or its fault is over. New threads are traced from their start (`PTRACE_O_TRACECLONE`). In a rhythm processes are not
//!   traced while they run.
//! - **Kernel requirement**: `CAP_SYS_PTRACE` is enough, unless Yama forbids tracing altogether
//!   (`kernel.yama.ptrace_scope` of 3).
//! - **Lifetime class**: kernel: when the tracing thread ends, for whatever reason, the kernel lets the processes go on, within a
//!   millisecond. A holder that is stopped is killed by its own timer half a second after its lease.
//! - **Undo**: end the holder.
//! - **Blast radius**: the selected processes, and who waits for them. Signals to them wait, except SIGKILL; time-outs of theirs
//!   that are due are due when they go on. `epoll_wait` and a few more calls (signal(7)) may return EINTR, as after SIGCONT.
//!   Nobody else can trace them meanwhile; one that is traced already is refused. A process that was stopped stays stopped.
//! - **Reference**: ptrace(2), Linux `kernel/ptrace.c` (`exit_ptrace`).

use super::Ready;
use super::look::{Crowd, Eyes, crowd};
use super::{Plan, Work, work::PauseWork};
use crate::host::Running;
use crate::request::{ApiError, ErrorCode};
use crate::spec::LifetimeClass;
use crate::spec::ProcessSelector;
use crate::spec::process::Rhythm;

/// Looks who matches, and plans it.
///
/// # Errors
/// When nobody matches, none of those may be hit, or one of them is traced.
pub(super) fn prepare(
    selector: &ProcessSelector,
    rhythm: Option<Rhythm>,
    eyes: &Eyes<'_>,
) -> Result<Ready, ApiError> {
    let crowd = crowd(selector, eyes)?;
    refuse_traced(&crowd)?;
    Ok(Ready::of_processes(plan(selector, rhythm, &crowd), &crowd, selector))
}

/// A process has one tracer at most: a debugger, or another fault.
fn refuse_traced(crowd: &Crowd) -> Result<(), ApiError> {
    let Some(traced) = crowd.selection.hit.iter().find(|process| process.tracer != 0) else { return Ok(()) };
    let tracer =
        Running::read(traced.tracer).map_or_else(String::new, |tracer| format!(" ({})", tracer.name));
    let (pid, name, by) = (traced.id.pid, &traced.name, traced.tracer);
    Err(ApiError::new(
        ErrorCode::InvalidParameter,
        format!(
            "process {pid} ({name}) is traced already, by process {by}{tracer}, and can have one tracer only"
        ),
    )
    .hint("end that debugger or fault first; `pause` freezes a cgroup without tracing"))
}

/// Plans it for those that are selected now, and stay the ones.
pub fn plan(selector: &ProcessSelector, rhythm: Option<Rhythm>, crowd: &Crowd) -> Plan {
    let how = match rhythm {
        None => String::new(),
        Some(Rhythm { pause, run, jitter }) => {
            format!(" for {pause:?} every {:?}{}", pause + run, super::give_or_take(jitter))
        }
    };
    Plan {
        steps: Vec::new(),
        lifetime: LifetimeClass::Kernel,
        description: format!("process_pause: stops{how} {}", crowd.selection.words(selector)),
        work: Work::Pause(PauseWork { targets: crowd.selection.ids(), rhythm }),
    }
}
