//! What a fault of a service finds: the unit as systemd knows it, and everything refused by name that must not be stopped or could
//! not be started again.

use crate::fault::Ground;
use crate::host::Lack;
use crate::host::vital::is_vital_unit;
use crate::kernel::node::talk;
use crate::kernel::systemd::{self, SystemdError, Unit};
use crate::request::{ApiError, ErrorCode};
use crate::spec::CgroupSelector;
use crate::target;

/// Looks at a service that is to be stopped and started later.
///
/// # Errors
/// Names what is in the way.
pub(super) fn to_stop(name: &str) -> Result<Ground, ApiError> {
    let unit = active(name)?;
    if unit.transient {
        return Err(invalid(format!("{name} has no file: once stopped, it could not be started again"))
            .hint("`systemd-run` makes such units; `service_restart` and `pause` take them"));
    }
    refuse_with("stopping", name, &unit.takes_along)?;
    Ok(Ground::Service(Box::new(unit)))
}

/// Looks at a service that is to be restarted.
///
/// # Errors
/// As [`to_stop`].
pub(super) fn to_restart(name: &str) -> Result<Ground, ApiError> {
    let unit = active(name)?;
    refuse_with("restarting", name, &unit.left_by_restart)?;
    Ok(Ground::Service(Box::new(unit)))
}

/// Refuses what would stop one of these as well, if it is up.
fn refuse_with(deed: &str, name: &str, others: &[String]) -> Result<(), ApiError> {
    if others.is_empty() {
        return Ok(());
    }
    let others = talk(async |systemd| {
        let mut found = Vec::new();
        for other in others {
            found.push(systemd.unit(other).await?);
        }
        Ok(found)
    });
    let others = others.map_err(|error| unknown(&error))?;
    match others.iter().find(|other| other.is_up()) {
        None => Ok(()),
        Some(other) => {
            let problem =
                format!("{deed} {name} would stop {} as well, which would not be started again", other.name);
            Err(invalid(problem).hint("stop that one first, or name it in place of this one"))
        }
    }
}

/// Looks at a unit of which callers may be told.
///
/// # Errors
/// When there is none, nobody can be asked, or the host needs it.
pub(super) fn look(name: &str) -> Result<Unit, ApiError> {
    if let Some(reason) = systemd::absent() {
        let lack = Lack::of_systemd(&reason);
        let text = format!("target.unit: nobody to ask about {name}: missing {}", lack.what);
        return Err(ApiError::new(ErrorCode::UnsupportedKernel, text).hint(lack.remedy));
    }
    let unit = talk(async |systemd| systemd.unit(name).await).map_err(|error| unknown(&error))?;
    if unit.load == "not-found" {
        return Err(ApiError::new(
            ErrorCode::TargetNotFound,
            format!("target.unit: there is no unit {name:?}"),
        )
        .hint("`systemctl list-units --type=service` shows what there is"));
    }
    if [name, &unit.name].into_iter().any(is_vital_unit) {
        return Err(ApiError::new(
            ErrorCode::TargetProtected,
            format!("{} is protected: this host or its operator needs it", unit.name),
        ));
    }
    Ok(unit)
}

fn active(name: &str) -> Result<Unit, ApiError> {
    let unit = look(name)?;
    if unit.active != "active" {
        let active = &unit.active;
        return Err(invalid(format!("{name} is {active}: only a service that is active can be stopped")));
    }
    if !unit.on_request {
        return Err(invalid(format!("{name} does not allow being stopped and started on request")));
    }
    // Whatever it is called: who is in it counts.
    target::cgroup::resolve(&CgroupSelector::Unit(unit.name.clone()))?;
    Ok(unit)
}

fn invalid(problem: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidParameter, format!("target.unit: {problem}"))
}

fn unknown(error: &SystemdError) -> ApiError {
    ApiError::new(ErrorCode::InjectionFailed, format!("ask systemd: {error}"))
}
