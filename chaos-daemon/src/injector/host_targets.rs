//! What can be aimed at on this host, as far as a caller may see it. That is what the kernel shows to everybody, and what a preview of
//! a process fault would tell. Of other network namespaces it is those that the caller may enter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use super::aside::Places;
use crate::fault;
use crate::host::addresses::{Addressed, interfaces};
use crate::host::listening::{Listening, listening, owners};
use crate::host::protected;
use crate::host::{Aim, Identity, NetNs, Open, Running, Spared, budget};
use crate::kernel::netlink::marks::recognise_device;
use crate::request::host_targets::{GroupTarget, HostTargets, InterfaceTarget, Listener, PortTarget, Wanted};
use crate::request::{ApiError, Caller, ErrorCode};
use crate::target::Entrance;

/// Where `ip netns` keeps names.
const NAMED: &str = "/run/netns";
/// How many namespaces are looked into.
const MOST_NAMESPACES: usize = 64;
/// Of how many processes the descriptors are looked at by one thread.
const AT_ONCE: usize = 16;
/// How many programs of a group are named.
const PROGRAMS: usize = 5;

/// How much of a processor one look may take.
const LONGEST: Duration = Duration::from_secs(4);
/// So many look at once, one of a user. Gates, which wait for other questions about this host, do not wait for these.
static PLACES: Places = Places::new(2, 1, Some(LONGEST), "lists of targets");

/// Looks when it is its turn. `with_processes` is whether the caller may be told what the preview of a process fault tells, or why not.
///
/// # Errors
/// When the processes of this host cannot be read, or looking takes too much of a processor.
pub(super) async fn find(
    entrance: Entrance,
    (caller, open): (Caller, Open),
    with_processes: Result<(), ApiError>,
    wanted: Wanted,
) -> Result<HostTargets, ApiError> {
    let look = move || Ok(look(&entrance, (caller, &open), with_processes)?.only(&wanted));
    PLACES.look(caller.into(), look).await
}

fn look(
    entrance: &Entrance,
    (caller, open): (Caller, &Open),
    with_processes: Result<(), ApiError>,
) -> Result<HostTargets, ApiError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        ApiError::new(ErrorCode::Unavailable, format!("look at {what} of this host: {error}"))
    };
    let all = Running::all().map_err(|error| failed("the processes", &error))?;
    let mut found = HostTargets::default();
    let mut not_seen =
        |what: &str, why: &dyn std::fmt::Display| found.not_seen.push(format!("{what}: {why}"));
    match interfaces() {
        Ok(here) => found.interfaces = told(None, here),
        Err(error) => not_seen("interfaces", &error),
    }
    let (others, more) =
        namespaces(&all, entrance).map_err(|error| failed("the network namespaces", &error))?;
    if more {
        not_seen("network namespaces", &format_args!("only {MOST_NAMESPACES} are looked into"));
    }
    for (name, netns) in others {
        budget::check().map_err(|error| failed("the network namespaces", &error))?;
        match netns.inside(interfaces) {
            Ok(there) => found.interfaces.extend(told(Some(&name), there)),
            Err(error) => not_seen(&format!("interfaces of {name}"), &error),
        }
        found.netns.push(name);
    }
    let sockets = listening().map_err(|error| failed("the sockets", &error))?;
    match with_processes {
        Ok(()) => {
            let owned = whose(&sockets, &all, entrance.identity());
            let owned = owned.map_err(|error| failed("whose the sockets are", &error))?;
            found.ports = ports(sockets, &all, &owned);
            let spared = fault::spared(caller, open);
            (found.units, found.containers, found.cgroups) = groups(&all, &spared);
        }
        Err(error) => {
            found.ports = ports(sockets, &all, &BTreeMap::new());
            not_seen("units, containers, cgroups and whose ports are", &error.message);
        }
    }
    Ok(found)
}

