//! What a fault that is not of a network finds before it changes anything: the target pinned, the old value of a setting read,
//! and everything refused by name that must not be changed or could not be restored.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ipnet::IpNet;

use super::affected::Place;
use super::{reach, services, supply};
use crate::fault::{Callers, Crowd, Ground, called, limit};
use crate::host::connections::reached_at;
use crate::host::privilege::may_set_clock;
use crate::host::{Cgroup, CgroupRef, Identity, Interface, NetNs, PlaceRef, Running, Spared, budget, proxy};
use crate::kernel::clock;
use crate::kernel::netlink::belongings::Inventory;
use crate::kernel::node::Kernel;
use crate::kernel::proxy::find;
use crate::kernel::setting::{Knob, LinkSetting, link};
use crate::kernel::step::NetNsRef;
use crate::policy::Permit;
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::effect::Effect;
use crate::spec::{Failure, Hoard, Limit, LocalPort, ProcessSelector, Whose};
use crate::target::process::Matcher;
use crate::target::{self, Entrance};

/// The command of `chaosctl` that every proxy has in its command line.
const PROXY: &str = "mcp-proxy";

/// Looks. `named` are the addresses of the host that the target names. `None` for a fault that has another target.
///
/// # Errors
/// Names what cannot be a target, and why.
pub(super) fn look(
    effect: &Effect,
    named: &[IpNet],
    permit: &Permit,
    home: &NetNs,
    runtime_dir: &Path,
    (caller, entrance): (Caller, &Entrance),
) -> Result<Option<Ground>, ApiError> {
    let identity = entrance.identity();
    match effect {
        Effect::Limit { whose, limit } => {
            let (found, open) = lasting(whose, identity)?;
            let device = match limit {
                Limit::Io { device, .. } => block_device(device)?,
                _ => String::new(),
            };
            value(effect, found, &open, limit::knob(limit, &device)).map(Some)
        }
        Effect::Pause { whose } => {
            let (found, open) = lasting(whose, identity)?;
            let ground = value(effect, found, &open, Knob::Freeze)?;
            if let Ground::Cgroup { cgroup, old, .. } = &ground
                && old != "0"
            {
                return Err(invalid(format!("cgroup {} is frozen already", cgroup.path.display())));
            }
            Ok(Some(ground))
        }
        Effect::LinkDown { interface, netns, .. } => {
            interface_up(interface, netns.as_ref(), permit, (home, entrance)).map(Some)
        }
        Effect::ClockSkew { .. } => wall_clock().map(Some),
        Effect::Hoard { what: Hoard::Port(local), .. } if is_protected(*local, permit) => {
            let problem =
                format!("target.local_port: {local} is protected: somebody may reach this host at it");
            Err(ApiError::new(ErrorCode::TargetProtected, problem)
                .hint("`protect.tcp_ports` of the daemon's policy file lists such ports"))
        }
        Effect::Hoard { what, whose, .. } => {
            supply::look(what, whose.as_ref(), permit, runtime_dir, (caller, identity)).map(Some)
        }
        Effect::Cpu(load) => supply::processors(load, identity).map(Some),
        Effect::ProcessKill { processes, .. } => crowd(processes, (caller, identity)).map(Some),
        Effect::ProcessPause { processes, .. } => {
            let ground = crowd(processes, (caller, identity))?;
            refuse_traced(&ground)?;
            Ok(Some(ground))
        }
        Effect::Spoil { processes, .. } => proxies(processes, (caller, identity)).map(Some),
        Effect::Load(load) => reach::look(load, permit, home, runtime_dir, entrance).map(Some),
        Effect::ServiceStop { unit } => services::to_stop(unit).map(Some),
        Effect::ServiceRestart { unit } => services::to_restart(unit).map(Some),
        Effect::Impair { .. } | Effect::Refuse { .. } | Effect::Names { .. } | Effect::Drop { .. } => {
            Ok(None)
        }
        // What is looked at there depends on what else is active.
        Effect::Down(_) => Ok(None),
        Effect::Files { calls, failure } => {
            let (group, place) = (group(&calls.whose, identity)?, place(&calls.path, permit, identity)?);
            refuse_to_end_who_is_needed(&group, failure, caller)?;
            Ok(Some(Ground::Files(group, place)))
        }
        Effect::Connect { calls, .. } => {
            let peers = [&calls.peers, named].concat();
            callers(&calls.whose, peers, permit, identity).map(|callers| Some(Ground::Callers(callers)))
        }
        Effect::Sever { packets, .. } => {
            let peers = [&packets.peers, named].concat();
            callers(&packets.whose, peers, permit, identity).map(|callers| Some(Ground::Callers(callers)))
        }
        Effect::Sockets { calls, failure } => {
            let callers = callers(&calls.whose, Vec::new(), permit, identity)?;
            refuse_to_end_who_is_needed(&callers.cgroup, failure, caller)?;
            Ok(Some(Ground::Callers(callers)))
        }
    }
}

