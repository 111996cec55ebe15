//! Who would be hit by a fault of a place: by all that a control group, a network namespace or a service does.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Match, Work};
use crate::host::cgroup::{mount, of_unit};
use crate::host::protected::own_program;
use crate::host::{CgroupRef, NetNsIdentity, Running};
use crate::kernel::setting::Setting;
use crate::request::{ApiError, ErrorCode, TargetsReport};
use crate::target::process::Selection;

/// Where those are who are hit.
pub enum Place {
    /// In this control group or below it: its path below the mount.
    Group(PathBuf),
    /// In this network namespace.
    Namespace(NetNsIdentity),
}

impl Place {
    /// In a control group.
    ///
    /// # Errors
    /// When it cannot be known where control groups are mounted.
    pub fn group(cgroup: &CgroupRef) -> io::Result<Self> {
        Ok(Self::Group(below(&mount()?.unwrap_or_default(), &cgroup.path)))
    }

    /// Whether the process is there.
    pub fn has(&self, process: &Running) -> bool {
        match self {
            Self::Group(path) => process.cgroup.as_ref().is_some_and(|group| group.starts_with(path)),
            Self::Namespace(NetNsIdentity { dev, inode, .. }) => {
                let file = fs::metadata(format!("/proc/{}/ns/net", process.id.pid));
                file.is_ok_and(|file| (file.dev(), file.ino()) == (*dev, *inode))
            }
        }
    }
}

/// The processes that are there now; `None` of a fault that is the whole host's, or goes to processes themselves. `netns` is the
/// network namespace of its device, if that was named. Blocks: on a large host that takes a while.
///
/// # Errors
/// When they cannot be looked at.
pub fn look(work: &Work, netns: Option<NetNsIdentity>) -> Result<Option<TargetsReport>, ApiError> {
    let mount = mount().map_err(|error| failed(&error))?.unwrap_or_default();
    let Some(place) = place(&mount, work, netns).map_err(|error| failed(&error))? else { return Ok(None) };
    let all = Running::all().map_err(|error| failed(&error))?;
    let ours = own_program();
    let is_nobody =
        |process: &Running| process.of_kernel || process.program.is_some() && process.program == ours;
    let hit = all.into_iter().filter(|process| place.has(process) && !is_nobody(process)).collect();
    Ok(Some(Selection { hit, ..Selection::default() }.report(0)))
}

fn failed(error: &io::Error) -> ApiError {
    ApiError::new(ErrorCode::InjectionFailed, format!("look at who would be hit: {error}"))
}

/// Where the work is felt; control groups are mounted at `mount`.
fn place(mount: &Path, work: &Work, netns: Option<NetNsIdentity>) -> io::Result<Option<Place>> {
    let group = |group: &CgroupRef| Some(Place::Group(below(mount, &group.path)));
    let of_packets = |packets: &Match| match &packets.service {
        Some(service) => group(&service.cgroup),
        None => netns.map(Place::Namespace),
    };
    match work {
        Work::Packets(work) => Ok(of_packets(&work.packets)),
        Work::Loop(work) => Ok(of_packets(&work.packets)),
        Work::Calls(work) => Ok(group(&work.callers.cgroup)),
        Work::Sever(work) => Ok(group(&work.callers.cgroup)),
        Work::Sockets(work) => Ok(group(&work.callers.cgroup)),
        Work::Files(work) => Ok(group(&work.cgroup)),
        Work::Cpu(work) => Ok(work.cgroup.as_ref().and_then(group)),
        Work::Hoard(work) => Ok(work.cgroup.as_ref().and_then(group)),
        Work::Settings(settings) => settings.first().map_or(Ok(None), |setting| of_setting(mount, setting)),
        Work::Flap(work) => of_setting(mount, &work.setting),
        Work::Restart(work) => unit(mount, &work.unit),
        Work::Signals(_) | Work::Pause(_) | Work::Spoil(_) | Work::Down(_) => Ok(None),
    }
}

fn of_setting(mount: &Path, setting: &Setting) -> io::Result<Option<Place>> {
    match setting {
        Setting::Cgroup(setting) => Ok(Some(Place::Group(below(mount, &setting.cgroup.path)))),
        Setting::Link(setting) => Ok(setting.netns.name.as_ref().map(|_| Place::Namespace(setting.netns.id))),
        Setting::Service(setting) => unit(mount, &setting.unit),
        Setting::Clock(_) => Ok(None),
    }
}

fn unit(mount: &Path, unit: &str) -> io::Result<Option<Place>> {
    Ok(of_unit(mount, unit)?.map(|path| Place::Group(below(mount, &path))))
}

fn below(mount: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(mount).unwrap_or(path).to_owned()
}
