//! Service stop: a systemd service is stopped, and started again at the end.
//!
//! - **Mechanism**: `StopUnit` and `StartUnit` of systemd, over the system's message bus. Applied means that systemd says that the
//!   service is inactive: also `Restart=always` does not start it again.
//! - **Kernel requirement**: none; but systemd and the message bus.
//! - **Lifetime class**: supervised. A stopped service stays stopped when everybody of ours is dead; a reboot ends it as its
//!   installation says.
//! - **Undo**: started again, if it is still stopped and nobody has started it meanwhile. One that somebody has started, or started
//!   and stopped, is theirs; so is one that was masked, and every service of a host that goes down.
//! - **Blast radius**: whoever uses the service. What would be stopped with it and not started with it (`Requires=`, `BindsTo=`,
//!   `PartOf=`, `StopPropagatedFrom=` in others) is a reason to refuse, as are units without a file, which are gone when they are
//!   stopped. A socket, timer or path unit of the service is left alone, and may start it again.
//! - **Reference**: org.freedesktop.systemd1(5), systemd.unit(5).

use super::Ready;
use super::look::Eyes;
use super::services::{active, invalid, refuse_with};
use super::{Plan, settings};
use crate::kernel::setting::{ServiceSetting, Setting};
use crate::kernel::systemd::Unit;
use crate::request::ApiError;

/// Looks at the service, and plans it.
///
/// # Errors
/// Names what is in the way.
pub(super) fn prepare(name: &str, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    let unit = active(name, eyes.spared)?;
    if unit.transient {
        return Err(invalid(format!("{name} has no file: once stopped, it could not be started again"))
            .hint("`systemd-run` makes such units; `service_restart` and `pause` take them"));
    }
    refuse_with("stopping", name, &unit.takes_along)?;
    Ok(plan(&unit).into())
}

/// Plans it.
pub fn plan(unit: &Unit) -> Plan {
    let setting = ServiceSetting { unit: unit.name.clone(), invocation: unit.invocation.clone() };
    settings(format!("service_stop: stops {}", unit.name), Setting::Service(setting))
}
