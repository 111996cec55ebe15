//! From a path or a unit to a control group that may be a target.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::not_found;
use crate::host::cgroup::{below, level, members, mount, of_unit};
use crate::host::process::{login_of, units_of};
use crate::host::protected::{self, names, places, ways_in};
use crate::host::{Aim, Cgroup, CgroupRef, Lack, Part, ProcessId, Running, Spared};
use crate::request::{ApiError, ErrorCode};
use crate::spec::CgroupSelector;

/// So many processes of a group are looked at again and again.
const MOST_INHABITANTS: usize = 1000;

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
    refuse_by_path(found.path.strip_prefix(&mount).unwrap_or(&found.path), spared)?;
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

/// Refuses a group by its path, whoever is in it now: one of a unit that is protected, or of another user's logins.
fn refuse_by_path(path: &Path, spared: &Spared) -> Result<(), ApiError> {
    let shown = path.display();
    let asker = spared.asker;
    let login = login_of(path);
    let is_own = login.is_some() && (login == asker.uid || login == asker.login);
    if login.is_some() && !is_own && !spared.only_looks {
        let text = format!("cgroup {shown} is protected: it has the logins of another user");
        return Err(ApiError::new(ErrorCode::TargetProtected, text)
            .hint("nothing opens it: name the cgroup of one service"));
    }
    // One's own logins, and what one's own service manager runs, are one's own: below a login no unit is the host's.
    let units = units_of(path);
    // The scope of a container is called after what runs it. Of who only looks, what a user runs is nobody's secret.
    let counts = |unit: &&&str| login.is_none() && (unit.ends_with(".service") || names::is_core_unit(unit));
    let mut protected =
        units.iter().filter(counts).filter_map(|unit| Some((unit, protected::unit(unit, spared)?)));
    match protected.next() {
        None => Ok(()),
        Some((unit, protected)) => {
            let text = format!("cgroup {shown} is protected: it is of unit {unit}, and {protected}");
            Err(ApiError::new(ErrorCode::TargetProtected, text).hint(protected.remedy()))
        }
    }
}

/// Who is in a group, or below it, and is protected, for people; of a fault that goes on. What of ours is in there is no matter.
///
/// # Errors
/// When it cannot be looked at.
pub fn intruder(group: &CgroupRef, spared: &Spared) -> io::Result<Option<(ProcessId, String)>> {
    let mut inside: Vec<_> = inhabitants(&group.path)?.into_iter().filter_map(Running::read).collect();
    inside.retain(|process| process.program.is_none() || process.program != spared.program);
    ways_in::mark(&mut inside)?;
    let found = inside.iter().find_map(|process| Some((process, process.protected(Aim::AtPlace, spared)?)));
    Ok(found.map(|(process, protected)| {
        let (id, name, path) = (process.id, &process.name, group.path.display());
        (id, format!("process {} ({name}) has come into cgroup {path}, and {protected}", id.pid))
    }))
}

/// The numbers of the processes in the group at `path` and below it, as far as so many are looked at.
fn inhabitants(path: &Path) -> io::Result<Vec<i32>> {
    let (mut found, mut folders) = (Vec::new(), vec![path.to_owned()]);
    while let Some(folder) = folders.pop()
        && found.len() < MOST_INHABITANTS
    {
        // One that has gone meanwhile has nobody.
        let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    found.truncate(MOST_INHABITANTS);
    Ok(found)
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
        Some((problem, opens)) => {
            Err(ApiError::new(ErrorCode::TargetProtected, format!("cgroup {path} is protected: {problem}"))
                .hint(format!("name the cgroup of one service; {opens}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::protected::{Asker, Open};

    fn refused(path: &str, uid: u32, open: Open) -> Option<String> {
        let asker = Asker { uid: Some(uid), terminal: 0, login: None };
        let spared = Spared { asker, open, needed: ["disks.service".to_owned()].into(), ..Spared::default() };
        refuse_by_path(Path::new(path), &spared).err().map(|error| error.hint.unwrap_or_default())
    }

    #[test]
    fn a_group_is_refused_by_its_path_also_when_nobody_is_in_it() {
        let container = format!("docker-{}.scope", "0123456789abcdef".repeat(4));
        for (path, opened_by) in [
            ("system.slice/postgresql.service", Some("units = [\"postgresql.service\"]")),
            ("system.slice/docker.service/nested", Some("units = [\"docker.service\"]")),
            ("system.slice/disks.service", Some("units = [\"disks.service\"]")),
            ("system.slice/ssh.service", None),
            ("user.slice/user-1002.slice/session-3.scope", None),
            ("user.slice/user-1002.slice/user@1002.service/app.slice/a.service", None),
            ("user.slice/user-1002.slice", None),
        ] {
            let hint = refused(path, 1001, Open::default()).unwrap_or_else(|| panic!("{path} is free"));
            assert!(hint.contains(opened_by.unwrap_or("nothing opens it")), "{path}: {hint}");
        }
        let open = Open { units: ["postgresql.service".to_owned()].into(), ..Open::default() };
        assert_eq!(refused("system.slice/postgresql.service", 1001, open), None);
        for path in [
            "system.slice/shop.service/worker".to_owned(),
            "user.slice/user-1001.slice/user@1001.service/app.slice/a.service".to_owned(),
            format!("system.slice/{container}/system.slice/postgresql.service"),
        ] {
            assert_eq!(refused(&path, 1001, Open::default()), None, "{path}");
        }
    }
}