/// Whose calls to these peers fail, or packets vanish, and what the policy spares.
fn callers(
    whose: &Whose,
    peers: Vec<IpNet>,
    permit: &Permit,
    identity: &Identity,
) -> Result<Callers, ApiError> {
    let protected = permit.protected();
    Ok(Callers {
        cgroup: group(whose, identity)?,
        peers,
        protected_peers: protected.cidrs.clone(),
        protected_tcp_ports: protected.tcp_ports.clone(),
    })
}

/// The control group of which a value is changed, that whoever undoes it can get to: injector and guard have no right to pass
/// over modes (CAP_DAC_OVERRIDE), which the owner of a directory on the way may change.
fn lasting(whose: &Whose, identity: &Identity) -> Result<(CgroupRef, Cgroup), ApiError> {
    let (found, open) = target::cgroup::resolve(&target::scope::group(whose, identity)?)?;
    let owned = |folder: &&Path| folder.symlink_metadata().is_ok_and(|is| is.uid() != 0);
    let Some(others) = found.path.ancestors().find(owned) else { return Ok((found, open)) };
    let problem = format!(
        "cgroup {}: {} is not root's, and its owner could keep the old value from being given back",
        found.path.display(),
        others.display()
    );
    Err(ApiError::new(ErrorCode::TargetProtected, problem)
        .hint("name a cgroup above it that is root's, such as the slice of the user"))
}

/// The control group of those whose calls fail, or packets vanish: theirs alone.
fn group(whose: &Whose, identity: &Identity) -> Result<CgroupRef, ApiError> {
    target::cgroup::resolve(&target::scope::group(whose, identity)?).map(|(found, _)| found)
}

/// A signal that comes with an error may meet anybody in the group: nobody in there may be one whom this host or the caller needs.
fn refuse_to_end_who_is_needed(group: &CgroupRef, failure: &Failure, caller: Caller) -> Result<(), ApiError> {
    if failure.signal.is_none() {
        return Ok(());
    }
    let inside = Place::group(group).map_err(|error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look for the place of the cgroup: {error}"))
    })?;
    let all = everybody()?;
    let spared = Spared::of(caller.process(), &all);
    let mut needed = all
        .iter()
        .filter(|process| inside.has(process))
        .filter_map(|process| process.vital(&spared).map(|why| (process, why)));
    match needed.next() {
        None => Ok(()),
        Some((process, why)) => {
            let (path, id, name) = (group.path.display(), process.id.pid, &process.name);
            let text =
                format!("cgroup {path} is protected from signals: process {id} ({name}) is in it, and {why}");
            Err(ApiError::new(ErrorCode::TargetProtected, text)
                .hint("leave the signal out, or name another cgroup"))
        }
    }
}

fn wall_clock() -> Result<Ground, ApiError> {
    match may_set_clock() {
        true => clock::distance_ns().map(Ground::Clock).map_err(|error| {
            ApiError::new(ErrorCode::InjectionFailed, format!("read the clocks of this host: {error}"))
        }),
        false => Err(ApiError::new(ErrorCode::MissingPrivilege, "clock_skew needs CAP_SYS_TIME").hint(
            "the unit of an installed daemon withholds it: the documentation says which drop-in gives it",
        )),
    }
}

fn is_protected(local: LocalPort, permit: &Permit) -> bool {
    !local.udp && permit.protected().tcp_ports.contains(&local.port)
}

