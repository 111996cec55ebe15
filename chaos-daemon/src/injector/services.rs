//! What the services of this host are like: their memory, descriptors, sessions, peers and restarts. It is asked again and again while
//! advice is given, on a thread aside. No caller is told more than by the list of targets, a probe of processes, and the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{LimitValue, Process};
use procfs::{Current, Meminfo};

use super::aside::Places;
use super::host_targets::unit_of_host;
use crate::fault::services::look as look_at_unit;
use crate::fault::spared;
use crate::host::addresses::{Addressed, interfaces};
use crate::host::opened::Opened;
use crate::host::usage::Usage;
use crate::host::{
    Aim, Cgroup, CgroupRef, Identity, Open, Running, Spared, boot_time_ns, budget, cgroup, protected,
};
use crate::kernel::systemd::Unit;
use crate::request::services::{MOST_SERVICES, ServiceSeen, ServicesSeen, ServicesWanted, Share, Stalls};
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::TargetRequest;

/// How much of a processor one look may take.
const LONGEST: Duration = Duration::from_secs(4);
/// So many look at once, one of a user.
static PLACES: Places = Places::new(2, 1, Some(LONGEST), "looks at services");
/// What of how many processes is looked at by one thread of the caller's, which has no budget.
const AT_ONCE: usize = 16;
/// Restarts are recent when the last of them is not longer ago.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// So many processes of a service are looked at.
const MOST_PROCESSES: usize = 64;
/// What a service manager alone knows.
const RESTARTS: &str = "how often units were restarted";
/// So many programs of a service are named.
const PROGRAMS: usize = 5;

/// Looks when it is its turn.
///
/// # Errors
/// When the processes of this host cannot be read, or looking takes too much of a processor.
pub(super) async fn find(
    caller: Caller,
    open: Open,
    wanted: ServicesWanted,
) -> Result<ServicesSeen, ApiError> {
    PLACES.look(caller.into(), move || look(caller, &open, &wanted)).await
}

fn look(caller: Caller, open: &Open, wanted: &ServicesWanted) -> Result<ServicesSeen, ApiError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        ApiError::new(ErrorCode::Unavailable, format!("look at {what} of this host: {error}"))
    };
    let all = Running::all().map_err(|error| failed("the processes", &error))?;
    let mut found = ServicesSeen { at: Duration::from_nanos(boot_time_ns()), ..ServicesSeen::default() };
    let spared = spared(caller, open);
    let mut groups = groups(&all);
    groups.retain(|group| wanted.name.as_ref().is_none_or(|name| group.is_called(name)));
    let mount = cgroup::mount().map_err(|error| failed("the control groups", &error))?;
    let left = meminfo_left();
    let (mut here, mut routes) = (None, None);
    for group in groups {
        if let Some(why) = group.protected(&spared) {
            found.left_out.push((group.target.names().concat(), why));
            continue;
        }
        if found.services.len() == MOST_SERVICES {
            found.more += 1;
            continue;
        }
        budget::check()?;
        let mut service = group.of_processes(left);
        if let Some(mount) = &mount {
            group.of_cgroup(mount, left, &mut service);
        }
        group.of_descriptors(&Identity::of(caller), &mut here, &mut service)?;
        if group.in_this_network() && !service.peers.is_empty() {
            let known = routes.get_or_insert_with(|| interfaces().unwrap_or_default());
            service.peers.iter_mut().for_each(|peer| peer.interface = way(known, peer.address));
        }
        if wanted.whole {
            group.of_manager(&spared, &mut found.not_seen, &mut service);
        }
        found.services.push(service);
    }
    Ok(found)
}

/// Processes that are one service.
struct Group<'a> {
    target: TargetRequest,
    processes: Vec<&'a Running>,
    /// Its control group, below the mount.
    folder: PathBuf,
}

/// Each process is of its container, or else its unit, or else its control group.
fn groups(all: &[Running]) -> Vec<Group<'_>> {
    let mut found = BTreeMap::<(u8, String), Group<'_>>::new();
    for process in all.iter().filter(|process| !process.of_kernel) {
        let Some(path) = process.cgroup.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            continue;
        };
        let until = |is_end: &dyn Fn(&str) -> bool| -> PathBuf {
            let mut ended = false;
            let part = |part: &&std::ffi::OsStr| {
                let goes_on = !ended;
                ended |= part.to_str().is_some_and(is_end);
                goes_on
            };
            path.iter().take_while(part).collect()
        };
        let (key, target, folder) = match (process.container(), unit_of_host(process)) {
            (Some(id), _) => {
                let folder = until(&|part| part.contains(&id));
                ((1, id.clone()), TargetRequest { container: Some(id), ..TargetRequest::default() }, folder)
            }
            (None, Some(unit)) => {
                let folder = until(&|part| part == unit);
                let target = TargetRequest { unit: Some(unit.to_owned()), ..TargetRequest::default() };
                ((0, unit.to_owned()), target, folder)
            }
            (None, None) => {
                let Some(name) = path.to_str() else { continue };
                let target = TargetRequest { cgroup: Some(name.to_owned()), ..TargetRequest::default() };
                ((2, name.to_owned()), target, path.clone())
            }
        };
        let group = found.entry(key).or_insert_with(|| Group { target, processes: Vec::new(), folder });
        group.processes.push(process);
    }
    found.into_values().collect()
}

