//! What a fault may see of this node before it changes anything, and what several kinds look at. The target is pinned, and the old
//! value of a setting is read. What must not be changed, or could not be restored, is refused by name. Looking may block.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ipnet::IpNet;

use super::affected::Place as Where;
use super::work::Callers;
use crate::host::{Aim, Cgroup, CgroupRef, Facts, Identity, NetNs, Running, Spared};
use crate::kernel::setting::Knob;
use crate::policy::Permit;
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::{Failure, ProcessSelector, QualifiedName, Whose};
use crate::target::process::{Matcher, Selection};
use crate::target::{self, Entrance};

/// What a look at this node goes by: who asks, under which policy, and where the daemon's own things are.
#[derive(Debug)]
pub struct Eyes<'a> {
    /// The fault's name.
    pub name: &'a QualifiedName,
    /// The addresses of the host that the target names.
    pub named: &'a [IpNet],
    /// The policy's leave.
    pub permit: &'a Permit,
    /// Who asks.
    pub caller: Caller,
    /// Whom that spares.
    pub spared: &'a Spared,
    /// As whom files and namespaces that the caller names are opened.
    pub entrance: &'a Entrance,
    /// The daemon's own network namespace.
    pub home: &'a NetNs,
    /// The daemon's folder for what goes with a boot.
    pub runtime_dir: &'a Path,
    /// The file that outlives a boot, in which a fault is written down that ends it.
    pub down_record: &'a Path,
    /// What this kernel can do.
    pub facts: &'a Facts,
}

impl Eyes<'_> {
    /// As whom a look at what the caller names is made.
    pub(super) fn identity(&self) -> &Identity {
        self.entrance.identity()
    }
}

/// The processes that a fault goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crowd {
    /// Who matches now, and which of them are hit.
    pub selection: Selection,
    /// Who is never hit, also of those that match later.
    pub spared: Spared,
    /// Which programs are meant, by what the path that is named leads to for the caller.
    pub programs: Vec<String>,
}

/// Whose calls to these peers fail, or packets vanish, and what the policy spares.
///
/// # Errors
/// When there is no such control group.
pub(super) fn callers(whose: &Whose, peers: Vec<IpNet>, eyes: &Eyes<'_>) -> Result<Callers, ApiError> {
    let protected = eyes.permit.protected();
    Ok(Callers {
        cgroup: group(whose, eyes)?,
        peers,
        protected_peers: protected.cidrs.clone(),
        protected_tcp_ports: protected.tcp_ports.clone(),
    })
}

/// The control group of which a value is changed. Whoever undoes it has to get to it, and has no right to pass over modes
/// (`CAP_DAC_OVERRIDE`). So no directory on the way may have an owner who could change its mode.
pub(super) fn lasting(whose: &Whose, eyes: &Eyes<'_>) -> Result<(CgroupRef, Cgroup), ApiError> {
    let (found, open) =
        target::cgroup::resolve(&target::scope::group(whose, eyes.identity(), eyes.spared)?, eyes.spared)?;
    let owned = |folder: &&Path| folder.symlink_metadata().is_ok_and(|is| is.uid() != 0);
    let Some(others) = found.path.ancestors().find(owned) else { return Ok((found, open)) };
    let problem = format!(
        "cgroup {}: {} is not root's, and its owner could keep the old value from being given back",
        found.path.display(),
        others.display()
    );
    Err(ApiError::new(ErrorCode::TargetProtected, problem)
        .hint("run what is meant as a service of the system's own service manager, and name that unit"))
}

/// The control group of those whose calls fail, or packets vanish: theirs alone.
pub(super) fn group(whose: &Whose, eyes: &Eyes<'_>) -> Result<CgroupRef, ApiError> {
    // Whose own calls fail, or packets vanish, goes on.
    let spared = eyes.spared.with_session();
    let group = target::scope::group(whose, eyes.identity(), &spared)?;
    target::cgroup::resolve(&group, &spared).map(|(found, _)| found)
}

