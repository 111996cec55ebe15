//! One pass over `/proc`: our own processes, who holds our packet programs, and every namespace that somebody is in or
//! holds open.
//!
//! What ends or changes while it is looked at is left out: it is not left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::holdings::Holdings;
use crate::host::mounts::{MountNamespaces, reach};
use crate::host::process::command_line;
use crate::host::{MountNamespace, NetNs, Part};
use crate::request::chain;

/// A process that is hung in the kernel stays in state D for longer than this; others are there for moments.
const HUNG: Duration = Duration::from_millis(50);

/// How long CPU time is watched.
const BURN_SPAN: Duration = Duration::from_millis(100);

/// What a process of ours is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The daemon itself.
    Injector,
    /// Its unprivileged part.
    Server,
    /// Takes samples for that.
    Prober,
    /// Runs programs for that, or is one of those that it starts itself for it.
    Runner,
    /// Ends supervised faults when no daemon does, and lives by itself.
    Guard,
    /// A fault.
    Holder,
    /// Somebody else, who holds packet programs of ours.
    Stranger,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) start_time: u64,
    pub(super) name: String,
    pub(super) role: Role,
    /// State of proc(5): R, S, D, T, t, Z, X, I. D only if it is hung.
    pub(super) state: char,
    /// Whether its first thread has ended and another has not: it was killed, and that one hangs in the kernel.
    pub(super) dying: bool,
    /// Ids of the programs, maps and links that it has open.
    pub(super) bpf: BpfIds,
    /// Files of ours it has open that have no name any more.
    pub(super) nameless: Vec<String>,
    /// Processes that it traces.
    pub(super) traces: Vec<i32>,
    /// What it has taken, if it is a holder.
    pub(super) holds: Holdings,
    /// An injector's `--runtime-dir`, as this process can reach it.
    pub(super) runtime_dir: Option<PathBuf>,
}

/// Ids of eBPF objects; of ours and of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BpfIds {
    pub(super) programs: BTreeSet<u32>,
    pub(super) maps: BTreeSet<u32>,
    pub(super) links: BTreeSet<u32>,
}

/// A network namespace that can be reached.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) netns: NetNs,
    /// For people: its name, or the process that has it.
    pub(super) label: String,
}

/// What the pass found.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) processes: Vec<Process>,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) mounts: Vec<MountNamespace>,
    pub(super) looked_at: u32,
    /// What could not be looked at.
    pub(super) unknown: Vec<String>,
}

/// Looks at everything that procfs shows.
///
/// # Errors
/// When procfs cannot be read at all.
pub(super) fn take() -> io::Result<Census> {
    let mut census = Census::default();
    let own = MountNamespace::own()?;
    let mut networks = Networks::new();
    let mut mounts = MountNamespaces::default();
    let mut traced: Vec<(i32, i32)> = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        census.looked_at += 1;
        let thread = thread_to_look_at(pid);
        let folder = folder_of(thread);
        for thread in entries(&folder.join("task")) {
            note_network(&mut networks, thread.join("ns/net"), pid);
            if let Err(error) = mounts.note(&thread) {
                census.unknown.push(format!("mounts of {}: {error}", thread.display()));
            }
        }
        traced.extend(tracer(&folder).map(|tracer| (tracer, pid)));
        let open = open_files(&folder);
        for path in &open.networks {
            note_network(&mut networks, path.clone(), pid);
        }
        census.processes.extend(process(pid, thread, open));
    }
    for holder in census.processes.iter_mut().filter(|process| process.role == Role::Holder) {
        let threads = folder_of(holder.pid).join("task");
        let by_it = |(tracer, _): &&(i32, i32)| threads.join(tracer.to_string()).exists();
        holder.traces = traced.iter().filter(by_it).map(|(_, pid)| *pid).collect();
    }
    census.mounts = mounts.into_vec();
    for namespace in &census.mounts {
        for (link, point) in namespace.networks() {
            let network = networks.entry(link.to_owned()).or_default();
            // A name is what people know; it goes before a process.
            network.label = format!("network namespace {}", name_of(&point));
            match namespace.hazard(&point, &own) {
                Some(kind) => {
                    network.hidden = Some(format!("behind a file system that may not answer ({kind})"))
                }
                None => network.mounts.push(namespace.reach(&point)),
            }
        }
    }
    let here = fs::read_link("/proc/thread-self/ns/net").map(|link| link.display().to_string());
    for (link, network) in networks {
        let label =
            if here.as_ref().is_ok_and(|here| *here == link) { String::new() } else { network.label.clone() };
        match network.open(&link) {
            Ok(Some(netns)) => census.namespaces.push(Namespace { netns, label }),
            Ok(None) => {}
            Err(problem) => census.unknown.push(format!("{label}: {problem}")),
        }
    }
    Ok(census)
}

