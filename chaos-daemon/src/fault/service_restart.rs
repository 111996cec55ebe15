//! Service restart: a systemd service is stopped and started again, once.
//!
//! - **Mechanism**: `RestartUnit` of systemd, by D-Bus. The holder asks every 20 ms how the service is: until it has left its active
//!   state, and until it is active again.
//! - **Kernel requirement**: none; but systemd.
//! - **Lifetime class**: irreversible: what the processes knew is gone. That the service comes back is systemd's work alone, whatever
//!   becomes of the daemon.
//! - **Undo**: none.
//! - **Blast radius**: whoever uses the service while it is gone, and units that are bound to it (`Requires=`, `BindsTo=`, `PartOf=`),
//!   which systemd restarts along with it. One that it would stop and not start (`StopPropagatedFrom=`) is a reason to refuse.
//! - **Reference**: org.freedesktop.systemd1(5), systemd.unit(5).

use super::Ready;
use super::look::Eyes;
use super::services::{active, refuse_with};
use super::{Plan, RestartWork, Work};
use crate::kernel::systemd::Unit;
use crate::request::ApiError;
use crate::spec::LifetimeClass;

/// Looks at the service, and plans it.
///
/// # Errors
/// Names what is in the way.
pub(super) fn prepare(name: &str, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    let unit = active(name, eyes.spared)?;
    refuse_with("restarting", name, &unit.left_by_restart)?;
    Ok(plan(&unit).into())
}

/// Plans it.
pub fn plan(unit: &Unit) -> Plan {
    Plan {
        work: Work::Restart(RestartWork { unit: unit.name.clone(), invocation: unit.invocation.clone() }),
        steps: Vec::new(),
        lifetime: LifetimeClass::Irreversible,
        description: format!("service_restart: restarts {} (main process {})", unit.name, unit.main_pid),
    }
}
