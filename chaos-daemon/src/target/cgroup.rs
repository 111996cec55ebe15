//! From a path or a unit to a control group that may be a target.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::not_found;
use crate::host::cgroup::{below, level, mount, of_unit, vital_process};
use crate::host::{Cgroup, CgroupRef, Lack};
use crate::request::{ApiError, ErrorCode};
use crate::spec::CgroupSelector;

/// Finds the group that is named, opens it, and refuses one in which, or below which, anything lives that this host or its
/// operator cannot do without: PID 1, systemd and its services, the message bus, sshd and its sessions, what configures the
/// host's network, this daemon.
///
/// # Errors
/// [`ErrorCode::TargetNotFound`], or [`ErrorCode::TargetProtected`] with the process that protects it.
pub fn resolve(selector: &CgroupSelector) -> Result<(CgroupRef, Cgroup), ApiError> {
    resolve_with(selector, true)
}

/// As [`resolve`], for a holder that will join the group: others may be in it already, but it must not be frozen.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_to_join(selector: &CgroupSelector) -> Result<CgroupRef, ApiError> {
    let (found, open) = resolve_with(selector, false)?;
    let frozen = open.read("cgroup.events").unwrap_or_default().lines().any(|line| line == "frozen 1");
    match frozen {
        false => Ok(found),
        true => Err(ApiError::new(
            ErrorCode::InvalidParameter,
            format!("cgroup {} is frozen: whoever joins it stands still", found.path.display()),
        )),
    }
}

fn resolve_with(selector: &CgroupSelector, holders: bool) -> Result<(CgroupRef, Cgroup), ApiError> {
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
    refuse_vital(&mount, &found, holders)?;
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
pub fn resolve_service(selector: &CgroupSelector) -> Result<Service, ApiError> {
    let (cgroup, _) = resolve(selector)?;
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

fn refuse_vital(mount: &Path, group: &CgroupRef, holders: bool) -> Result<(), ApiError> {
    let vital = vital_process(mount, &group.path, holders)
        .map_err(|error| not_found(format!("target.cgroup: look at its processes: {error}")))?;
    match vital {
        None => Ok(()),
        Some(vital) => Err(ApiError::new(
            ErrorCode::TargetProtected,
            format!(
                "cgroup {} is protected: process {} ({}), which this host or its operator needs, is in it or below it",
                group.path.display(),
                vital.pid,
                vital.name
            ),
        )
        .hint("name the cgroup of one service")),
    }
}
