//! What a fault finds that takes something: the target pinned, and how much is there. What each resource makes of it is in a file of
//! its own.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::disk_fill::DirectoryGround;
use super::look::Eyes;
use super::memory::MemoryGround;
use super::{Plan, Ready, Work};
use super::{descriptors, disk_fill, disk_io, inodes, memory, oom, pids, port_in_use, ports};
use crate::host::directory::{DirectoryRef, Space};
use crate::host::protected::{line, opens};
use crate::host::supply::{self, Descriptors, Memory, Tasks};
use crate::host::{CgroupRef, Identity, NetNs, Open};
use crate::request::{ApiError, ErrorCode};
use crate::spec::{Hoard, Whose};
use crate::target;

/// So many ports are told, of those that are closed.
const MOST_TOLD: usize = 16;

/// Looks at what is to be taken, and plans it.
///
/// # Errors
/// Names what cannot be a target, and why.
pub(super) fn prepare(
    what: &Hoard,
    ramp: Duration,
    (whose, netns): (Option<&Whose>, Option<&String>),
    eyes: &Eyes<'_>,
) -> Result<Ready, ApiError> {
    let netns = netns.map(|name| eyes.entrance.open(name)).transpose()?;
    if let Hoard::Port(local) = what {
        let one = Wanted { ports: (local.port, local.port), udp: local.udp, field: "target.local_port" };
        refuse_ports(&one, netns.as_ref(), eyes)?;
    }
    let cgroup = whose.map(|whose| joined(whose, eyes)).transpose()?;
    let open = || Descriptors::read().map_err(|error| failed("the host's open files", &error));
    let plan = match what {
        Hoard::Memory { size, reserve } => {
            let own = supply::own_cgroup().map_err(|error| failed("the daemon's cgroup", &error))?;
            let place = cgroup.as_ref().map(|group| group.path.clone()).or(own);
            let limit = place.as_deref().and_then(supply::memory_limit);
            let memory = host_memory()?;
            let reserve = reserve_of(*reserve, &memory, eyes)?;
            memory::plan(*size, Some(reserve), ramp, &MemoryGround { cgroup, memory, limit })?
        }
        Hoard::Oom { reserve } => {
            let memory = host_memory()?;
            let reserve = reserve_of(*reserve, &memory, eyes)?;
            return oom::prepare(Some(reserve), ramp, cgroup, memory, eyes);
        }
        Hoard::Disk(fill) => in_directory(&fill.path, eyes, |ground| {
            refuse_below(fill.leave, ground.least, &ROOM)?;
            disk_fill::plan(fill, ramp, ground)
        })?,
        Hoard::Inodes { count, path } => {
            let most = open()?.process;
            in_directory(path, eyes, |ground| inodes::plan(*count, ramp, ground, most))?
        }
        Hoard::DiskIo { rate, bytes, path } => {
            in_directory(path, eyes, |ground| disk_io::plan(*rate, *bytes, cgroup, ground))?
        }
        Hoard::Descriptors { count, leave } => {
            let found = open()?;
            let least = eyes.permit.open().least_files(found.table);
            refuse_below(*leave, least, &FILES)?;
            let leave = leave.unwrap_or_else(|| descriptors::reserve(found.table)).max(least);
            descriptors::plan(*count, Some(leave), ramp, found)?
        }
        Hoard::Tasks { count } => {
            let tasks = Tasks::read().map_err(|error| failed("the host's processes", &error))?;
            let leave = eyes.permit.open().least_tasks(tasks.most);
            pids::plan(*count, ramp, cgroup, tasks, leave)?
        }
        Hoard::Ports { udp, address, range, count } => {
            let there = netns.as_ref().unwrap_or(eyes.home);
            let of_connections = || there.inside(supply::connection_ports).map_err(io::Error::other);
            let ports = range.map_or_else(of_connections, Ok);
            let ports = ports.map_err(|error| failed("the range of ports for connections", &error))?;
            refuse_ports(&Wanted { ports, udp: *udp, field: "params.port_range" }, netns.as_ref(), eyes)?;
            ports::plan(*udp, *address, *range, *count, ramp, open()?.process)?
        }
        Hoard::Port(local) => port_in_use::plan(*local),
    };
    Ok(Ready { netns, ..plan.into() })
}

/// Ports that are to be taken, from the first to the last.
struct Wanted {
    ports: (u16, u16),
    udp: bool,
    /// The field that names them.
    field: &'static str,
}

impl Wanted {
    /// In words, of one of them or all.
    fn words(&self, (first, last): (u16, u16)) -> String {
        let protocol = if self.udp { "UDP" } else { "TCP" };
        match first == last {
            true => format!("{protocol} port {first}"),
            false => format!("{protocol} ports {first}-{last}"),
        }
    }
}

