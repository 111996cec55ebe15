//! Host panic: the kernel of this host panics.
//!
//! - **Mechanism**: `c` is written to `/proc/sysrq-trigger`. Nothing is stopped, synced or unmounted, but synced if that is asked
//!   for. The holder counts down first, and writes down what it is about to do, where it outlives the boot.
//! - **Kernel requirement**: `CONFIG_MAGIC_SYSRQ`. What comes afterwards is set in `kernel.panic`, and is a crash kernel's to say
//!   where one is loaded.
//! - **Lifetime class**: irreversible. A removal, the death of the holder or the end of its lease before the countdown is over
//!   prevents all of it.
//! - **Undo**: none.
//! - **Blast radius**: the whole host, whoever uses it, and what was not on disk yet. Every other fault ends with the boot; while a
//!   supervised one is active, this one is refused, and also where the host would not come up again, unless that is asked for.
//!   Off unless the policy allows it.
//! - **Reference**: the kernel's admin-guide/sysrq.rst and admin-guide/sysctl/kernel.rst.

use std::time::Duration;

use super::Ready;
use super::look::Eyes;
use super::{DownGround, Plan};
use crate::host::panic::AfterPanic;
use crate::host::panic::may_panic;
use crate::request::{ApiError, ErrorCode};
use crate::spec::{HostDown, Way};
use std::io;

/// Looks whether a panic can be asked for and what the kernel does after it, and plans it.
///
/// # Errors
/// Names what is in the way.
pub(super) fn prepare(how: (bool, bool), countdown: Duration, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    may_panic().map_err(|error| refused(&error))?;
    let after = AfterPanic::read()
        .map_err(|error| ApiError::new(ErrorCode::InjectionFailed, format!("read kernel.panic: {error}")))?;
    Ok(plan(how, countdown, after, &DownGround::of(eyes))?.into())
}

fn refused(error: &io::Error) -> ApiError {
    let text = format!("host_panic: may not write to /proc/sysrq-trigger: {error}");
    let hint = "the unit of an installed daemon withholds it: `ProtectKernelTunables=no` in a drop-in, which the documentation shows, \
                gives it";
    match error.kind() {
        io::ErrorKind::NotFound => ApiError::new(ErrorCode::UnsupportedKernel, text)
            .hint("run a kernel with CONFIG_MAGIC_SYSRQ, and mount /proc"),
        _ => ApiError::new(ErrorCode::MissingPrivilege, text).hint(hint),
    }
}

/// Plans it, where the kernel does `after` afterwards.
///
/// # Errors
/// When the host would not come up again, and nobody has said that it need not.
pub fn plan(
    (sync, stay_down): (bool, bool),
    countdown: Duration,
    after: AfterPanic,
    ground: &DownGround,
) -> Result<Plan, ApiError> {
    if after.timeout == 0 && !stay_down {
        return Err(ApiError::new(
            ErrorCode::InvalidParameter,
            "host_panic: kernel.panic is 0, so that this host would not come up again",
        )
        .hint("`sysctl kernel.panic=10` has it reboot ten seconds after; or say params.stay_down"));
    }
    let synced = if sync { "synced and not stopped" } else { "neither stopped nor synced" };
    let what =
        format!("host_panic: has the kernel of this host panic, its services {synced}; {}", after.words());
    Ok(super::down(what, HostDown { way: Way::Panic { sync, stay_down }, countdown }, ground))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::LifetimeClass;
    use crate::spec::QualifiedName;

    fn planned(stay_down: bool, timeout: i64, crash_kernel: bool) -> Result<Plan, ApiError> {
        let after = AfterPanic { timeout, crash_kernel };
        let (name, record) = (QualifiedName::parse("a").unwrap(), "/state/host-down.json".into());
        let ground = DownGround { name, record };
        plan((false, stay_down), Duration::from_secs(1), after, &ground)
    }

    #[test]
    fn a_host_that_would_not_come_up_again_is_left_alone_unless_that_is_meant() {
        for crash_kernel in [false, true] {
            let refused = planned(false, 0, crash_kernel).unwrap_err();
            assert!(refused.message.contains("kernel.panic is 0"), "{refused}");
            assert!(refused.hint.unwrap().contains("stay_down"));
        }
        assert!(planned(true, 0, false).unwrap().description.contains("stays down until somebody resets it"));
    }

    #[test]
    fn the_plan_says_what_comes_afterwards_and_that_it_can_be_prevented_but_not_undone() {
        let plan = planned(false, 10, true).unwrap();
        for words in [
            "10 s later (kernel.panic)",
            "kdump",
            "1s after the injection",
            "prevents it",
            "every other fault",
        ] {
            assert!(plan.description.contains(words), "{words}: {}", plan.description);
        }
        assert_eq!((plan.lifetime, plan.steps.len()), (LifetimeClass::Irreversible, 0));
        let steps = plan.work.words();
        assert!(
            steps[0].contains("/state/host-down.json") && steps[1].contains("sysrq-trigger"),
            "{steps:?}"
        );
    }
}