/// Which process has each socket, as far as the caller may see that. What the caller's thread looks at has no budget, so it is asked for
/// a few processes at a time.
fn whose(sockets: &[Listening], all: &[Running], caller: &Identity) -> std::io::Result<BTreeMap<u64, i32>> {
    let numbers: Vec<_> = all.iter().map(|process| process.id.pid).collect();
    let mut found = BTreeMap::new();
    for some in numbers.chunks(AT_ONCE) {
        budget::check()?;
        found.extend(caller.act(|| owners(sockets, some))?);
    }
    Ok(found)
}

/// The interfaces of a namespace, but for those of faults that are active.
fn told(netns: Option<&str>, all: BTreeMap<String, Addressed>) -> Vec<InterfaceTarget> {
    let ours = |name: &String| recognise_device(name).is_some();
    let route =
        |net: &ipnet::IpNet| if net.prefix_len() == 0 { "default".to_owned() } else { net.to_string() };
    let interface = |(interface, it): (String, Addressed)| {
        // Both families have a default.
        let routes: BTreeSet<_> = it.routes.iter().map(route).collect();
        InterfaceTarget {
            interface,
            netns: netns.map(str::to_owned),
            up: it.up,
            addresses: it.addresses.iter().map(ToString::to_string).collect(),
            routes: routes.into_iter().collect(),
        }
    };
    all.into_iter().filter(|(name, _)| !ours(name)).map(interface).collect()
}

/// Other network namespaces that the caller may enter, each once, by the name that `ip netns` has for it, or by a process in it. With
/// them, whether there are more than are looked into.
fn namespaces(all: &[Running], entrance: &Entrance) -> std::io::Result<(Vec<(String, NetNs)>, bool)> {
    let named = fs::read_dir(NAMED).into_iter().flatten().flatten();
    let mut names: Vec<_> = named.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let elsewhere = all.iter().filter(|process| !process.nearness.in_this_network && !process.of_kernel);
    names.extend(elsewhere.map(|process| format!("/proc/{}/ns/net", process.id.pid)));
    let mut seen: BTreeSet<_> = NetNs::current().and_then(|home| home.number()).into_iter().collect();
    let mut found = Vec::new();
    for name in names {
        budget::check()?;
        // What the caller may not enter is not told.
        let Ok(netns) = entrance.open(&name) else { continue };
        if !netns.number().is_ok_and(|number| seen.insert(number)) {
            continue;
        }
        if found.len() == MOST_NAMESPACES {
            return Ok((found, true));
        }
        found.push((name, netns));
    }
    Ok((found, false))
}

fn ports(sockets: Vec<Listening>, all: &[Running], owned: &BTreeMap<u64, i32>) -> Vec<PortTarget> {
    let owner = |inode: u64| {
        let pid = owned.get(&inode)?;
        let process = all.iter().find(|process| process.id.pid == *pid)?;
        let unit = unit_of_host(process).unwrap_or_default().to_owned();
        Some(Listener { pid: *pid, name: process.name.clone(), unit })
    };
    let mut ports: Vec<_> = sockets
        .into_iter()
        .map(|Listening { protocol, address, uid, inode }| PortTarget {
            protocol: protocol.to_owned(),
            address: address.ip(),
            port: address.port(),
            uid,
            owner: owner(inode),
        })
        .collect();
    ports.sort_by(|one, other| {
        (&one.protocol, one.port, one.address).cmp(&(&other.protocol, other.port, other.address))
    });
    ports.dedup();
    ports
}

/// Units, containers and control groups, each by name.
fn groups(all: &[Running], spared: &Spared) -> (Vec<GroupTarget>, Vec<GroupTarget>, Vec<GroupTarget>) {
    let (mut units, mut containers, mut cgroups) = (Groups::default(), Groups::default(), Groups::default());
    for process in all.iter().filter(|process| !process.of_kernel) {
        if let Some(unit) = unit_of_host(process) {
            units.add(unit, process, spared);
        }
        if let Some(id) = process.container() {
            containers.add(&id, process, spared);
        }
        let group = process.cgroup.as_ref().and_then(|path| path.to_str());
        if let Some(path) = group.filter(|path| !path.is_empty()) {
            cgroups.add(path, process, spared);
        }
    }
    let mut units = units.told();
    for unit in units.iter_mut().filter(|unit| unit.protected.is_none()) {
        unit.protected = protected::unit(&unit.name, spared).map(|protected| protected.to_string());
    }
    (units, containers.told(), cgroups.told())
}