impl Group<'_> {
    fn is_called(&self, name: &str) -> bool {
        let TargetRequest { unit, container, cgroup, .. } = &self.target;
        [unit, container, cgroup].into_iter().flatten().any(|it| it == name)
    }

    fn in_this_network(&self) -> bool {
        self.processes.iter().all(|process| process.nearness.in_this_network)
    }

    /// Why no fault may go to it, if so.
    fn protected(&self, spared: &Spared) -> Option<String> {
        let of_unit = self.target.unit.as_ref().and_then(|unit| protected::unit(unit, spared));
        of_unit.map(|protected| protected.to_string()).or_else(|| {
            let mut all = self.processes.iter();
            let why = all.find_map(|process| process.protected(Aim::AtPlace, spared))?.why;
            Some(format!("{why} (one of its processes)"))
        })
    }

    fn of_processes(&self, left: u64) -> ServiceSeen {
        let oldest = self.processes.iter().map(|process| process.id).min_by_key(|id| (id.start_time, id.pid));
        let programs: BTreeSet<_> = self.processes.iter().map(|process| process.name.clone()).collect();
        let (mut resident, mut descriptors) = (0, None::<Share>);
        for process in self.processes.iter().take(MOST_PROCESSES) {
            let Some(usage) = Usage::of(process.id) else { continue };
            resident += usage.resident;
            let share = usage.descriptors.zip(most_descriptors(process.id.pid));
            let Some(share) = share.map(|(used, limit)| Share { used, limit }) else { continue };
            let is_closer = |than: Share| share.used * than.limit > than.used * share.limit;
            if descriptors.is_none_or(is_closer) {
                descriptors = Some(share);
            }
        }
        ServiceSeen {
            target: self.target.clone(),
            programs: programs.into_iter().take(PROGRAMS).collect(),
            oldest: oldest.map_or((0, 0), |id| (id.pid, id.start_time)),
            memory: Some(Share { used: resident, limit: resident.saturating_add(left) }),
            descriptors,
            ..ServiceSeen::default()
        }
    }

    /// What its control group says, as far as it has the files of a controller.
    fn of_cgroup(&self, mount: &Path, left: u64, service: &mut ServiceSeen) {
        let found = CgroupRef::find(&mount.join(&self.folder)).ok().flatten();
        let Some(group) = found.and_then(|found| found.open().ok().flatten()) else { return };
        let number = |file: &str| group.read(file).ok()?.parse::<u64>().ok();
        if let Some(current) = number("memory.current") {
            // What can be given back at once is no want.
            let cached = field(&group, "memory.stat", "inactive_file").unwrap_or_default();
            let used = current.saturating_sub(cached);
            let limit = [number("memory.max"), number("memory.high")].into_iter().flatten().min();
            service.memory = Some(Share { used, limit: limit.unwrap_or_else(|| used.saturating_add(left)) });
        }
        service.oom_kills = field(&group, "memory.events", "oom_kill").unwrap_or_default();
        service.tasks =
            number("pids.current").zip(number("pids.max")).map(|(used, limit)| Share { used, limit });
        let stalled = |file: &str| group.read(file).ok().as_deref().and_then(total);
        let all = (stalled("cpu.pressure"), stalled("memory.pressure"), stalled("io.pressure"));
        if let (Some(cpu), Some(memory), Some(io)) = all {
            service.stalls = Some(Stalls { cpu, memory, io });
        }
    }

    /// What its descriptors are, as the caller sees them.
    fn of_descriptors(
        &self,
        caller: &Identity,
        here: &mut Option<Vec<TcpNetEntry>>,
        service: &mut ServiceSeen,
    ) -> Result<(), ApiError> {
        let pids: Vec<_> = self.processes.iter().take(MOST_PROCESSES).map(|process| process.id.pid).collect();
        let mut opened = Vec::new();
        for some in pids.chunks(AT_ONCE) {
            budget::check()?;
            let seen = caller.act(|| Ok(some.iter().map(|pid| Opened::of(*pid)).collect::<Vec<_>>()));
            opened.extend(seen.map_err(|error| unavailable(&error))?);
        }
        service.log = opened.iter().find_map(|it| it.log.as_ref()?.to_str()).map(str::to_owned);
        if let Some((path, space)) = opened.iter().find_map(|it| it.writes.as_ref()) {
            let limit = space.used.saturating_add(space.available);
            service.disk = Some(Share { used: space.used, limit });
            service.writes = path.parent().and_then(Path::to_str).map(str::to_owned);
        }
        let sockets: BTreeSet<u64> = opened.iter().flat_map(|it| it.sockets.iter().copied()).collect();
        let Some(first) = self.processes.first().filter(|_| !sockets.is_empty()) else { return Ok(()) };
        match self.in_this_network() {
            true => {
                let table = match here {
                    Some(table) => table,
                    None => here.insert(table(std::process::id().cast_signed())),
                };
                of_sockets(table, &sockets, service);
            }
            false => {
                of_sockets(&table(first.id.pid), &sockets, service);
                // Whoever is outside of it gets there by other addresses.
                service.listens.clear();
            }
        }
        Ok(())
    }

    /// What its service manager says of it.
    fn of_manager(&self, spared: &Spared, not_seen: &mut Vec<String>, service: &mut ServiceSeen) {
        let Some(unit) = self.target.unit.as_ref().filter(|unit| unit.ends_with(".service")) else { return };
        match look_at_unit(unit, spared) {
            Ok(unit) => {
                service.restarts = unit.restarts.map(|restarts| if is_lately(&unit) { restarts } else { 0 });
                service.supervised = !matches!(unit.restart.as_str(), "" | "no");
            }
            // Where nobody can be asked about one, nobody can about the others.
            Err(error) if !not_seen.iter().any(|it| it.starts_with(RESTARTS)) => {
                not_seen.push(format!("{RESTARTS}: {}", error.message));
            }
            Err(_) => {}
        }
    }
}