/// Refuses ports at which somebody may reach this host, and, in the daemon's own network namespace, those of the host's own services.
fn refuse_ports(wanted: &Wanted, netns: Option<&NetNs>, eyes: &Eyes<'_>) -> Result<(), ApiError> {
    let elsewhere = netns.is_some_and(|netns| netns.number().ok() != eyes.home.number().ok());
    let open = if elsewhere { None } else { Some(eyes.permit.open()) };
    refuse_ports_of_the_host(wanted, &eyes.permit.protected().tcp_ports, open)
}

fn refuse_ports_of_the_host(wanted: &Wanted, tcp_ports: &[u16], open: Option<&Open>) -> Result<(), ApiError> {
    let Wanted { ports: (first, last), udp, field } = *wanted;
    let refused = |port: u16, why: &str| {
        let all = match first == last {
            true => String::new(),
            false => format!(" of {}", wanted.words((first, last))),
        };
        let text = format!("{field}: {}{all} is protected: {why}", wanted.words((port, port)));
        ApiError::new(ErrorCode::TargetProtected, text)
    };
    if let Some(port) = tcp_ports.iter().find(|port| !udp && (first..=last).contains(*port)) {
        return Err(refused(*port, "somebody may reach this host at it")
            .hint("`protect.tcp_ports` of the daemon's policy file lists such ports"));
    }
    let Some(open) = open else { return Ok(()) };
    let closed: Vec<_> = (first..=last).filter(|port| !open.has_port(*port)).collect();
    let Some(port) = closed.first() else { return Ok(()) };
    let known = open.ports.iter().map(u16::to_string);
    let all: Vec<_> = known.chain(closed.iter().map(u16::to_string)).collect();
    let hint = match closed.len() <= MOST_TOLD {
        true => opens("ports", &format!("[{}]", all.join(", "))),
        false => {
            format!("name a range that has none of the {} ports of this host's services in it", closed.len())
        }
    };
    Err(refused(*port, "services of this host may need it").hint(hint))
}

/// What stays of something, whoever asks.
struct Floor {
    /// The parameter by which a caller may ask for more of it.
    parameter: &'static str,
    /// The field of the policy.
    field: &'static str,
    /// How many of what is counted are one of what the parameter counts, as a power of two.
    unit: u32,
}

const MEMORY: Floor = Floor { parameter: "reserve_mb", field: "least_memory_mb", unit: 20 };
const ROOM: Floor = Floor { parameter: "leave_free_mb", field: "least_disk_mb", unit: 20 };
const FILES: Floor = Floor { parameter: "leave_free", field: "least_files", unit: 0 };

/// Refuses to leave less than a floor.
fn refuse_below(asked: Option<u64>, least: u64, floor: &Floor) -> Result<(), ApiError> {
    let Floor { parameter, field, unit } = floor;
    match asked {
        Some(asked) if asked < least => {
            let (asked, least) = (asked >> unit, least.div_ceil(1 << unit));
            let text = format!("params.{parameter}: {asked} is less than the {least} that stay on this host");
            let line = line(field, &asked.to_string());
            Err(ApiError::new(ErrorCode::PolicyDenied, text).hint(format!(
                "ask for {least} or more; {line} of the daemon's policy file opens it; only the operator changes it"
            )))
        }
        _ => Ok(()),
    }
}

/// The plan of what takes something in a directory, which is opened there as whoever could name it.
fn in_directory(
    path: &Path,
    eyes: &Eyes<'_>,
    plan: impl FnOnce(&DirectoryGround) -> Result<Plan, ApiError>,
) -> Result<Plan, ApiError> {
    let ground = directory(path, eyes)?;
    let mut plan = plan(&ground)?;
    if let Some(why) = &ground.closed {
        return Err(ApiError::new(ErrorCode::TargetProtected, format!("params.path: {why}")));
    }
    if let Work::Hoard(work) = &mut plan.work {
        work.identity = ground.identity;
    }
    Ok(plan)
}

/// The control group that the holder is to join.
pub(super) fn joined(whose: &Whose, eyes: &Eyes<'_>) -> Result<CgroupRef, ApiError> {
    let group = target::scope::group(whose, eyes.identity(), eyes.spared)?;
    target::cgroup::resolve_to_join(&group, eyes.spared)
}

/// How much memory stays available on the host: what is asked for, or what stays when nobody says.
fn reserve_of(asked: Option<u64>, memory: &Memory, eyes: &Eyes<'_>) -> Result<u64, ApiError> {
    let least = eyes.permit.open().least_memory(memory.total);
    refuse_below(asked, least, &MEMORY)?;
    Ok(asked.unwrap_or_else(|| memory::reserve(memory.total)).max(least))
}

fn host_memory() -> Result<Memory, ApiError> {
    Memory::read().map_err(|error| failed("the host's memory", &error))
}