fn folder_of(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The thread at which procfs shows what a process has: its first one, unless that has ended before the others.
fn thread_to_look_at(pid: i32) -> i32 {
    let folder = folder_of(pid);
    if Stat::read(&folder).is_none_or(|first| first.state != 'Z' || first.threads < 2) {
        return pid;
    }
    let lives = |thread: &PathBuf| Stat::read(thread).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'));
    let other = entries(&folder.join("task")).find(lives);
    other.and_then(|thread| thread.file_name()?.to_str()?.parse().ok()).unwrap_or(pid)
}

/// The thread that traces a process.
fn tracer(folder: &Path) -> Option<i32> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    tracer.trim().parse().ok().filter(|tracer| *tracer != 0)
}

/// Network namespaces by the text of their link, `net:[inode]`.
type Networks = BTreeMap<String, Network>;

/// Where a network namespace can be opened, and what to call it.
#[derive(Debug, Default)]
struct Network {
    /// By the first process that is in it or has it open.
    process: Option<PathBuf>,
    /// Where it is mounted.
    mounts: Vec<PathBuf>,
    label: String,
    /// Why nobody goes where it is mounted.
    hidden: Option<String>,
}

impl Network {
    /// Opens it; `None` when it has gone with its process meanwhile. What is mounted over it is not taken for it, and then it is
    /// there, and not seen.
    ///
    /// # Errors
    /// Says why it is not seen.
    fn open(self, link: &str) -> Result<Option<NetNs>, String> {
        let mut problem = self.hidden;
        let at = |path: &Path| NetNs::at(path).and_then(|netns| Ok((netns.number()?.1, netns)));
        match self.process.as_deref().map(at) {
            Some(Ok((inode, netns))) if link == format!("net:[{inode}]") => return Ok(Some(netns)),
            Some(Err(error)) if !error.has_gone() => problem = Some(chain(&error)),
            _ => {}
        }
        for path in self.mounts {
            match at(&path) {
                Ok((inode, netns)) if link == format!("net:[{inode}]") => return Ok(Some(netns)),
                Ok(_) => problem = Some(format!("another one is mounted over it at {}", path.display())),
                Err(error) => problem = Some(chain(&error)),
            }
        }
        problem.map_or(Ok(None), Err)
    }
}

fn name_of(point: &Path) -> String {
    let name = point.strip_prefix("/run/netns").or_else(|_| point.strip_prefix("/var/run/netns"));
    name.unwrap_or(point).display().to_string()
}

fn note_network(networks: &mut Networks, path: PathBuf, pid: i32) {
    let Ok(link) = fs::read_link(&path) else { return };
    let link = link.to_string_lossy().into_owned();
    if link.starts_with("net:[") {
        let label = format!("{link} (of process {pid})");
        networks.entry(link).or_insert_with(|| Network { process: Some(path), label, ..Network::default() });
    }
}

#[derive(Debug, Default)]
struct Open {
    networks: Vec<PathBuf>,
    bpf: BpfIds,
    nameless: Vec<String>,
}

/// What the descriptors of a process say without being opened: a file may be on a file system that does not answer.
fn open_files(folder: &Path) -> Open {
    let mut open = Open::default();
    for path in entries(&folder.join("fd")) {
        let Ok(target) = fs::read_link(&path) else { continue };
        let target = target.to_string_lossy();
        if target.starts_with("net:[") {
            open.networks.push(path);
        } else if target.starts_with("anon_inode:") && target.contains("bpf") {
            let fd = path.file_name().unwrap_or_default();
            let info = fs::read_to_string(folder.join("fdinfo").join(fd)).unwrap_or_default();
            open.bpf.note(&info);
        } else if let Some(file) = target.strip_suffix(" (deleted)")
            && super::places::is_our_file(file)
            && !open.nameless.iter().any(|other| other == file)
        {
            open.nameless.push(file.to_owned());
        }
    }
    open
}