/// A signal that comes with an error may meet anybody in the group: nobody in there may be one whom this host or the caller needs.
pub(super) fn refuse_to_end_who_is_needed(
    group: &CgroupRef,
    failure: &Failure,
    spared: &Spared,
) -> Result<(), ApiError> {
    if failure.signal.is_none() {
        return Ok(());
    }
    let inside = Where::group(group).map_err(|error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look for the place of the cgroup: {error}"))
    })?;
    let all = everybody()?;
    let mut needed = all
        .iter()
        .filter(|process| inside.has(process))
        .filter_map(|process| Some((process, process.protected(Aim::AtPlace, spared)?)));
    match needed.next() {
        None => Ok(()),
        Some((process, why)) => {
            let (path, id, name) = (group.path.display(), process.id.pid, &process.name);
            let text =
                format!("cgroup {path} is protected from signals: process {id} ({name}) is in it, and {why}");
            Err(ApiError::new(ErrorCode::TargetProtected, text)
                .hint(format!("leave the signal out, or name another cgroup; {}", why.remedy())))
        }
    }
}

/// The processes that match, but for those that this host or the caller cannot do without.
///
/// # Errors
/// When nobody matches, or none of those may be hit.
pub(super) fn crowd(selector: &ProcessSelector, eyes: &Eyes<'_>) -> Result<Crowd, ApiError> {
    let matcher = Matcher::new(selector, eyes.identity(), eyes.spared)?;
    select(selector, &matcher, matcher.matching(everybody()?)?, eyes.spared)
}

pub(super) fn everybody() -> Result<Vec<Running>, ApiError> {
    Running::all().map_err(|error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look at the processes of this host: {error}"))
    })
}

/// Whom of those that match the fault goes to.
pub(super) fn select(
    selector: &ProcessSelector,
    matcher: &Matcher,
    mut matching: Vec<Running>,
    spared: &Spared,
) -> Result<Crowd, ApiError> {
    target::process::mark_ways_in(&mut matching)?;
    let mut selection = target::process::choose(selector, matching, spared)?;
    selection.forget_commands();
    let programs = matcher.programs().to_vec();
    Ok(Crowd { selection, spared: spared.clone(), programs })
}

pub(super) fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidParameter, message)
}

/// What the file of a control group says; `fault` is whom a refusal names.
///
/// # Errors
/// When it cannot be read.
pub(super) fn value(fault: &str, cgroup: &CgroupRef, open: &Cgroup, knob: &Knob) -> Result<String, ApiError> {
    knob.read(open).map_err(|error| unreadable(fault, cgroup, knob, &error))
}

/// What a group has no file for, its kernel or its parent lacks; anything else that fails says nothing about them.
fn unreadable(fault: &str, cgroup: &CgroupRef, knob: &Knob, error: &io::Error) -> ApiError {
    let (file, path) = (knob.file(), cgroup.path.display());
    if error.kind() != io::ErrorKind::NotFound {
        return ApiError::new(
            ErrorCode::InjectionFailed,
            format!("{fault}: read {file} of cgroup {path}: {error}"),
        );
    }
    let controller = file.split('.').next().unwrap_or_default();
    let parent = cgroup.path.parent().unwrap_or(&cgroup.path).display();
    ApiError::new(ErrorCode::UnsupportedKernel, format!("{fault}: cgroup {path} has no {file}: {error}")).hint(format!(
        "enable the controller: `echo +{controller} > {parent}/cgroup.subtree_control`, or give the unit any limit of \
         that kind"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_not_there_is_called_missing_from_the_kernel() {
        let cgroup = CgroupRef { path: "/sys/fs/cgroup/shop.slice".into(), id: 7 };
        let refusal =
            |errno| unreadable("a limit", &cgroup, &Knob::CpuMax, &io::Error::from_raw_os_error(errno));
        let code = |errno| refusal(errno).code;
        let missing = refusal(nix::libc::ENOENT);
        assert_eq!(missing.code, ErrorCode::UnsupportedKernel);
        assert!(missing.message.starts_with("a limit: cgroup") && missing.message.contains("no cpu.max"));
        assert!(missing.hint.is_some_and(|hint| hint.contains("`echo +cpu >")));
        assert_eq!(code(nix::libc::ENOMEM), ErrorCode::InjectionFailed);
        assert_eq!(code(nix::libc::EIO), ErrorCode::InjectionFailed);
    }
}