/// Whether a unit was started within the last day, or is about to be.
fn is_lately(unit: &Unit) -> bool {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    unit.active != "active" || now.saturating_sub(unit.active_since) < DAY
}

/// The interface by which packets to an address leave this host: that of the longest prefix.
fn way(interfaces: &BTreeMap<String, Addressed>, address: IpAddr) -> Option<String> {
    if address.is_loopback() {
        return Some("lo".to_owned());
    }
    let routes = interfaces.iter().flat_map(|(name, it)| it.routes.iter().map(move |route| (name, route)));
    let there = routes.filter(|(_, route)| route.contains(&address));
    there.max_by_key(|(_, route)| route.prefix_len()).map(|(name, _)| name.clone())
}

/// TCP connections and listeners of the network of a process; none where that cannot be read.
fn table(pid: i32) -> Vec<TcpNetEntry> {
    let Ok(process) = Process::new(pid) else { return Vec::new() };
    let (four, six) = (process.tcp().unwrap_or_default(), process.tcp6().unwrap_or_default());
    four.into_iter().chain(six).collect()
}

fn of_sockets(table: &[TcpNetEntry], sockets: &BTreeSet<u64>, service: &mut ServiceSeen) {
    let own: Vec<_> = table.iter().filter(|entry| sockets.contains(&entry.inode)).collect();
    let listens: BTreeSet<(IpAddr, u16)> = own
        .iter()
        .filter(|entry| entry.state == TcpState::Listen)
        .map(|entry| (entry.local_address.ip().to_canonical(), entry.local_address.port()))
        .collect();
    let is_session =
        |entry: &TcpNetEntry| listens.iter().any(|(_, port)| *port == entry.local_address.port());
    // Of a listener the kernel tells there how many wait (`get_tcp4_sock` in net/ipv4/tcp_ipv4.c).
    service.waiting =
        own.iter().filter(|entry| entry.state == TcpState::Listen).map(|entry| entry.rx_queue).sum();
    let connected = || own.iter().filter(|entry| entry.state == TcpState::Established);
    let sessions = connected().filter(|entry| is_session(entry)).count();
    service.sessions = u32::try_from(sessions).unwrap_or(u32::MAX);
    let outward = connected().filter(|entry| !is_session(entry));
    service.peers = ServiceSeen::count_peers(
        outward.map(|entry| (entry.remote_address.ip().to_canonical(), entry.remote_address.port())),
    );
    service.listens = listens.into_iter().collect();
}

/// How many descriptors a process may have (`/proc/PID/limits`, which everybody may read).
fn most_descriptors(pid: i32) -> Option<u64> {
    match Process::new(pid).ok()?.limits().ok()?.max_open_files.soft_limit {
        LimitValue::Value(limit) => Some(limit),
        LimitValue::Unlimited => None,
    }
}

/// Bytes of memory that this host has left.
fn meminfo_left() -> u64 {
    let info = Meminfo::current().ok();
    info.and_then(|info| info.mem_available).unwrap_or_default()
}