impl BpfIds {
    /// Takes in the ids of one descriptor's fdinfo. That of a link names its program as well, which it keeps.
    fn note(&mut self, info: &str) {
        for line in info.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let ids = match key {
                "prog_id" => &mut self.programs,
                "map_id" => &mut self.maps,
                "link_id" => &mut self.links,
                _ => continue,
            };
            ids.extend(value.trim().parse::<u32>());
        }
    }

    fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty() && self.links.is_empty()
    }
}

/// The process, if it is one of ours or has to do with packet programs; looked at by this thread of it.
fn process(pid: i32, thread: i32, open: Open) -> Option<Process> {
    let stat = Stat::read(&folder_of(pid))?;
    let folder = &folder_of(thread);
    let dying = thread != pid;
    let role = role(folder, &stat);
    let role = match role {
        Some(role) => role,
        None if open.bpf.is_empty() && open.nameless.is_empty() => return None,
        None => Role::Stranger,
    };
    let mut state = stat.state;
    if state == 'D' && role == Role::Holder {
        std::thread::sleep(HUNG);
        state = Stat::read(folder).filter(|again| again.start_time == stat.start_time)?.state;
    }
    let holds = if role == Role::Holder { Holdings::read(folder) } else { Holdings::default() };
    let runtime_dir = (role == Role::Injector).then(|| runtime_dir(thread, folder));
    Some(Process {
        pid,
        parent: stat.parent,
        start_time: stat.start_time,
        name: stat.name,
        role,
        state,
        dying,
        bpf: open.bpf,
        nameless: open.nameless,
        traces: Vec::new(),
        holds,
        runtime_dir,
    })
}

struct Stat {
    name: String,
    state: char,
    parent: i32,
    threads: u64,
    start_time: u64,
}

