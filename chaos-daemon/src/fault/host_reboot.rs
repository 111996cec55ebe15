//! Host reboot: this host is rebooted.
//!
//! - **Mechanism**: over D-Bus, `StartUnit` of `reboot.target`, as `systemctl reboot` comes to: every service is stopped in
//!   order, this daemon among them. Forced, `Reboot` of systemd's manager: no service is stopped, file systems are unmounted.
//!   The holder counts down first, and writes down what it is about to do, where it outlives the boot.
//! - **Kernel requirement**: none; but systemd and the message bus.
//! - **Lifetime class**: irreversible. A removal, the death of the holder or the end of its lease before the countdown is over
//!   prevents all of it.
//! - **Undo**: none.
//! - **Blast radius**: the whole host, and whoever uses it. Every other fault ends with the boot; while a supervised one is
//!   active, this one is refused. Off unless the policy allows it.
//! - **Reference**: org.freedesktop.systemd1(5), systemd.special(7), systemctl(1).

use std::time::Duration;

use super::Ready;
use super::look::Eyes;
use super::{DownGround, Plan};
use crate::kernel::node::talk;
use crate::request::{ApiError, ErrorCode};
use crate::spec::{HostDown, Way};

/// Asks systemd whether it would, and plans it.
///
/// # Errors
/// When it does not answer, or this host is going down already.
pub(super) fn prepare(forced: bool, countdown: Duration, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    let stopping = talk(async |systemd| systemd.is_stopping().await).map_err(|error| {
        let text = format!("host_reboot: ask systemd, which reboots a host: {error}");
        ApiError::new(ErrorCode::InjectionFailed, text)
            .hint("see why it does not answer (`systemctl status`); host_panic needs no systemd")
    })?;
    if stopping {
        return Err(ApiError::new(ErrorCode::LimitReached, "this host is going down already"));
    }
    Ok(plan(forced, countdown, &DownGround::of(eyes)).into())
}

/// Plans it.
pub fn plan(forced: bool, countdown: Duration, ground: &DownGround) -> Plan {
    let how = if forced { "without stopping its services" } else { "all its services stopped in order" };
    let down = HostDown { way: Way::Reboot { forced }, countdown };
    super::down(format!("host_reboot: reboots this host, {how}"), down, ground)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::LifetimeClass;
    use crate::spec::QualifiedName;

    #[test]
    fn the_plan_says_whether_services_are_stopped_and_that_it_can_be_prevented_but_not_undone() {
        for (forced, how, step) in [
            (false, "all its services stopped in order", "reboot.target"),
            (true, "without stopping its services", "without stopping services"),
        ] {
            let (name, record) = (QualifiedName::parse("a").unwrap(), "/state/host-down.json".into());
            let plan = plan(forced, Duration::from_secs(5), &DownGround { name, record });
            for words in [how, "5s after the injection", "prevents it", "every other fault ends"] {
                assert!(plan.description.contains(words), "{words}: {}", plan.description);
            }
            assert_eq!((plan.lifetime, plan.steps.len()), (LifetimeClass::Irreversible, 0));
            let steps = plan.work.words();
            assert!(steps[0].contains("/state/host-down.json") && steps[1].contains(step), "{steps:?}");
        }
    }
}