/// The file or folder that is named, as the caller reaches it, or as the policy names it.
fn place(path: &Path, permit: &Permit, identity: &Identity) -> Result<PlaceRef, ApiError> {
    let shown = path.display();
    let found = match permit.names(path) {
        true => PlaceRef::find_without_links(path),
        false => identity.act(|| PlaceRef::find(path)),
    };
    let found = found.map_err(|error| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.path: look at {shown}: {error}"))
            .hint("name a folder above, which the caller and the daemon can reach")
    })?;
    found.ok_or_else(|| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.path: no file or folder {shown}")).hint(
            "of files that do not exist yet, name their folder; an installed daemon sees none of /tmp, /var/tmp, /home, \
             /root and /run/user",
        )
    })
}

/// The processes that match, but for those that this host or the caller cannot do without.
fn crowd(selector: &ProcessSelector, (caller, identity): (Caller, &Identity)) -> Result<Ground, ApiError> {
    let all = everybody()?;
    let spared = Spared::of(caller.process(), &all);
    let matcher = Matcher::new(selector, identity)?;
    select(selector, &matcher, matcher.matching(all)?, spared)
}

/// The proxies among the processes that match; none of those that are hit has a fault already.
fn proxies(selector: &ProcessSelector, (caller, identity): (Caller, &Identity)) -> Result<Ground, ApiError> {
    let all = everybody()?;
    let spared = Spared::of(caller.process(), &all);
    let matcher = Matcher::new(selector, identity)?;
    let mut matching = matcher.matching(all)?;
    let mut pages = BTreeMap::new();
    // Of nobody else a descriptor is taken.
    for process in matching.iter().filter(|process| process.command.split(' ').any(|word| word == PROXY)) {
        budget::check()?;
        pages.extend(page(process)?.map(|page| (process.id, page)));
    }
    if pages.is_empty() && !matching.is_empty() {
        let (count, plural) = (matching.len(), if matching.len() == 1 { "" } else { "es" });
        let text = format!("target: none of {count} process{plural} ({selector}) is a chaosctl mcp-proxy");
        return Err(ApiError::new(ErrorCode::TargetNotFound, text).hint(
            "put `chaosctl mcp-proxy --` before the server's command in the configuration of its client",
        ));
    }
    matching.retain(|process| pages.contains_key(&process.id));
    let ground = select(selector, &matcher, matching, spared)?;
    let Ground::Crowd(crowd) = &ground else { return Ok(ground) };
    let claimed = |process: &&Running| {
        pages.get(&process.id).is_some_and(|page| proxy::is_claimed(page).unwrap_or(false))
    };
    match crowd.selection.hit.iter().find(claimed) {
        None => Ok(ground),
        Some(Running { id, name, .. }) => {
            let text = format!("process {} ({name}) has an mcp_error already, and can have one only", id.pid);
            Err(invalid(text).hint("remove that fault first, or say in it what both of them do"))
        }
    }
}

/// The page of a process, if it is a proxy.
fn page(process: &Running) -> Result<Option<File>, ApiError> {
    find(process.id).map_err(|error| {
        let text = format!("look at a descriptor of process {} ({}): {error}", process.id.pid, process.name);
        ApiError::new(ErrorCode::InjectionFailed, text)
            .hint("it takes CAP_SYS_PTRACE, and kernel.yama.ptrace_scope below 3")
    })
}

fn everybody() -> Result<Vec<Running>, ApiError> {
    Running::all().map_err(|error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look at the processes of this host: {error}"))
    })
}

/// Whom of those that match the fault goes to.
fn select(
    selector: &ProcessSelector,
    matcher: &Matcher,
    matching: Vec<Running>,
    spared: Spared,
) -> Result<Ground, ApiError> {
    let mut selection = target::process::choose(selector, matching, &spared)?;
    selection.forget_commands();
    let programs = matcher.programs().to_vec();
    Ok(Ground::Crowd(Box::new(Crowd { selection, spared, programs })))
}

/// A process has one tracer at most: a debugger, or another fault.
fn refuse_traced(ground: &Ground) -> Result<(), ApiError> {
    let Ground::Crowd(crowd) = ground else { return Ok(()) };
    let Some(traced) = crowd.selection.hit.iter().find(|process| process.tracer != 0) else { return Ok(()) };
    let tracer =
        Running::read(traced.tracer).map_or_else(String::new, |tracer| format!(" ({})", tracer.name));
    let (pid, name, by) = (traced.id.pid, &traced.name, traced.tracer);
    Err(ApiError::new(
        ErrorCode::InvalidParameter,
        format!(
            "process {pid} ({name}) is traced already, by process {by}{tracer}, and can have one tracer only"
        ),
    )
    .hint("end that debugger or fault first; `pause` freezes a cgroup without tracing"))
}