impl Stat {
    fn read(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("stat")).ok()?;
        // The name may itself contain parentheses and blanks.
        let (start, end) = (text.find('(')?, text.rfind(')')?);
        let fields: Vec<&str> = text[end + 1..].split_whitespace().collect();
        Some(Self {
            name: text[start + 1..end].to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Ours are known by the name they give themselves. Anybody can take one: holders, injectors and guards are root's as well, and
/// a server, a prober, a runner and a guard run the daemon's program, unless they have ended.
fn role(folder: &Path, stat: &Stat) -> Option<Role> {
    let of_root = || fs::read_to_string(folder.join("status")).is_ok_and(|status| is_of_root(&status));
    match Part::named(&stat.name) {
        Some(Part::Holder) if of_root() => Some(Role::Holder),
        Some(Part::Server) if stat.state == 'Z' || runs_our_program(folder) => Some(Role::Server),
        Some(Part::Prober) if stat.state == 'Z' || runs_our_program(folder) => Some(Role::Prober),
        Some(Part::Runner) if stat.state == 'Z' || runs_our_program(folder) => Some(Role::Runner),
        Some(Part::Guard) if of_root() && (stat.state == 'Z' || runs_our_program(folder)) => {
            Some(Role::Guard)
        }
        // What is left of one that has ended says no more than its name; `chaos-daemon recover` has that, too.
        Some(Part::Injector) if of_root() && argument(folder, 1).as_deref() == Some("run") => {
            Some(Role::Injector)
        }
        // Not yet come to giving itself a name: started as /proc/self/exe.
        None if stat.name == "exe" && of_root() && runs_our_program(folder) => {
            match argument(folder, 1).as_deref() {
                Some("holder" | "keeper") => Some(Role::Holder),
                Some("server") => Some(Role::Server),
                Some("prober") => Some(Role::Prober),
                Some("runner") => Some(Role::Runner),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether root runs a process, by its status in procfs: its real and its saved user. A holder's effective one, by which files are
/// opened, may be a caller's. The owner of its folder is root as well when somebody else's may not be dumped (proc(5)), and a program of
/// root's that anybody starts keeps his real user.
fn is_of_root(status: &str) -> bool {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let users: Vec<_> = users.into_iter().flat_map(str::split_whitespace).collect();
    // Real, effective, saved, of files.
    matches!(users[..], ["0", _, "0", _])
}

/// Also when an upgrade has replaced the file, which then shows as deleted.
fn runs_our_program(folder: &Path) -> bool {
    let program = fs::read_link(folder.join("exe")).unwrap_or_default();
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("chaos-daemon"))
}

fn arguments(folder: &Path) -> Vec<String> {
    let bytes = command_line(folder).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn argument(folder: &Path, index: usize) -> Option<String> {
    arguments(folder).into_iter().nth(index)
}

fn runtime_dir(pid: i32, folder: &Path) -> PathBuf {
    let arguments = arguments(folder);
    let given =
        arguments.iter().enumerate().find_map(|(index, word)| match word.strip_prefix("--runtime-dir") {
            Some("") => arguments.get(index + 1).cloned(),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        });
    let given = PathBuf::from(given.unwrap_or_else(|| crate::request::RUNTIME_DIR.to_owned()));
    if given.is_absolute() { reach(pid, &given) } else { folder.join("cwd").join(given) }
}

/// Whether a process uses more CPU time than waking up now and then takes: the smallest burn is of one percent.
pub(super) fn burns(pid: i32) -> bool {
    // Nanoseconds on a processor, of each thread (Documentation/scheduler/sched-stats.rst).
    let used = || -> u64 {
        let threads = entries(&folder_of(pid).join("task"));
        let time = |thread: PathBuf| {
            let text = fs::read_to_string(thread.join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        threads.filter_map(time).sum()
    };
    let before = used();
    std::thread::sleep(BURN_SPAN);
    used().saturating_sub(before) > BURN_SPAN.as_nanos() as u64 / 200
}

/// What is in a directory; nothing when the process has ended meanwhile or is not ours to see.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_told_by_its_name_or_by_where_else_it_is_mounted() {
        assert_eq!(name_of(Path::new("/run/netns/blue one")), "blue one");
        assert_eq!(name_of(Path::new("/run/docker/netns/1")), "/run/docker/netns/1");
    }

    #[test]
    fn a_descriptor_says_which_object_it_is_of() {
        let mut ids = BpfIds::default();
        ids.note("pos:\t0\nflags:\t02000002\nlink_type:\ttcx\nlink_id:\t3\nprog_tag:\t0\nprog_id:\t12\nifindex:\t2\n");
        ids.note("map_type:\t2\nmap_id:\t7\nfrozen:\t0\n");
        assert_eq!((ids.links, ids.programs, ids.maps), ([3].into(), [12].into(), [7].into()));
    }

    #[test]
    fn a_namespace_is_opened_where_it_is_and_what_is_mounted_over_it_is_not_taken_for_it() {
        const HERE: &str = "/proc/thread-self/ns/net";
        let link = fs::read_link(HERE).unwrap().display().to_string();
        let of = |process: &str, mounts: &[&str]| Network {
            process: Some(process.into()),
            mounts: mounts.iter().map(PathBuf::from).collect(),
            ..Network::default()
        };
        assert!(of(HERE, &["/none"]).open(&link).unwrap().is_some());
        assert!(of("/none", &["/proc/self/ns/uts", HERE]).open(&link).unwrap().is_some());
        for gone in ["/none", HERE] {
            assert!(of(gone, &[]).open("net:[1]").unwrap().is_none(), "{gone}");
        }
        for covered in ["/none", "/proc/self/ns/uts", HERE] {
            let problem = of("/none", &[covered]).open("net:[1]").unwrap_err();
            assert!(problem.contains(covered), "{problem}");
        }
        let hidden = Network { hidden: Some("behind fuse".to_owned()), ..of("/none", &[]) };
        assert_eq!(hidden.open(&link).unwrap_err(), "behind fuse");
    }

    #[test]
    fn a_process_is_roots_when_its_real_and_its_saved_user_are_whoever_it_looks_at_files_as() {
        let is_roots = |users: &str| is_of_root(&format!("Name:\tsh\nUid:\t{users}\nGid:\t5\t5\t5\t5\n"));
        assert!(is_roots("0\t0\t0\t0") && is_roots("0\t1000\t0\t1000"));
        for users in ["1000\t0\t0\t0", "1000\t1000\t1000\t1000", "0\t1000\t1000\t0", ""] {
            assert!(!is_roots(users), "{users}");
        }
        assert!(!is_of_root(""));
    }

    #[test]
    fn this_process_is_counted_and_its_namespaces_are_found() {
        let census = take().unwrap();
        assert!(census.looked_at > 0);
        assert!(census.namespaces.iter().any(|namespace| namespace.label.is_empty()), "{census:?}");
        assert!(!census.mounts.is_empty());
    }
}