/// A number of a file of lines with a name and a number each.
fn field(group: &Cgroup, file: &str, name: &str) -> Option<u64> {
    let text = group.read(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// For how long some of a group have waited, by the text of a pressure file.
fn total(text: &str) -> Option<Duration> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let micros = some.split(' ').find_map(|field| field.strip_prefix("total="))?;
    micros.parse().ok().map(Duration::from_micros)
}

fn unavailable(error: &io::Error) -> ApiError {
    ApiError::new(ErrorCode::Unavailable, format!("look at descriptors as the caller: {error}"))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    fn process(pid: i32, cgroup: &str) -> Running {
        Running { cgroup: Some(PathBuf::from(cgroup)), ..Running::plain(pid, &format!("p{pid}")) }
    }

    #[test]
    fn a_process_is_of_its_container_or_else_its_unit_or_else_its_control_group_and_of_one_alone() {
        let id = "0123456789abcdef".repeat(4);
        let all = [
            process(10, "system.slice/shop.service"),
            process(11, "system.slice/shop.service/worker"),
            process(12, &format!("system.slice/docker-{id}.scope")),
            process(13, "loose/one"),
            process(14, ""),
        ];
        let found = groups(&all);
        let told: Vec<_> = found
            .iter()
            .map(|it| (it.target.names().concat(), it.processes.len(), it.folder.to_str().unwrap()))
            .collect();
        let container = format!("system.slice/docker-{id}.scope");
        assert_eq!(
            told,
            [
                ("unit shop.service".to_owned(), 2, "system.slice/shop.service"),
                ("container 0123456789ab".to_owned(), 1, container.as_str()),
                ("cgroup loose/one".to_owned(), 1, "loose/one"),
            ]
        );
        assert!(found[0].is_called("shop.service") && !found[0].is_called("shop"));
    }

    #[test]
    fn sessions_peers_and_those_that_wait_are_told_apart_by_who_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).unwrap();
        let far = listener.accept().unwrap().0;
        let _waits = TcpStream::connect(address).unwrap();
        let inode = |socket: &dyn std::os::fd::AsRawFd| {
            let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
            std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap())
        };
        let table = table(std::process::id().cast_signed());
        let mut server = ServiceSeen::default();
        of_sockets(&table, &[inode(&listener), inode(&far)].into(), &mut server);
        assert_eq!((server.sessions, server.waiting, server.peers.len()), (1, 1, 0));
        assert_eq!(server.listens, [(address.ip(), address.port())]);
        let mut client = ServiceSeen::default();
        of_sockets(&table, &[inode(&near)].into(), &mut client);
        let peer = &client.peers[0];
        assert_eq!((peer.address, peer.port, client.sessions), (address.ip(), address.port(), 0));
    }

    #[test]
    fn restarts_count_for_a_day_after_the_last_of_them() {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap();
        let unit =
            |active: &str, active_since| Unit { active: active.into(), active_since, ..Unit::default() };
        assert!(is_lately(&unit("active", now)) && is_lately(&unit("activating", Duration::ZERO)));
        // Of a host that has just started, everything is recent.
        assert_eq!(is_lately(&unit("active", Duration::ZERO)), now < DAY);
    }

    #[test]
    fn packets_go_by_the_interface_of_the_longest_prefix() {
        let routes = |all: &[&str]| Addressed {
            up: true,
            addresses: BTreeSet::new(),
            routes: all.iter().map(|net| net.parse().unwrap()).collect(),
        };
        let known = BTreeMap::from([
            ("eth0".to_owned(), routes(&["0.0.0.0/0", "10.1.0.0/16"])),
            ("eth1".to_owned(), routes(&["10.0.0.0/8"])),
        ]);
        let by = |address: [u8; 4]| way(&known, IpAddr::from(address));
        assert_eq!(by([10, 1, 0, 5]).as_deref(), Some("eth0"));
        assert_eq!(by([10, 2, 0, 5]).as_deref(), Some("eth1"));
        assert_eq!(by([192, 0, 2, 1]).as_deref(), Some("eth0"));
        assert_eq!(by([127, 0, 0, 1]).as_deref(), Some("lo"));
        assert_eq!(way(&BTreeMap::new(), IpAddr::from([10, 0, 0, 1])), None);
    }

    #[test]
    fn what_the_kernel_says_of_pressure_is_read_from_its_sum() {
        let text = "some avg10=1.50 avg60=0.25 avg300=0.00 total=1234567\nfull avg10=0.00 total=5\n";
        assert_eq!(total(text), Some(Duration::from_micros(1_234_567)));
        assert_eq!(total("full avg10=0.00 total=5\n"), None);
    }
}
