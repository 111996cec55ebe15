//! Control groups, as callers name them.

use serde::{Deserialize, Serialize};

use super::target::TargetRequest;
use super::units::SpecError;

/// Which control group, as a caller names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupSelector {
    /// By its path below the mount of cgroup v2.
    Path(String),
    /// The one of a unit of the system's service manager.
    Unit(String),
}

/// The control group that a target names, whatever it names beside it.
pub(super) fn of(target: &TargetRequest) -> Result<CgroupSelector, SpecError> {
    match (&target.cgroup, &target.unit) {
        (Some(path), None) => Ok(CgroupSelector::Path(path.clone())),
        (None, Some(unit)) => unit_name(unit),
        (Some(_), Some(_)) => {
            Err(SpecError::new("target.cgroup", "give target.cgroup or target.unit, not both"))
        }
        (None, None) => Err(SpecError::new(
            "target.cgroup",
            "missing: name a cgroup by its path, or a unit by target.unit",
        )),
    }
}

/// The unit of this name, if one with processes can have it.
pub(super) fn unit_name(unit: &str) -> Result<CgroupSelector, SpecError> {
    let kinds = [".service", ".scope", ".slice"];
    if unit.contains('/') || !kinds.iter().any(|kind| unit.len() > kind.len() && unit.ends_with(kind)) {
        let problem = format!("{unit:?} is not a unit with processes: give e.g. \"payment.service\"");
        return Err(SpecError::new("target.unit", problem));
    }
    Ok(CgroupSelector::Unit(unit.to_owned()))
}