/// The unit of this host's systemd that a process is in, as a target takes it: below slices alone (`host::cgroup::of_unit`).
pub(super) fn unit_of_host(process: &Running) -> Option<&str> {
    let mut parts = process.cgroup.as_ref()?.iter().filter_map(|part| part.to_str());
    parts
        .find(|part| !part.ends_with(".slice"))
        .filter(|part| part.ends_with(".service") || part.ends_with(".scope"))
}

/// Processes by a name that they have in common.
#[derive(Default)]
struct Groups<'a>(BTreeMap<String, Group<'a>>);

#[derive(Default)]
struct Group<'a> {
    processes: usize,
    programs: BTreeSet<&'a str>,
    protected: Option<&'static str>,
}

impl<'a> Groups<'a> {
    fn add(&mut self, name: &str, process: &'a Running, spared: &Spared) {
        let group = self.0.entry(name.to_owned()).or_default();
        group.processes += 1;
        group.programs.insert(&process.name);
        group.protected = group
            .protected
            .or_else(|| process.protected(Aim::AtPlace, spared).map(|protected| protected.why));
    }

    fn told(self) -> Vec<GroupTarget> {
        let target = |(name, group): (String, Group<'_>)| GroupTarget {
            name,
            processes: group.processes,
            programs: group.programs.into_iter().take(PROGRAMS).map(str::to_owned).collect(),
            protected: group.protected.map(|why| format!("{why} (one of its processes)")),
        };
        self.0.into_iter().map(target).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn process(pid: i32, name: &str, cgroup: &str) -> Running {
        Running { cgroup: Some(PathBuf::from(cgroup)), ..Running::plain(pid, name) }
    }

    #[test]
    fn processes_are_told_by_unit_container_and_group_and_what_the_host_needs_is_protected() {
        let id = "0123456789abcdef".repeat(4);
        let all = [
            process(10, "shop", "system.slice/shop.service"),
            process(11, "worker", "system.slice/shop.service"),
            process(12, "sshd", "system.slice/ssh.service"),
            process(13, "nginx", &format!("system.slice/docker-{id}.scope")),
            process(14, "loose", ""),
            process(
                15,
                "pipewire",
                "user.slice/user-1000.slice/user@1000.service/session.slice/pipewire.service",
            ),
        ];
        let (units, containers, cgroups) = groups(&all, &Spared::default());
        let names = |groups: &[GroupTarget]| groups.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&containers), ["0123456789ab"]);
        assert_eq!(cgroups.len(), 4);
        let shop = &units[1];
        assert_eq!((shop.name.as_str(), shop.processes, &shop.protected), ("shop.service", 2, &None));
        assert_eq!(shop.programs, ["shop", "worker"]);
        assert!(units[2].name == "ssh.service" && units[2].protected.is_some(), "{units:?}");
        assert_eq!(
            units[3].name, "user@1000.service",
            "what a user's own systemd has is no unit of the host"
        );
    }

    #[test]
    fn who_may_not_see_processes_is_told_interfaces_and_ports_and_why_no_more() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let nobody = Caller::Vsock { cid: 7 };
        let entrance = Entrance::new(nobody, &BTreeSet::new());
        let denied = ApiError::new(ErrorCode::PolicyDenied, "not allowed");
        let found = look(&entrance, (nobody, &Open::default()), Err(denied)).unwrap();
        let mine = found.ports.iter().find(|it| it.port == port && it.protocol == "tcp").unwrap();
        assert_eq!(mine.owner, None);
        assert!(found.interfaces.iter().any(|it| it.interface == "lo"), "{found:?}");
        assert!(
            found.units.is_empty() && found.cgroups.is_empty() && found.not_seen[0].contains("not allowed")
        );
    }
}