/// A directory, as the caller reaches it, or as the policy names it; but not one of the file system that has the journal by which
/// faults are undone.
fn directory(path: &Path, eyes: &Eyes<'_>) -> Result<DirectoryGround, ApiError> {
    let look = |error: io::Error| unreached(path, &error);
    let (found, identity) = match eyes.permit.names(path) {
        true => (DirectoryRef::find_without_links(path), Identity::ROOT),
        false => (eyes.identity().act(|| DirectoryRef::find(path)), eyes.identity().clone()),
    };
    let directory = found.map_err(look)?.ok_or_else(|| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.path: no directory {}", path.display()))
    })?;
    let ours = DirectoryRef::find(eyes.runtime_dir).map_err(look)?;
    if ours.is_some_and(|ours| ours.device == directory.device) {
        let path = path.display();
        return Err(ApiError::new(
            ErrorCode::TargetProtected,
            format!("params.path: {path} is protected: the daemon's journal is in the same file system"),
        )
        .hint("name a directory of another file system, or run the daemon with another --runtime-dir"));
    }
    if !eyes.permit.names(path) {
        refuse_system(path, &directory, eyes)?;
    }
    let closed = identity.act(|| directory.check_writable()).err().map(|error| error.to_string());
    let space = identity.act(|| directory.open().and_then(Space::of)).map_err(look)?;
    let least = if eyes.permit.names(path) { 0 } else { eyes.permit.open().least_room(space.bytes) };
    Ok(DirectoryGround { directory, identity, space, memory: host_memory()?, least, closed })
}

/// Refuses file systems without which the host does not go on: its root, that of its logs, and that of the daemon's state.
fn refuse_system(path: &Path, directory: &DirectoryRef, eyes: &Eyes<'_>) -> Result<(), ApiError> {
    let state = eyes.down_record.parent().unwrap_or(eyes.down_record);
    let open = &eyes.permit.open().file_systems;
    let is_of = |place: &Path| {
        DirectoryRef::find(place).ok().flatten().is_some_and(|found| found.device == directory.device)
    };
    let kept = [
        (Path::new("/"), "this host's root"),
        (Path::new("/var/log"), "its logs"),
        (state, "the daemon's state"),
    ];
    let Some((_, what)) = kept.into_iter().find(|(place, _)| is_of(place)) else { return Ok(()) };
    if open.iter().any(|opened| is_of(Path::new(opened))) {
        return Ok(());
    }
    let shown = path.display();
    let text = format!("params.path: {shown} is protected: {what} is in the same file system");
    let line = line("file_systems", &format!("[{:?}]", path));
    Err(ApiError::new(ErrorCode::TargetProtected, text).hint(format!(
        "name a directory of another file system; {line} of the daemon's policy file opens it, for whoever may write there"
    )))
}

/// Why a directory cannot be looked at as the caller.
fn unreached(path: &Path, error: &io::Error) -> ApiError {
    let code = match error.kind() {
        io::ErrorKind::PermissionDenied => ErrorCode::TargetProtected,
        io::ErrorKind::NotFound => ErrorCode::TargetNotFound,
        _ if error.raw_os_error() == Some(nix::libc::ELOOP) => ErrorCode::TargetNotFound,
        _ => ErrorCode::InjectionFailed,
    };
    ApiError::new(code, format!("params.path: look at {}: {error}", path.display()))
}

pub(super) fn failed(what: &str, error: &io::Error) -> ApiError {
    ApiError::new(ErrorCode::InjectionFailed, format!("look at {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(ports: (u16, u16), udp: bool, open: &Open) -> Option<ApiError> {
        let wanted = Wanted { ports, udp, field: "params.port_range" };
        refuse_ports_of_the_host(&wanted, &[22, 8022], Some(open)).err()
    }

    #[test]
    fn a_range_is_refused_by_the_first_of_its_ports_that_is_closed_or_protected() {
        let closed = Open::default();
        for (ports, udp, words) in [
            ((22, 22), false, "TCP port 22 is protected"),
            ((8000, 8100), false, "TCP port 8022 of TCP ports 8000-8100 is protected"),
            ((1000, 2000), true, "UDP port 1000 of UDP ports 1000-2000 is protected"),
            ((2000, 3000), false, "TCP port 2379 of TCP ports 2000-3000 is protected"),
        ] {
            let error = refused(ports, udp, &closed).unwrap();
            assert!(error.message.contains(words), "{error}");
        }
        assert_eq!(refused((8000, 8100), true, &closed), None);
        assert_eq!(refused((32_768, 60_999), false, &closed), None);
    }

    #[test]
    fn the_line_of_a_range_opens_all_of_it_beside_what_is_open() {
        let open = Open { ports: [80].into(), ..Open::default() };
        let hint = refused((2000, 3000), true, &open).unwrap().hint.unwrap();
        let line = hint.split('`').nth(1).unwrap();
        assert_eq!(line, "ports = [80, 2379, 2380]");
        assert_eq!(refused((2000, 3000), true, &toml::from_str(line).unwrap()), None);
        let many = refused((1, 3000), true, &open).unwrap().hint.unwrap();
        assert!(many.contains("1024 ports"), "{many}");
    }

    #[test]
    fn in_another_network_namespace_services_of_this_host_need_nothing() {
        let wanted = Wanted { ports: (80, 80), udp: false, field: "target.local_port" };
        assert_eq!(refuse_ports_of_the_host(&wanted, &[22], None), Ok(()));
    }
}