fn invalid(message: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidParameter, message)
}

fn value(effect: &Effect, cgroup: CgroupRef, open: &Cgroup, knob: Knob) -> Result<Ground, ApiError> {
    match knob.read(open) {
        Ok(old) => Ok(Ground::Cgroup { cgroup, knob, old }),
        Err(error) => Err(unreadable(&called(effect), &cgroup, &knob, &error)),
    }
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

/// The number of a block device, given as such, as a name, or as a path below `/dev`.
fn block_device(text: &str) -> Result<String, ApiError> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if text.split_once(':').is_some_and(|(major, minor)| is_number(major) && is_number(minor)) {
        return Ok(text.to_owned());
    }
    let name = text.strip_prefix("/dev/").unwrap_or(text);
    let found = match name.contains('/') || name.starts_with('.') {
        true => None,
        false => std::fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok(),
    };
    found.map(|number| number.trim().to_owned()).ok_or_else(|| {
        ApiError::new(ErrorCode::TargetNotFound, format!("params.device: no block device {text:?}"))
            .hint("`lsblk` shows them; a number such as 8:0 works too")
    })
}

fn interface_up(
    name: &str,
    netns: Option<&String>,
    permit: &Permit,
    (home, entrance): (&NetNs, &Entrance),
) -> Result<Ground, ApiError> {
    let (open, interface) = target::resolve_interface(name, netns.map(String::as_str), home, entrance)?;
    let failed = |error: &dyn std::error::Error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look at what interface {name:?} has: {error}"))
    };
    let netns = NetNsRef::new(netns.cloned(), &open).map_err(|error| failed(&error))?;
    let (up, inventory) = link::inventory(&Kernel, &netns, interface.index)
        .map_err(|error| failed(&error))?
        .ok_or_else(|| ApiError::new(ErrorCode::TargetNotFound, format!("interface {name:?} has gone")))?;
    if !up {
        return Err(invalid(format!("target.interface: {name:?} is down already")));
    }
    if !inventory.unrestorable.is_empty() {
        let what = inventory.unrestorable.join(", ");
        return Err(invalid(format!("target.interface: going down would cost {name:?} for good: {what}")));
    }
    refuse_lifeline(&interface, &open, &inventory, permit)?;
    let Interface { name, index, .. } = interface;
    Ok(Ground::Link(LinkSetting { netns, ifindex: index, name, had: inventory.belongings }))
}

/// Refuses loopback, and in the daemon's own namespace the interface through which the host reaches others, or is reached.
fn refuse_lifeline(
    interface: &Interface,
    netns: &NetNs,
    inventory: &Inventory,
    permit: &Permit,
) -> Result<(), ApiError> {
    let name = &interface.name;
    let protected = |why: &str| {
        Err(ApiError::new(ErrorCode::TargetProtected, format!("interface {name:?} is protected: {why}")))
    };
    if name == "lo" {
        return protected("the host's programs speak with each other through it");
    }
    if permit.spares_not(name) {
        return Ok(());
    }
    let here = NetNs::current().and_then(|here| Ok(here.identity()? == netns.identity()?));
    let here = here.map_err(|error| {
        let text =
            format!("tell whether interface {name:?} is in the daemon's own network namespace: {error}");
        ApiError::new(ErrorCode::InjectionFailed, text).hint("try again")
    })?;
    if !here {
        return Ok(());
    }
    let hint = |refusal: Result<(), ApiError>| {
        refusal.map_err(|error| error.hint("`critical_interfaces` of the daemon's policy file can allow it"))
    };
    if inventory.default_route {
        return hint(protected("the host's default route leaves through it"));
    }
    // What cannot be read might be the operator's own session.
    let reached = reached_at(&permit.protected().tcp_ports).unwrap_or_else(|_| inventory.addresses.clone());
    let session = |address: &IpAddr| inventory.addresses.contains(address);
    if reached.iter().any(session) {
        return hint(protected("somebody is connected to a protected port of this host through it"));
    }
    Ok(())
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
