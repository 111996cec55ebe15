//! From a path or a unit to a control group that may be a target.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::not_found;
use crate::host::cgroup::{below, level, members, mount, of_unit};
use crate::host::protected::{self, places, ways_in};
use crate::host::{Aim, Cgroup, CgroupRef, Lack, Part, Running, Spared};
use crate::request::{ApiError, ErrorCode};
use crate::spec::CgroupSelector;

/// Finds the group that is named, opens it, and refuses one in which, or below which, anything lives that is protected
/// ([`crate::host::protected`]) from a request for which these are `spared`, or that has more units than may be met at once.
///
/// # Errors
/// [`ErrorCode::TargetNotFound`], or [`ErrorCode::TargetProtected`] with the process that protects it.
pub fn resolve(selector: &CgroupSelector, spared: &Spared) -> Result<(CgroupRef, Cgroup), ApiError> {
    resolve_with(selector, spared, true)
}

/// As [`resolve`], for a holder that will join the group: others may be in it already, but it must not be frozen.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_to_join(selector: &CgroupSelector, spared: &Spared) -> Result<CgroupRef, ApiError> {
    let (found, open) = resolve_with(selector, spared, false)?;
    let frozen = open.read("cgroup.events").unwrap_or_default().lines().any(|line| line == "frozen 1");
    match frozen {
        false => Ok(found),
        true => Err(ApiError::new(
            ErrorCode::InvalidParameter,
            format!("cgroup {} is frozen: whoever joins it stands still", found.path.display()),
        )),
    }
}

fn resolve_with(
    selector: &CgroupSelector,
    spared: &Spared,
    holders: bool,
) -> Result<(CgroupRef, Cgroup), ApiError> {
    let failed = |error: io::Error| not_found(format!("target.cgroup: look for it: {error}"));
    let mount = mount().map_err(failed)?.ok_or_else(|| {
        let lack = Lack::of_cgroup_v2("not mounted as a whole");
        ApiError::new(ErrorCode::UnsupportedKernel, format!("target.cgroup: missing {}", lack.what))
            .hint(lack.remedy)
    })?;
    let (path, name) = match selector {
        CgroupSelector::Path(text) => {
            let path = below(&mount, text).ok_or_else(|| {
                ApiError::new(
                    ErrorCode::InvalidParameter,
                    format!("target.cgroup: {text:?} is not the path of a cgroup below {}", mount.display()),
                )
            })?;
            (Some(path), format!("target.cgroup: no cgroup {text:?} below {}", mount.display()))
        }
        CgroupSelector::Unit(unit) => (
            of_unit(&mount, unit).map_err(failed)?,
            format!("target.unit: no unit {unit:?} has processes here"),
        ),
    };
    let found = path.as_deref().map(CgroupRef::find).transpose().map_err(failed)?.flatten();
    let found = found.ok_or_else(|| {
        not_found(name.clone()).hint("`systemd-cgls` shows the cgroups; a unit has one while it is active")
    })?;
    let open = found.open().map_err(failed)?.ok_or_else(|| not_found(name))?;
    if let CgroupSelector::Unit(name) = selector
        && let Some(protected) = protected::unit(name, spared)
    {
        let text = format!("unit {name} is protected: {protected}");
        return Err(ApiError::new(ErrorCode::TargetProtected, text).hint(protected.remedy()));
    }
    refuse_protected(&mount, &found, spared, holders)?;
    Ok((found, open))
}

/// A control group whose packets are told from others': the group, pinned, and how the programs find it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The group.
    pub cgroup: CgroupRef,
    /// How many groups are above it.
    pub level: u32,
}

/// As [`resolve`], for a fault of packets.
///
/// # Errors
/// As [`resolve`], and [`ErrorCode::UnsupportedKernel`] where the daemon does not see the whole hierarchy.
pub fn resolve_service(selector: &CgroupSelector, spared: &Spared) -> Result<Service, ApiError> {
    let (cgroup, _) = resolve(selector, spared)?;
    let failed = |error: io::Error| not_found(format!("target.cgroup: look for its place: {error}"));
    let mount = mount().map_err(failed)?.unwrap_or_default();
    let level = level(&mount, &cgroup.path).map_err(failed)?.ok_or_else(|| {
        ApiError::new(
            ErrorCode::UnsupportedKernel,
            "target.cgroup: the daemon runs in a cgroup namespace, in which it cannot tell whose packets are whose",
        )
        .hint("run it outside of the container, or leave unit and cgroup out")
    })?;
    Ok(Service { cgroup, level })
}

/// Refuses a group with somebody in it or below it who is protected; `holders` says whether those of faults are.
fn refuse_protected(mount: &Path, group: &CgroupRef, spared: &Spared, holders: bool) -> Result<(), ApiError> {
    let failed = |error: io::Error| not_found(format!("target.cgroup: look at its processes: {error}"));
    let numbers = members(mount, &group.path).map_err(failed)?;
    let mut inside: Vec<_> = numbers.into_iter().filter_map(Running::read).collect();
    inside.retain(|process| holders || Part::named(&process.name) != Some(Part::Holder));
    ways_in::mark(&mut inside).map_err(failed)?;
    let path = group.path.display();
    let found = inside.iter().find_map(|process| Some((process, process.protected(Aim::AtPlace, spared)?)));
    if let Some((process, protected)) = found {
        let (id, name) = (process.id.pid, &process.name);
        let text = format!(
            "cgroup {path} is protected: process {id} ({name}) is in it or below it, and {protected}"
        );
        return Err(ApiError::new(ErrorCode::TargetProtected, text).hint(protected.remedy()));
    }
    match places::too_many(inside.iter(), &spared.open) {
        None => Ok(()),
        Some(_) if spared.only_looks => Ok(()),
        Some((problem, line)) => {
            Err(ApiError::new(ErrorCode::TargetProtected, format!("cgroup {path} is protected: {problem}"))
                .hint(format!("name the cgroup of one service; {line} of the daemon's policy file opens it")))
        }
    }
}
