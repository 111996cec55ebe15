//! What a fault of a service finds: the unit as systemd knows it, and everything refused by name that must not be stopped or could
//! not be started again.

use super::sparing::refuse;
use crate::host::Lack;
use crate::host::Spared;
use crate::host::protected;
use crate::kernel::node::talk;
use crate::kernel::systemd::{self, SystemdError, Unit};
use crate::request::{ApiError, ErrorCode};
use crate::spec::CgroupSelector;
use crate::target;

/// Refuses what would stop one of these as well, if it is up.
pub(super) fn refuse_with(deed: &str, name: &str, others: &[String]) -> Result<(), ApiError> {
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
pub fn look(name: &str, spared: &Spared) -> Result<Unit, ApiError> {
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
    for name in [name, &unit.name] {
        refuse(&unit.name, protected::unit(name, spared))?;
    }
    Ok(unit)
}

/// A service that is active, and may be stopped.
///
/// # Errors
/// As [`look`], and when it is not active, or does not allow it.
pub(super) fn active(name: &str, spared: &Spared) -> Result<Unit, ApiError> {
    let unit = look(name, spared)?;
    if unit.active != "active" {
        let active = &unit.active;
        return Err(invalid(format!("{name} is {active}: only a service that is active can be stopped")));
    }
    if !unit.on_request {
        return Err(invalid(format!("{name} does not allow being stopped and started on request")));
    }
    // Whatever it is called: who is in it counts.
    target::cgroup::resolve(&CgroupSelector::Unit(unit.name.clone()), spared)?;
    Ok(unit)
}

pub(super) fn invalid(problem: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidParameter, format!("target.unit: {problem}"))
}

fn unknown(error: &SystemdError) -> ApiError {
    ApiError::new(ErrorCode::InjectionFailed, format!("ask systemd: {error}"))
}
